//! Ids, conversations, prompts, responses, finish reasons, usage and spans: the records every other crate speaks. serde only, no I/O.
