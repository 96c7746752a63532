//! How the rows of a data set are read.

use super::turns::TurnKeys;
use eyas_types::Role;
use std::fmt::Write;

/// The shapes a data set can have, by the word an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaName {
    /// OpenAI: `messages` with `role`/`content`.
    Messages,
    /// ShareGPT: `conversations` with `from`/`value`.
    Conversations,
    /// A prompt as text (or as a list of turns, or of user texts).
    Prompt,
    /// Alpaca: `instruction`, `input`, `output`.
    Instruction,
    /// Whole prompts as text, chat template already applied. Never found by itself.
    Text,
}

impl SchemaName {
    /// All shapes.
    pub const ALL: [Self; 5] = [Self::Messages, Self::Conversations, Self::Prompt, Self::Instruction, Self::Text];

    /// The word an option takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Conversations => "conversations",
            Self::Prompt => "prompt",
            Self::Instruction => "instruction",
            Self::Text => "text",
        }
    }

    /// The shape a word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == word)
    }
}

/// What is said about a data set's shape beforehand; whatever is `None` is found from the rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemaOptions {
    /// Shape.
    pub schema: Option<SchemaName>,
    /// Field of the row that holds the conversation, the prompt, the instruction or the text.
    pub field: Option<String>,
    /// Key of a turn that says who speaks.
    pub role_key: Option<String>,
    /// Key of a turn that holds what is said.
    pub content_key: Option<String>,
    /// Field of the row that holds its id.
    pub id_field: Option<String>,
}

/// Where the prompt of a row lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A list of turns.
    Turns {
        /// The field with the list.
        field: String,
        /// The keys of a turn.
        keys: TurnKeys,
    },
    /// Text, a list of user texts, or a list of turns with `role`/`content`.
    Prompt {
        /// The field with the prompt.
        field: String,
        /// The field with the source's own answer.
        answer: Option<String>,
    },
    /// Instruction and further input.
    Instruction {
        /// The field with the instruction.
        field: String,
        /// The field with further input, joined behind an empty line when it is not empty.
        input: Option<String>,
        /// The field with the source's own answer.
        answer: Option<String>,
        /// The field with earlier exchanges, a list of (user, assistant) pairs.
        history: Option<String>,
    },
    /// A whole prompt.
    Text {
        /// The field with the text.
        field: String,
    },
}

/// How the rows of a data set are read, settled once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Where the prompt lies.
    pub shape: Shape,
    /// The field with a system prompt of its own.
    pub system: Option<String>,
    /// The field with tool schemas.
    pub tools: Option<String>,
    /// The field with the row's id; without one, ids are made from the prompt.
    pub id: Option<String>,
    /// The role words seen and what they became.
    pub(super) roles: Vec<(String, Role)>,
    /// Fields seen in the sample and not used.
    pub(super) unused: Vec<String>,
}

impl Mapping {
    /// The mapping in words: "`conversations` with `from`/`value`: human→user, gpt→assistant; ids from `id`".
    pub fn describe(&self) -> String {
        let mut words = String::new();
        match &self.shape {
            Shape::Turns { field, keys } => {
                push(&mut words, format_args!("`{field}` with `{}`/`{}`", keys.role, keys.content));
                self.describe_roles(&mut words);
            }
            Shape::Prompt { field, answer } => {
                push(&mut words, format_args!("`{field}` as the user's turn"));
                describe_answer(&mut words, answer.as_ref());
            }
            Shape::Instruction { field, input, answer, history } => {
                push(&mut words, format_args!("`{field}`"));
                if let Some(input) = input {
                    push(&mut words, format_args!(" and `{input}`, joined by an empty line,"));
                }
                words.push_str(" as the user's turn");
                describe_answer(&mut words, answer.as_ref());
                if let Some(history) = history {
                    push(&mut words, format_args!(", earlier turns from `{history}`"));
                }
            }
            Shape::Text { field } => {
                push(&mut words, format_args!("`{field}` as the whole prompt, no chat template"));
            }
        }
        if let Some(system) = &self.system {
            push(&mut words, format_args!("; system prompt from `{system}`"));
        }
        if let Some(tools) = &self.tools {
            push(&mut words, format_args!("; tools from `{tools}`"));
        }
        match &self.id {
            Some(id) => push(&mut words, format_args!("; ids from `{id}`")),
            None => words.push_str("; ids made from the prompts"),
        }
        if !self.unused.is_empty() {
            const SHOWN: usize = 12;
            let shown: Vec<String> = self.unused.iter().take(SHOWN).map(|field| format!("`{field}`")).collect();
            push(&mut words, format_args!("; not used: {}", shown.join(", ")));
            if self.unused.len() > SHOWN {
                push(&mut words, format_args!(" and {} more", self.unused.len() - SHOWN));
            }
        }
        words
    }

    fn describe_roles(&self, words: &mut String) {
        for (n, (word, role)) in self.roles.iter().enumerate() {
            words.push_str(if n == 0 { ": " } else { ", " });
            if word == role.as_str() {
                words.push_str(word);
            } else {
                push(words, format_args!("{word}→{}", role.as_str()));
            }
        }
    }
}

fn describe_answer(words: &mut String, answer: Option<&String>) {
    if let Some(answer) = answer {
        push(words, format_args!(", `{answer}` kept as the source's answer"));
    }
}

fn push(words: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    words.write_fmt(what).unwrap_or_default();
}
