//! What a script has counted.

use super::config::FaultKind;
use serde::Serialize;
use std::collections::BTreeMap;

/// Counts since the start; `GET /script/stats` gives them as JSON, with `?prompts=true` each prompt's tries too.
///
/// `requests` counts every answer asked for that passed the checks of the body: `n` answers for `n` > 1, the rows of a batch one by one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScriptStats {
    /// Always `eyas.script_stats/1`.
    pub schema: &'static str,
    /// Answers asked for.
    pub requests: u64,
    /// Answers generated to their end. Faults in delivery count here: the server has done its work.
    pub answered: u64,
    /// Answers ended by an abort.
    pub aborted: u64,
    /// Answers whose client left, or whose connection a fault cut, before the end.
    pub disconnected: u64,
    /// Answers under way.
    pub in_flight: u64,
    /// Most answers under way at one time.
    pub max_in_flight: u64,
    /// Requests turned down because the queue was full.
    pub overflowed: u64,
    /// Tokens of the prompts of the answers that ended.
    pub prompt_tokens: u64,
    /// Tokens of the answers that ended.
    pub completion_tokens: u64,
    /// Faults that struck, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Different prompts seen, by ids.
    pub distinct_prompts: u64,
    /// Tries → number of prompts tried so often.
    pub tries: BTreeMap<u32, u64>,
    /// [`super::prompt_hash`] in 16 hexadecimal digits → tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<BTreeMap<String, u32>>,
}

impl ScriptStats {
    /// Most tries of one prompt.
    pub fn max_tries(&self) -> u32 {
        self.tries.last_key_value().map_or(0, |(tries, _)| *tries)
    }

    pub(crate) fn to_json(&self) -> String {
        // Plain fields and string keys: serialising them cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
