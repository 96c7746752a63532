//! Safetensors with metadata.
//!
//! candle's own `save` writes no metadata, and Hugging Face's loaders want `{"format": "pt"}`. Bytes are returned, not written:
//! how a file reaches the disk whole is the caller's business.

use std::collections::HashMap;

use candle_core::{DType, Tensor};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// Why tensors could not be turned into a file.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The dtype has no writer here.
    #[error("tensor `{name}` has dtype {dtype:?}: f32, bf16, f16, i64 and u32 can be saved")]
    Dtype {
        /// Name of the tensor.
        name: String,
        /// Its dtype.
        dtype: DType,
    },
    /// The values could not be read.
    #[error("tensor `{name}` cannot be read")]
    Read {
        /// Name of the tensor.
        name: String,
        /// What candle said.
        #[source]
        source: candle_core::Error,
    },
    /// The format refused them.
    #[error("tensors cannot be laid out as safetensors")]
    Layout(#[from] safetensors::SafeTensorError),
}

/// The bytes of a safetensors file that holds `tensors` and, as metadata, `{"format": "pt"}` and `extra`.
pub fn to_safetensors(tensors: &[(String, Tensor)], extra: &[(&str, String)]) -> Result<Vec<u8>, SaveError> {
    let raw = tensors.iter().map(|(name, tensor)| raw_bytes(name, tensor)).collect::<Result<Vec<_>, _>>()?;
    let mut views = Vec::with_capacity(raw.len());
    for ((name, tensor), (dtype, bytes)) in tensors.iter().zip(&raw) {
        views.push((name.as_str(), TensorView::new(*dtype, tensor.dims().to_vec(), bytes)?));
    }
    let mut metadata: HashMap<String, String> = extra.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    metadata.insert("format".to_owned(), "pt".to_owned());
    Ok(safetensors::serialize(views, Some(metadata))?)
}

fn raw_bytes(name: &str, tensor: &Tensor) -> Result<(Dtype, Vec<u8>), SaveError> {
    let read = |source| SaveError::Read { name: name.to_owned(), source };
    let flat = tensor.flatten_all().map_err(read)?;
    Ok(match tensor.dtype() {
        DType::F32 => (Dtype::F32, flat.to_vec1::<f32>().map_err(read)?.iter().flat_map(|v| v.to_le_bytes()).collect()),
        DType::BF16 => {
            (Dtype::BF16, flat.to_vec1::<half::bf16>().map_err(read)?.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
        DType::F16 => {
            (Dtype::F16, flat.to_vec1::<half::f16>().map_err(read)?.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
        DType::I64 => (Dtype::I64, flat.to_vec1::<i64>().map_err(read)?.iter().flat_map(|v| v.to_le_bytes()).collect()),
        DType::U32 => (Dtype::U32, flat.to_vec1::<u32>().map_err(read)?.iter().flat_map(|v| v.to_le_bytes()).collect()),
        dtype => return Err(SaveError::Dtype { name: name.to_owned(), dtype }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn what_is_saved_is_read_back_with_its_metadata() {
        let x = Tensor::new(&[[1f32, -2.5], [0.0, 4.0]], &Device::Cpu).unwrap();
        let tensors = vec![("b".to_owned(), x.to_dtype(DType::BF16).unwrap()), ("a".to_owned(), x.clone())];
        let bytes = to_safetensors(&tensors, &[("step", "7".to_owned())]).unwrap();
        let back = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
        assert_eq!(back["a"].to_vec2::<f32>().unwrap(), x.to_vec2::<f32>().unwrap());
        assert_eq!(back["b"].dtype(), DType::BF16);
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        assert_eq!((metadata["format"].as_str(), metadata["step"].as_str()), ("pt", "7"));
    }
}
