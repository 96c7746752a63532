//! Which rule is for which request.

use super::config::{FaultKind, FaultRule, Respond, When};
use super::draw::Draw;
use crate::fault::WireFault;
use crate::json::Json;
use crate::refusal::Refusal;
use axum::http::StatusCode;
use serde_json::Value;

/// A request as the rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) seed: u64,
    /// From 1.
    pub(crate) n: u64,
    /// From 1; 1 when tries are not counted.
    pub(crate) attempt: u32,
    pub(crate) hash: u64,
    pub(crate) rid: &'a str,
    pub(crate) input_ids: &'a [u32],
    pub(crate) text: Option<&'a str>,
    pub(crate) path: &'a str,
}

impl When {
    /// Whether every condition holds. `rule` tells rules apart, so that two coins are two coins.
    pub(crate) fn matches(&self, seen: &Seen<'_>, rule: usize) -> bool {
        let Self { every, requests, requests_from, attempts, attempts_from, probability, share, ids, text, path } =
            self;
        let purpose = 100 + rule as u64;
        every.is_none_or(|every| seen.n.is_multiple_of(every))
            && (requests.is_empty() || requests.contains(&seen.n))
            && requests_from.is_none_or(|from| seen.n >= from)
            && attempts.is_none_or(|attempts| seen.attempt <= attempts)
            && attempts_from.is_none_or(|from| seen.attempt >= from)
            && path.as_ref().is_none_or(|path| path == seen.path)
            && (ids.is_empty() || seen.input_ids.windows(ids.len()).any(|window| window == ids))
            && text.as_ref().is_none_or(|text| seen.text.is_some_and(|seen| seen.contains(text.as_str())))
            && share.is_none_or(|share| Draw::new(seen.seed, seen.hash, purpose).uniform() < share)
            && probability.is_none_or(|probability| {
                let key = seen.hash ^ u64::from(seen.attempt).rotate_left(40);
                Draw::new(seen.seed, key, purpose << 20).uniform() < probability
            })
    }
}

impl FaultRule {
    /// The fault on the wire; `None` for faults inside the answer.
    pub(crate) fn wire_fault(&self, seen: &Seen<'_>) -> Option<WireFault> {
        let words = |default: &str| self.message.clone().unwrap_or_else(|| default.to_owned());
        let refusal = match self.kind {
            FaultKind::Status400 => Refusal::bad_value(words("The script refuses this request.")),
            FaultKind::Status429 => Refusal::object(StatusCode::TOO_MANY_REQUESTS, words("Too many requests.")),
            FaultKind::Status500 => {
                Refusal::object(StatusCode::INTERNAL_SERVER_ERROR, words("Internal error by script."))
            }
            FaultKind::Status503 => {
                Refusal::flat(StatusCode::SERVICE_UNAVAILABLE, "503", words("The request queue is full."))
            }
            FaultKind::Respond => return self.respond.as_ref().map(|respond| respond.fill(seen)),
            FaultKind::Reset => return Some(WireFault::Reset),
            FaultKind::ResetMidBody => return Some(WireFault::ResetMidBody),
            FaultKind::Hang => return Some(WireFault::Hang),
            FaultKind::HangMidBody => return Some(WireFault::HangMidBody),
            FaultKind::MalformedJson => return Some(WireFault::MalformedJson),
            FaultKind::CutBody => return Some(WireFault::CutBody),
            FaultKind::EmptyBody => return Some(WireFault::EmptyBody),
            FaultKind::BadUtf8 => return Some(WireFault::BadUtf8),
            FaultKind::StreamEnds => return Some(WireFault::StreamEnds),
            FaultKind::Die => return Some(WireFault::Die),
            FaultKind::Abort200
            | FaultKind::MissingOutputIds
            | FaultKind::WrongCounts
            | FaultKind::NeverClosesReasoning
            | FaultKind::NanStop
            | FaultKind::WrongRid => return None,
        };
        Some(refusal.into_wire_fault(self.retry_after_s))
    }
}

impl Respond {
    fn fill(&self, seen: &Seen<'_>) -> WireFault {
        let body = match &self.body {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            body => Json::default().value(&filled(body, seen)).0.split_off(0),
        };
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        WireFault::Reply { status: self.status, headers, body }
    }
}

fn filled(value: &Value, seen: &Seen<'_>) -> Value {
    match value {
        Value::String(text) => match text.as_str() {
            "$rid" => seen.rid.into(),
            "$prompt_tokens" => seen.input_ids.len().into(),
            "$prompt_ids" => seen.input_ids.into(),
            "$attempt" => seen.attempt.into(),
            "$n" => seen.n.into(),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| filled(item, seen)).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, item)| (key.clone(), filled(item, seen))).collect())
        }
        _ => value.clone(),
    }
}
