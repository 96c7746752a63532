//! Borrowing the f32 values of CPU tensors.

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, DType, Layout, Result, Storage, Tensor, bail};

/// Whether a fused operation can run on `tensor`: f32 on the CPU.
pub(crate) fn is_fusable(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && tensor.dtype() == DType::F32
}

/// The values of a contiguous f32 storage, as a custom operation's forward pass gets them.
pub(crate) fn storage_slice<'a>(storage: &'a CpuStorage, layout: &Layout, op: &str) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: input of layout {layout:?} is not contiguous");
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// A read lock on a contiguous f32 CPU tensor, as a custom operation's backward pass needs it.
pub(crate) struct Floats<G> {
    guard: G,
    range: Range<usize>,
}

/// Locks the values of `tensor` for reading.
pub(crate) fn floats(tensor: &Tensor) -> Result<Floats<impl Deref<Target = Storage>>> {
    let (guard, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("tensor of layout {layout:?} is not contiguous");
    };
    if !matches!(&*guard, Storage::Cpu(CpuStorage::F32(_))) {
        bail!("tensor of dtype {:?} on {:?} is not f32 on the cpu", tensor.dtype(), tensor.device());
    }
    Ok(Floats { guard, range: start..end })
}

impl<G: Deref<Target = Storage>> Floats<G> {
    pub(crate) fn get(&self) -> &[f32] {
        match &*self.guard {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            _ => &[],
        }
    }
}
