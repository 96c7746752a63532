//! GGUF files written here from the weights of a safetensors folder, as llama.cpp's converter would write them.

use crate::tiny::{Spec, Tensors};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use eyas_target::{Segment, Target, WeightMode};
use safetensors::Dtype;
use serde_json::json;
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows from halves to pairs, as the converter does for architecture `llama`.
fn pairs_from_halves(values: &[f32], n_rows: usize, n_heads: usize) -> Vec<f32> {
    let (half, width) = (n_rows / n_heads / 2, values.len() / n_rows);
    let source = |row: usize| row / (2 * half) * 2 * half + row % 2 * half + row % (2 * half) / 2;
    (0..n_rows).flat_map(|row| values[source(row) * width..][..width].iter().copied()).collect()
}

fn gguf_name(name: &str) -> String {
    let pairs = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("post_attention_layernorm", "ffn_norm"),
        ("input_layernorm", "attn_norm"),
    ];
    pairs.into_iter().fold(name.to_owned(), |name, (theirs, ours)| name.replace(theirs, ours))
}

/// Writes `tensors` of `spec` under the architecture `arch`, matrices as `dtype`, with changes to the metadata.
fn write(path: &Path, arch: &str, spec: &Spec, tensors: &Tensors, dtype: GgmlDType, changes: &[(&str, Value)]) {
    let quantized: Vec<(String, QTensor)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            let n_heads = match arch {
                "llama" if name.contains("q_proj") => spec.n_heads,
                "llama" if name.contains("k_proj") => spec.n_kv_heads,
                _ => 0,
            };
            let values = if n_heads > 0 { pairs_from_halves(values, shape[0], n_heads) } else { values.clone() };
            let tensor = Tensor::from_vec(values, &**shape, &Device::Cpu).unwrap();
            let dtype = if shape.len() == 2 { dtype } else { GgmlDType::F32 };
            (gguf_name(name), QTensor::quantize(&tensor, dtype).unwrap())
        })
        .collect();
    let tensors: Vec<(&str, &QTensor)> = quantized.iter().map(|(name, tensor)| (&**name, tensor)).collect();
    let mut metadata = metadata(arch, spec);
    for (key, value) in changes {
        metadata.retain(|(known, _)| known != key);
        metadata.push(((*key).to_owned(), value.clone()));
    }
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (&**key, value)).collect();
    gguf_file::write(&mut File::create(path).unwrap(), &metadata, &tensors).unwrap();
}

fn metadata(arch: &str, spec: &Spec) -> Vec<(String, Value)> {
    let n = |n: usize| Value::U32(u32::try_from(n).unwrap());
    let sizes = [
        ("block_count", n(spec.n_layers)),
        ("context_length", n(256)),
        ("embedding_length", n(spec.hidden_size)),
        ("feed_forward_length", n(spec.intermediate_size)),
        ("attention.head_count", n(spec.n_heads)),
        ("attention.head_count_kv", n(spec.n_kv_heads)),
        ("attention.key_length", n(spec.head_dim)),
        ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("rope.freq_base", Value::F32(10000.0)),
    ];
    let strings = |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
    // Byte-level BPE over a few letters: `ab` and `abc` come about by merges, the last tokens are whole.
    let mut tokens: Vec<String> =
        ["<s>", "</s>", "a", "b", "c", "1", "2", "Ġ", "ab", "abc", "<tool>"].map(str::to_owned).to_vec();
    let mut types = vec![3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4];
    tokens.extend((tokens.len()..spec.vocab_size).map(|id| format!("<pad{id}>")));
    types.resize(spec.vocab_size, 5);
    let tokenizer = [
        ("general.architecture", Value::String(arch.to_owned())),
        ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
        ("tokenizer.ggml.pre", Value::String("smollm".to_owned())),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.merges", strings(vec!["a b".to_owned(), "ab c".to_owned()])),
        ("tokenizer.ggml.token_type", Value::Array(types.into_iter().map(Value::I32).collect())),
        ("tokenizer.ggml.bos_token_id", n(0)),
        ("tokenizer.ggml.eos_token_id", n(1)),
        ("tokenizer.ggml.eot_token_id", n(9)),
        ("tokenizer.chat_template", Value::String("template".to_owned())),
    ];
    let sizes = sizes.into_iter().map(|(key, value)| (format!("{arch}.{key}"), value));
    sizes.chain(tokenizer.into_iter().map(|(key, value)| (key.to_owned(), value))).collect()
}

struct Written {
    folder: tempfile::TempDir,
    gguf: PathBuf,
}

fn written(arch: &str, spec: &Spec, dtype: GgmlDType, changes: &[(&str, Value)]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let tensors = spec.tensors(5);
    spec.write(folder.path(), &tensors, Dtype::F32);
    std::fs::create_dir(folder.path().join("gguf")).unwrap();
    let gguf = folder.path().join("gguf/model.gguf");
    write(&gguf, arch, spec, &tensors, dtype, changes);
    Written { folder, gguf }
}

fn logits(path: &Path, mode: WeightMode) -> Vec<f32> {
    let model = Target::open(path, mode).unwrap().model;
    let hidden = model.forward(&mut [Segment { ids: &[3, 1, 4, 1, 5, 9], kv: &mut model.new_kv() }], &[]).unwrap();
    model.logits(&model.final_norm(&hidden.last).unwrap()).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn farthest(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_gguf_file_and_the_folder_it_was_made_of_give_the_same_bits() {
    let check = |arch: &str, spec: Spec| {
        let written = written(arch, &spec, GgmlDType::F32, &[]);
        let want = logits(written.folder.path(), WeightMode::F32);
        assert_eq!(logits(&written.gguf, WeightMode::F32), want, "{arch}");
        assert_eq!(logits(&written.gguf, WeightMode::Native), want, "{arch}");
    };
    check("llama", Spec::llama());
    check("llama", Spec { tied: true, ..Spec::llama() }.with(json!({"attention_bias": true})));
    check("qwen2", Spec::of("Qwen2ForCausalLM"));
    check("qwen3", Spec { tied: true, ..Spec::of("Qwen3ForCausalLM") });
}

#[test]
fn quantized_files_are_close_in_every_mode() {
    let spec = Spec { hidden_size: 64, intermediate_size: 96, tied: true, ..Spec::llama() };
    for (dtype, within) in [(GgmlDType::Q8_0, 0.5), (GgmlDType::Q4_1, 6.0), (GgmlDType::F16, 0.05)] {
        let written = written("llama", &spec, dtype, &[]);
        let exact = logits(&written.gguf, WeightMode::F32);
        let from_original = farthest(&exact, &logits(written.folder.path(), WeightMode::F32));
        assert!(from_original > 0.0 && from_original < within, "{dtype:?} {from_original}");
        for mode in [WeightMode::Native, WeightMode::Q8_0, WeightMode::Bf16] {
            let off = farthest(&exact, &logits(&written.gguf, mode));
            assert!(off < 0.5, "{dtype:?} {mode:?} {off}");
        }
    }
}

#[test]
fn tokenizer_template_and_end_tokens_are_in_the_file() {
    let written = written("llama", &Spec::llama(), GgmlDType::F32, &[]);
    let target = Target::open(&written.gguf, WeightMode::F32).unwrap();
    assert_eq!(target.eos_token_ids, [1, 9]);
    assert_eq!(target.chat_template.as_deref(), Some("template"));
    assert_eq!((&*target.special_tokens["bos_token"], &*target.special_tokens["eos_token"]), ("<s>", "</s>"));
    let ids = |text: &str| target.tokenizer.encode(text, true).unwrap().get_ids().to_vec();
    assert_eq!(ids("abcab c12</s><tool>a"), [9, 8, 7, 4, 5, 6, 1, 10, 2]);
    assert_eq!(target.tokenizer.decode(&[9, 1, 10], true).unwrap(), "abc<tool>");

    let with_bos = [("tokenizer.ggml.add_bos_token", Value::Bool(true))];
    let written = self::written("llama", &Spec::llama(), GgmlDType::F32, &with_bos);
    let target = Target::open(&written.gguf, WeightMode::F32).unwrap();
    assert_eq!(target.tokenizer.encode("ab", true).unwrap().get_ids(), [0, 8]);
    assert_eq!(target.tokenizer.encode("ab", false).unwrap().get_ids(), [8]);
}

#[test]
fn a_tokenizer_json_beside_the_file_takes_the_place_of_the_one_inside() {
    let unknown = [("tokenizer.ggml.pre", Value::String("deepseek-llm".to_owned()))];
    let written = written("llama", &Spec::llama(), GgmlDType::F32, &unknown);
    let error = Target::open(&written.gguf, WeightMode::F32).unwrap_err();
    assert_eq!(
        error.source().unwrap().to_string(),
        "`tokenizer.ggml.pre` is `deepseek-llm`; known are gpt-2, smollm, llama-bpe, qwen2"
    );
    let beside = written.gguf.with_file_name("tokenizer.json");
    std::fs::copy(written.folder.path().join("tokenizer.json"), &beside).unwrap();
    let target = Target::open(&written.gguf, WeightMode::F32).unwrap();
    assert_eq!(target.tokenizer.encode("t5 t6", false).unwrap().get_ids(), [5, 6]);
    assert_eq!(target.tokenizer_json, Some(beside));
}

#[test]
fn files_of_other_models_are_refused() {
    let check = |changes: &[(&str, Value)], expect: &str| {
        let written = written("llama", &Spec::llama(), GgmlDType::F32, changes);
        let error = Target::open(&written.gguf, WeightMode::F32).unwrap_err();
        let cause = error.source().map_or_else(String::new, ToString::to_string);
        assert_eq!(cause, expect);
    };
    check(
        &[("general.architecture", Value::String("gemma3".to_owned()))],
        "architecture `gemma3` is not known; known are llama, qwen2, qwen3",
    );
    check(&[("llama.expert_count", Value::U32(8))], "`expert_count` is `8`; known are 0 (dense models)");
    check(
        &[("llama.feed_forward_length", Value::U32(47))],
        "tensor `blk.0.ffn_gate.weight` is [48, 32], the config needs [47, 32]",
    );
    check(
        &[("llama.rope.scaling.type", Value::String("yarn".to_owned()))],
        "`rope.scaling.type` is `yarn`; known are none, linear (and the tensor rope_freqs.weight)",
    );
}
