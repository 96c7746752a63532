//! Sorting, reversing and finding letters. Words are written in capitals: the tokenizer keeps every capital a token of its own.

use super::{Task, fill};
use crate::rng::Rng;

const VOWELS: &[char] = &['A', 'E', 'I', 'O', 'U'];
const CONSONANTS: &[char] =
    &['B', 'C', 'D', 'F', 'G', 'H', 'J', 'K', 'L', 'M', 'N', 'P', 'Q', 'R', 'S', 'T', 'V', 'W', 'X', 'Y', 'Z'];

/// A made-up word of `n` different letters, pronounceable where it is short.
fn distinct_word(rng: &mut Rng, n: usize) -> Vec<char> {
    let (consonants, vowels) = (rng.pick_distinct(CONSONANTS, 21), rng.pick_distinct(VOWELS, 5));
    if n <= 9 && rng.chance(0.5) {
        return (0..n).map(|i| if i % 2 == 0 { consonants[i / 2] } else { vowels[i / 2] }).collect();
    }
    let all: Vec<char> = consonants.into_iter().chain(vowels).collect();
    rng.pick_distinct(&all, n)
}

fn text(letters: &[char]) -> String {
    letters.iter().collect()
}

const SORT_PHRASES: &[&str] = &[
    "Sort the letters of {}.",
    "Put the letters of {} in order.",
    "Write {} with its letters sorted.",
    "Order the letters {}.",
    "Sort {}.",
];

/// Letters in alphabetical order, each the next after the one before.
pub fn sort(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(3, 15, 0.6);
    let mut word = distinct_word(rng, n);
    let user = fill(rng.pick(SORT_PHRASES), &[&text(&word)]);
    word.sort_unstable();
    let mut lines = vec!["Write the first letter, then the next one, and so on.".to_owned()];
    lines.extend((1..=n).map(|i| format!(">{}", text(&word[..i]))));
    Task::text(user, &lines, text(&word))
}

const REVERSE_PHRASES: &[&str] =
    &["Reverse {}.", "Write {} backwards.", "Spell {} from the end.", "What is {} backwards?", "Turn {} around."];

/// A word backwards, the last letter taken at each step.
pub fn reverse(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(3, 15, 0.6);
    let mut left = distinct_word(rng, n);
    let user = fill(rng.pick(REVERSE_PHRASES), &[&text(&left)]);
    let mut lines = vec!["Take the last letter again and again.".to_owned()];
    let mut reversed = Vec::new();
    while let Some(last) = left.last().copied() {
        reversed.push(last);
        lines.push(format!("{}>{}", text(&left), text(&reversed)));
        left.pop();
    }
    Task::text(user, &lines, text(&reversed))
}

const LETTER_PHRASES: &[&str] = &[
    "What is letter {} of {}?",
    "Name letter {} of {}.",
    "Which letter is number {} in {}?",
    "Give me letter {} of {}.",
];

/// The letter at a place, the places left counted down.
pub fn letter(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(3, 14, 0.75);
    let word = distinct_word(rng, n);
    let place = rng.between(1, n.min(9));
    let user = fill(rng.pick(LETTER_PHRASES), &[&place.to_string(), &text(&word)]);
    let counted: String = (0..place).map(|i| format!("{}{}", word[i], place - 1 - i)).collect();
    let lines = [format!("Go to letter {place}, counting down."), counted];
    Task::text(user, &lines, word[place - 1].to_string())
}
