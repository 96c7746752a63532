//! The first values of the weights: random, but for two circuits that copying needs and that a small model finds late.
//!
//! Every task of the corpus copies: the next letter of a word, a number out of the prompt, the row of a table. A Llama learns
//! to copy by an *induction* pair: a head that tells each token what stood before it, and a later head that looks for places
//! where the token before was the present one. From random weights a model of this size spends a good part of its training
//! on a plateau until the pair appears. So the pair is laid in at the start, roughly, for training to refine:
//!
//! - Channel 0 of every embedding is the same constant, from which queries and keys that depend on position alone are made: in
//!   layer 0, head `h` looks `h + 1` tokens back.
//! - What head 0 of layer 0 reads is written into directions `Q` of the residual stream, orthogonal to the directions `R` in which
//!   tokens are compared; head 0 of layer 1 compares the present token in `R` with what lies in `Q`, in its slow rotary pairs.

use std::collections::HashMap;

use crate::model::ModelConfig;
use crate::rng::Rng;

/// Deviation of the embeddings.
const EMBEDDING: f64 = 0.7;
/// The constant in channel 0.
const CONSTANT: f64 = 4.0;
/// Dimensions in which tokens are compared.
const N_CODE: usize = 16;

/// The initial values, by name, row by row. `parameters`: name, shape, deviation (`None`: ones).
pub(crate) fn values(
    config: &ModelConfig,
    parameters: &[(String, Vec<usize>, Option<f64>)],
    seed: u64,
) -> HashMap<String, Vec<f64>> {
    let mut rng = Rng::new(seed, 3_000_000_000);
    let mut values: HashMap<String, Vec<f64>> = parameters
        .iter()
        .map(|(name, shape, deviation)| {
            let n: usize = shape.iter().product();
            let values = match deviation {
                Some(deviation) => (0..n).map(|_| rng.normal() * deviation).collect(),
                None => vec![1.0; n],
            };
            (name.clone(), values)
        })
        .collect();
    if config.n_layers >= 3 && config.head_dim() >= 2 * N_CODE && config.n_heads == 4 && config.n_kv_heads == 2 {
        lay_induction(config, &mut values, &mut rng);
    }
    values
}

/// The shape of a weight matrix that is being written to: `[rows, width]`.
struct Matrix<'a> {
    values: &'a mut [f64],
    width: usize,
}

impl Matrix<'_> {
    fn row(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.width..(row + 1) * self.width]
    }
}

fn lay_induction(config: &ModelConfig, values: &mut HashMap<String, Vec<f64>>, rng: &mut Rng) {
    let (hidden, d) = (config.hidden_size, config.head_dim());
    let half = d / 2;
    let mut edit = |name: &str, change: &mut dyn FnMut(Matrix<'_>)| {
        if let Some(values) = values.get_mut(name) {
            change(Matrix { values, width: hidden });
        }
    };
    edit("model.embed_tokens.weight", &mut |mut m| (0..config.vocab_size).for_each(|row| m.row(row)[0] = CONSTANT));

    // Heads that look a fixed way back. The score where the offset fits is about `strength`², before the division by √d.
    let normed = CONSTANT / (EMBEDDING * EMBEDDING + CONSTANT * CONSTANT / hidden as f64).sqrt();
    let angle = |pair: usize| config.rope_theta.powf(-2.0 * pair as f64 / d as f64);
    for (layer, offsets, strength) in [(0, [1, 2, 3, 5], 7.5 / normed), (2, [4, 6, 7, 8], 12.0 / normed)] {
        edit(&format!("model.layers.{layer}.self_attn.q_proj.weight"), &mut |mut m| {
            m.values.iter_mut().for_each(|v| *v *= 0.05);
            for head in 0..config.n_heads {
                for pair in 0..half / 2 {
                    let turn = angle(pair) * f64::from(offsets[head % offsets.len()]);
                    m.row(head * d + pair)[0] = strength * turn.cos();
                    m.row(head * d + half + pair)[0] = -strength * turn.sin();
                }
            }
        });
        edit(&format!("model.layers.{layer}.self_attn.k_proj.weight"), &mut |mut m| {
            m.values.iter_mut().for_each(|v| *v *= 0.05);
            for head in 0..config.n_kv_heads {
                for pair in 0..half / 2 {
                    m.row(head * d + pair)[0] = strength;
                    m.row(head * d + half + pair)[0] = 0.0;
                }
            }
        });
    }

    // Orthogonal directions that leave channel 0 alone: tokens as they are, one back, two back.
    let mut directions: Vec<Vec<f64>> = Vec::new();
    while directions.len() < 3 * N_CODE {
        let mut fresh: Vec<f64> = (0..hidden).map(|_| rng.normal()).collect();
        fresh[0] = 0.0;
        for known in &directions {
            let along: f64 = fresh.iter().zip(known).map(|(a, b)| a * b).sum();
            fresh.iter_mut().zip(known).for_each(|(a, b)| *a -= along * b);
        }
        let norm = fresh.iter().map(|a| a * a).sum::<f64>().sqrt();
        directions.push(fresh.into_iter().map(|a| a / norm).collect());
    }
    let own = &directions[..N_CODE];
    let back = [&directions[N_CODE..2 * N_CODE], &directions[2 * N_CODE..]];
    edit("model.layers.0.self_attn.v_proj.weight", &mut |mut m| {
        own.iter().enumerate().for_each(|(i, direction)| m.row(i).copy_from_slice(direction));
    });
    edit("model.layers.0.self_attn.o_proj.weight", &mut |mut m| {
        // What stands near is worth more to the MLP than the usual small start of a layer.
        m.values.iter_mut().for_each(|v| *v *= 3.0);
        for channel in 0..hidden {
            for (head, directions) in back.iter().enumerate() {
                for (i, direction) in directions.iter().enumerate() {
                    m.row(channel)[head * d + i] = 2.0 * direction[channel];
                }
            }
        }
    });
    // The slow pairs of a head: `half / 2..half` and the same in its second half.
    let slow: Vec<usize> = (half / 2..half).chain(half + half / 2..d).collect();
    let lay = |head: usize, directions: &[Vec<f64>], mut m: Matrix<'_>| {
        (head * d..(head + 1) * d).for_each(|row| m.row(row).iter_mut().for_each(|v| *v *= 0.1));
        for (dim, direction) in slow.iter().zip(directions) {
            m.row(head * d + dim).iter_mut().zip(direction).for_each(|(v, unit)| *v = 1.4 * unit);
        }
    };
    // Head 0 looks for the token after its own, head 2 for the second after the one before its own; both keys serve two heads.
    for (name, head, directions) in [
        ("q_proj", 0, own),
        ("q_proj", 1, back[0]),
        ("q_proj", 2, back[0]),
        ("q_proj", 3, own),
        ("k_proj", 0, back[0]),
        ("k_proj", 1, back[1]),
    ] {
        edit(&format!("model.layers.1.self_attn.{name}.weight"), &mut |m| lay(head, directions, m));
    }
}
