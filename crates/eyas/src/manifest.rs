//! `manifest.json`: the settled configuration of a run, what shaped its answers, and how far each stage has come.
//!
//! Schema `eyas.manifest/1`. Written atomically; readers may read it at any time. The file is for people and tools; what is done is never
//! read from here but from the journals themselves.

use crate::error::CommandError;
use crate::recipe::Recipe;
use eyas_types::{Fingerprint, FingerprintInputs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "eyas.manifest/1";

/// The manifest of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// Version of eyas that wrote it last.
    pub(crate) eyas_version: String,
    /// When the run folder was made, milliseconds since 1970.
    pub(crate) created_unix_ms: u64,
    /// The date templates see, `YYYY-MM-DD`.
    pub(crate) template_date: String,
    /// The settled recipe.
    pub(crate) recipe: Recipe,
    /// Everything that shapes the answers, by name; set when generation first starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint_inputs: Option<FingerprintInputs>,
    /// Its short name, which every record carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Report of the last `prepare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prepare: Option<Value>,
    /// What the last `generate` came to, and what the servers said of themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) generate: Option<Value>,
}

impl Manifest {
    /// The manifest of the run folder `run`, or a new one.
    pub(crate) fn open(run: &Path, recipe: &Recipe) -> Result<Self, CommandError> {
        let path = path(run);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::new(recipe)),
            Err(error) => {
                return Err(CommandError::input(anyhow::anyhow!("cannot read `{}`: {error}", path.display())));
            }
        };
        let mut manifest: Self = serde_json::from_str(&text).map_err(|error| {
            CommandError::input(anyhow::anyhow!("`{}` is not a manifest of this version: {error}", path.display()))
                .hint("use the version of eyas that made the run, or another run folder")
        })?;
        if manifest.schema != SCHEMA {
            return Err(CommandError::input(anyhow::anyhow!(
                "`{}` has schema `{}`; this build knows `{SCHEMA}`",
                path.display(),
                manifest.schema
            )));
        }
        manifest.recipe = recipe.clone();
        manifest.eyas_version = env!("CARGO_PKG_VERSION").into();
        if let Some(date) = &recipe.target.template_date {
            manifest.template_date.clone_from(date);
        }
        Ok(manifest)
    }

    fn new(recipe: &Recipe) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let created_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Self {
            schema: SCHEMA.into(),
            eyas_version: env!("CARGO_PKG_VERSION").into(),
            created_unix_ms,
            template_date: recipe
                .target
                .template_date
                .clone()
                .unwrap_or_else(|| civil_date(created_unix_ms / 86_400_000)),
            recipe: recipe.clone(),
            fingerprint_inputs: None,
            fingerprint: None,
            prepare: None,
            generate: None,
        }
    }

    /// Writes manifest and settled recipe into the run folder.
    pub(crate) fn save(&self, run: &Path) -> Result<(), CommandError> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            CommandError::input(anyhow::anyhow!("cannot write `{}`: {error}", path.display()))
        };
        std::fs::create_dir_all(run).map_err(|error| failed(run, &error))?;
        let mut json = serde_json::to_vec_pretty(self).map_err(|error| failed(&path(run), &error))?;
        json.push(b'\n');
        eyas_journal::write_atomic(path(run), &json).map_err(|error| failed(&path(run), &error))?;

        let recipe_path = run.join("eyas.toml");
        let recipe = toml::to_string(&self.recipe).map_err(|error| failed(&recipe_path, &error))?;
        let recipe =
            format!("# The settled recipe of this run: defaults filled in, flags applied, paths absolute.\n{recipe}");
        eyas_journal::write_atomic(&recipe_path, recipe.as_bytes()).map_err(|error| failed(&recipe_path, &error))
    }
}

fn path(run: &Path) -> PathBuf {
    run.join("manifest.json")
}

/// `YYYY-MM-DD` (UTC) of a day counted from 1970-01-01. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn civil_date(days_since_1970: u64) -> String {
    let z = days_since_1970 + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::civil_date;

    #[test]
    fn dates() {
        let check = |days, date: &str| assert_eq!(civil_date(days), date);
        check(0, "1970-01-01");
        check(11_016, "2000-02-29");
        check(11_017, "2000-03-01");
        check(20_786, "2026-11-29");
    }
}
