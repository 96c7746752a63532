//! Where a model folder keeps its chat template.

use super::TemplateError;
use serde_json::Value;
use std::path::Path;

/// Name of the template that is used unless tools call for another.
pub(super) const DEFAULT: &str = "default";

pub(super) const LOOKED_FOR: &str =
    "chat_template.jinja, chat_template.json and `chat_template` in tokenizer_config.json";

/// Template texts by name, and where they were found.
pub(super) struct TemplateSource {
    pub(super) origin: String,
    /// The default one first, where there is one.
    pub(super) templates: Vec<(String, String)>,
}

/// In transformers' order: the `.jinja` file (with `additional_chat_templates/*.jinja` beside it) wins over the older places.
pub(super) fn find(model_dir: &Path) -> Result<TemplateSource, TemplateError> {
    for file in ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"] {
        let path = model_dir.join(file);
        if !path.is_file() {
            continue;
        }
        match read(&path) {
            Ok(mut source) => {
                if file == "chat_template.jinja" {
                    source.templates.extend(additional(&model_dir.join("additional_chat_templates"))?);
                }
                return Ok(source);
            }
            // A tokenizer_config.json without a template is nothing wrong.
            Err(TemplateError::NotFound { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Err(TemplateError::NotFound { model_dir: model_dir.to_path_buf() })
}

/// One file: JSON by its name, else a template.
pub(super) fn read(path: &Path) -> Result<TemplateSource, TemplateError> {
    let text = read_text(path)?;
    let origin = path.display().to_string();
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(TemplateSource { origin, templates: vec![(DEFAULT.to_owned(), text)] });
    }
    let bad = |message: String| TemplateError::Config { path: path.to_path_buf(), message };
    let config: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let mut templates = match config.get("chat_template") {
        None | Some(Value::Null) => return Err(TemplateError::NotFound { model_dir: path.to_path_buf() }),
        Some(Value::String(text)) => vec![(DEFAULT.to_owned(), text.clone())],
        Some(Value::Array(named)) => {
            let pair = |entry: &Value| {
                Some((entry.get("name")?.as_str()?.to_owned(), entry.get("template")?.as_str()?.to_owned()))
            };
            let pairs: Option<Vec<_>> = named.iter().map(pair).collect();
            pairs.ok_or_else(|| bad("an entry of `chat_template` lacks `name` or `template`".to_owned()))?
        }
        Some(Value::Object(named)) => {
            let pairs: Option<Vec<_>> =
                named.iter().map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect();
            pairs.ok_or_else(|| bad("an entry of `chat_template` is not a string".to_owned()))?
        }
        Some(_) => return Err(bad("`chat_template` is neither a string nor a list".to_owned())),
    };
    templates.sort_by_key(|(name, _)| name != DEFAULT);
    Ok(TemplateSource { origin, templates })
}

fn additional(folder: &Path) -> Result<Vec<(String, String)>, TemplateError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jinja"));
    paths.sort();
    let named = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, read_text(path)?))
    };
    paths.iter().map(named).collect()
}

fn read_text(path: &Path) -> Result<String, TemplateError> {
    std::fs::read_to_string(path).map_err(|source| TemplateError::Read { path: path.to_path_buf(), source })
}
