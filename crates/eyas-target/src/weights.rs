//! Where weights come from, seen by the model as Hugging Face tensor names with the shapes it needs.

mod safetensors;

pub(crate) use self::safetensors::SafetensorsSource;

use crate::linear::{DenseDType, Linear};
use candle_core::quantized::QTensor;
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use std::path::PathBuf;

/// How the weights of the linear layers are held in memory. Norms, activations and the arithmetic are f32 in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightMode {
    /// Widened to f32: exact for every stored float type, fastest on a CPU for small models, 4 bytes a weight. The default.
    #[default]
    F32,
    /// Rounded to bf16 and widened as they are used: 2 bytes a weight. For a bf16 checkpoint the results are those of [`Self::F32`], to the bit.
    Bf16,
    /// Quantized again to GGML's Q8_0 (blocks of 32 signed bytes): 1.06 bytes a weight, activations quantized too.
    Q8_0,
    /// As stored: f32, f16 and bf16 stay; GGUF blocks stay quantized, some of them on slow scalar kernels (Q4_1, Q5_x).
    Native,
}

impl WeightMode {
    /// `f32`, `bf16`, `q8_0`, `native`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Native => "native",
        }
    }
}

impl std::str::FromStr for WeightMode {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        [Self::F32, Self::Bf16, Self::Q8_0, Self::Native]
            .into_iter()
            .find(|mode| mode.as_str() == s)
            .ok_or_else(|| format!("weight mode `{s}` is not known; known are f32, bf16, q8_0, native"))
    }
}

/// Why weights were refused.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// A file could not be read.
    #[error("cannot read `{path}`")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("`{path}` is damaged: {problem}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// How.
        problem: String,
    },
    /// The model needs a tensor that no file holds.
    #[error("tensor `{name}` is missing, the config needs it as {needed:?}")]
    Missing {
        /// Its name in the file.
        name: String,
        /// The shape the config asks for.
        needed: Vec<usize>,
    },
    /// A tensor has other sizes than the config says.
    #[error("tensor `{name}` is {found:?}, the config needs {needed:?}")]
    Shape {
        /// Its name in the file.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape the config asks for.
        needed: Vec<usize>,
    },
    /// A tensor's type is not one this crate widens.
    #[error("tensor `{name}` is stored as {found}; known are F32, F16, BF16")]
    DType {
        /// Its name in the file.
        name: String,
        /// Its type.
        found: String,
    },
    /// A layer has a tensor that the config gives no place: leaving it out would compute another model.
    #[error("tensor `{name}` has no place in the model of the config")]
    Unused {
        /// Its name in the file.
        name: String,
    },
    /// A row does not split into blocks of 32.
    #[error("tensor `{name}` has rows of {n_in} values; q8_0 needs a multiple of 32")]
    NotInBlocks {
        /// Its name in the file.
        name: String,
        /// Values in a row.
        n_in: usize,
    },
    /// candle refused it.
    #[error("cannot build the tensors")]
    Candle(#[from] candle_core::Error),
}

/// A store of tensors under their Hugging Face names.
pub(crate) trait WeightSource {
    /// The values, row-major, widened to f32.
    fn read(&mut self, name: &str, needed: &[usize]) -> Result<Vec<f32>, WeightError>;

    /// The type a native load keeps `name` in.
    fn native_dtype(&self, name: &str) -> DenseDType;

    /// The tensor as stored, for stores that are quantized; `None` for others.
    fn read_quantized(&mut self, name: &str, needed: &[usize]) -> Result<Option<QTensor>, WeightError>;

    /// Names of the tensors nobody has asked for.
    fn unread(&self) -> Vec<String>;

    /// One matrix out of those named, `[Σ n_out, n_in]`, in the given mode.
    fn linear(&mut self, parts: &[(String, usize)], n_in: usize, mode: WeightMode) -> Result<Linear, WeightError> {
        let quantized = match mode {
            WeightMode::Q8_0 => self.read_as_q8_0(parts, n_in)?,
            WeightMode::Native => self.read_all_quantized(parts, n_in)?,
            WeightMode::F32 | WeightMode::Bf16 => Vec::new(),
        };
        if !quantized.is_empty() {
            return Ok(Linear::quantized(quantized)?);
        }
        let dtype = match (mode, parts.first()) {
            (WeightMode::Bf16, _) => DenseDType::Bf16,
            (WeightMode::Native, Some((name, _))) => self.native_dtype(name),
            _ => DenseDType::F32,
        };
        let mut weight = Vec::new();
        for (name, n_out) in parts {
            weight.append(&mut self.read(name, &[*n_out, n_in])?);
        }
        Ok(Linear::dense(&weight, parts.iter().map(|(_, n_out)| n_out).sum(), n_in, dtype)?)
    }

    /// The parts named, each quantized anew.
    fn read_as_q8_0(&mut self, parts: &[(String, usize)], n_in: usize) -> Result<Vec<QTensor>, WeightError> {
        let mut tensors = Vec::new();
        for (name, n_out) in parts {
            if !n_in.is_multiple_of(32) {
                return Err(WeightError::NotInBlocks { name: name.clone(), n_in });
            }
            tensors.push(Linear::to_q8_0(self.read(name, &[*n_out, n_in])?, *n_out, n_in)?);
        }
        Ok(tensors)
    }

    /// The parts named, as stored; none where one of them is not quantized.
    fn read_all_quantized(&mut self, parts: &[(String, usize)], n_in: usize) -> Result<Vec<QTensor>, WeightError> {
        let mut tensors = Vec::new();
        for (name, n_out) in parts {
            match self.read_quantized(name, &[*n_out, n_in])? {
                Some(tensor) => tensors.push(tensor),
                None => return Ok(Vec::new()),
            }
        }
        Ok(tensors)
    }

    /// The embedding `[vocab_size, hidden_size]`, kept as stored.
    fn embedding(&mut self, name: &str, vocab_size: usize, width: usize) -> Result<Embedding, WeightError> {
        let needed = [vocab_size, width];
        if let Some(tensor) = self.read_quantized(name, &needed)? {
            return Ok(Embedding::Quantized(tensor));
        }
        let values = self.read(name, &needed)?;
        Ok(match self.native_dtype(name) {
            DenseDType::F32 => Embedding::F32(values),
            DenseDType::Bf16 => Embedding::Bf16(values.into_iter().map(bf16::from_f32).collect()),
            DenseDType::F16 => Embedding::F16(values.into_iter().map(f16::from_f32).collect()),
        })
    }
}

/// Refuses a shape that is not the needed one.
pub(crate) fn check_shape(name: &str, found: &[usize], needed: &[usize]) -> Result<(), WeightError> {
    if found == needed {
        return Ok(());
    }
    Err(WeightError::Shape { name: name.to_owned(), found: found.to_vec(), needed: needed.to_vec() })
}

/// Rows for token ids, `[vocab_size, hidden_size]`, in the type they were stored in (every one of which widens to f32 exactly).
pub(crate) enum Embedding {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
    Quantized(QTensor),
}

impl Embedding {
    /// The rows of `ids`, `[n, width]`. The ids are below the vocabulary size: the caller has looked.
    pub(crate) fn rows(&self, ids: &[u32], width: usize) -> candle_core::Result<Vec<f32>> {
        let rows = ids.iter().map(|&id| id as usize * width..(id as usize + 1) * width);
        Ok(match self {
            Self::F32(values) => rows.flat_map(|row| values[row].iter().copied()).collect(),
            Self::Bf16(values) => rows.flat_map(|row| values[row].iter().map(|v| v.to_f32())).collect(),
            Self::F16(values) => rows.flat_map(|row| values[row].iter().map(|v| v.to_f32())).collect(),
            Self::Quantized(tensor) => {
                let ids = Tensor::from_slice(ids, ids.len(), &Device::Cpu)?;
                tensor.embedding(&ids)?.flatten_all()?.to_vec1()?
            }
        })
    }
}

impl std::fmt::Debug for Embedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32(_) => "Embedding(f32)",
            Self::Bf16(_) => "Embedding(bf16)",
            Self::F16(_) => "Embedding(f16)",
            Self::Quantized(_) => "Embedding(quantized)",
        })
    }
}
