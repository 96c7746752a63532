//! What `eyas demo` runs on: the small target and its prompts, carried inside the binary so that the demo works wherever it is installed.

use crate::error::CommandError;
use crate::recipe::{DatasetRecipe, Engine, Recipe};
use eyas_journal::write_atomic;
use std::path::Path;

/// A file by name.
type File = (&'static str, &'static [u8]);

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../", $folder, "/", $name)))),+]
    };
}

/// `models/eyas-tiny`; its card says how it came about.
const MODEL: &[File] = files!("models/eyas-tiny":
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja");

/// Held-out prompts of the kinds that the model was trained on.
const DATA: &[File] = files!("data/demo": "arithmetic.jsonl", "words.jsonl", "tools.jsonl");

/// Writes the demo's files into the run folder and returns the recipe over them.
pub(crate) fn unpack(run: &Path) -> Result<Recipe, CommandError> {
    let (model, data) = (run.join("target"), run.join("data"));
    for (dir, files) in [(&model, MODEL), (&data, DATA)] {
        let failed = |error: anyhow::Error| {
            CommandError::input(error.context(format!("cannot write the demo's files to `{}`", dir.display())))
        };
        std::fs::create_dir_all(dir).map_err(|error| failed(error.into()))?;
        for (name, bytes) in files {
            let path = dir.join(name);
            // Files that are there already keep their times, so that a second demo sees nothing changed.
            if std::fs::read(&path).ok().as_deref() != Some(*bytes) {
                write_atomic(&path, bytes).map_err(|error| failed(error.into()))?;
            }
        }
    }
    let mut recipe = Recipe { seed: 1, ..Recipe::default() };
    recipe.target.model = model;
    recipe.dataset =
        DATA.iter().map(|(name, _)| DatasetRecipe { path: data.join(name), ..DatasetRecipe::default() }).collect();
    recipe.sampling.temperature = 0.0;
    recipe.sampling.max_new_tokens = MAX_NEW_TOKENS;
    recipe.generate.engine = Some(Engine::Embedded);
    recipe.inspect.thresholds = vec![64, 128, 256, 512];
    Ok(recipe)
}

/// Longer than any answer of the bundled kinds.
const MAX_NEW_TOKENS: u32 = 512;
