//! Harmony: an answer is a list of messages, each on a channel.

use super::Marker;
use super::output::{IdOutput, Output};
use super::split::{Bodies, Cut};
use crate::tokenizer::Tokenizer;
use eyas_types::{Flag, FunctionCall, ThinkState, ToolCall};
use serde_json::Value;
use std::ops::Range;

/// What may stand at the very end of a text.
pub(super) const STOP_TEXTS: &[&str] = &["<|return|>", "<|call|>", "<|end|>"];

const CHANNEL: &str = "<|channel|>";

/// Harmony's control tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChannelMarkers {
    start: Marker,
    channel: Marker,
    message: Marker,
    /// `<|end|>`, `<|return|>`, `<|call|>`.
    closers: Vec<Marker>,
}

/// One message, in units of the output.
struct ChannelMessage {
    header: Range<usize>,
    body: Range<usize>,
    kind: Kind,
    /// Whether a closing marker (or the next message) followed.
    closed: bool,
}

enum Kind {
    Analysis,
    Shown,
    Call { name: String },
}

impl ChannelMarkers {
    pub(super) fn new(tokenizer: Option<&Tokenizer>) -> Self {
        let marker = |text| Marker::new(text, tokenizer);
        Self {
            start: marker("<|start|>"),
            channel: marker(CHANNEL),
            message: marker("<|message|>"),
            closers: STOP_TEXTS.iter().map(|text| marker(text)).collect(),
        }
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        let markers = [&self.start, &self.channel, &self.message].into_iter().chain(&self.closers);
        markers.map(|marker| marker.text.as_str()).collect()
    }
}

/// Open when the prompt itself begins an `analysis` message, closed when it begins another one; a prompt that ends in a header
/// (`<|start|>assistant`) leaves it to the model.
pub(super) fn think_state(markers: &ChannelMarkers, tokenizer: &Tokenizer, prompt_ids: &[u32]) -> ThinkState {
    let output = IdOutput::new(tokenizer, prompt_ids);
    let last = |marker: &Marker| output.find(marker).pop().map_or(0, |hit| hit.end);
    let (header, body) = (last(&markers.start), last(&markers.message));
    let closer = output.find_any(&markers.closers).pop().map_or(0, |hit| hit.end);
    if body <= header || body <= closer {
        return ThinkState::Undecided;
    }
    match kind_of(&output.text(header..body)) {
        Kind::Analysis => ThinkState::Open,
        _ => ThinkState::Closed,
    }
}

/// Takes an answer apart. See [`super`] for how messages become five parts.
pub(super) fn cut(markers: &ChannelMarkers, output: &impl Output, think: ThinkState, ended_by_itself: bool) -> Cut {
    let messages = messages(markers, output, think);
    let mut cut = Cut::all_content(output.len());
    cut.markers_seen = messages.iter().any(|message| matches!(message.kind, Kind::Analysis));
    if messages.is_empty() {
        return cut;
    }
    let n_leading = messages.iter().take_while(|message| matches!(message.kind, Kind::Analysis)).count();
    let next = messages.get(n_leading);
    // Content begins with the body that is shown, or with the header of a call; with nothing after the reasoning, at the end.
    let content_start = match next {
        Some(ChannelMessage { kind: Kind::Call { .. }, header, .. }) => header.start,
        Some(message) => message.body.start,
        None => output.len(),
    };
    match n_leading.checked_sub(1).and_then(|last| messages.get(last)) {
        Some(last) => cut.set(messages[0].body.start, last.body.end, content_start),
        None => cut.set(0, 0, content_start),
    }
    if next.is_none() {
        let last_closed = messages.last().is_some_and(|message| message.closed);
        if !ended_by_itself {
            cut.flags.push(Flag::TruncatedInReasoning);
        } else if !last_closed {
            cut.flags.push(Flag::UnclosedReasoning);
        }
    }

    let mut bodies = Bodies::default();
    let n_messages = messages.len();
    for (n, message) in messages.into_iter().enumerate() {
        match message.kind {
            Kind::Analysis => {
                if n >= n_leading {
                    cut.flags.push(Flag::ExtraThink);
                }
                bodies.reasoning.push(message.body);
            }
            Kind::Shown => bodies.content.push(message.body),
            Kind::Call { name } => match serde_json::from_str::<Value>(output.text(message.body).trim()) {
                Ok(arguments) => cut.tool_calls.push(ToolCall {
                    id: None,
                    kind: Some("function".to_owned()),
                    function: FunctionCall { name, arguments },
                }),
                Err(_) if n + 1 == n_messages && !message.closed && !ended_by_itself => {
                    cut.flags.push(Flag::TruncatedToolCall);
                }
                Err(_) => cut.flags.push(Flag::MalformedToolCall),
            },
        }
    }
    cut.bodies = Some(bodies);
    cut
}

fn messages(markers: &ChannelMarkers, output: &impl Output, think: ThinkState) -> Vec<ChannelMessage> {
    let bodies = output.find(&markers.message);
    let mut ends = output.find_any(&markers.closers);
    ends.extend(output.find(&markers.start).into_iter().map(|start| start.start..start.start));
    ends.sort_by_key(|end| (end.start, end.end));

    let mut messages = Vec::new();
    let mut at = 0;
    let end_of_body = |from: usize| ends.iter().find(|end| end.start >= from && (end.end > from)).cloned();
    let mut push = |header: Range<usize>, body_start: usize, kind: Kind| {
        let end = end_of_body(body_start);
        let body_end = end.as_ref().map_or(output.len(), |end| end.start);
        messages.push(ChannelMessage { header, body: body_start..body_end, kind, closed: end.is_some() });
        end.map_or(output.len(), |end| end.end)
    };
    // A prompt that ends within a message: the answer goes on with its body.
    match think {
        ThinkState::Open => at = push(0..0, 0, Kind::Analysis),
        ThinkState::Closed => at = push(0..0, 0, Kind::Shown),
        ThinkState::Undecided => {}
    }
    for body in bodies {
        if body.start < at {
            continue;
        }
        let header = at..body.start;
        let kind = kind_of(&output.text(header.clone()));
        at = push(header, body.end, kind);
    }
    messages
}

/// What a header says: `<|start|>assistant to=functions.calc<|channel|>commentary <|constrain|>json`.
fn kind_of(header: &str) -> Kind {
    let recipient = header.split("to=").nth(1).map(|rest| word(rest, |c| c.is_alphanumeric() || "._-".contains(c)));
    if let Some(recipient) = recipient.filter(|recipient| !recipient.is_empty()) {
        let name = recipient.strip_prefix("functions.").unwrap_or(recipient);
        return Kind::Call { name: name.to_owned() };
    }
    let channel = header.split(CHANNEL).nth(1).map(|rest| word(rest, char::is_alphanumeric));
    if channel == Some("analysis") { Kind::Analysis } else { Kind::Shown }
}

fn word(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    &text[..end]
}
