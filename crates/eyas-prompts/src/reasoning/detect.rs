//! Choosing a format: by name, or by what the vocabulary and the chat template hold.

use super::builtin::{BUILTINS, Builtin, BuiltinScheme, TOOL_STARTS};
use super::channels::ChannelMarkers;
use super::{Marker, ReasoningFormat, Scheme, TagMarkers};
use crate::tokenizer::Tokenizer;

/// A format name that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown reasoning format `{name}`; this build knows {}", known_formats().join(", "))]
pub struct UnknownFormat {
    /// What was asked for.
    pub name: String,
}

/// Names of all known formats.
pub fn known_formats() -> Vec<&'static str> {
    BUILTINS.iter().map(|builtin| builtin.name).collect()
}

impl ReasoningFormat {
    /// A format by name. Without a tokenizer it can only split text.
    pub fn named(name: &str, tokenizer: Option<&Tokenizer>) -> Result<Self, UnknownFormat> {
        let builtin = BUILTINS.iter().find(|builtin| builtin.name == name);
        let builtin = builtin.ok_or_else(|| UnknownFormat { name: name.to_owned() })?;
        Ok(Self::build(builtin, tokenizer, "it was asked for by name".to_owned()))
    }

    /// The format whose markers the vocabulary and the chat template hold; `none` when there is none.
    ///
    /// A format whose markers stand in both is preferred to one whose markers stand in the template alone (plain text markers), and that to
    /// one that only the vocabulary has (a template that leaves thinking to the model).
    pub fn detect(tokenizer: &Tokenizer, template_text: &str) -> Self {
        let mut best: Option<(u8, &Builtin, String)> = None;
        for builtin in BUILTINS {
            if let Some((score, why)) = evidence(builtin, tokenizer, template_text)
                && best.as_ref().is_none_or(|(best_score, ..)| score > *best_score)
            {
                best = Some((score, builtin, why));
            }
        }
        match best {
            Some((_, builtin, why)) => Self::build(builtin, Some(tokenizer), why),
            None => Self {
                name: "none",
                why: "neither the vocabulary nor the chat template holds a known reasoning marker".to_owned(),
                scheme: Scheme::None,
                tools: tool_markers(Some(tokenizer)),
                stop_texts: stop_texts(Some(tokenizer)),
            },
        }
    }

    fn build(builtin: &Builtin, tokenizer: Option<&Tokenizer>, why: String) -> Self {
        let markers = |texts: &[&str]| texts.iter().map(|text| Marker::new(text, tokenizer)).collect();
        let scheme = match &builtin.scheme {
            BuiltinScheme::None => Scheme::None,
            BuiltinScheme::Tags { start, end, wrap } => {
                Scheme::Tags(TagMarkers { start: markers(start), end: markers(end), wrap: *wrap })
            }
            BuiltinScheme::Channels => Scheme::Channels(ChannelMarkers::new(tokenizer)),
        };
        Self { name: builtin.name, why, scheme, tools: tool_markers(tokenizer), stop_texts: stop_texts(tokenizer) }
    }
}

/// How well a format fits, and the sentence that says so. `None` when it does not.
fn evidence(builtin: &Builtin, tokenizer: &Tokenizer, template: &str) -> Option<(u8, String)> {
    let (texts, wrap): (Vec<&str>, Option<&str>) = match &builtin.scheme {
        BuiltinScheme::None => return None,
        BuiltinScheme::Channels => (vec!["<|channel|>", "<|message|>"], None),
        BuiltinScheme::Tags { start, end, wrap } => {
            (start.iter().take(1).chain(end.iter().rev().take(1)).copied().collect(), wrap.map(|(open, _)| open))
        }
    };
    // `<think>` with `<answer>` around the content is only told from plain `<think>` by its template.
    if builtin.name.starts_with("think_") && !wrap.is_some_and(|open| template.contains(open)) {
        return None;
    }
    let ids: Option<Vec<u32>> = texts.iter().map(|text| tokenizer.id_of(control_part(text))).collect();
    // Templates build `</think>` from pieces or print only one of the two: either is evidence.
    let in_template = texts.iter().any(|text| template.contains(text));
    let names = texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(" and ");
    match (ids, in_template) {
        (Some(ids), true) => {
            let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" and ");
            Some((3, format!("{names} stand in the chat template and in the vocabulary (ids {ids})")))
        }
        (None, true) => Some((2, format!("{names} stand in the chat template, as plain text"))),
        (Some(ids), false) => {
            let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" and ");
            Some((1, format!("{names} stand in the vocabulary (ids {ids}), though not in the chat template")))
        }
        (None, false) => None,
    }
}

/// The first control token of a marker that has more in it: `<|channel>` of `<|channel>thought`.
fn control_part(text: &str) -> &str {
    match (text.starts_with("<|"), text.find('>')) {
        (true, Some(end)) => &text[..=end],
        _ => text,
    }
}

fn tool_markers(tokenizer: Option<&Tokenizer>) -> Vec<Marker> {
    let markers = TOOL_STARTS.iter().map(|text| Marker::new(text, tokenizer));
    markers.filter(|marker| marker.id.is_some()).collect()
}

fn stop_texts(tokenizer: Option<&Tokenizer>) -> Vec<String> {
    let Some(tokenizer) = tokenizer else { return Vec::new() };
    tokenizer.eos_ids().iter().filter_map(|id| tokenizer.token_of(*id)).collect()
}
