//! The command as a user runs it, against `eyas serve --script` and the bundled target's tokenizer and template.

use crate::support::{eyas, jsonl, root, run_in, run_ok};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running `eyas serve`; stopped when dropped.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn script(dir: &Path, script: &str) -> Self {
        let path = dir.join("script.toml");
        eyas_testkit::write_file(&path, script.as_bytes());
        let mut child = eyas()
            .args(["serve", "--quiet", "--port", "0", "--script", path.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://"), "the server did not start: {url:?}");
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A script whose answers are made of the bundled target's tokens.
fn script(more: &str) -> String {
    format!(
        "tokenizer = {:?}\nlengths = {{ law = \"uniform\", min = 8, max = 40 }}\n{more}",
        model().join("tokenizer.json")
    )
}

fn model() -> PathBuf {
    root().join("models/eyas-tiny")
}

/// `n` rows of one user turn each, with ids `r0`, `r1`, …
fn rows(dir: &Path, n: usize) -> PathBuf {
    let path = dir.join("rows.jsonl");
    let text: String = (0..n)
        .map(|i| format!("{{\"id\":\"r{i}\",\"messages\":[{{\"role\":\"user\",\"content\":\"What is {i} + 1?\"}}]}}\n"))
        .collect();
    eyas_testkit::write_file(&path, text.as_bytes());
    path
}

/// Arguments of a stage over the bundled target and `rows.jsonl` of `dir`.
fn stage(verb: &str, dir: &Path, more: &[&str]) -> Vec<String> {
    let mut args: Vec<String> = [verb, "--run", "run", "--model"].map(String::from).to_vec();
    args.push(model().display().to_string());
    args.extend(["--data".into(), dir.join("rows.jsonl").display().to_string()]);
    if !more.contains(&"--max-new-tokens") {
        args.extend(["--max-new-tokens", "64"].map(String::from));
    }
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    args
}

#[track_caller]
fn ok(dir: &Path, args: &[String], code: i32) -> String {
    run_ok(dir, &args.iter().map(String::as_str).collect::<Vec<_>>(), code)
}

fn stderr(dir: &Path, args: &[&str], code: i32) -> String {
    let output = run_in(dir, args);
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_server_without_reasoning_parser_gives_reasoning_in_every_row() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 120);
    let served = Served::script(dir.path(), &script(""));
    let args = stage("run", dir.path(), &["--endpoint", &served.url, "--json"]);
    let document = document(&ok(dir.path(), &args, 0));
    assert_eq!(document["prepare"]["read"], 120);
    assert_eq!(document["generate"]["answered"], 120);
    assert_eq!(document["generate"]["reasoning_capture_rate"], 1.0);
    for row in jsonl(&dir.path().join("run/prepared/rows/raw_responses.jsonl")) {
        let spans = &row["spans"];
        assert!(spans["reasoning"]["end"].as_u64() > spans["reasoning"]["start"].as_u64(), "{row}");
        assert_eq!(row["think"], "open");
        assert_eq!(spans["stop"]["end"].as_u64().unwrap(), row["output_ids"].as_array().unwrap().len() as u64);
    }
}

#[test]
fn a_model_that_never_thinks_is_said_at_once_and_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 300);
    let served = Served::script(
        dir.path(),
        &script("latency = { model = \"per_answer\", ttft_ms = 20 }\n[reasoning]\npattern = \"never_thinks\"\n"),
    );
    ok(dir.path(), &stage("prepare", dir.path(), &[]), 0);
    let args = ["generate", "--run", "run", "--endpoint", &served.url, "--concurrency", "8", "--reasoning", "on"];
    let told = stderr(dir.path(), &args, 5);
    assert!(told.contains("WARNING: none of the first 5 answers has any reasoning, or closes it"), "{told}");
    assert!(told.contains("to go on: eyas generate --run run"), "{told}");
    let answered = jsonl(&dir.path().join("run/prepared/rows/raw_responses.jsonl")).len();
    assert!((50..80).contains(&answered), "{answered} answers before the gate stopped the run");
}

#[test]
fn a_run_goes_on_where_it_stopped_and_refuses_other_settings() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 60);
    let served = Served::script(dir.path(), &script(""));
    ok(dir.path(), &stage("prepare", dir.path(), &[]), 0);
    let generate = ["generate", "--run", "run", "--endpoint", &served.url, "--concurrency", "4", "--json"];
    let first = document(&run_ok(dir.path(), &[&generate[..], &["--stop-after", "20"]].concat(), 0));
    assert!((20..30).contains(&first["answered"].as_u64().unwrap()), "{first:#}");

    let other = stderr(dir.path(), &[&generate[..], &["--temperature", "0.5"]].concat(), 3);
    assert!(other.contains("sampling.temperature"), "the message names what changed: {other}");

    // The settings of the refused try are not those of the run.
    let second = document(&run_ok(dir.path(), &[&generate[..], &["--temperature", "1.0"]].concat(), 0));
    assert_eq!(second["answered"], 60, "{second:#}");
    assert_eq!(second["answered_now"].as_u64().unwrap() + first["answered"].as_u64().unwrap(), 60);
    let journal = dir.path().join("run/prepared/rows/raw_responses.jsonl");
    let ids: HashSet<String> = jsonl(&journal).iter().map(|row| row["sample_id"].to_string()).collect();
    assert_eq!(ids.len(), 60);

    let before = std::fs::metadata(&journal).unwrap();
    let told = stderr(dir.path(), &["generate", "--run", "run"], 0);
    assert!(told.contains("already complete: 60 of 60 answered"), "{told}");
    let after = std::fs::metadata(&journal).unwrap();
    assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
}

#[test]
fn prompts_that_are_given_up_are_listed_and_the_exit_code_says_so() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 40);
    let served = Served::script(dir.path(), &script("[[faults]]\nkind = \"status_500\"\nwhen = { share = 0.2 }\n"));
    ok(dir.path(), &stage("prepare", dir.path(), &[]), 0);
    let args = ["generate", "--run", "run", "--endpoint", &served.url, "--max-attempts", "2", "--json"];
    let document = document(&run_ok(dir.path(), &args, 1));
    let failed = document["failed"].as_u64().unwrap();
    assert!(failed > 0);
    assert_eq!(document["answered"].as_u64().unwrap() + failed, 40);
    assert_eq!(jsonl(&dir.path().join("run/prepared/rows/failed.jsonl")).len() as u64, failed);
}

#[test]
fn ux_01_a_log_file_shows_life_from_the_first_seconds_and_ctrl_c_prints_the_resume_command() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 20);
    let served = Served::script(dir.path(), &script("latency = { model = \"per_answer\", ttft_ms = 30000 }\n"));
    ok(dir.path(), &stage("prepare", dir.path(), &[]), 0);
    let mut child = eyas()
        .args(["generate", "--run", "run", "--endpoint", &served.url, "--concurrency", "4"])
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let start = Instant::now();
    let first =
        lines.by_ref().map_while(Result::ok).find(|line| line.contains("in flight")).expect("a line of progress");
    assert!(start.elapsed() < Duration::from_secs(5), "the first line came after {:?}", start.elapsed());
    assert!(
        first.contains("0 of 20 done, 4 in flight") && first.contains("ETA unknown until the first answer"),
        "{first}"
    );

    for _ in 0..2 {
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:#?}");
    assert!(start.elapsed() < Duration::from_secs(15));
    assert!(rest.iter().any(|line| line.contains("to go on: eyas generate --run run")), "{rest:#?}");
}

#[test]
fn ux_02_nothing_kept_is_an_error_with_the_reason() {
    let Some(case) = eyas_testkit::shared_case("UX-02") else { return };
    let dir = tempfile::tempdir().unwrap();
    let recipe = format!(
        "[target]\nmodel = {:?}\n[[dataset]]\nname = \"d\"\npath = {:?}\nmin_prompt_tokens = 10000\n[sampling]\nmax_new_tokens = 64\n",
        model(),
        case.path("jsonl")
    );
    eyas_testkit::write_file(dir.path().join("eyas.toml"), recipe.as_bytes());
    let told = stderr(dir.path(), &["prepare"], 3);
    assert!(told.contains("0 of 5 rows kept: too_short 5 (longest "), "{told}");
    assert!(told.contains("limit 10000"), "{told}");
    assert!(!dir.path().join("runs/run/prepared/d/prompts.jsonl").exists());
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let filters = vec![(dir.path().display().to_string(), "[dir]".to_owned())];
    let settings = || {
        let mut settings = insta::Settings::clone_current();
        for (from, to) in &filters {
            settings.add_filter(&from.replace('/', "\\/"), to.as_str());
        }
        settings
    };
    let told = |args: &[&str], code| stderr(dir.path(), args, code);

    insta::assert_snapshot!(told(&["prepare"], 2), @r"
    error: no recipe: there is no `eyas.toml` here
    hint: name one (`eyas run my.toml`), or give --model and --data
    ");
    eyas_testkit::write_file(dir.path().join("eyas.toml"), b"[generate]\nconcurency = 3\n");
    settings().bind(|| {
        insta::assert_snapshot!(told(&["prepare"], 2), @r"
        error: recipe `eyas.toml` cannot be used: TOML parse error at line 2, column 1
          |
        2 | concurency = 3
          | ^^^^^^^^^^
        unknown field `concurency`, expected one of `engine`, `endpoints`, `protocol`, `served_model`, `allow_text`, `concurrency`, `max_attempts`, `timeout_s`, `sync_ms`, `server_down_s`
        hint: did you mean `concurrency`?
        ");
    });
    eyas_testkit::write_file(
        dir.path().join("eyas.toml"),
        b"[target]\nmodel = 'nowhere'\n[[dataset]]\npath = 'none.jsonl'\n",
    );
    insta::assert_snapshot!(told(&["prepare"], 2), @"error: data set `none`: there is no `none.jsonl`");
    insta::assert_snapshot!(told(&["inspect", "none.jsonl"], 2), @"error: there is no `none.jsonl`");
    rows(dir.path(), 3);
    let unreachable = stage("run", dir.path(), &["--endpoint", "http://127.0.0.1:9", "--quiet"]);
    let unreachable: Vec<&str> = unreachable.iter().map(String::as_str).collect();
    let text = told(&unreachable, 4);
    assert!(text.contains("http://127.0.0.1:9") && text.contains("hint: start it"), "{text}");
}

#[test]
fn an_answer_longer_than_the_context_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 3);
    let args = stage("prepare", dir.path(), &["--max-new-tokens", "2048"]);
    let told = stderr(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    assert!(
        told.contains("max_new_tokens 2048 leaves no room for a prompt: the target's context is 1024 tokens"),
        "{told}"
    );
}

#[test]
fn every_command_explains_itself() {
    for verb in ["demo", "prepare", "generate", "inspect", "run", "serve"] {
        let help = run_ok(Path::new("."), &[verb, "--help"], 0);
        assert!(help.contains("Usage: eyas "), "{help}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String = (0..2000)
        .map(|i| format!("{{\"id\":{i},\"content\":\"a\",\"usage\":{{\"completion_tokens\":{i}}}}}\n"))
        .collect();
    eyas_testkit::write_file(dir.path().join("a.jsonl"), rows.as_bytes());
    let mut child =
        eyas().args(["inspect", "a.jsonl", "--json"]).current_dir(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_embedded_engine_takes_the_same_path() {
    let dir = tempfile::tempdir().unwrap();
    rows(dir.path(), 6);
    let args =
        stage("run", dir.path(), &["--engine", "embedded", "--temperature", "0", "--max-new-tokens", "256", "--json"]);
    let document = document(&ok(dir.path(), &args, 0));
    assert_eq!(document["generate"]["answered"], 6, "{document:#}");
    assert_eq!(document["inspect"]["schema"], "eyas.inspect/1");
    assert!(dir.path().join("run/inspect/report.txt").is_file());
    let rows = jsonl(&dir.path().join("run/prepared/rows/raw_responses.jsonl"));
    assert!(rows.iter().all(|row| row["endpoint"].as_str().unwrap().starts_with("http://127.0.0.1:")));
}
