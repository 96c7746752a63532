//! What shaped an answer, and a short name for it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Everything that shapes the answers of a run, as named values: target, template, tokenizer, sampling, reasoning mode, server.
///
/// The whole set lies in the manifest, so that a resume under other settings can say which of them changed; records carry only the
/// [`Fingerprint`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FingerprintInputs(Map<String, Value>);

impl FingerprintInputs {
    /// Sets one input. Names are dotted paths as the recipe writes them (`sampling.temperature`).
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// The value of one input.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The short name: xxh3-128 of the inputs as compact JSON with sorted keys.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut pairs: Vec<_> = self.0.iter().collect();
        pairs.sort_by_key(|(name, _)| name.as_str());
        let mut text = String::new();
        for (name, value) in pairs {
            text.push_str(name);
            text.push('=');
            text.push_str(&value.to_string());
            text.push('\n');
        }
        Fingerprint(format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes())))
    }

    /// Names whose values differ, each with (value here, value there); absent values are `null`.
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<(&'a str, Value, Value)> {
        let mut names: Vec<&str> = self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let value = |inputs: &Self, name: &str| inputs.0.get(name).cloned().unwrap_or(Value::Null);
        names
            .into_iter()
            .map(|name| (name, value(self, name), value(other, name)))
            .filter(|(_, here, there)| here != there)
            .collect()
    }
}

/// 32 hexadecimal digits that stand for [`FingerprintInputs`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_setting_does_not_matter_and_differences_are_named() {
        let mut a = FingerprintInputs::default();
        a.set("target", "m");
        a.set("sampling.temperature", 1.0);
        let mut b = FingerprintInputs::default();
        b.set("sampling.temperature", 1.0);
        b.set("target", "m");
        assert_eq!(a.fingerprint(), b.fingerprint());

        b.set("sampling.temperature", 0.0);
        b.set("reasoning", "off");
        assert_ne!(a.fingerprint(), b.fingerprint());
        let names: Vec<_> = a.differences(&b).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["reasoning", "sampling.temperature"]);
    }
}
