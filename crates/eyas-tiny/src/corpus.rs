//! An endless, seeded stream of samples, cut into a part for training and a part held out.

use xxhash_rust::xxh3::xxh3_64;

use crate::rng::Rng;
use crate::tasks::{Kind, Task};

/// One sample: a task and how it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its kind.
    pub kind: Kind,
    /// The system prompt, if there is one.
    pub system: Option<String>,
    /// Prompt, scratch work, answer.
    pub task: Task,
    /// Whether the scratch work is asked for; without it the answer comes at once.
    pub thinks: bool,
}

/// The part of the corpus a prompt belongs to. It hangs on a hash of the user's words alone, so that no prompt is in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Seen in training.
    Train,
    /// One prompt in twelve: the demo's data sets and every accuracy that is reported.
    HeldOut,
}

impl Split {
    /// The part a prompt belongs to.
    pub fn of(user: &str) -> Self {
        if xxh3_64(user.as_bytes()).is_multiple_of(12) { Self::HeldOut } else { Self::Train }
    }
}

const SYSTEM_PROMPTS: &[&str] = &[
    "You are a helpful assistant.",
    "You are eyas, a small model that works step by step.",
    "Answer with the result only.",
    "Think carefully, then answer.",
];

/// Share of samples for each kind, in parts. Kinds that take longer to learn get more.
fn weight(kind: Kind) -> usize {
    match kind {
        Kind::Sum | Kind::Difference | Kind::Product | Kind::Convert => 10,
        Kind::Extreme | Kind::Sort | Kind::Table | Kind::Chain => 9,
        Kind::Reverse => 7,
        Kind::Tool => 6,
        Kind::Letter | Kind::Calendar => 4,
    }
}

/// Draws a sample of `kind` from `split`.
pub fn sample(rng: &mut Rng, kind: Kind, split: Split) -> Sample {
    let task = loop {
        let task = kind.make(rng);
        if Split::of(&task.user) == split {
            break task;
        }
    };
    let system = rng.chance(0.1).then(|| rng.pick(SYSTEM_PROMPTS).to_owned());
    Sample { kind, system, task, thinks: true }
}

/// Draws a training sample: its kind by weight, with at most `max_thinking` bytes of scratch work, now and then without scratch
/// work where the answer can be read off.
pub fn training_sample(rng: &mut Rng, max_thinking: usize) -> Sample {
    let total: usize = Kind::ALL.into_iter().map(weight).sum();
    let mut at = rng.below(total);
    let mut kind = Kind::ALL[0];
    for candidate in Kind::ALL {
        kind = candidate;
        if at < weight(candidate) {
            break;
        }
        at -= weight(candidate);
    }
    let mut sample = loop {
        let sample = sample(rng, kind, Split::Train);
        if sample.task.thinking.len() <= max_thinking.max(120) {
            break sample;
        }
    };
    if matches!(kind, Kind::Table | Kind::Tool) {
        sample.thinks = !rng.chance(0.12);
    }
    sample
}

/// `n_per_kind` held-out samples of every kind with prompts all different, without system prompts, always the same for a seed.
pub fn held_out(seed: u64, n_per_kind: usize) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for (stream, kind) in Kind::ALL.into_iter().enumerate() {
        let mut rng = Rng::new(seed, 1_000_000_000 + stream as u64);
        let mut seen = std::collections::HashSet::new();
        while seen.len() < n_per_kind {
            let mut sample = sample(&mut rng, kind, Split::HeldOut);
            sample.system = None;
            if seen.insert(sample.task.user.clone()) {
                samples.push(sample);
            }
        }
    }
    samples
}
