//! Bytes per id, so that decoding is a copy. Gives the same text as the `tokenizers` crate for the decoders it takes.

use super::AddedToken;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use tokenizers::Tokenizer as Inner;

/// Which decoder of `tokenizer.json` the table stands for.
enum Kind {
    /// `ByteLevel`: every character of a token stands for one byte; all bytes of a segment become text at once.
    ByteLevel,
    /// `Sequence[Replace ▁→space, ByteFallback, Fuse, (Strip)]`: tokens are text, and `<0xNN>` tokens are single bytes.
    ByteFallback {
        /// How many leading blanks of the whole text are taken off.
        strip_start: usize,
    },
}

pub(super) struct DecodeTable {
    kind: Kind,
    /// All tokens' bytes, one after the other.
    bytes: Vec<u8>,
    /// Start and end in `bytes` by id; [`ABSENT`] for ids that no token has.
    ranges: Vec<(u32, u32)>,
    /// Ids of `<0xNN>` tokens.
    single_bytes: HashSet<u32>,
}

const ABSENT: (u32, u32) = (u32::MAX, u32::MAX);

impl DecodeTable {
    /// `None` when the decoder is of another kind.
    pub(super) fn new(inner: &Inner, n_ids: u32, added: &BTreeMap<u32, AddedToken>) -> Option<Self> {
        let decoder = serde_json::to_value(inner.get_decoder()?).ok()?;
        let kind = kind_of(&decoder)?;
        let byte_of_char = byte_level_alphabet();
        let mut table =
            Self { kind, bytes: Vec::new(), ranges: vec![ABSENT; n_ids as usize], single_bytes: HashSet::new() };
        for id in 0..n_ids {
            let token = match added.get(&id) {
                Some(token) => token.content.clone(),
                None => match inner.id_to_token(id) {
                    Some(token) => token,
                    None => continue,
                },
            };
            let start = table.bytes.len();
            match table.kind {
                Kind::ByteLevel => {
                    let mapped: Option<Vec<u8>> = token.chars().map(|c| byte_of_char.get(&c).copied()).collect();
                    // A token with a character outside the alphabet (`<｜User｜>`) is plain text.
                    table.bytes.extend(mapped.unwrap_or_else(|| token.into_bytes()));
                }
                Kind::ByteFallback { .. } => match fallback_byte(&token) {
                    Some(byte) => {
                        table.bytes.push(byte);
                        table.single_bytes.insert(id);
                    }
                    None => table.bytes.extend(token.replace('▁', " ").into_bytes()),
                },
            }
            let end = table.bytes.len();
            table.ranges[id as usize] = (u32::try_from(start).ok()?, u32::try_from(end).ok()?);
        }
        Some(table)
    }

    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let &(start, end) = self.ranges.get(id as usize).filter(|range| **range != ABSENT)?;
        self.bytes.get(start as usize..end as usize)
    }

    /// The text of `ids`, those in `skip` left out. The error is the position of an unknown id.
    pub(super) fn decode(&self, ids: &[u32], skip: Option<&HashSet<u32>>) -> Result<String, usize> {
        let skipped = |id: &u32| skip.is_some_and(|skip| skip.contains(id));
        let mut bytes = Vec::with_capacity(ids.len() * 5);
        match self.kind {
            Kind::ByteLevel => {
                for (position, id) in ids.iter().enumerate() {
                    let token = self.bytes(*id).ok_or(position)?;
                    if !skipped(id) {
                        bytes.extend_from_slice(token);
                    }
                }
                Ok(into_text(bytes))
            }
            Kind::ByteFallback { strip_start } => {
                // Bytes from here on came from `<0xNN>` tokens and are checked as a whole when another token follows.
                let mut run_start = None;
                for (position, id) in ids.iter().enumerate() {
                    let token = self.bytes(*id).ok_or(position)?;
                    if skipped(id) {
                        continue;
                    }
                    if self.single_bytes.contains(id) {
                        run_start.get_or_insert(bytes.len());
                    } else if let Some(start) = run_start.take() {
                        close_run(&mut bytes, start);
                    }
                    bytes.extend_from_slice(token);
                }
                if let Some(start) = run_start {
                    close_run(&mut bytes, start);
                }
                let mut text = into_text(bytes);
                let blanks = text.bytes().take(strip_start).take_while(|b| *b == b' ').count();
                text.drain(..blanks);
                Ok(text)
            }
        }
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// A run of byte tokens that is not UTF-8 becomes one U+FFFD per byte, as the `ByteFallback` decoder does.
fn close_run(bytes: &mut Vec<u8>, start: usize) {
    if std::str::from_utf8(&bytes[start..]).is_err() {
        let n_bytes = bytes.len() - start;
        bytes.truncate(start);
        bytes.extend("\u{fffd}".repeat(n_bytes).into_bytes());
    }
}

fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>').filter(|hex| hex.len() == 2)?;
    u8::from_str_radix(hex, 16).ok()
}

fn kind_of(decoder: &Value) -> Option<Kind> {
    let kind = |step: &Value| step.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind(decoder)?.as_str() {
        "ByteLevel" => Some(Kind::ByteLevel),
        "Sequence" => {
            let steps = decoder.get("decoders")?.as_array()?;
            let [replace, fallback, fuse, rest @ ..] = steps.as_slice() else { return None };
            let known = kind(replace)? == "Replace"
                && replace.get("pattern")?.get("String")?.as_str()? == "▁"
                && replace.get("content")?.as_str()? == " "
                && kind(fallback)? == "ByteFallback"
                && kind(fuse)? == "Fuse";
            let strip_start = match rest {
                [] => 0,
                [strip] if kind(strip)? == "Strip" && strip.get("content")?.as_str()? == " " => {
                    if strip.get("stop")?.as_u64()? != 0 {
                        return None;
                    }
                    usize::try_from(strip.get("start")?.as_u64()?).ok()?
                }
                _ => return None,
            };
            known.then_some(Kind::ByteFallback { strip_start })
        }
        _ => None,
    }
}

/// GPT-2's alphabet: printable bytes stand for themselves, the other 68 for the characters from U+0100 on.
fn byte_level_alphabet() -> std::collections::HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    (0..=u8::MAX)
        .filter_map(|byte| {
            let code = if printable(byte) {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).map(|c| (c, byte))
        })
        .collect()
}
