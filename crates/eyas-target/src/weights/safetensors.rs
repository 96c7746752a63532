//! Weights from `model.safetensors`, or from the shards that `model.safetensors.index.json` lists. Only headers are held; a tensor is read when
//! it is asked for.

use super::{WeightError, WeightSource, check_shape};
use crate::linear::DenseDType;
use ::safetensors::Dtype;
use ::safetensors::tensor::{Metadata, TensorInfo};
use candle_core::quantized::QTensor;
use half::{bf16, f16};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Name of the file that lists the shards.
const INDEX: &str = "model.safetensors.index.json";
/// Name of the only file where there are no shards.
const SINGLE: &str = "model.safetensors";
/// A header longer than this is taken for damage, as the format's own reader does.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The safetensors files of a folder.
#[derive(Debug)]
pub(crate) struct SafetensorsSource {
    shards: Vec<Shard>,
    /// Tensor name → shard.
    places: HashMap<String, usize>,
    read: HashSet<String>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    file: File,
    header: Metadata,
    data_offset: u64,
}

impl SafetensorsSource {
    pub(crate) fn open(folder: &Path) -> Result<Self, WeightError> {
        let mut shards = Vec::new();
        let mut places = HashMap::new();
        for path in weight_files(folder)? {
            let shard = Shard::open(path)?;
            places.extend(shard.header.tensors().into_keys().map(|name| (name, shards.len())));
            shards.push(shard);
        }
        Ok(Self { shards, places, read: HashSet::new() })
    }

    /// Paths of the files.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.shards.iter().map(|shard| shard.path.clone()).collect()
    }

    fn info(&self, name: &str) -> Option<(usize, &TensorInfo)> {
        let shard_idx = *self.places.get(name)?;
        Some((shard_idx, self.shards[shard_idx].header.info(name)?))
    }
}

/// The files that make up the model in `folder`, sorted.
fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, WeightError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index = folder.join(INDEX);
    if !index.exists() {
        return Ok(vec![folder.join(SINGLE)]);
    }
    let text = std::fs::read_to_string(&index).map_err(|source| WeightError::Io { path: index.clone(), source })?;
    let parsed: Index = serde_json::from_str(&text)
        .map_err(|error| WeightError::Damaged { path: index.clone(), problem: error.to_string() })?;
    let mut names: Vec<_> = parsed.weight_map.into_values().collect();
    names.sort_unstable();
    names.dedup();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, WeightError> {
        let io = |source| WeightError::Io { path: path.clone(), source };
        let damaged = |problem: String| WeightError::Damaged { path: path.clone(), problem };
        let mut file = File::open(&path).map_err(io)?;
        let file_len = file.metadata().map_err(io)?.len();
        let mut len = [0u8; 8];
        file.read_exact(&mut len).map_err(io)?;
        let header_len = u64::from_le_bytes(len);
        if header_len > MAX_HEADER_BYTES || header_len + 8 > file_len {
            return Err(damaged(format!("it says its header has {header_len} bytes, the file has {file_len}")));
        }
        let mut header = Vec::new();
        file.by_ref().take(header_len).read_to_end(&mut header).map_err(io)?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(error.to_string()))?;
        let data_offset = 8 + header_len;
        let needed = data_offset + header.data_len() as u64;
        if needed != file_len {
            return Err(damaged(format!("its header accounts for {needed} bytes, the file has {file_len}")));
        }
        Ok(Self { path, file, header, data_offset })
    }

    fn bytes(&mut self, offsets: (usize, usize)) -> Result<Vec<u8>, WeightError> {
        let mut bytes = vec![0; offsets.1 - offsets.0];
        self.file
            .seek(SeekFrom::Start(self.data_offset + offsets.0 as u64))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|source| WeightError::Io { path: self.path.clone(), source })?;
        Ok(bytes)
    }
}

impl WeightSource for SafetensorsSource {
    fn read(&mut self, name: &str, needed: &[usize]) -> Result<Vec<f32>, WeightError> {
        let Some((shard_idx, info)) = self.info(name) else {
            return Err(WeightError::Missing { name: name.to_owned(), needed: needed.to_vec() });
        };
        check_shape(name, &info.shape, needed)?;
        let (dtype, offsets) = (info.dtype, info.data_offsets);
        let bytes = self.shards[shard_idx].bytes(offsets)?;
        let values = match dtype {
            Dtype::F32 => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
            Dtype::BF16 => bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
            Dtype::F16 => bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
            other => return Err(WeightError::DType { name: name.to_owned(), found: format!("{other:?}") }),
        };
        self.read.insert(name.to_owned());
        Ok(values)
    }

    fn native_dtype(&self, name: &str) -> DenseDType {
        match self.info(name).map(|(_, info)| info.dtype) {
            Some(Dtype::BF16) => DenseDType::Bf16,
            Some(Dtype::F16) => DenseDType::F16,
            _ => DenseDType::F32,
        }
    }

    fn read_quantized(&mut self, _name: &str, _needed: &[usize]) -> Result<Option<QTensor>, WeightError> {
        Ok(None)
    }

    fn unread(&self) -> Vec<String> {
        let mut names: Vec<_> = self.places.keys().filter(|name| !self.read.contains(*name)).cloned().collect();
        names.sort_unstable();
        names
    }
}
