//! What is shown while answers come in: bars on a terminal, whole lines elsewhere.
//!
//! Without a terminal the first line comes after a second and then one every ten seconds, also while nothing finishes, so that work can be told
//! from a hang in a log file.

use crate::talk::{Talk, duration, thousands};
use eyas_generate::{DatasetCounts, Event, Snapshot};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Time between lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Single retries and failures that get a line.
const MAX_DETAILS: u32 = 20;

/// The view of one run.
pub(crate) struct Progress {
    talk: Talk,
    bars: Option<Bars>,
    last_line: Option<Duration>,
    details: u32,
}

struct Bars {
    all: MultiProgress,
    datasets: Vec<ProgressBar>,
    total: ProgressBar,
    status: ProgressBar,
}

impl Progress {
    /// A view of `datasets` (name, prompts in all, done already).
    pub(crate) fn new(talk: Talk, datasets: &[(String, u64, u64)]) -> Self {
        let bars = talk.bars().then(|| Bars::new(datasets));
        Self { talk, bars, last_line: None, details: 0 }
    }

    /// Shows an event.
    pub(crate) fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Progress(snapshot) => self.progress(snapshot),
            Event::Retrying { sample_id, class, message, attempt, pause, .. } if *attempt == 1 => {
                self.detail(format!("retrying `{sample_id}` in {}: {class}: {message}", duration(pause.as_secs_f64())));
            }
            Event::Failed { sample_id, class, message, permanent, .. } => {
                let why = if *permanent { "another try cannot help" } else { "all tries are used up" };
                self.detail(format!("gave up `{sample_id}` ({why}): {class}: {message}"));
            }
            Event::EndpointDown { url, message } => {
                self.line(&format!("warning: {url} is gone: {message}; looking again from time to time"))
            }
            Event::EndpointUp { url, down_for } => {
                self.line(&format!("{url} is back after {}", duration(down_for.as_secs_f64())))
            }
            Event::Warning(warning) => self.line(&format!("WARNING: {warning}")),
            Event::Draining { in_flight } => {
                self.line(&format!(
                    "nothing more is sent; waiting for {in_flight} answers in flight (Ctrl-C again to leave at once)"
                ));
            }
            _ => {}
        }
    }

    /// Takes the bars away.
    pub(crate) fn finish(self) {
        if let Some(bars) = self.bars {
            bars.all.clear().ok();
        }
    }

    fn progress(&mut self, snapshot: &Snapshot) {
        if let Some(bars) = &self.bars {
            bars.show(snapshot);
            return;
        }
        let due = self.last_line.is_none_or(|last| snapshot.elapsed >= last + LINE_EVERY);
        if due {
            self.last_line = Some(snapshot.elapsed);
            self.talk.say(status(snapshot));
        }
    }

    /// Says what went wrong with single prompts, the first times; after that the counts in the status line must do.
    fn detail(&mut self, text: String) {
        if self.details < MAX_DETAILS {
            self.details += 1;
            let more = if self.details == MAX_DETAILS {
                " (further ones are only counted; failed.jsonl has them all)"
            } else {
                ""
            };
            self.line(&format!("{text}{more}"));
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => drop(bars.all.println(text)),
            None => self.talk.say(text),
        }
    }
}

impl Bars {
    fn new(datasets: &[(String, u64, u64)]) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        let width = datasets.iter().map(|(name, ..)| name.chars().count()).chain([3]).max().unwrap_or(3);
        let style = ProgressStyle::with_template("{prefix} [{bar:40}] {human_pos}/{human_len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let bar = |name: &str, total, done| {
            let bar = all.add(ProgressBar::new(total).with_style(style.clone()).with_prefix(format!("{name:width$}")));
            bar.set_position(done);
            bar
        };
        let bars: Vec<_> = datasets.iter().map(|(name, total, done)| bar(name, *total, *done)).collect();
        let sum = |pick: fn(&(String, u64, u64)) -> u64| datasets.iter().map(pick).sum();
        let total = bar("all", sum(|set| set.1), sum(|set| set.2));
        let status_style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let status = all.add(ProgressBar::new_spinner().with_style(status_style));
        Self { datasets: bars, total, status, all }
    }

    fn show(&self, snapshot: &Snapshot) {
        for (bar, counts) in self.datasets.iter().zip(&snapshot.datasets) {
            bar.set_position(counts.done());
            bar.set_message(of_dataset(counts));
        }
        self.total.set_position(snapshot.sum(DatasetCounts::done));
        self.status.set_message(rates(snapshot));
    }
}

fn of_dataset(counts: &DatasetCounts) -> String {
    let failed = counts.failed_before + counts.failed;
    let parts = [
        Some(format!("{} in flight", counts.in_flight)),
        (failed > 0).then(|| format!("{} failed", thousands(failed))),
        (counts.truncated > 0).then(|| format!("{} cut by the cap", thousands(counts.truncated))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// One whole line: counts, rates, and what is left.
fn status(snapshot: &Snapshot) -> String {
    let total = snapshot.sum(|set| set.total);
    format!(
        "{} of {} done, {}, elapsed {}",
        thousands(snapshot.sum(DatasetCounts::done)),
        thousands(total),
        rates(snapshot),
        duration(snapshot.elapsed.as_secs_f64())
    )
}

fn rates(snapshot: &Snapshot) -> String {
    let errors: u64 = snapshot.errors.values().sum();
    let reasoning =
        snapshot.capture.rate().map(|rate| format!("reasoning in {:.0} %, ", 100.0 * rate)).unwrap_or_default();
    format!(
        "{} in flight, {:.1} answers/s, {} tokens/s, {} failed, {errors} errors, {} retries, {reasoning}{}",
        snapshot.in_flight,
        snapshot.answers_per_s,
        thousands(whole(snapshot.tokens_per_s)),
        thousands(snapshot.sum(|set| set.failed_before + set.failed)),
        snapshot.n_retries,
        eta(snapshot)
    )
}

/// Time to go at the present rate of answers. Short answers come back first, so until every slot has answered several times the rate is
/// too high and the time is only a lower bound; it is said so.
fn eta(snapshot: &Snapshot) -> String {
    let answered = snapshot.sum(|set| set.answered);
    if answered == 0 || snapshot.answers_per_s <= 0.0 {
        return "ETA unknown until the first answer".into();
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of prompts are far below 2^53")]
    let seconds = snapshot.sum(DatasetCounts::pending) as f64 / snapshot.answers_per_s;
    let settled = answered >= 5 * snapshot.in_flight.max(1) as u64;
    format!("ETA {}{}", if settled { "" } else { "at least " }, duration(seconds))
}

fn whole(rate: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive and far below 2^63"
    )]
    let whole = rate.max(0.0).round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_known_and_no_more() {
        let mut snapshot = Snapshot { in_flight: 4, elapsed: Duration::from_secs(1), ..Snapshot::default() };
        snapshot.datasets.push(DatasetCounts { total: 20, in_flight: 4, ..DatasetCounts::default() });
        assert_eq!(
            status(&snapshot),
            "0 of 20 done, 4 in flight, 0.0 answers/s, 0 tokens/s, 0 failed, 0 errors, 0 retries, ETA unknown until the first answer, elapsed 1.0 s"
        );
        snapshot.datasets[0].answered = 4;
        snapshot.answers_per_s = 0.5;
        assert!(status(&snapshot).contains("ETA at least 32.0 s"), "{}", status(&snapshot));
    }
}
