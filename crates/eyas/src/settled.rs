//! From what was typed to what is needed: recipe plus flags, checked, with the run folder known.

use crate::cli::{GenerateArgs, RecipeArgs};
use crate::error::CommandError;
use crate::recipe::{DatasetRecipe, Engine, Protocol, Recipe};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A recipe that has been checked, and where its run lies.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    /// Recipe with flags applied and paths made absolute.
    pub(crate) recipe: Recipe,
    /// Run folder.
    pub(crate) run: PathBuf,
}

impl Settled {
    /// Reads the recipe that `args` name and applies the flags.
    pub(crate) fn from_args(args: &RecipeArgs) -> Result<Self, CommandError> {
        let mut recipe = match recipe_path(args) {
            Some(path) => Recipe::read(&path)?,
            None if args.model.is_some() && !args.data.is_empty() => Recipe::default(),
            None => {
                return Err(CommandError::usage(anyhow::anyhow!("no recipe: there is no `eyas.toml` here"))
                    .hint("name one (`eyas run my.toml`), or give --model and --data"));
            }
        };
        apply_recipe_flags(&mut recipe, args)?;
        let run = args.run.clone().or_else(|| recipe.run.clone()).unwrap_or_else(|| "runs/run".into());
        recipe.run = Some(absolute(&run));
        Self { recipe, run }.checked()
    }

    /// The same, with the flags of generation.
    pub(crate) fn from_generate_args(args: &GenerateArgs) -> Result<Self, CommandError> {
        let mut settled = Self::from_args(&args.recipe)?;
        let generate = &mut settled.recipe.generate;
        if !args.endpoint.is_empty() {
            generate.endpoints.clone_from(&args.endpoint);
            generate.engine = None;
        }
        generate.engine = args.engine.or(generate.engine);
        set(&mut generate.protocol, args.protocol);
        set(&mut generate.concurrency, args.concurrency);
        set(&mut generate.max_attempts, args.max_attempts);
        set(&mut settled.recipe.gates.action, args.on_gate);
        settled.checked()
    }

    /// Refuses what cannot work, in words that name the key.
    pub(crate) fn checked(self) -> Result<Self, CommandError> {
        let recipe = &self.recipe;
        let refuse = |what: String| Err(CommandError::usage(anyhow::anyhow!(what)));
        if recipe.target.model.as_os_str().is_empty() {
            return Err(CommandError::usage(anyhow::anyhow!("the recipe names no target"))
                .hint("set `model` under `[target]`, or give --model"));
        }
        if recipe.dataset.is_empty() {
            return Err(CommandError::usage(anyhow::anyhow!("the recipe names no data set"))
                .hint("add a `[[dataset]]` with a `path`, or give --data PATH"));
        }
        let mut names = HashSet::new();
        for dataset in &recipe.dataset {
            let name = dataset.name();
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
                return refuse(format!("data set name `{name}` cannot be a folder name"));
            }
            if !names.insert(name.clone()) {
                return Err(CommandError::usage(anyhow::anyhow!("two data sets are named `{name}`"))
                    .hint("give one of them another `name`"));
            }
        }
        if let Some(problem) = recipe.sampling.problem() {
            return refuse(format!("sampling: {problem}"));
        }
        let generate = &recipe.generate;
        if generate.concurrency == 0 || generate.max_attempts == 0 {
            return refuse("generate: concurrency and max_attempts must be at least 1".into());
        }
        if recipe.engine() == Engine::Server && generate.endpoints.is_empty() {
            return Err(CommandError::usage(anyhow::anyhow!("engine `server` needs at least one endpoint"))
                .hint("set `endpoints` under `[generate]`, or give --endpoint http://HOST:PORT"));
        }
        if generate.protocol == Protocol::Openai && !generate.allow_text {
            return Err(CommandError::usage(anyhow::anyhow!(
                "protocol `openai` gives text without exact token ids, which cannot become training records"
            ))
            .hint("use `protocol = \"sglang\"`, or accept text with `allow_text = true` under `[generate]`"));
        }
        if !(0.0..=1.0).contains(&recipe.gates.min_reasoning_capture) {
            return refuse(format!(
                "gates: min_reasoning_capture must be in [0, 1], got {}",
                recipe.gates.min_reasoning_capture
            ));
        }
        Ok(self)
    }

    /// Folder of one data set.
    pub(crate) fn dataset_dir(&self, name: &str) -> PathBuf {
        self.run.join("prepared").join(name)
    }
}

fn recipe_path(args: &RecipeArgs) -> Option<PathBuf> {
    if let Some(path) = &args.recipe {
        // A run folder may be named where a recipe is expected.
        return Some(if path.is_dir() { path.join("eyas.toml") } else { path.clone() });
    }
    let of_run = args.run.as_ref().map(|run| run.join("eyas.toml"));
    of_run.into_iter().chain([PathBuf::from("eyas.toml")]).find(|path| path.is_file())
}

fn apply_recipe_flags(recipe: &mut Recipe, args: &RecipeArgs) -> Result<(), CommandError> {
    set(&mut recipe.target.model, args.model.clone());
    if !args.data.is_empty() {
        recipe.dataset = args.data.iter().map(|given| dataset_of(given)).collect();
    }
    if args.max_prompts.is_some() {
        recipe.dataset.iter_mut().for_each(|dataset| dataset.max_prompts = args.max_prompts);
    }
    set(&mut recipe.seed, args.seed);
    set(&mut recipe.reasoning.mode, args.reasoning);
    let sampling = &mut recipe.sampling;
    set(&mut sampling.max_new_tokens, args.max_new_tokens);
    set(&mut sampling.temperature, args.temperature);
    set(&mut sampling.top_p, args.top_p);
    set(&mut sampling.top_k, args.top_k);

    recipe.target.model = absolute(&recipe.target.model);
    for path in [&mut recipe.target.tokenizer, &mut recipe.target.chat_template].into_iter().flatten() {
        *path = absolute(path);
    }
    for dataset in &mut recipe.dataset {
        if !dataset.path.exists() {
            return Err(CommandError::usage(anyhow::anyhow!(
                "data set `{}`: there is no `{}`",
                dataset.name(),
                dataset.path.display()
            )));
        }
        dataset.path = absolute(&dataset.path);
    }
    Ok(())
}

fn dataset_of(given: &str) -> DatasetRecipe {
    let (name, path) = match given.split_once('=') {
        Some((name, path)) if !name.contains('/') => (Some(name.to_owned()), path),
        _ => (None, given),
    };
    DatasetRecipe { name, path: path.into(), ..DatasetRecipe::default() }
}

fn set<T>(value: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *value = flag;
    }
}

fn absolute(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        return path.to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
