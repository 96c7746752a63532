//! `sampling_params` of `/generate`: SGLang's keys, defaults and ranges.

use crate::refusal::Refusal;
use serde::de::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Sampling parameters as a request gives them. A key that is not here is refused by name.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sampling {
    /// `None`: no limit but the context.
    pub(crate) max_new_tokens: Option<i64>,
    pub(crate) min_new_tokens: i64,
    pub(crate) temperature: f64,
    pub(crate) top_p: f64,
    pub(crate) top_k: i64,
    pub(crate) min_p: f64,
    pub(crate) frequency_penalty: f64,
    pub(crate) presence_penalty: f64,
    pub(crate) repetition_penalty: f64,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) stop: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) stop_token_ids: Vec<u32>,
    #[serde(deserialize_with = "one_or_many")]
    stop_regex: Vec<String>,
    pub(crate) n: u32,
    beam_width: Option<u32>,
    json_schema: Option<serde_json::Value>,
    regex: Option<String>,
    ebnf: Option<String>,
    structural_tag: Option<serde_json::Value>,
    pub(crate) ignore_eos: bool,
    pub(crate) skip_special_tokens: bool,
    spaces_between_special_tokens: bool,
    pub(crate) no_stop_trim: bool,
    logit_bias: Option<BTreeMap<String, f64>>,
    pub(crate) sampling_seed: Option<i64>,
    stream_interval: Option<u32>,
    custom_params: Option<serde_json::Value>,
    watermark: Option<serde_json::Value>,
    choice: Option<serde_json::Value>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            max_new_tokens: Some(128),
            min_new_tokens: 0,
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty: 1.0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            stop_regex: Vec::new(),
            n: 1,
            beam_width: None,
            json_schema: None,
            regex: None,
            ebnf: None,
            structural_tag: None,
            ignore_eos: false,
            skip_special_tokens: true,
            spaces_between_special_tokens: true,
            no_stop_trim: false,
            logit_bias: None,
            sampling_seed: None,
            stream_interval: None,
            custom_params: None,
            watermark: None,
            choice: None,
        }
    }
}

impl Sampling {
    /// The first value outside its range, in SGLang's words.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let problem = self.range_problem().or_else(|| {
            let unsupported = self.unsupported()?;
            Some(format!("{unsupported} is not supported by this server."))
        });
        problem.map_or(Ok(()), |message| Err(Refusal::bad_value(message)))
    }

    fn range_problem(&self) -> Option<String> {
        let Self { temperature, top_p, top_k, min_p, frequency_penalty, presence_penalty, repetition_penalty, .. } =
            self;
        let (min_new, n) = (self.min_new_tokens, self.n);
        if !(temperature.is_finite() && *temperature >= 0.0) {
            return Some(format!("temperature must be a non-negative finite number, got {temperature}."));
        }
        if !(*top_p > 0.0 && *top_p <= 1.0) {
            return Some(format!("top_p must be in (0, 1], got {top_p}."));
        }
        if !(0.0..=1.0).contains(min_p) {
            return Some(format!("min_p must be in [0, 1], got {min_p}."));
        }
        if *top_k != -1 && *top_k < 1 {
            return Some(format!("top_k must be -1 (disable) or at least 1, got {top_k}."));
        }
        if !(-2.0..=2.0).contains(frequency_penalty) {
            return Some(format!("frequency_penalty must be in [-2, 2], got {frequency_penalty}."));
        }
        if !(-2.0..=2.0).contains(presence_penalty) {
            return Some(format!("presence_penalty must be in [-2, 2], got {presence_penalty}."));
        }
        if !(*repetition_penalty > 0.0 && *repetition_penalty <= 2.0) {
            return Some(format!("repetition_penalty must be in (0, 2], got {repetition_penalty}."));
        }
        match self.max_new_tokens {
            Some(max) if max < 0 => return Some(format!("max_new_tokens must be at least 0, got {max}.")),
            Some(max) if !(0..=max).contains(&min_new) => {
                return Some(format!("min_new_tokens must be in [0, max_new_tokens({max})], got {min_new}."));
            }
            None if min_new < 0 => return Some(format!("min_new_tokens must be at least 0, got {min_new}.")),
            _ => {}
        }
        if n == 0 {
            return Some("n must be at least 1, got 0.".to_owned());
        }
        if self.stop.iter().any(String::is_empty) {
            return Some("stop must not hold an empty string.".to_owned());
        }
        (self.stop.len() > 32).then(|| format!("stop must hold at most 32 strings, got {}.", self.stop.len()))
    }

    /// A parameter that would change the answer and that nothing here honours.
    fn unsupported(&self) -> Option<&'static str> {
        let on = |value: f64| value.abs() > 0.0;
        [
            ("min_new_tokens", self.min_new_tokens > 0),
            ("frequency_penalty", on(self.frequency_penalty)),
            ("presence_penalty", on(self.presence_penalty)),
            ("stop_regex", !self.stop_regex.is_empty()),
            ("beam_width", self.beam_width.is_some_and(|width| width > 1)),
            ("json_schema", self.json_schema.is_some()),
            ("regex", self.regex.is_some()),
            ("ebnf", self.ebnf.is_some()),
            ("structural_tag", self.structural_tag.is_some()),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|bias| !bias.is_empty())),
            ("watermark", self.watermark.is_some()),
            ("choice", self.choice.is_some()),
        ]
        .into_iter()
        .find_map(|(name, asked)| asked.then_some(name))
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(text)) => vec![text],
        Some(OneOrMany::Many(texts)) => texts,
    })
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
