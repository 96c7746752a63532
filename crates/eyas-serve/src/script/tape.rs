//! The tape: a long row of word tokens with their text and their digits already written, of which every answer is a piece.
//!
//! A piece of 1,400 tokens is two copies of memory, which is what lets a script outrun the client it measures.

use super::draw::Draw;
use crate::json::Json;

/// Longest answer, tokens: the tape is twice as long, so that a piece may start anywhere in its first half.
pub(crate) const MAX_TOKENS: u32 = 65_536;

/// Ids, text and digits.
pub(crate) struct Tape {
    ids: Vec<u32>,
    text: Vec<u8>,
    text_at: Vec<u32>,
    digits: Vec<u8>,
    digits_at: Vec<u32>,
}

impl Tape {
    /// Draws words evenly. The second half repeats the first.
    pub(crate) fn new(seed: u64, words: &[(u32, String)]) -> Self {
        let mut draw = Draw::new(seed, 0, 11);
        let n_words = u32::try_from(words.len()).unwrap_or(u32::MAX);
        let half: Vec<usize> = (0..MAX_TOKENS).map(|_| draw.below(n_words) as usize).collect();
        let mut tape =
            Self { ids: Vec::new(), text: Vec::new(), text_at: vec![0], digits: Vec::new(), digits_at: vec![0] };
        let at = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        for n in half.iter().chain(&half) {
            let (id, word) = &words[*n];
            tape.ids.push(*id);
            tape.text.extend_from_slice(word.as_bytes());
            tape.text_at.push(at(&tape.text));
            tape.digits.extend_from_slice(itoa::Buffer::new().format(*id).as_bytes());
            tape.digits.push(b',');
            tape.digits_at.push(at(&tape.digits));
        }
        tape
    }

    /// The ids of a piece.
    pub(crate) fn ids(&self, start: u32, len: u32) -> &[u32] {
        &self.ids[start as usize..(start + len) as usize]
    }

    /// The text of a piece; it needs no escaping.
    pub(crate) fn text(&self, start: u32, len: u32) -> &[u8] {
        &self.text[self.text_at[start as usize] as usize..self.text_at[(start + len) as usize] as usize]
    }

    /// Appends `12,34,`, a comma behind each id.
    pub(crate) fn write_digits(&self, out: &mut Json, start: u32, len: u32) {
        let from = self.digits_at[start as usize] as usize;
        let to = self.digits_at[(start + len) as usize] as usize;
        out.0.extend_from_slice(&self.digits[from..to]);
    }
}

/// A made-up word for each id: syllables that spell the id, a blank in front.
pub(crate) fn made_up_word(id: u32) -> String {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    let mut word = String::from(" ");
    let mut left = id;
    loop {
        let syllable = (left % 64) as usize;
        word.push(char::from(CONSONANTS[syllable / 4]));
        word.push(char::from(VOWELS[syllable % 4]));
        left /= 64;
        if left == 0 {
            return word;
        }
    }
}
