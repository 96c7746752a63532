//! The formats eyas knows, in the order in which equally good ones are preferred.

/// One known format.
pub(super) struct Builtin {
    pub(super) name: &'static str,
    pub(super) scheme: BuiltinScheme,
}

pub(super) enum BuiltinScheme {
    /// No reasoning.
    None,
    /// Brackets around reasoning.
    Tags {
        start: &'static [&'static str],
        /// Longer ones first.
        end: &'static [&'static str],
        wrap: Option<(&'static str, &'static str)>,
    },
    /// Harmony.
    Channels,
}

const fn tags(name: &'static str, start: &'static [&'static str], end: &'static [&'static str]) -> Builtin {
    Builtin { name, scheme: BuiltinScheme::Tags { start, end, wrap: None } }
}

const fn wrapped(
    name: &'static str,
    start: &'static [&'static str],
    end: &'static [&'static str],
    wrap: (&'static str, &'static str),
) -> Builtin {
    Builtin { name, scheme: BuiltinScheme::Tags { start, end, wrap: Some(wrap) } }
}

/// Special formats stand before `think`: many vocabularies hold `<think>` beside the marker that the model really uses.
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin { name: "channels", scheme: BuiltinScheme::Channels },
    tags("gemma4", &["<|channel>thought"], &["<channel|>"]),
    wrapped(
        "kimi_k3",
        &["<|open|>think<|sep|>"],
        &["<|close|>think<|sep|><|open|>response<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>"],
        ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ),
    wrapped("cohere", &["<|START_THINKING|>"], &["<|END_THINKING|>"], ("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    tags("seed", &["<seed:think>"], &["</seed:think>"]),
    tags("minimax_m3", &["<mm:think>"], &["</mm:think>"]),
    tags("hunyuan_hy3", &["<think:opensource>"], &["</think:opensource>"]),
    tags("mistral", &["[THINK]"], &["[/THINK]"]),
    tags("kimi_vl", &["◁think▷"], &["◁/think▷"]),
    wrapped("think_answer", &["<think>"], &["</think>"], ("<answer>", "</answer>")),
    wrapped("think_response", &["<think>"], &["</think>"], ("<response>", "</response>")),
    tags("think", &["<think>"], &["</think>"]),
    tags("granite", &["Here is my thought process:"], &["Here is my response:"]),
    tags("apriel", &["Here are my reasoning steps:"], &["[BEGIN FINAL RESPONSE]"]),
    Builtin { name: "none", scheme: BuiltinScheme::None },
];

/// What opens a tool call, by family; used when the vocabulary has it as a token.
pub(super) const TOOL_STARTS: &[&str] = &[
    "<tool_call>",
    "<|tool_calls_section_begin|>",
    "<|tool_call>",
    "<minimax:tool_call>",
    "<seed:tool_call>",
    "<｜tool▁calls▁begin｜>",
    "｜DSML｜",
    "[TOOL_CALLS]",
];

/// Markup that no answer should show: markers of every format that cannot be mistaken for prose.
pub(super) fn all_markup() -> impl Iterator<Item = &'static str> {
    let channels = ["<|channel|>", "<|message|>", "<|start|>"];
    let tags = BUILTINS.iter().flat_map(|builtin| match &builtin.scheme {
        BuiltinScheme::Tags { start, end, .. } => [*start, *end].concat(),
        _ => Vec::new(),
    });
    channels.into_iter().chain(tags.filter(|text| text.starts_with(['<', '[', '◁'])))
}
