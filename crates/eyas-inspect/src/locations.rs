//! Where tools put things: the table of known locations, and the trie that finds them during the scan.
//!
//! A path is keys joined by dots. `key[0]` is the first element of an array, `key[last]` the last message of a conversation when it is the
//! assistant's. `len(path)` is the number of elements of an array, `sum(path)` the sum of an array of integers. For each field the first
//! location of the table that holds something wins; a location that holds nothing (`null`, an empty string) gives way to a later one that
//! does.

use serde::{Deserialize, Serialize};

/// What a location means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Tokens generated, the stop token included where the source says so.
    CompletionTokens,
    /// Tokens of the prompt.
    PromptTokens,
    /// Tokens generated that are reasoning.
    ReasoningTokens,
    /// Text of the reasoning.
    Reasoning,
    /// Text of the answer.
    Content,
    /// Calls in parsed form.
    ToolCalls,
    /// Why the answer ended.
    FinishReason,
    /// Id of the row's prompt.
    Id,
    /// Id of the conversation, where it differs from the row's.
    ConversationId,
    /// Which turn of the conversation.
    Turn,
    /// Data set.
    Dataset,
    /// Fingerprint of the settings.
    Fingerprint,
    /// Name of the model.
    Model,
    /// Server that answered.
    Endpoint,
    /// Verify steps of speculative decoding.
    VerifySteps,
    /// Status word of the row.
    Status,
    /// HTTP status of the row.
    StatusCode,
    /// What went wrong.
    Error,
    /// Whether the row was kept.
    Kept,
    /// Flags of an eyas record.
    Flags,
    /// Start of the reasoning in the ids.
    ReasoningStart,
    /// End of the reasoning in the ids.
    ReasoningEnd,
    /// Start of the content in the ids.
    ContentStart,
    /// End of the content in the ids.
    ContentEnd,
    /// When the request was sent, milliseconds since 1970.
    SentUnixMs,
    /// How long it took, milliseconds.
    ElapsedMs,
    /// Number of alternatives in the row.
    Choices,
    /// Role of a message; used by the scan itself.
    Role,
}

impl Field {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 28] = [
        Self::CompletionTokens,
        Self::PromptTokens,
        Self::ReasoningTokens,
        Self::Reasoning,
        Self::Content,
        Self::ToolCalls,
        Self::FinishReason,
        Self::Id,
        Self::ConversationId,
        Self::Turn,
        Self::Dataset,
        Self::Fingerprint,
        Self::Model,
        Self::Endpoint,
        Self::VerifySteps,
        Self::Status,
        Self::StatusCode,
        Self::Error,
        Self::Kept,
        Self::Flags,
        Self::ReasoningStart,
        Self::ReasoningEnd,
        Self::ContentStart,
        Self::ContentEnd,
        Self::SentUnixMs,
        Self::ElapsedMs,
        Self::Choices,
        Self::Role,
    ];

    /// Fields that `--field` can place and that the report lists.
    pub const PLACEABLE: [Self; 15] = [
        Self::CompletionTokens,
        Self::PromptTokens,
        Self::ReasoningTokens,
        Self::Reasoning,
        Self::Content,
        Self::ToolCalls,
        Self::FinishReason,
        Self::Id,
        Self::ConversationId,
        Self::Turn,
        Self::Dataset,
        Self::Fingerprint,
        Self::Model,
        Self::Endpoint,
        Self::VerifySteps,
    ];

    /// Its number.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Its name, as in the report and in `--field`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CompletionTokens => "completion_tokens",
            Self::PromptTokens => "prompt_tokens",
            Self::ReasoningTokens => "reasoning_tokens",
            Self::Reasoning => "reasoning",
            Self::Content => "content",
            Self::ToolCalls => "tool_calls",
            Self::FinishReason => "finish_reason",
            Self::Id => "id",
            Self::ConversationId => "conversation_id",
            Self::Turn => "turn",
            Self::Dataset => "dataset",
            Self::Fingerprint => "fingerprint",
            Self::Model => "model",
            Self::Endpoint => "endpoint",
            Self::VerifySteps => "verify_steps",
            Self::Status => "status",
            Self::StatusCode => "status_code",
            Self::Error => "error",
            Self::Kept => "kept",
            Self::Flags => "flags",
            Self::ReasoningStart => "spans.reasoning.start",
            Self::ReasoningEnd => "spans.reasoning.end",
            Self::ContentStart => "spans.content.start",
            Self::ContentEnd => "spans.content.end",
            Self::SentUnixMs => "sent_unix_ms",
            Self::ElapsedMs => "elapsed_ms",
            Self::Choices => "choices",
            Self::Role => "role",
        }
    }

    /// The field of that name.
    pub fn from_name(name: &str) -> Result<Self, PathError> {
        Self::PLACEABLE.into_iter().find(|field| field.name() == name).ok_or_else(|| PathError::UnknownField {
            name: name.to_owned(),
            known: Self::PLACEABLE.iter().map(|field| field.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// A location that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No `=`.
    #[error("`{text}` is not of the form name=path")]
    NoEquals {
        /// As given.
        text: String,
    },
    /// No such field.
    #[error("unknown field `{name}`; known are {known}")]
    UnknownField {
        /// As given.
        name: String,
        /// The known ones.
        known: String,
    },
    /// More locations than can be looked for.
    #[error("too many locations")]
    TooMany,
    /// Not a path.
    #[error("`{path}` is not a path: {problem}")]
    Malformed {
        /// As given.
        path: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Containers of a chat-style message, with the separator that follows.
const MESSAGES: [&str; 14] = [
    "",
    "message.",
    "choices[0].message.",
    "response.body.choices[0].message.",
    "response.choices[0].message.",
    "raw_response.choices[0].message.",
    "response_message.",
    "response.message.",
    "response.",
    "choices[0].",
    "outputs[0].",
    "messages[last].",
    "conversations[last].",
    "conversation[last].",
];

/// Containers of a usage object.
const USAGES: [&str; 12] = [
    "usage.",
    "meta_info.",
    "",
    "choices[0].meta_info.",
    "response.body.usage.",
    "response.usage.",
    "raw_response.usage.",
    "token_usage.",
    "metadata.usage.",
    "metadata.rollout_results[0].usage.",
    "metadata.inference_results[0].usage.",
    "message.usage.",
];

/// Locations in order of trust: token ids are the truth, then what the server counted.
#[rustfmt::skip]
fn known() -> Vec<(Field, String)> {
    let mut table: Vec<(Field, String)> = Vec::new();
    let mut add = |field: Field, paths: &[&str]| table.extend(paths.iter().map(|path| (field, (*path).to_owned())));
    let cross = |bases: &[&str], keys: &[&str]| -> Vec<String> {
        keys.iter().flat_map(|key| bases.iter().map(move |base| format!("{base}{key}"))).collect()
    };
    let refs = |paths: &[String]| paths.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
    let mut add_all = |field: Field, paths: Vec<String>| { let joined = refs(&paths); add(field, &joined.split('\n').collect::<Vec<_>>()); };
    let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();

    add_all(Field::CompletionTokens, list(&[
        "len(output_ids)", "len(output_token_ids)", "len(completion_token_ids)", "len(generated_token_ids)", "len(token_ids)",
        "len(choices[0].token_ids)", "len(outputs[0].token_ids)", "len(response.body.choices[0].token_ids)", "sum(loss_mask)",
    ]));
    add_all(Field::CompletionTokens, cross(&USAGES, &["completion_tokens", "output_tokens"]));
    add_all(Field::CompletionTokens, list(&[
        "token_usage.output", "num_output_tokens", "num_generated_tokens", "generated_tokens", "n_completion_tokens", "output_len", "eval_count",
    ]));
    add_all(Field::PromptTokens, list(&[
        "len(prompt_ids)", "len(prompt_token_ids)", "len(response.body.prompt_token_ids)", "len(choices[0].prompt_token_ids)",
    ]));
    add_all(Field::PromptTokens, cross(&USAGES, &["prompt_tokens", "input_tokens"]));
    add_all(Field::PromptTokens, list(&["token_usage.input", "num_prompt_tokens", "num_input_tokens", "prompt_len", "prompt_eval_count"]));
    add_all(Field::ReasoningTokens, cross(&USAGES, &["reasoning_tokens", "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"]));
    add_all(Field::Reasoning, cross(&MESSAGES, &["reasoning", "reasoning_content", "thinking", "reasoning_text"]));
    add_all(Field::Content, list(&["metadata.rollout_results[0].text", "metadata.inference_results[0].text", "outputs[0].text"]));
    add_all(Field::Content, list(&["content"]));
    add_all(Field::Content, cross(&MESSAGES[1..], &["content"]));
    add_all(Field::Content, list(&[
        "conversations[last].value", "conversation[last].value", "messages[last].value", "choices[0].text", "response.body.choices[0].text",
        "response_message", "response_text", "generated_text", "generation", "model_output", "output_text", "completion", "response", "output",
        "answer", "prediction", "text",
    ]));
    add_all(Field::ToolCalls, cross(&MESSAGES, &["tool_calls"]));
    add_all(Field::FinishReason, cross(&[
        "", "meta_info.", "choices[0].", "response.body.choices[0].", "response.choices[0].", "raw_response.choices[0].", "outputs[0].", "metadata.",
        "metadata.rollout_results[0].", "metadata.inference_results[0].", "message.", "choices[0].meta_info.",
    ], &["finish_reason", "finish_reason.type", "stop_reason"]));
    add_all(Field::FinishReason, list(&["done_reason"]));
    add_all(Field::Id, list(&["sample_id", "custom_id", "id", "request_id", "uuid", "uid", "prompt_id", "key", "idx", "index", "metadata.idx"]));
    add_all(Field::ConversationId, list(&["primary_id", "conversation_id", "source_id"]));
    add_all(Field::Turn, list(&["turn", "turn_idx", "assistant_turn_index"]));
    add_all(Field::Dataset, list(&["dataset", "dataset_name", "data_source", "metadata.dataset"]));
    add_all(Field::Fingerprint, list(&["fingerprint"]));
    add_all(Field::Model, list(&["model", "model_name", "response.body.model", "response.model", "raw_response.model", "metadata.model"]));
    add_all(Field::Endpoint, list(&["endpoint", "metadata.endpoint", "server"]));
    add_all(Field::VerifySteps, list(&["verify_steps", "spec_verify_ct", "meta_info.spec_verify_ct", "choices[0].meta_info.spec_verify_ct", "usage.spec_verify_ct"]));
    add_all(Field::Status, list(&["status"]));
    add_all(Field::StatusCode, list(&["response.status_code", "status_code"]));
    add_all(Field::Error, list(&[
        "cause", "error.message", "error.code", "error.type", "error", "error_message", "response_errors", "response.body.error.message", "response.body.error", "exception",
        "meta_info.finish_reason.message", "finish_reason.message", "finish.message", "attempts[0].class",
        
    ]));
    add_all(Field::Kept, list(&["kept"]));
    add_all(Field::Flags, list(&["flags"]));
    add_all(Field::ReasoningStart, list(&["spans.reasoning.start"]));
    add_all(Field::ReasoningEnd, list(&["spans.reasoning.end"]));
    add_all(Field::ContentStart, list(&["spans.content.start"]));
    add_all(Field::ContentEnd, list(&["spans.content.end"]));
    add_all(Field::SentUnixMs, list(&["timing.sent_unix_ms"]));
    add_all(Field::ElapsedMs, list(&["timing.elapsed_ms"]));
    add_all(Field::Choices, list(&["len(choices)", "len(response.body.choices)", "len(response.choices)", "len(outputs)"]));
    add_all(Field::Role, list(&[
        "messages[last].role", "messages[last].from", "conversations[last].role", "conversations[last].from", "conversation[last].role", "conversation[last].from",
    ]));
    table
}

/// What of a value a location takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The value itself.
    Value,
    /// The number of elements of an array.
    Length,
    /// The sum of an array of integers.
    Sum,
}

/// One location: its number is its slot in the captures of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) field: Field,
    pub(crate) path: String,
    pub(crate) take: Take,
    /// In a message of a conversation: counts only when that message is the last one and the assistant's.
    pub(crate) in_message: bool,
}

/// Number of a node of the trie.
pub(crate) type NodeId = u16;

/// The node of everything that no location leads to.
pub(crate) const NOWHERE: NodeId = 0;
/// The node of the row itself.
pub(crate) const ROOT: NodeId = 1;

/// Which elements of an array lead on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elements {
    None,
    First(NodeId),
    Messages(NodeId),
}

/// Longest key of a location, bytes.
const MAX_KEY: usize = 62;

/// A place in the row that some location passes or ends at.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Keys that lead on, by length; those of length n are at `starts[n]..starts[n + 1]`.
    keys: Vec<(Box<[u8]>, NodeId)>,
    starts: [u8; MAX_KEY + 2],
    pub(crate) elements: Elements,
    /// Slots that take this value, and slots that take its length or sum.
    pub(crate) value_slots: Vec<u16>,
    pub(crate) array_slots: Vec<u16>,
}

impl Node {
    /// Puts the keys in order of length.
    fn index(&mut self) {
        self.keys.sort_by_key(|(key, _)| key.len());
        for (length, start) in self.starts.iter_mut().enumerate() {
            let shorter = self.keys.iter().filter(|(key, _)| key.len() < length).count();
            *start = u8::try_from(shorter).unwrap_or(u8::MAX);
        }
    }

    fn new() -> Self {
        Self {
            keys: Vec::new(),
            starts: [0; MAX_KEY + 2],
            elements: Elements::None,
            value_slots: Vec::new(),
            array_slots: Vec::new(),
        }
    }
}

/// All locations, as a trie over keys.
#[derive(Debug)]
pub(crate) struct Locations {
    pub(crate) slots: Vec<Location>,
    pub(crate) nodes: Vec<Node>,
}

impl Locations {
    /// The known locations behind `own` ones.
    pub(crate) fn new(own: &[crate::plan::FieldPath]) -> Result<Self, PathError> {
        let mut this = Self { slots: Vec::new(), nodes: vec![Node::new(), Node::new()] };
        for place in own {
            this.add(place.field, &place.path)?;
        }
        for (field, path) in known() {
            this.add(field, &path)?;
        }
        for node in &mut this.nodes {
            node.index();
        }
        Ok(this)
    }

    fn add(&mut self, field: Field, path: &str) -> Result<(), PathError> {
        let (take, steps) = parse(path)?;
        if self.nodes.len() + steps.len() > usize::from(NodeId::MAX) {
            return Err(PathError::TooMany);
        }
        if self.slots.iter().any(|slot| slot.field == field && slot.path == path) {
            return Ok(());
        }
        let mut at = ROOT;
        let mut in_message = false;
        for step in steps {
            at = match step {
                Step::Key(key) => self.key(at, key),
                Step::First => self.elements(at, false),
                Step::Last => {
                    in_message = true;
                    self.elements(at, true)
                }
            };
        }
        let slot = u16::try_from(self.slots.len()).map_err(|_| PathError::TooMany)?;
        let node = &mut self.nodes[usize::from(at)];
        match take {
            Take::Value => node.value_slots.push(slot),
            Take::Length | Take::Sum => node.array_slots.push(slot),
        }
        self.slots.push(Location { field, path: path.to_owned(), take, in_message });
        Ok(())
    }

    fn new_node(&mut self) -> NodeId {
        // Beyond what a node id can say a location leads nowhere; `add` refuses that many locations before.
        let node = NodeId::try_from(self.nodes.len()).unwrap_or(NOWHERE);
        self.nodes.push(Node::new());
        node
    }

    fn key(&mut self, at: NodeId, key: &str) -> NodeId {
        let known = self.nodes[usize::from(at)].keys.iter().find(|(known, _)| **known == *key.as_bytes());
        if let Some((_, node)) = known {
            return *node;
        }
        let node = self.new_node();
        self.nodes[usize::from(at)].keys.push((key.as_bytes().into(), node));
        node
    }

    fn elements(&mut self, at: NodeId, messages: bool) -> NodeId {
        match self.nodes[usize::from(at)].elements {
            Elements::First(node) | Elements::Messages(node) => node,
            Elements::None => {
                let node = self.new_node();
                self.nodes[usize::from(at)].elements =
                    if messages { Elements::Messages(node) } else { Elements::First(node) };
                node
            }
        }
    }

    /// The node behind `key` of an object at `at`.
    #[inline(always)]
    pub(crate) fn child(&self, at: NodeId, key: &[u8]) -> NodeId {
        let here = &self.nodes[usize::from(at)];
        if key.len() > MAX_KEY {
            return NOWHERE;
        }
        let same_length = usize::from(here.starts[key.len()])..usize::from(here.starts[key.len() + 1]);
        for (known, node) in here.keys.get(same_length).unwrap_or_default() {
            if **known == *key {
                return *node;
            }
        }
        NOWHERE
    }
}

enum Step<'a> {
    Key(&'a str),
    First,
    Last,
}

/// Whether `path` can be used, without adding it.
pub(crate) fn check_path(path: &str) -> Result<(), PathError> {
    parse(path).map(|_| ())
}

fn parse(path: &str) -> Result<(Take, Vec<Step<'_>>), PathError> {
    let malformed = |problem| PathError::Malformed { path: path.to_owned(), problem };
    let (take, inner) = if let Some(rest) = path.strip_prefix("len(") {
        (Take::Length, rest.strip_suffix(')').ok_or_else(|| malformed("`)` is missing at the end"))?)
    } else if let Some(rest) = path.strip_prefix("sum(") {
        (Take::Sum, rest.strip_suffix(')').ok_or_else(|| malformed("`)` is missing at the end"))?)
    } else {
        (Take::Value, path)
    };
    let mut steps = Vec::new();
    for part in inner.split('.') {
        let (key, index) = match part.split_once('[') {
            Some((key, index)) => (key, Some(index)),
            None => (part, None),
        };
        if key.is_empty() {
            return Err(malformed("a key is empty"));
        }
        if key.len() > MAX_KEY {
            return Err(malformed("a key is longer than 62 bytes"));
        }
        steps.push(Step::Key(key));
        match index {
            None => {}
            Some("0]") => steps.push(Step::First),
            Some("last]") => steps.push(Step::Last),
            Some(_) => return Err(malformed("only `[0]` and `[last]` are known as elements")),
        }
    }
    Ok((take, steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_location_is_a_path_and_every_field_has_its_number() {
        let locations = Locations::new(&[]).unwrap();
        assert!(locations.slots.len() > 100, "{}", locations.slots.len());
        for (n, field) in Field::ALL.into_iter().enumerate() {
            assert_eq!(field.index(), n, "{}", field.name());
        }
    }

    #[test]
    fn own_locations_go_first_and_nonsense_is_refused_with_the_reason() {
        let own = crate::plan::FieldPath::parse("completion_tokens = stats.len").unwrap();
        let locations = Locations::new(&[own]).unwrap();
        assert_eq!(locations.slots[0].path, "stats.len");
        for (text, message) in [
            ("tokens=x", "unknown field `tokens`; known are completion_tokens, prompt_tokens,"),
            ("content", "`content` is not of the form name=path"),
            ("content=a..b", "`a..b` is not a path: a key is empty"),
            ("content=a[3]", "`a[3]` is not a path: only `[0]` and `[last]` are known as elements"),
            ("content=len(a", "`len(a` is not a path: `)` is missing at the end"),
        ] {
            let error = crate::plan::FieldPath::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
