//! Folders: float types, shards, modes, and what is refused.

use crate::tiny::{Spec, Tensors, write_safetensors, write_text};
use eyas_target::{Segment, Target, WeightMode};
use safetensors::Dtype;
use serde_json::json;
use std::error::Error;
use std::path::Path;

fn logits(folder: &Path, mode: WeightMode) -> Vec<f32> {
    let model = Target::open(folder, mode).unwrap().model;
    let hidden = model.forward(&mut [Segment { ids: &[3, 1, 4, 1, 5, 9], kv: &mut model.new_kv() }], &[]).unwrap();
    model.logits(&model.final_norm(&hidden.last).unwrap()).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn written(spec: &Spec, tensors: &Tensors, dtype: Dtype) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    spec.write(folder.path(), tensors, dtype);
    folder
}

fn rounded(tensors: &Tensors, round: impl Fn(f32) -> f32) -> Tensors {
    let round = |(name, (shape, values)): (&String, &(Vec<usize>, Vec<f32>))| {
        (name.clone(), (shape.clone(), values.iter().map(|&v| round(v)).collect()))
    };
    tensors.iter().map(round).collect()
}

#[test]
fn half_precision_files_load_as_the_rounded_weights_in_every_exact_mode() {
    let spec = Spec { tied: true, ..Spec::llama() };
    let tensors = spec.tensors(3);
    let bf16 = rounded(&tensors, |v| half::bf16::from_f32(v).to_f32());
    let f16 = rounded(&tensors, |v| half::f16::from_f32(v).to_f32());
    for (dtype, widened) in [(Dtype::BF16, &bf16), (Dtype::F16, &f16), (Dtype::F32, &tensors)] {
        let stored = written(&spec, &tensors, dtype);
        let want = logits(written(&spec, widened, Dtype::F32).path(), WeightMode::F32);
        assert_eq!(logits(stored.path(), WeightMode::F32), want, "{dtype:?}");
        assert_eq!(logits(stored.path(), WeightMode::Native), want, "{dtype:?}");
    }
    let stored = written(&spec, &tensors, Dtype::BF16);
    assert_eq!(logits(stored.path(), WeightMode::Bf16), logits(stored.path(), WeightMode::F32));
}

#[test]
fn q8_0_is_close_and_wants_rows_of_blocks() {
    let spec = Spec { hidden_size: 64, intermediate_size: 96, ..Spec::llama() };
    let folder = written(&spec, &spec.tensors(3), Dtype::F32);
    let (exact, rough) = (logits(folder.path(), WeightMode::F32), logits(folder.path(), WeightMode::Q8_0));
    let worst = exact.iter().zip(&rough).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst > 0.0 && worst < 0.5, "{worst}");

    let spec = Spec::llama();
    let folder = written(&spec, &spec.tensors(3), Dtype::F32);
    let error = Target::open(folder.path(), WeightMode::Q8_0).unwrap_err();
    assert_eq!(
        error.source().unwrap().to_string(),
        "tensor `model.layers.0.mlp.down_proj.weight` has rows of 48 values; q8_0 needs a multiple of 32"
    );
}

#[test]
fn shards_are_found_through_their_index() {
    let spec = Spec::llama();
    let tensors = spec.tensors(3);
    let whole = written(&spec, &tensors, Dtype::F32);
    let folder = tempfile::tempdir().unwrap();
    spec.write_config(folder.path());
    let (mut first, mut second, mut map) = (Tensors::new(), Tensors::new(), serde_json::Map::new());
    for (i, (name, tensor)) in tensors.into_iter().enumerate() {
        let (shard, file) = if i % 3 == 0 { (&mut first, "a.safetensors") } else { (&mut second, "b.safetensors") };
        map.insert(name.clone(), json!(file));
        shard.insert(name, tensor);
    }
    write_safetensors(&folder.path().join("a.safetensors"), &first, Dtype::F32);
    write_safetensors(&folder.path().join("b.safetensors"), &second, Dtype::F32);
    write_text(&folder.path().join("model.safetensors.index.json"), &json!({"weight_map": map}).to_string());
    assert_eq!(logits(folder.path(), WeightMode::F32), logits(whole.path(), WeightMode::F32));
}

/// What a person reads: the error and its causes.
fn refusal(folder: &Path) -> String {
    let error = Target::open(folder, WeightMode::F32).unwrap_err();
    let mut text = error.to_string().replace(&folder.display().to_string(), "F");
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {}", cause.to_string().replace(&folder.display().to_string(), "F"));
        source = cause.source();
    }
    text
}

#[test]
fn weights_that_do_not_fit_the_config_are_named_with_what_was_found_and_needed() {
    let spec = Spec::llama();
    let check = |change: &dyn Fn(&mut Tensors), expect: &str| {
        let mut tensors = spec.tensors(3);
        change(&mut tensors);
        assert_eq!(
            refusal(written(&spec, &tensors, Dtype::F32).path()),
            format!("cannot load the weights of `F`: {expect}")
        );
    };
    check(
        &|tensors| drop(tensors.remove("model.layers.1.mlp.up_proj.weight")),
        "tensor `model.layers.1.mlp.up_proj.weight` is missing, the config needs it as [48, 32]",
    );
    check(
        &|tensors| tensors.get_mut("lm_head.weight").unwrap().0 = vec![32, 67],
        "tensor `lm_head.weight` is [32, 67], the config needs [67, 32]",
    );
    check(
        &|tensors| drop(tensors.insert("model.layers.2.self_attn.q_proj.bias".into(), (vec![32], vec![0.0; 32]))),
        "tensor `model.layers.2.self_attn.q_proj.bias` has no place in the model of the config",
    );
}

#[test]
fn damaged_and_foreign_folders_are_refused() {
    let spec = Spec::llama();
    let folder = written(&spec, &spec.tensors(3), Dtype::F32);
    let weights = folder.path().join("model.safetensors");
    let file = std::fs::OpenOptions::new().write(true).open(&weights).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 5).unwrap();
    let found = refusal(folder.path());
    assert_eq!(
        found,
        format!(
            "cannot load the weights of `F`: `F/model.safetensors` is damaged: its header accounts for {len} bytes, the file has {}",
            len - 5
        )
    );
    std::fs::remove_file(&weights).unwrap();
    assert!(refusal(folder.path()).starts_with("cannot load the weights of `F`: cannot read `F/model.safetensors`: "));
    write_text(&folder.path().join("config.json"), r#"{"architectures": ["GPT2LMHeadModel"]}"#);
    assert_eq!(
        refusal(folder.path()),
        "cannot use `F/config.json`: architecture `GPT2LMHeadModel` is not known; known are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"
    );
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    assert_eq!(refusal(folder.path()), "`F` is neither a folder with a config.json nor a .gguf file");
}

#[test]
fn end_tokens_template_and_identity_come_from_all_files() {
    let spec = Spec::llama().with(json!({"eos_token_id": [2, 7]}));
    let folder = written(&spec, &spec.tensors(3), Dtype::F32);
    let plain = Target::open(folder.path(), WeightMode::F32).unwrap();
    assert_eq!((plain.eos_token_ids, plain.chat_template), (vec![2, 7], None));

    write_text(&folder.path().join("generation_config.json"), r#"{"eos_token_id": 5}"#);
    let settings = json!({
        "eos_token": {"content": "t11"}, "bos_token": "t1",
        "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}],
    });
    write_text(&folder.path().join("tokenizer_config.json"), &settings.to_string());
    let target = Target::open(folder.path(), WeightMode::F32).unwrap();
    assert_eq!(target.eos_token_ids, [2, 5, 7, 11]);
    assert_eq!(target.chat_template.as_deref(), Some("yes"));
    assert_eq!(target.special_tokens["bos_token"], "t1");
    assert_eq!(target.special_tokens["eos_token"], "t11");
    assert_eq!((&*target.identity.architecture, &*target.identity.weight_mode), ("LlamaForCausalLM", "f32"));

    write_text(&folder.path().join("chat_template.jinja"), "file");
    let again = Target::open(folder.path(), WeightMode::F32).unwrap();
    assert_eq!(again.chat_template.as_deref(), Some("file"));
    let hashes = [plain.identity.content_hash, target.identity.content_hash, again.identity.content_hash];
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2], "{hashes:?}");

    let other = written(&spec, &spec.tensors(4), Dtype::F32);
    assert_ne!(Target::open(other.path(), WeightMode::F32).unwrap().identity.content_hash, hashes[0]);
}
