//! Who speaks, in the words of the sources.

use eyas_types::Role;

/// What a role word stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// A turn of this role.
    Turn(Role),
    /// An assistant turn whose text is a tool call.
    FunctionCall,
}

impl Speaker {
    /// The role the turn gets.
    pub(super) fn role(self) -> Role {
        match self {
            Self::Turn(role) => role,
            Self::FunctionCall => Role::Assistant,
        }
    }
}

const WORDS: [(&str, Speaker); 23] = [
    ("assistant", Speaker::Turn(Role::Assistant)),
    ("bard", Speaker::Turn(Role::Assistant)),
    ("bing", Speaker::Turn(Role::Assistant)),
    ("bot", Speaker::Turn(Role::Assistant)),
    ("chatbot", Speaker::Turn(Role::Assistant)),
    ("chatgpt", Speaker::Turn(Role::Assistant)),
    ("claude", Speaker::Turn(Role::Assistant)),
    ("developer", Speaker::Turn(Role::Developer)),
    ("function", Speaker::Turn(Role::Tool)),
    ("function_call", Speaker::FunctionCall),
    ("function_response", Speaker::Turn(Role::Tool)),
    ("gpt", Speaker::Turn(Role::Assistant)),
    ("human", Speaker::Turn(Role::User)),
    ("ipython", Speaker::Turn(Role::Tool)),
    ("model", Speaker::Turn(Role::Assistant)),
    ("observation", Speaker::Turn(Role::Tool)),
    ("prompter", Speaker::Turn(Role::User)),
    ("system", Speaker::Turn(Role::System)),
    ("tool", Speaker::Turn(Role::Tool)),
    ("tool_call", Speaker::FunctionCall),
    ("tool_response", Speaker::Turn(Role::Tool)),
    ("tool_result", Speaker::Turn(Role::Tool)),
    ("user", Speaker::Turn(Role::User)),
];

/// Who a role word stands for; upper and lower case are the same.
pub(super) fn speaker(word: &str) -> Option<Speaker> {
    WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word.trim())).map(|(_, speaker)| *speaker)
}

/// Every role word that is understood, sorted, for messages.
pub fn known_role_words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|(word, _)| *word)
}
