//! The forward pass: against the definition, and against itself in pieces and in batches.

use crate::naive;
use crate::tiny::Spec;
use eyas_target::{ForwardError, LlamaModel, Segment, Target, WeightMode};
use safetensors::Dtype;
use serde_json::json;

pub(crate) fn open(spec: &Spec) -> LlamaModel {
    let folder = tempfile::tempdir().unwrap();
    spec.write(folder.path(), &spec.tensors(7), Dtype::F32);
    Target::open(folder.path(), WeightMode::F32).unwrap().model
}

fn ids(n: u32, seed: u32) -> Vec<u32> {
    (0..n).map(|i| (i * i * 31 + i * 17 + seed * 13) % 67).collect()
}

/// Rows of logits for all tokens of the step.
fn all_logits(model: &LlamaModel, segments: &mut [Segment<'_>]) -> Vec<Vec<f32>> {
    let hidden = model.forward(segments, &[]).unwrap();
    model.logits(&model.final_norm(&hidden.last).unwrap()).unwrap().to_vec2().unwrap()
}

fn alone(model: &LlamaModel, ids: &[u32]) -> Vec<Vec<f32>> {
    all_logits(model, &mut [Segment { ids, kv: &mut model.new_kv() }])
}

fn check_against_the_definition(spec: &Spec) {
    let model = open(spec);
    let tensors = spec.tensors(7);
    assert_eq!(model.n_params(), tensors.values().map(|(_, values)| values.len()).sum::<usize>());
    for ids in [ids(1, 3), ids(40, 1)] {
        let want = naive::run(spec, &tensors, &ids);
        let taps: Vec<usize> = (0..=spec.n_layers).collect();
        let hidden = model.forward(&mut [Segment { ids: &ids, kv: &mut model.new_kv() }], &taps).unwrap();
        for (i, (tap, want)) in hidden.taps.iter().zip(&want.taps).enumerate() {
            assert_eq!(tap.dims(), [ids.len(), spec.hidden_size]);
            close(&tap.get(ids.len() - 1).unwrap().to_vec1().unwrap(), want, &format!("{} tap {i}", spec.class));
        }
        assert_eq!(hidden.taps[spec.n_layers].to_vec2::<f32>().unwrap(), hidden.last.to_vec2::<f32>().unwrap());
        close(&alone(&model, &ids)[ids.len() - 1], &want.logits, spec.class);
    }
}

/// Values are around 1 to 10; 3 layers of f32 sums of up to 48 terms.
fn close(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(got) - want).abs() < 2e-4 * want.abs().max(1.0), "{what} value {i}: {got} {want}");
    }
}

#[test]
fn every_family_computes_its_definition() {
    check_against_the_definition(&Spec::llama());
    check_against_the_definition(&Spec { tied: true, ..Spec::llama() });
    check_against_the_definition(&Spec { head_dim: 12, n_kv_heads: 1, ..Spec::llama() });
    check_against_the_definition(&Spec::llama().with(json!({"attention_bias": true, "mlp_bias": true})));
    check_against_the_definition(&Spec::of("MistralForCausalLM"));
    check_against_the_definition(&Spec::of("Qwen2ForCausalLM"));
    check_against_the_definition(&Spec { tied: true, ..Spec::of("Qwen3ForCausalLM") });
}

#[test]
fn rope_scaling_computes_its_definition() {
    check_against_the_definition(&Spec::llama().with(json!({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})));
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    });
    check_against_the_definition(&Spec::llama().with(json!({"rope_theta": 500.0, "rope_scaling": llama3})));
}

#[test]
fn one_token_at_a_time_and_in_chunks_give_the_bits_of_the_whole() {
    let model = open(&Spec::llama());
    let ids = ids(75, 2);
    let whole = alone(&model, &ids);
    for chunk in [1, 2, 7, 32, 33] {
        let mut kv = model.new_kv();
        let rows: Vec<Vec<f32>> =
            ids.chunks(chunk).flat_map(|ids| all_logits(&model, &mut [Segment { ids, kv: &mut kv }])).collect();
        assert_eq!(kv.len(), 75);
        assert!(rows == whole, "chunks of {chunk}");
    }
}

#[test]
fn a_sequence_has_the_same_bits_alone_and_among_others() {
    let model = open(&Spec::of("Qwen3ForCausalLM"));
    let prompts: Vec<Vec<u32>> = (0..9).map(|i| ids(1 + 9 * i, i)).collect();
    let mut caches: Vec<_> = prompts.iter().map(|_| model.new_kv()).collect();
    let mut segments: Vec<_> = prompts.iter().zip(&mut caches).map(|(ids, kv)| Segment { ids, kv }).collect();
    let together = all_logits(&model, &mut segments);
    let apart: Vec<Vec<f32>> = prompts.iter().flat_map(|ids| alone(&model, ids)).collect();
    assert!(together == apart);

    // A step that mixes a next token with a piece of a prompt.
    let mut fresh = model.new_kv();
    let mut kv = model.new_kv();
    all_logits(&model, &mut [Segment { ids: &prompts[4], kv: &mut kv }]);
    let mixed =
        all_logits(&model, &mut [Segment { ids: &prompts[5], kv: &mut fresh }, Segment { ids: &[11], kv: &mut kv }]);
    let continued: Vec<u32> = prompts[4].iter().copied().chain([11]).collect();
    assert_eq!(mixed.last(), alone(&model, &continued).last());
}

#[test]
fn a_truncated_cache_continues_as_if_nothing_had_followed() {
    let model = open(&Spec::llama());
    let (ids, other) = (ids(50, 1), ids(20, 9));
    let mut kv = model.new_kv();
    all_logits(&model, &mut [Segment { ids: &ids, kv: &mut kv }]);
    kv.truncate(34);
    let continued = all_logits(&model, &mut [Segment { ids: &other, kv: &mut kv }]);
    let whole: Vec<u32> = ids[..34].iter().chain(&other).copied().collect();
    assert_eq!(continued, alone(&model, &whole)[34..]);
}

#[test]
fn what_cannot_be_computed_is_refused_and_leaves_the_cache_alone() {
    let model = open(&Spec::llama());
    let mut kv = model.new_kv();
    let mut check = |ids: &[u32], taps: &[usize], expect: &str| {
        let error = model.forward(&mut [Segment { ids, kv: &mut kv }], taps).unwrap_err();
        assert_eq!(error.to_string(), expect);
        assert_eq!(kv.len(), 0);
    };
    check(&[], &[], "the step has no tokens");
    check(&[1, 67], &[], "token id 67 is outside the vocabulary of 67");
    check(&[1], &[0, 4], "tap 4 is not one of 0 to 3");
    let other = open(&Spec { n_layers: 2, ..Spec::llama() });
    let error = model.forward(&mut [Segment { ids: &[1], kv: &mut other.new_kv() }], &[]).unwrap_err();
    assert!(matches!(error, ForwardError::ForeignCache { .. }), "{error}");
}
