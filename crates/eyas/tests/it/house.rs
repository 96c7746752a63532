//! The house keeps its own rules: crates use only lower layers, dependencies stay few and are licensed as `deny.toml` allows.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Layer of each crate; a crate may use only crates of lower layers. `ARCHITECTURE.md` tells what each is for.
const LAYERS: &[(&str, u8)] = &[
    ("eyas-types", 0),
    ("eyas-journal", 0),
    ("eyas-nn", 0),
    ("eyas-prompts", 1),
    ("eyas-client", 1),
    ("eyas-inspect", 1),
    ("eyas-target", 1),
    ("eyas-generate", 2),
    ("eyas-report", 2),
    ("eyas-serve", 3),
    ("eyas-tiny", 4),
    ("eyas", 4),
];

/// Helpers of tests, allowed to all as a dev-dependency and to none as a dependency.
const DEV_ONLY: &[&str] = &["eyas-testkit"];

/// Packages in `Cargo.lock`, ours included. Raise it on purpose, with a word in the commit why the dependency earns its place.
const MAX_PACKAGES: usize = 300;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in <root>/crates/eyas").to_owned()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn crates_use_only_lower_layers() {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let metadata = metadata();
    let members: BTreeSet<_> = metadata["workspace_members"].as_array().unwrap().iter().map(Value::to_string).collect();
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().unwrap().iter().filter(|p| members.contains(&p["id"].to_string())) {
        let name = text(package, "name");
        if DEV_ONLY.contains(&name) {
            continue;
        }
        let Some(own) = layers.get(name) else {
            problems.push(format!("{name} has no layer: add it to LAYERS and to ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null()) {
            let used = text(dependency, "name");
            if DEV_ONLY.contains(&used) {
                problems.push(format!("{name} ships {used}, which is for tests"));
            }
            if layers.get(used).is_some_and(|layer| layer >= own) {
                problems.push(format!("{name} (layer {own}) uses {used} (layer {})", layers[used]));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn runtimes_stay_in_their_rooms() {
    let rooms: &[(&str, &[&str])] = &[
        ("tokio", &["eyas-client", "eyas-generate", "eyas-serve", "eyas"]),
        ("hyper", &["eyas-client", "eyas-serve"]),
        ("axum", &["eyas-serve"]),
        ("candle-core", &["eyas-nn", "eyas-target", "eyas-tiny"]),
        ("clap", &["eyas", "eyas-tiny"]),
        ("anyhow", &["eyas", "eyas-tiny"]),
    ];
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap().iter().filter(|p| text(p, "name").starts_with("eyas")) {
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null()) {
            for (crate_name, allowed) in rooms {
                assert!(
                    text(dependency, "name") != *crate_name || allowed.contains(&text(package, "name")),
                    "{} depends on {crate_name}, which lives in {allowed:?}",
                    text(package, "name")
                );
            }
        }
    }
}

#[test]
fn dependencies_are_few_and_licensed() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() <= MAX_PACKAGES, "{} packages, the ceiling is {MAX_PACKAGES}", packages.len());

    let deny: toml::Table = std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
    let strings = |value: &toml::Value| -> BTreeSet<String> {
        value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let allowed = strings(&deny["licenses"]["allow"]);
    let denied: BTreeSet<_> =
        deny["bans"]["deny"].as_array().unwrap().iter().map(|ban| ban["crate"].as_str().unwrap()).collect();
    let mut problems = Vec::new();
    for package in packages {
        let (name, licence) = (text(package, "name"), text(package, "license"));
        if denied.contains(name) {
            problems.push(format!("{name} is banned by deny.toml"));
        }
        if !licence_allowed(licence, &allowed) {
            problems.push(format!("{name}: licence `{licence}` is not in deny.toml"));
        }
        let source = text(package, "source");
        if !(source.is_empty() || source.starts_with("registry+")) {
            problems.push(format!("{name} comes from {source}, not from the registry"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Evaluates an SPDX expression of `OR`, `AND` and brackets (also the old `/` for `OR`) against the allowed licences.
fn licence_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    if allowed.contains(expression.trim()) {
        return true;
    }
    let split = |operator: &str| -> Vec<String> {
        let (mut parts, mut depth, mut part) = (Vec::new(), 0, Vec::new());
        let spaced = expression.replace('(', " ( ").replace(')', " ) ");
        for word in spaced.split_whitespace() {
            match word {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            if word == operator && depth == 0 {
                parts.push(part.join(" "));
                part.clear();
            } else {
                part.push(word);
            }
        }
        parts.push(part.join(" "));
        parts
    };
    let unwrapped = |part: &str| {
        let part = part.trim();
        part.strip_prefix("( ").and_then(|rest| rest.strip_suffix(" )")).unwrap_or(part).to_owned()
    };
    for operator in ["OR", "AND"] {
        let parts = split(operator);
        if parts.len() > 1 {
            let mut verdicts = parts.iter().map(|part| licence_allowed(&unwrapped(part), allowed));
            return if operator == "OR" { verdicts.any(|ok| ok) } else { verdicts.all(|ok| ok) };
        }
    }
    false
}

#[test]
fn licence_expressions() {
    let allowed: BTreeSet<String> = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(String::from).into();
    let check = |expression, ok| assert_eq!(licence_allowed(expression, &allowed), ok, "{expression}");
    check("MIT", true);
    check("MIT/Apache-2.0", true);
    check("GPL-3.0 OR MIT", true);
    check("MIT AND GPL-3.0", false);
    check("(MIT OR GPL-3.0) AND Apache-2.0", true);
    check("Apache-2.0 WITH LLVM-exception OR Zlib", true);
    check("", false);
}

#[test]
fn documents_that_every_reader_needs_are_there_and_speak_of_every_crate() {
    let read =
        |file: &str| std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    for file in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/recipe.md",
        "docs/guide.md",
        "docs/files.md",
    ] {
        assert!(read(file).len() > 500, "{file} says next to nothing");
    }
    let architecture = read("ARCHITECTURE.md");
    for (name, _) in LAYERS {
        assert!(architecture.contains(&format!("`{name}`")), "ARCHITECTURE.md does not mention {name}");
    }
    let readme = read("README.md");
    let first = readme.find("cargo run --release -- demo").expect("the README shows the demo");
    let second = readme.find("cargo test --workspace").expect("the README shows the tests");
    assert!(first < second && second < 1500, "the two commands come first");
}
