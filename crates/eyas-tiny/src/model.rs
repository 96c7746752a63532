//! The Llama that is trained: parameters under Hugging Face's names, and the forward pass over packed sequences.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, Var};
use eyas_nn::{RopeTable, Segments, packed_attention, rms_norm, rope, swiglu};

/// Sizes of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelConfig {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Layers.
    pub n_layers: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key-value heads.
    pub n_kv_heads: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Longest sequence, in tokens.
    pub max_positions: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// Added to the mean square in the norms.
    pub rms_norm_eps: f32,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            vocab_size: crate::tokenizer::VOCAB_SIZE,
            hidden_size: 128,
            n_layers: 5,
            n_heads: 4,
            n_kv_heads: 2,
            intermediate_size: 320,
            max_positions: 1024,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-5,
        }
    }
}

impl ModelConfig {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.n_heads
    }

    /// The parameters: name, shape, and the deviation of the initial values (`None`: ones).
    fn parameters(&self) -> Vec<(String, Vec<usize>, Option<f64>)> {
        let (h, q, kv) = (self.hidden_size, self.n_heads * self.head_dim(), self.n_kv_heads * self.head_dim());
        let inter = self.intermediate_size;
        let fan_in = |n: usize| Some(1.0 / (n as f64).sqrt());
        // Layers that write into the residual stream begin small, so that its size does not grow with depth.
        let into_residual = |n: usize| Some(1.0 / (2.0 * self.n_layers as f64 * n as f64).sqrt());
        let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, h], Some(0.7))];
        for layer in 0..self.n_layers {
            let name = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
            all.extend([
                (name("input_layernorm"), vec![h], None),
                (name("self_attn.q_proj"), vec![q, h], fan_in(h)),
                (name("self_attn.k_proj"), vec![kv, h], fan_in(h)),
                (name("self_attn.v_proj"), vec![kv, h], fan_in(h)),
                (name("self_attn.o_proj"), vec![h, q], into_residual(q)),
                (name("post_attention_layernorm"), vec![h], None),
                (name("mlp.gate_proj"), vec![inter, h], fan_in(h)),
                (name("mlp.up_proj"), vec![inter, h], fan_in(h)),
                (name("mlp.down_proj"), vec![h, inter], into_residual(inter)),
            ]);
        }
        all.push(("model.norm.weight".to_owned(), vec![h], None));
        all.push(("lm_head.weight".to_owned(), vec![self.vocab_size, h], Some(0.02)));
        all
    }
}

/// One layer's parameters.
pub(crate) struct Layer {
    pub(crate) input_norm: Tensor,
    pub(crate) q: Tensor,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
    pub(crate) o: Tensor,
    pub(crate) post_norm: Tensor,
    pub(crate) gate: Tensor,
    pub(crate) up: Tensor,
    pub(crate) down: Tensor,
}

/// The model. Its tensors are the variables themselves, so that an optimizer's step in place is seen at once.
pub struct Model {
    /// Its sizes.
    pub config: ModelConfig,
    /// Name and variable, in a fixed order.
    pub variables: Vec<(String, Var)>,
    pub(crate) embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Tensor,
    pub(crate) lm_head: Tensor,
    pub(crate) rope: RopeTable,
}

/// `x` (`[n, in]`) times the transpose of `weight` (`[out, in]`).
pub(crate) fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.matmul(&weight.t()?)
}

impl Model {
    /// A model with fresh weights; `init.rs` says how they are laid out.
    pub fn init(config: ModelConfig, seed: u64) -> Result<Self> {
        let parameters = config.parameters();
        let mut values = crate::init::values(&config, &parameters, seed);
        let mut tensors = HashMap::new();
        for (name, shape, _) in parameters {
            #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
            let values: Vec<f32> = values.remove(&name).unwrap_or_default().into_iter().map(|v| v as f32).collect();
            tensors.insert(name, Tensor::from_vec(values, shape, &Device::Cpu)?);
        }
        Self::from_tensors(config, &tensors)
    }

    /// A model with given weights, made f32.
    pub fn from_tensors(config: ModelConfig, tensors: &HashMap<String, Tensor>) -> Result<Self> {
        let mut variables = Vec::new();
        for (name, shape, _) in config.parameters() {
            let Some(tensor) = tensors.get(&name) else {
                candle_core::bail!("weight `{name}` is missing");
            };
            if tensor.dims() != shape {
                candle_core::bail!("weight `{name}` is {:?}, the config needs {shape:?}", tensor.dims());
            }
            variables.push((name, Var::from_tensor(&tensor.to_dtype(DType::F32)?)?));
        }
        let mut all = variables.iter().map(|(_, var)| var.as_tensor().clone());
        let mut next = || all.next().ok_or_else(|| candle_core::Error::Msg("too few parameters".to_owned()));
        let embedding = next()?;
        let mut layers = Vec::new();
        for _ in 0..config.n_layers {
            layers.push(Layer {
                input_norm: next()?,
                q: next()?,
                k: next()?,
                v: next()?,
                o: next()?,
                post_norm: next()?,
                gate: next()?,
                up: next()?,
                down: next()?,
            });
        }
        let (norm, lm_head) = (next()?, next()?);
        let rope = RopeTable::new(config.head_dim(), config.rope_theta, config.max_positions);
        Ok(Self { config, variables, embedding, layers, norm, lm_head, rope })
    }

    /// Number of parameters.
    pub fn n_parameters(&self) -> usize {
        self.variables.iter().map(|(_, var)| var.elem_count()).sum()
    }

    /// Logits at chosen tokens.
    ///
    /// `ids`: `[n_tokens]`, sequences packed end to end as `segments` says; `rows`: `[n_rows]`, indices into them.
    /// Returns `[n_rows, vocab_size]`.
    pub fn logits(&self, ids: &[u32], segments: &Segments, rows: &[u32]) -> Result<Tensor> {
        let eps = self.config.rms_norm_eps;
        let ids = Tensor::new(ids, &Device::Cpu)?;
        let positions: Arc<[u32]> = segments.positions();
        let mut hidden = self.embedding.index_select(&ids, 0)?;
        for layer in &self.layers {
            let x = rms_norm(&hidden, &layer.input_norm, eps)?;
            hidden = (hidden + self.attention(layer, &x, &positions, segments)?)?;
            let x = rms_norm(&hidden, &layer.post_norm, eps)?;
            let activated = swiglu(&linear(&x, &layer.gate)?, &linear(&x, &layer.up)?)?;
            hidden = (hidden + linear(&activated, &layer.down)?)?;
        }
        let chosen = hidden.index_select(&Tensor::new(rows, &Device::Cpu)?, 0)?;
        linear(&rms_norm(&chosen, &self.norm, eps)?, &self.lm_head)
    }

    fn attention(&self, layer: &Layer, x: &Tensor, positions: &Arc<[u32]>, segments: &Segments) -> Result<Tensor> {
        let (n_tokens, head_dim) = (x.dim(0)?, self.config.head_dim());
        let heads = |weight: &Tensor, n: usize| linear(x, weight)?.reshape((n_tokens, n, head_dim));
        let q = rope(&heads(&layer.q, self.config.n_heads)?, positions, &self.rope)?;
        let k = rope(&heads(&layer.k, self.config.n_kv_heads)?, positions, &self.rope)?;
        let v = heads(&layer.v, self.config.n_kv_heads)?;
        let out = packed_attention(&q, &k, &v, segments)?;
        linear(&out.reshape((n_tokens, self.config.n_heads * head_dim))?, &layer.o)
    }
}
