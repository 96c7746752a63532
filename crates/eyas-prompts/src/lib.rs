//! From sources to prompts: read, normalise, shuffle, render the chat template, tokenize; reasoning formats and the splitter on token ids.

pub mod normalise;
pub mod prepare;
pub mod reasoning;
mod render;
pub mod source;
pub mod template;
pub mod tokenizer;

pub use render::{RenderError, Rendered, Renderer};
