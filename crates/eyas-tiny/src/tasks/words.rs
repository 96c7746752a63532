//! Sorting, reversing and counting letters. Words are written in capitals: the tokenizer keeps every capital a token of its own.

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

/// Letters in alphabetical order, the first of those left taken at each step.
pub fn sort(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(3, 15, 0.6);
    let mut left = distinct_word(rng, n);
    let user = fill(rng.pick(SORT_PHRASES), &[&text(&left)]);
    let mut lines = vec!["Take the first letter again and again.".to_owned()];
    let mut sorted = Vec::new();
    while let Some(first) = left.iter().min().copied() {
        sorted.push(first);
        lines.push(format!("{}>{}", text(&left), text(&sorted)));
        left.retain(|letter| *letter != first);
    }
    Task::text(user, &lines, text(&sorted))
}

const REVERSE_PHRASES: &[&str] = &[
    "Reverse {}.",
    "Write {} backwards.",
    "Spell {} from the end.",
    "What is {} backwards?",
    "Turn {} around.",
];

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

const COUNT_PHRASES: &[&str] = &[
    "How many times does {} occur in {}?",
    "How often is {} in {}?",
    "Count the letter {} in {}.",
    "How many {} are in {}?",
    "Count {} in {}.",
];

/// Occurrences of a letter, the word eaten from the front.
pub fn count(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(3, 14, 0.7);
    let mut word = distinct_word(rng, n);
    let target = word[rng.below(n)];
    for letter in &mut word {
        if rng.chance(0.25) {
            *letter = target;
        }
    }
    // A letter that does not occur is a fair question too.
    let asked = if rng.chance(0.1) { *rng.pick_distinct(CONSONANTS, 1).first().unwrap_or(&target) } else { target };
    let user = fill(rng.pick(COUNT_PHRASES), &[&asked.to_string(), &text(&word)]);
    let mut lines = vec![format!("Count {asked} letter by letter.")];
    let mut n_seen = 0;
    for i in 0..n {
        n_seen += usize::from(word[i] == asked);
        lines.push(format!("{}:{n_seen}", text(&word[i..])));
    }
    Task::text(user, &lines, n_seen.to_string())
}
