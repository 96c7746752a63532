//! Encoding text in which some spots must stay plain text although they spell a control token.

use super::{EncodeError, Tokenizer};
use tokenizers::Tokenizer as Inner;

impl Tokenizer {
    /// Encodes `text` after taking out every `sentinel`. A sentinel within the spelling of a token keeps it from becoming that token: the
    /// plain stretch around it, between two real control tokens, is encoded by the model alone. Everything else gives the same ids as
    /// [`Tokenizer::encode`].
    pub(crate) fn encode_escaped(&self, text: &str, sentinel: char) -> Result<Vec<u32>, EncodeError> {
        let encoding = self.inner.encode(text, false).map_err(failed)?;
        let mut ids = Vec::with_capacity(encoding.len());
        // Ids of the stretch since the last control token, and where in the text it starts.
        let (mut stretch, mut stretch_start) = (Vec::new(), 0);
        let control = encoding.get_ids().iter().zip(encoding.get_offsets());
        let end = (None, (text.len(), text.len()));
        for (id, (start, stop)) in control.map(|(id, offsets)| (Some(*id), *offsets)).chain([end]) {
            if let Some(id) = id.filter(|id| !self.added.contains_key(id)) {
                stretch.push(id);
                continue;
            }
            let plain = text.get(stretch_start..start).unwrap_or_default();
            if plain.contains(sentinel) {
                ids.extend(self.encode_plain(&plain.replace(sentinel, ""))?);
            } else {
                ids.append(&mut stretch);
            }
            stretch.clear();
            ids.extend(id);
            stretch_start = stop;
        }
        Ok(ids)
    }

    /// Encodes text by the model alone, no added token recognised.
    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let plain = match self.plain.get() {
            Some(plain) => plain,
            None => {
                let plain = self.without_added_tokens().map_err(failed)?;
                self.plain.get_or_init(|| plain)
            }
        };
        let encoding = plain.encode_fast(text, false).map_err(failed)?;
        let control = encoding.get_ids().iter().find_map(|id| self.added.get(id).filter(|token| token.special));
        match control {
            Some(token) => Err(EncodeError::NotPlain { token: token.content.clone() }),
            None => Ok(encoding.get_ids().to_vec()),
        }
    }

    fn without_added_tokens(&self) -> tokenizers::Result<Inner> {
        let mut plain = Inner::new(self.inner.get_model().clone());
        plain.with_normalizer(self.inner.get_normalizer().cloned())?;
        plain.with_pre_tokenizer(self.inner.get_pre_tokenizer().cloned());
        Ok(plain)
    }
}

fn failed(e: tokenizers::Error) -> EncodeError {
    EncodeError::Tokenizer(e.to_string())
}
