//! The model once more, in f64, token by token, as the papers write it: what the real one is held against.

use crate::tiny::{Spec, Tensors};

/// Logits of the last position, and the residual stream at that position before each layer and after the last.
pub(crate) struct Naive {
    pub(crate) logits: Vec<f64>,
    pub(crate) taps: Vec<Vec<f64>>,
}

pub(crate) fn run(spec: &Spec, tensors: &Tensors, ids: &[u32]) -> Naive {
    let model = Model { spec, tensors, freqs: freqs(spec) };
    let embedding = model.get("model.embed_tokens.weight").unwrap();
    let hidden = spec.hidden_size;
    let mut xs: Vec<Vec<f64>> = ids.iter().map(|&id| to_f64(&embedding[id as usize * hidden..][..hidden])).collect();
    let mut taps = vec![xs[ids.len() - 1].clone()];
    for layer in 0..spec.n_layers {
        xs = model.layer(layer, &xs);
        taps.push(xs[ids.len() - 1].clone());
    }
    let last = model.norm("model.norm.weight", &taps[spec.n_layers]);
    let output = if spec.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
    let weight = model.get(output).unwrap();
    Naive { logits: matvec(weight, None, &last), taps }
}

struct Model<'a> {
    spec: &'a Spec,
    tensors: &'a Tensors,
    freqs: Vec<f64>,
}

impl Model<'_> {
    fn get(&self, name: &str) -> Option<&[f32]> {
        self.tensors.get(name).map(|(_, values)| &values[..])
    }

    fn linear(&self, layer: usize, part: &str, x: &[f64]) -> Vec<f64> {
        let name = format!("model.layers.{layer}.{part}");
        matvec(self.get(&format!("{name}.weight")).unwrap(), self.get(&format!("{name}.bias")), x)
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + self.spec.config()["rms_norm_eps"].as_f64().unwrap()).sqrt();
        x.iter().zip(self.get(name).unwrap()).map(|(v, &w)| v * scale * f64::from(w)).collect()
    }

    fn layer(&self, layer: usize, xs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let (mut queries, mut keys, mut values) = (vec![], vec![], vec![]);
        for (position, x) in xs.iter().enumerate() {
            let x = self.norm(&name("input_layernorm"), x);
            let heads = |part: &str, norm: &str| -> Vec<Vec<f64>> {
                let all = self.linear(layer, part, &x);
                all.chunks(self.spec.head_dim)
                    .map(|head| self.turn(position, self.head_norm(&name(norm), head)))
                    .collect()
            };
            queries.push(heads("self_attn.q_proj", "self_attn.q_norm"));
            keys.push(heads("self_attn.k_proj", "self_attn.k_norm"));
            values.push(self.linear(layer, "self_attn.v_proj", &x));
        }
        let attended = (0..xs.len()).map(|t| self.attend(&queries[t], &keys[..=t], &values));
        let outputs: Vec<_> = attended.map(|x| self.linear(layer, "self_attn.o_proj", &x)).collect();
        let after = xs.iter().zip(&outputs).map(|(x, o)| add(x, o));
        after
            .map(|x| {
                let normed = self.norm(&name("post_attention_layernorm"), &x);
                let gate = self.linear(layer, "mlp.gate_proj", &normed);
                let up = self.linear(layer, "mlp.up_proj", &normed);
                let both: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                add(&x, &self.linear(layer, "mlp.down_proj", &both))
            })
            .collect()
    }

    fn head_norm(&self, name: &str, head: &[f64]) -> Vec<f64> {
        if self.get(name).is_some() { self.norm(name, head) } else { head.to_vec() }
    }

    fn turn(&self, position: usize, head: Vec<f64>) -> Vec<f64> {
        let half = head.len() / 2;
        let mut out = head.clone();
        for i in 0..half {
            let (sin, cos) = (position as f64 * self.freqs[i]).sin_cos();
            out[i] = head[i] * cos - head[half + i] * sin;
            out[half + i] = head[half + i] * cos + head[i] * sin;
        }
        out
    }

    fn attend(&self, queries: &[Vec<f64>], keys: &[Vec<Vec<f64>>], values: &[Vec<f64>]) -> Vec<f64> {
        let (group, width) = (self.spec.n_heads / self.spec.n_kv_heads, self.spec.head_dim);
        let mut out = Vec::new();
        for (head, query) in queries.iter().enumerate() {
            let score = |key: &Vec<Vec<f64>>| dot(query, &key[head / group]) / (width as f64).sqrt();
            let weights: Vec<f64> = keys.iter().map(|key| score(key).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..width {
                let at = head / group * width + i;
                out.push(weights.iter().zip(values).map(|(w, value)| w / sum * value[at]).sum());
            }
        }
        out
    }
}

fn freqs(spec: &Spec) -> Vec<f64> {
    let config = spec.config();
    let plain = (0..spec.head_dim / 2)
        .map(|i| config["rope_theta"].as_f64().unwrap().powf(-2.0 * i as f64 / spec.head_dim as f64));
    let scaling = &config["rope_scaling"];
    let of = |key: &str| scaling[key].as_f64().unwrap();
    match scaling["rope_type"].as_str() {
        None => plain.collect(),
        Some("linear") => plain.map(|freq| freq / of("factor")).collect(),
        // As transformers' modeling_rope_utils writes it.
        Some("llama3") => plain
            .map(|freq| {
                let wavelength = 2.0 * std::f64::consts::PI / freq;
                let old = of("original_max_position_embeddings");
                if wavelength < old / of("high_freq_factor") {
                    freq
                } else if wavelength > old / of("low_freq_factor") {
                    freq / of("factor")
                } else {
                    let smooth =
                        (old / wavelength - of("low_freq_factor")) / (of("high_freq_factor") - of("low_freq_factor"));
                    (1.0 - smooth) * freq / of("factor") + smooth * freq
                }
            })
            .collect(),
        Some(other) => unreachable!("{other}"),
    }
}

fn matvec(weight: &[f32], bias: Option<&[f32]>, x: &[f64]) -> Vec<f64> {
    let rows = weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(&w, v)| f64::from(w) * v).sum::<f64>());
    rows.enumerate().map(|(i, sum)| sum + bias.map_or(0.0, |bias| f64::from(bias[i]))).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}
