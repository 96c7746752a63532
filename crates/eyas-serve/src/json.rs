//! JSON written by hand into one buffer: an answer of 18 KB must cost little more than copying it.

use serde::Serialize;

/// A buffer with the few verbs that bodies are made of.
#[derive(Debug, Default)]
pub(crate) struct Json(pub(crate) Vec<u8>);

impl Json {
    pub(crate) fn with_capacity(n_bytes: usize) -> Self {
        Self(Vec::with_capacity(n_bytes))
    }

    /// Text as it stands.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub(crate) fn int(&mut self, value: u64) -> &mut Self {
        self.raw(itoa::Buffer::new().format(value))
    }

    /// Any value, strings escaped.
    #[expect(clippy::expect_used, reason = "memory takes every write and our types have string keys")]
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> &mut Self {
        serde_json::to_writer(&mut self.0, value).expect("a plain value is written to memory");
        self
    }

    /// `1,2,3`, no brackets.
    pub(crate) fn ids(&mut self, ids: &[u32]) -> &mut Self {
        for (n, id) in ids.iter().enumerate() {
            if n > 0 {
                self.0.push(b',');
            }
            self.int(u64::from(*id));
        }
        self
    }
}
