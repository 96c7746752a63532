//! From sources to prompts: read, normalise, shuffle, render the chat template, tokenize; reasoning formats and the splitter on token ids.

mod render;

pub use render::{RenderError, Rendered, Renderer};
