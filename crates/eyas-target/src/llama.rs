//! The forward pass of the Llama family.
//!
//! Tokens of all sequences lie flat, `[n_tokens, hidden_size]`, so that the linear layers see one tall matrix whatever the mix of prompts and
//! single tokens; attention alone looks at sequences. There is no padding and no mask.
//!
//! **Taps.** Tap `i` is the *input* of layer `i`, the residual stream before that layer's norm: tap 0 is the embedding, tap `n_layers` the
//! output of the last layer before the final norm. vLLM's `eagle_aux_hidden_state_layer_ids` and llama.cpp count this way; ids given to
//! SGLang name a layer's *output*, so tap = id + 1. In transformers tap `i` is `hidden_states[i]` for `i < n_layers` (its last entry is
//! after the final norm and no tap).

use crate::attention::{Seen, attend};
use crate::config::ModelConfig;
use crate::kv::{KvCache, KvPool, KvShape};
use crate::linear::{Linear, with_values};
use crate::math::{self, rope::Rope};
use crate::weights::{Embedding, WeightError, WeightMode, WeightSource};
use candle_core::{Device, Tensor};

/// A loaded model. Cheap to share behind an `Arc`; the caches it hands out are the callers' own.
#[derive(Debug)]
pub struct LlamaModel {
    config: ModelConfig,
    embedding: Embedding,
    layers: Vec<Layer>,
    final_norm: Vec<f32>,
    output: Linear,
    rope: Rope,
    kv_pool: KvPool,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Vec<f32>,
    /// q, k and v side by side: `[(n_heads + 2 n_kv_heads) head_dim, hidden_size]`.
    qkv: Linear,
    /// Weights of the norms on each head of q and k, where the family has them.
    qk_norm: Option<(Vec<f32>, Vec<f32>)>,
    attention_output: Linear,
    mlp_norm: Vec<f32>,
    /// gate and up side by side: `[2 intermediate_size, hidden_size]`.
    gate_up: Linear,
    down: Linear,
}

/// Tokens to go through the model in one step, as the continuation of a sequence.
#[derive(Debug)]
pub struct Segment<'a> {
    /// The next ids of the sequence: a prompt, a piece of one, or the last token.
    pub ids: &'a [u32],
    /// The sequence so far; it grows by `ids`.
    pub kv: &'a mut KvCache,
}

/// What a step computes. Rows are the tokens of all segments, one segment after the other.
#[derive(Debug)]
pub struct Hidden {
    /// Output of the last layer, `[n_tokens, hidden_size]`, f32, **before** the final norm. See [`LlamaModel::final_norm`].
    pub last: Tensor,
    /// One tensor for each tap asked for, in the order asked, `[n_tokens, hidden_size]`, f32, before any norm.
    pub taps: Vec<Tensor>,
}

/// Why a step did not run. The caches are as before.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// There are no tokens.
    #[error("the step has no tokens")]
    Empty,
    /// An id that the model has no embedding for.
    #[error("token id {id} is outside the vocabulary of {vocab_size}")]
    TokenOutOfVocabulary {
        /// The id.
        id: u32,
        /// Ids must be below this.
        vocab_size: usize,
    },
    /// A tap that is no layer.
    #[error("tap {tap} is not one of 0 to {n_layers}")]
    UnknownTap {
        /// The tap.
        tap: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// A cache of another model.
    #[error("a cache of {found} layers, heads and head width was given, the model has {needed}")]
    ForeignCache {
        /// Of the cache.
        found: String,
        /// Of the model.
        needed: String,
    },
    /// candle failed.
    #[error("the step failed in a tensor operation")]
    Candle(#[from] candle_core::Error),
}

impl LlamaModel {
    pub(crate) fn load(
        config: ModelConfig,
        source: &mut dyn WeightSource,
        mode: WeightMode,
        inv_freq: Vec<f32>,
    ) -> Result<Self, WeightError> {
        let width = config.hidden_size;
        let embedding_name = "model.embed_tokens.weight";
        let embedding = source.embedding(embedding_name, config.vocab_size, width)?;
        let layers = (0..config.n_layers).map(|i| Layer::load(&config, i, source, mode)).collect::<Result<_, _>>()?;
        let final_norm = source.read("model.norm.weight", &[width])?;
        let output_name = if config.tie_word_embeddings { embedding_name } else { "lm_head.weight" };
        let output = source.linear(&[(output_name.to_owned(), config.vocab_size)], width, mode)?;
        refuse_unused(source, config.n_layers)?;
        Ok(Self {
            config,
            embedding,
            layers,
            final_norm,
            output,
            rope: Rope::new(inv_freq),
            kv_pool: KvPool::default(),
        })
    }

    /// Sizes and variants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Number of weights; a tied output layer counts once.
    pub fn n_params(&self) -> usize {
        let config = &self.config;
        let embedding = config.vocab_size * config.hidden_size;
        let output = if config.tie_word_embeddings { 0 } else { self.output.n_params() };
        embedding + output + self.final_norm.len() + self.layers.iter().map(Layer::n_params).sum::<usize>()
    }

    /// Bytes of cache that one token takes.
    pub fn kv_bytes_per_token(&self) -> usize {
        self.kv_shape().bytes_per_token()
    }

    /// An empty cache for one sequence. Its memory comes from, and goes back to, a pool of the model.
    pub fn new_kv(&self) -> KvCache {
        KvCache::new(self.kv_shape(), self.kv_pool.clone())
    }

    /// Runs the tokens of `segments` through all layers and appends them to their caches.
    ///
    /// Each sequence's result is the same, to the bit, as if it had been alone and in one piece, with dense weights (see
    /// [`WeightMode`]; quantized kernels agree only up to rounding). Positions are not checked against
    /// [`ModelConfig::context_len`]: rope goes on beyond, the model's sense does not.
    pub fn forward(&self, segments: &mut [Segment<'_>], taps: &[usize]) -> Result<Hidden, ForwardError> {
        let ids = self.check(segments, taps)?;
        let width = self.config.hidden_size;
        let step = Step::plan(segments, &self.rope);
        for segment in segments.iter_mut() {
            segment.kv.reserve(segment.ids.len());
        }
        let mut x = self.embedding.rows(&ids, width)?;
        let mut tapped = vec![None; taps.len()];
        for layer_idx in 0..=self.layers.len() {
            for (slot, _) in tapped.iter_mut().zip(taps).filter(|&(_, &tap)| tap == layer_idx) {
                *slot = Some(Tensor::from_slice(&x, (ids.len(), width), &Device::Cpu)?);
            }
            if let Some(layer) = self.layers.get(layer_idx) {
                self.run_layer(layer, layer_idx, &step, segments, &mut x)?;
            }
        }
        for segment in segments.iter_mut() {
            segment.kv.advance(segment.ids.len());
        }
        let last = Tensor::from_vec(x, (ids.len(), width), &Device::Cpu)?;
        Ok(Hidden { last, taps: tapped.into_iter().flatten().collect() })
    }

    /// Hidden states `[n, hidden_size]` through the final norm.
    pub fn final_norm(&self, hidden: &Tensor) -> Result<Tensor, ForwardError> {
        let hidden = hidden.contiguous()?;
        let mut out = vec![0f32; hidden.elem_count()];
        with_values(&hidden, |x| math::rms_norm(x, &self.final_norm, self.eps(), &mut out))?;
        Ok(Tensor::from_vec(out, hidden.shape(), &Device::Cpu)?)
    }

    /// Logits `[n, vocab_size]` of hidden states `[n, hidden_size]` *after* the final norm.
    pub fn logits(&self, normed: &Tensor) -> Result<Tensor, ForwardError> {
        let logits = self.output.forward(normed)?;
        Ok(Tensor::from_vec(logits, (normed.dim(0)?, self.config.vocab_size), &Device::Cpu)?)
    }

    /// The ids of all segments, once everything is found to be usable.
    fn check(&self, segments: &[Segment<'_>], taps: &[usize]) -> Result<Vec<u32>, ForwardError> {
        let (vocab_size, n_layers) = (self.config.vocab_size, self.layers.len());
        let ids: Vec<u32> = segments.iter().flat_map(|segment| segment.ids.iter().copied()).collect();
        if ids.is_empty() {
            return Err(ForwardError::Empty);
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ForwardError::TokenOutOfVocabulary { id, vocab_size });
        }
        if let Some(&tap) = taps.iter().find(|&&tap| tap > n_layers) {
            return Err(ForwardError::UnknownTap { tap, n_layers });
        }
        let needed = self.kv_shape();
        if let Some(segment) = segments.iter().find(|segment| segment.kv.shape() != needed) {
            let found = format!("{:?}", segment.kv.shape());
            return Err(ForwardError::ForeignCache { found, needed: format!("{needed:?}") });
        }
        Ok(ids)
    }

    fn run_layer(
        &self,
        layer: &Layer,
        layer_idx: usize,
        step: &Step,
        segments: &mut [Segment<'_>],
        x: &mut [f32],
    ) -> Result<(), ForwardError> {
        let normed = self.normed(x, &layer.attention_norm)?;
        let mut qkv = layer.qkv.forward(&normed)?;
        self.prepare_heads(layer, layer_idx, step, segments, &mut qkv);
        let attention = self.attention(layer_idx, step, segments, &qkv)?;
        math::add_assign(x, &layer.attention_output.forward(&attention)?);

        let normed = self.normed(x, &layer.mlp_norm)?;
        let gate_up = layer.gate_up.forward(&normed)?;
        let width = self.config.intermediate_size;
        let mut activated = vec![0f32; gate_up.len() / 2];
        math::silu_mul(&gate_up, width, &mut activated);
        let activated = Tensor::from_vec(activated, (step.seen.len(), width), &Device::Cpu)?;
        math::add_assign(x, &layer.down.forward(&activated)?);
        Ok(())
    }

    /// Norms and turns the heads of q and k in place, and writes k and v to the caches.
    fn prepare_heads(
        &self,
        layer: &Layer,
        layer_idx: usize,
        step: &Step,
        segments: &mut [Segment<'_>],
        qkv: &mut [f32],
    ) {
        let config = &self.config;
        let (q_len, kv_len) = (config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim);
        for ((row, seen), token) in step.seen.iter().enumerate().zip(qkv.chunks_exact_mut(config.qkv_size())) {
            let (query, rest) = token.split_at_mut(q_len);
            let (key, value) = rest.split_at_mut(kv_len);
            if let Some((query_norm, key_norm)) = &layer.qk_norm {
                norm_in_place(query, query_norm, self.eps());
                norm_in_place(key, key_norm, self.eps());
            }
            step.angles.rotate(row, query);
            step.angles.rotate(row, key);
            segments[seen.sequence].kv.write(layer_idx, seen.n_tokens - 1, key, value);
        }
    }

    /// `[n_tokens, n_heads * head_dim]`.
    fn attention(
        &self,
        layer_idx: usize,
        step: &Step,
        segments: &[Segment<'_>],
        qkv: &[f32],
    ) -> Result<Tensor, ForwardError> {
        let width = self.config.n_heads * self.config.head_dim;
        let mut out = vec![0f32; step.seen.len() * width];
        let caches: Vec<&KvCache> = segments.iter().map(|segment| &*segment.kv).collect();
        attend(&caches, layer_idx, &step.seen, qkv, self.config.qkv_size(), &mut out);
        Ok(Tensor::from_vec(out, (step.seen.len(), width), &Device::Cpu)?)
    }

    fn normed(&self, x: &[f32], weight: &[f32]) -> Result<Tensor, ForwardError> {
        let mut out = vec![0f32; x.len()];
        math::rms_norm(x, weight, self.eps(), &mut out);
        Ok(Tensor::from_vec(out, (x.len() / weight.len(), weight.len()), &Device::Cpu)?)
    }

    #[expect(clippy::cast_possible_truncation, reason = "configs write a decimal, the arithmetic is f32")]
    fn eps(&self) -> f32 {
        self.config.rms_norm_eps as f32
    }

    fn kv_shape(&self) -> KvShape {
        let ModelConfig { n_layers, n_kv_heads, head_dim, .. } = self.config;
        KvShape { n_layers, n_kv_heads, head_dim }
    }
}

fn norm_in_place(heads: &mut [f32], weight: &[f32], eps: f32) {
    let unnormed = heads.to_vec();
    math::rms_norm(&unnormed, weight, eps, heads);
}

/// Where the tokens of a step stand: the same for all layers.
struct Step {
    seen: Vec<Seen>,
    angles: math::rope::Angles,
}

impl Step {
    fn plan(segments: &[Segment<'_>], rope: &Rope) -> Self {
        let seen: Vec<Seen> = segments
            .iter()
            .enumerate()
            .flat_map(|(sequence, segment)| {
                let first = segment.kv.len() + 1;
                (first..first + segment.ids.len()).map(move |n_tokens| Seen { sequence, n_tokens })
            })
            .collect();
        let angles = rope.angles(seen.iter().map(|seen| seen.n_tokens - 1));
        Self { seen, angles }
    }
}

impl Layer {
    fn load(
        config: &ModelConfig,
        layer_idx: usize,
        source: &mut dyn WeightSource,
        mode: WeightMode,
    ) -> Result<Self, WeightError> {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let (q_len, kv_len) = (config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim);
        let name = |part: &str| format!("model.layers.{layer_idx}.{part}");
        let mut linear = |parts: &[(&str, usize)], n_in: usize, bias: bool| {
            let weights: Vec<_> = parts.iter().map(|&(part, n)| (name(&format!("{part}.weight")), n)).collect();
            let linear = source.linear(&weights, n_in, mode)?;
            let mut values = Vec::new();
            for &(part, n) in parts.iter().filter(|_| bias) {
                values.append(&mut source.read(&name(&format!("{part}.bias")), &[n])?);
            }
            Ok::<_, WeightError>(linear.with_bias(bias.then_some(values)))
        };
        let qkv = [("self_attn.q_proj", q_len), ("self_attn.k_proj", kv_len), ("self_attn.v_proj", kv_len)];
        let qkv = linear(&qkv, hidden, config.qkv_bias)?;
        let attention_output = linear(&[("self_attn.o_proj", hidden)], q_len, config.output_bias)?;
        let gate_up =
            linear(&[("mlp.gate_proj", intermediate), ("mlp.up_proj", intermediate)], hidden, config.mlp_bias)?;
        let down = linear(&[("mlp.down_proj", hidden)], intermediate, config.mlp_bias)?;
        let mut norm = |part: &str, width: usize| source.read(&name(&format!("{part}.weight")), &[width]);
        let qk_norm = match config.qk_norm {
            true => Some((norm("self_attn.q_norm", config.head_dim)?, norm("self_attn.k_norm", config.head_dim)?)),
            false => None,
        };
        let attention_norm = norm("input_layernorm", hidden)?;
        let mlp_norm = norm("post_attention_layernorm", hidden)?;
        Ok(Self { attention_norm, qkv, qk_norm, attention_output, mlp_norm, gate_up, down })
    }

    fn n_params(&self) -> usize {
        let linears = [&self.qkv, &self.attention_output, &self.gate_up, &self.down];
        let norms = self.attention_norm.len() + self.mlp_norm.len();
        let qk_norms = self.qk_norm.as_ref().map_or(0, |(q, k)| q.len() + k.len());
        norms + qk_norms + linears.map(Linear::n_params).iter().sum::<usize>()
    }
}

/// A tensor of a layer that was not read (a bias, an extra norm) means that the config describes another model. Old checkpoints store
/// rope's frequencies, which follow from the config.
fn refuse_unused(source: &dyn WeightSource, n_layers: usize) -> Result<(), WeightError> {
    let in_a_layer = |name: &str| {
        let rest = name.strip_prefix("model.layers.").or_else(|| name.strip_prefix("blk."))?;
        rest.split_once('.')?.0.parse::<usize>().ok()
    };
    let unused = source.unread().into_iter().find(|name| {
        in_a_layer(name).is_some_and(|layer_idx| layer_idx < n_layers) && !name.ends_with("rotary_emb.inv_freq")
    });
    unused.map_or(Ok(()), |name| Err(WeightError::Unused { name }))
}
