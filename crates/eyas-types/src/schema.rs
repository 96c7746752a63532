//! Names and versions of on-disk records.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// The schema of a record or document, printed as `eyas.<name>/<version>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schema {
    name: &'static str,
    version: u32,
}

impl Schema {
    /// A line of `prompts.jsonl`.
    pub const PROMPT: Self = Self { name: "prompt", version: 1 };
    /// A line of `rejected.jsonl`.
    pub const REJECTED: Self = Self { name: "rejected", version: 1 };
    /// A line of `raw_responses.jsonl`.
    pub const RESPONSE: Self = Self { name: "response", version: 1 };
    /// A line of `failed.jsonl`.
    pub const FAILED: Self = Self { name: "failed", version: 1 };

    const ALL: [Self; 4] = [Self::PROMPT, Self::REJECTED, Self::RESPONSE, Self::FAILED];
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eyas.{}/{}", self.name, self.version)
    }
}

/// A schema string that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaMismatch(pub String);

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown schema `{}`; this build knows ", self.0)?;
        for (n, schema) in Schema::ALL.iter().enumerate() {
            write!(f, "{}`{schema}`", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for SchemaMismatch {}

impl std::str::FromStr for Schema {
    type Err = SchemaMismatch;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|schema| schema.to_string() == s).ok_or_else(|| SchemaMismatch(s.to_owned()))
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
