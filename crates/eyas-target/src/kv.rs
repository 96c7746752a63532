//! The key/value cache of one sequence.
//!
//! Tokens lie in blocks of [`BLOCK_TOKENS`], each holding all layers, so that a sequence grows without copying and a finished one gives its
//! blocks to the next. Within a block, layer after layer: keys as `[n_kv_heads, head_dim, BLOCK_TOKENS]` (token axis last: the scores of
//! a whole block come out of one pass with no sum across lanes), then values as `[n_kv_heads, BLOCK_TOKENS, head_dim]`. f32, keys after rope.

use std::sync::{Arc, Mutex, PoisonError};

/// Tokens in a block of the cache.
pub const BLOCK_TOKENS: usize = 32;

/// Sizes that fix the layout of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub(crate) n_layers: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
}

impl KvShape {
    /// Values of one layer's keys in a block; as many again are its values.
    fn half_layer(&self) -> usize {
        self.n_kv_heads * self.head_dim * BLOCK_TOKENS
    }

    fn block_len(&self) -> usize {
        self.n_layers * 2 * self.half_layer()
    }

    /// Bytes one token takes.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.block_len() * size_of::<f32>() / BLOCK_TOKENS
    }
}

type Block = Box<[f32]>;

/// Blocks that were used before, shared by the caches of one model.
#[derive(Debug, Clone, Default)]
pub(crate) struct KvPool {
    free: Arc<Mutex<Vec<Block>>>,
}

impl KvPool {
    fn take(&self, len: usize) -> Block {
        let recycled = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // What a recycled block holds beyond the tokens written anew is never read.
        recycled.unwrap_or_else(|| vec![0.0; len].into_boxed_slice())
    }

    fn give(&self, blocks: impl IntoIterator<Item = Block>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(blocks);
    }
}

/// Keys and values of the tokens a sequence has gone through so far. Made by [`crate::LlamaModel::new_kv`].
#[derive(Debug)]
pub struct KvCache {
    shape: KvShape,
    pool: KvPool,
    blocks: Vec<Block>,
    len: usize,
}

impl KvCache {
    pub(crate) fn new(shape: KvShape, pool: KvPool) -> Self {
        Self { shape, pool, blocks: Vec::new(), len: 0 }
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `len` tokens (all of them, when there are fewer): what was drafted and rejected goes. Blocks that are now empty
    /// return to the pool.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.pool.give(self.blocks.drain(len.div_ceil(BLOCK_TOKENS)..));
        }
    }

    pub(crate) fn shape(&self) -> KvShape {
        self.shape
    }

    /// Makes room for `n` tokens beyond `len`; they count only after [`Self::advance`].
    pub(crate) fn reserve(&mut self, n: usize) {
        while self.blocks.len() * BLOCK_TOKENS < self.len + n {
            self.blocks.push(self.pool.take(self.shape.block_len()));
        }
    }

    /// Counts `n` tokens in, once all layers have written them.
    pub(crate) fn advance(&mut self, n: usize) {
        self.len += n;
    }

    /// Writes keys and values (`[n_kv_heads, head_dim]` each) of the token at `position`, which has been reserved, for one layer.
    pub(crate) fn write(&mut self, layer_idx: usize, position: usize, key: &[f32], value: &[f32]) {
        let KvShape { head_dim, .. } = self.shape;
        let half = self.shape.half_layer();
        let slot = position % BLOCK_TOKENS;
        let layer = &mut self.blocks[position / BLOCK_TOKENS][layer_idx * 2 * half..][..2 * half];
        let (keys, values) = layer.split_at_mut(half);
        // Heads follow each other in both, so that row `head * head_dim + i` of the keys is simply value `i` of the token.
        for (row, &key) in keys.chunks_exact_mut(BLOCK_TOKENS).zip(key) {
            row[slot] = key;
        }
        for (head, value) in values.chunks_exact_mut(BLOCK_TOKENS * head_dim).zip(value.chunks_exact(head_dim)) {
            head[slot * head_dim..][..head_dim].copy_from_slice(value);
        }
    }

    /// Keys (`[head_dim, BLOCK_TOKENS]`) and values (`[BLOCK_TOKENS, head_dim]`) of one head, block by block.
    #[inline(always)]
    pub(crate) fn head(&self, layer_idx: usize, kv_head: usize) -> impl Iterator<Item = (&[f32], &[f32])> {
        let half = self.shape.half_layer();
        let per_head = self.shape.head_dim * BLOCK_TOKENS;
        let at = layer_idx * 2 * half + kv_head * per_head;
        self.blocks.iter().map(move |block| (&block[at..][..per_head], &block[at + half..][..per_head]))
    }
}

impl Drop for KvCache {
    fn drop(&mut self) {
        self.pool.give(self.blocks.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_recycled_and_truncate_gives_them_back() {
        let pool = KvPool::default();
        let shape = KvShape { n_layers: 2, n_kv_heads: 1, head_dim: 4 };
        assert_eq!(shape.bytes_per_token(), 2 * 2 * 4 * 4);
        let free = || pool.free.lock().unwrap().len();
        let mut kv = KvCache::new(shape, pool.clone());
        kv.reserve(70);
        for position in 0..70 {
            let x = position as f32;
            for layer in 0..2 {
                kv.write(layer, position, &[x, x + 0.1, x + 0.2, x + 0.3], &[-x; 4]);
            }
        }
        kv.advance(70);
        let (keys, values) = kv.head(1, 0).nth(2).unwrap();
        assert_eq!((keys[BLOCK_TOKENS + 5], values[5 * 4]), (69.1, -69.0));

        kv.truncate(90);
        assert_eq!((kv.len(), free()), (70, 0));
        kv.truncate(64);
        assert_eq!((kv.len(), free()), (64, 1));
        kv.truncate(0);
        assert_eq!((kv.len(), kv.is_empty(), free()), (0, true, 3));
        kv.reserve(1);
        assert_eq!(free(), 2);
        drop(kv);
        assert_eq!(free(), 3);
    }
}
