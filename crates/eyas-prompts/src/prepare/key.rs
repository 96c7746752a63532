//! What prepared prompts were made of, to tell "already prepared from the same input" from "the input changed".

use super::plan::PreparePlan;
use crate::source::{OpenError, list_data_files};
use eyas_types::FingerprintInputs;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use xxhash_rust::xxh3::Xxh3Default;

/// Everything that shapes `prompts.jsonl`. Two equal keys mean byte-equal prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareKey {
    /// Settings of the plan, and what the caller says of target, tokenizer and template, by name.
    pub settings: FingerprintInputs,
    /// Files in the order of reading.
    pub files: Vec<FileKey>,
}

/// A source file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileKey {
    /// Path as the recipe names it.
    pub path: String,
    /// Size, bytes.
    pub n_bytes: u64,
    /// Time of the last change, milliseconds since 1970; 0 where the file system has none. Not compared when the content is the same.
    pub modified_unix_ms: u64,
    /// xxh3-128 of the content, 32 hexadecimal digits.
    pub content: String,
}

impl PrepareKey {
    /// The key of a plan. `renderer` holds what shapes the rendering (hashes of tokenizer and template, reasoning switch, …). Reads every
    /// file, except those of the same size and time as in `known`, whose hash is taken over.
    pub fn of(plan: &PreparePlan, renderer: &FingerprintInputs, known: Option<&Self>) -> Result<Self, OpenError> {
        let mut settings = renderer.clone();
        set_plan(&mut settings, plan);
        let mut files = Vec::new();
        for file in list_data_files(&plan.paths)?.files {
            let key = FileKey::of(&file.path, &file.name, known)
                .map_err(|source| OpenError::Io { path: PathBuf::from(&file.name), source })?;
            files.push(key);
        }
        Ok(Self { settings, files })
    }

    /// What differs between this key and that of the prompts on disk, in words; empty when the prompts can stay.
    pub fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let mut changes: Vec<String> = self
            .settings
            .differences(&earlier.settings)
            .into_iter()
            .map(|(name, now, then)| format!("`{name}` was {then} and is {now}"))
            .collect();
        let by_path = |key: &Self| -> BTreeMap<String, FileKey> {
            key.files.iter().map(|file| (file.path.clone(), file.clone())).collect()
        };
        let (now, then) = (by_path(self), by_path(earlier));
        for (path, file) in &now {
            match then.get(path) {
                None => changes.push(format!("`{path}` is new")),
                Some(old) if old.content != file.content || old.n_bytes != file.n_bytes => {
                    let (was, is) = (old.n_bytes, file.n_bytes);
                    changes.push(format!("the content of `{path}` changed ({was} bytes then, {is} now)"));
                }
                Some(_) => {}
            }
        }
        changes.extend(then.keys().filter(|path| !now.contains_key(*path)).map(|path| format!("`{path}` is gone")));
        let paths = |key: &Self| key.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        if changes.is_empty() && paths(self) != paths(earlier) {
            changes.push("the order of the files changed".to_owned());
        }
        changes
    }
}

/// Everything in the plan but where things lie and how many threads work.
fn set_plan(settings: &mut FingerprintInputs, plan: &PreparePlan) {
    let PreparePlan {
        dataset,
        paths: _,
        source,
        schema,
        filter,
        duplicates,
        seed,
        out_dir: _,
        n_threads: _,
        low_yield_percent: _,
    } = plan;
    settings.set("prepare.dataset", dataset.as_str());
    settings.set("prepare.source.format", json!(source.format.map(crate::source::Format::as_str)));
    settings.set("prepare.source.field", json!(source.field));
    settings.set("prepare.source.repair_surrogates", source.surrogates == crate::source::Surrogates::Repair);
    settings.set("prepare.source.max_row_bytes", source.max_row_bytes);
    settings.set("prepare.schema.name", json!(schema.schema.map(crate::normalise::SchemaName::as_str)));
    settings.set("prepare.schema.field", json!(schema.field));
    settings.set("prepare.schema.role_key", json!(schema.role_key));
    settings.set("prepare.schema.content_key", json!(schema.content_key));
    settings.set("prepare.schema.id_field", json!(schema.id_field));
    settings.set("prepare.min_tokens", json!(filter.min_tokens));
    settings.set("prepare.max_tokens", json!(filter.max_tokens));
    settings.set("prepare.max_prompts", json!(filter.max_prompts));
    settings.set("prepare.drop_duplicates", *duplicates == super::plan::Duplicates::Drop);
    settings.set("prepare.seed", *seed);
}

impl FileKey {
    fn of(path: &Path, name: &str, known: Option<&PrepareKey>) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_unix_ms = modified.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let n_bytes = metadata.len();
        let unchanged = known.and_then(|known| known.files.iter().find(|file| file.path == name)).filter(|file| {
            file.n_bytes == n_bytes && modified_unix_ms != 0 && file.modified_unix_ms == modified_unix_ms
        });
        let content = match unchanged {
            Some(file) => file.content.clone(),
            None => content_hash(path)?,
        };
        Ok(Self { path: name.to_owned(), n_bytes, modified_unix_ms, content })
    }
}

fn content_hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3Default::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(format!("{:032x}", hasher.digest128())),
            Ok(n_bytes) => hasher.update(&buffer[..n_bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
