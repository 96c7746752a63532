//! One scripted answer: which pieces it is made of, how fast it comes, how it ends.

use super::capacity::CapacityTicket;
use super::config::{FaultKind, Pattern};
use super::draw::{Draw, to_u32};
use super::tape::MAX_TOKENS;
use super::{Cast, Place};
use crate::json::Json;
use crate::reply::{Meta, Rendered};
use crate::request::Job;
use eyas_types::{FinishReason, Matched};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    /// So many words of the tape.
    Words { start: u32, len: u32 },
    /// A reasoning marker.
    Marker { is_start: bool },
    /// The id that ends the answer.
    Stop(u32),
    /// Ids given by the script.
    Given(Arc<[u32]>),
}

impl Piece {
    fn n_tokens(&self) -> usize {
        match self {
            Self::Words { len, .. } => *len as usize,
            Self::Marker { .. } | Self::Stop(_) => 1,
            Self::Given(ids) => ids.len(),
        }
    }
}

/// An answer as it would be if nothing cut it.
#[derive(Debug, Clone)]
pub(crate) struct Outline {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) text: Option<String>,
    /// The stop that ends it.
    pub(crate) matched: Option<Matched>,
}

impl Outline {
    /// Draws the answer of a prompt.
    pub(crate) fn draw(cast: &Cast, job: &Job, key: u64, pattern: Pattern) -> Self {
        let script = &cast.script;
        let mut draw = Draw::new(script.seed, key, 1);
        let natural = draw.length(&script.lengths);
        // `ignore_eos` goes on to the cap, with words.
        let n_total = if job.sampling.ignore_eos { job.max_new_tokens.clamp(1, MAX_TOKENS) } else { natural };
        let start = draw.below(MAX_TOKENS);
        let has_stop = !job.sampling.ignore_eos;
        let n_body = n_total - u32::from(has_stop);
        let (opens, closes) = match pattern {
            Pattern::Closes => (false, true),
            Pattern::OpensAndCloses => (true, true),
            Pattern::NeverCloses | Pattern::NeverThinks | Pattern::FollowsPrompt => (false, false),
        };
        let n_markers = (u32::from(opens) + u32::from(closes)).min(n_body);
        let n_words = n_body - n_markers;
        let n_thinking =
            if closes { to_u32(f64::from(n_words) * script.reasoning.share).min(n_words) } else { n_words };

        let mut pieces = Vec::with_capacity(5);
        if opens && n_markers > 0 {
            pieces.push(Piece::Marker { is_start: true });
        }
        pieces.push(Piece::Words { start, len: n_thinking });
        if closes && n_markers > u32::from(opens) {
            pieces.push(Piece::Marker { is_start: false });
        }
        pieces.push(Piece::Words { start: (start + n_thinking) % MAX_TOKENS, len: n_words - n_thinking });
        if has_stop {
            pieces.push(Piece::Stop(cast.stop_id));
        }
        pieces.retain(|piece| piece.n_tokens() > 0);
        Self { pieces, text: None, matched: has_stop.then_some(Matched::Token(cast.stop_id)) }
    }

    /// An answer given by the script. It has stopped by itself when its last id is one that stops.
    pub(crate) fn given(cast: &Cast, job: &Job, ids: &[u32], text: Option<&str>) -> Self {
        let (mut body, mut matched) = (ids, None);
        let mut pieces = Vec::new();
        if let Some((last, rest)) = ids.split_last()
            && (*last == cast.stop_id || job.sampling.stop_token_ids.contains(last))
        {
            (body, matched) = (rest, Some(Matched::Token(*last)));
        }
        if !body.is_empty() {
            pieces.push(Piece::Given(body.into()));
        }
        if let Some(Matched::Token(last)) = matched {
            pieces.push(Piece::Stop(last));
        }
        Self { pieces, text: text.map(str::to_owned), matched }
    }

    fn n_tokens(&self) -> usize {
        self.pieces.iter().map(Piece::n_tokens).sum()
    }

    /// The answer after cap and stops: how many tokens, why, and how much of the text is left.
    fn end(&self, cast: &Cast, job: &Job) -> (usize, FinishReason, Option<usize>) {
        let natural = self.n_tokens();
        let cap = job.max_new_tokens as usize;
        let length = |n: usize| FinishReason::Length { length: Some(n as u64) };
        // As SGLang: the cap is looked at before the stop, so an answer that stops exactly at the cap ends by length.
        let (mut n_total, mut finish) = match &self.matched {
            Some(matched) if natural < cap => (natural, FinishReason::Stop { matched: Some(matched.clone()) }),
            _ => (natural.min(cap), length(natural.min(cap))),
        };
        let mut n_text = None;
        let stop_ids = &job.sampling.stop_token_ids;
        if !stop_ids.is_empty() && !job.sampling.ignore_eos {
            let ids = self.ids(cast, n_total);
            if let Some(at) = ids.iter().position(|id| stop_ids.contains(id)) {
                n_total = at + 1;
                finish = FinishReason::Stop { matched: Some(Matched::Token(ids[at])) };
                n_text = (!job.sampling.no_stop_trim).then(|| self.text(cast, at, job).len());
            }
        }
        if !job.sampling.stop.is_empty() {
            let text = self.text(cast, n_total, job);
            let hit = job.sampling.stop.iter().filter_map(|stop| Some((find(&text, stop.as_bytes())?, stop))).min();
            if let Some((at, stop)) = hit {
                let end = at + stop.len();
                n_total = (1..=n_total).find(|n| self.text(cast, *n, job).len() >= end).unwrap_or(n_total);
                finish = FinishReason::Stop { matched: Some(Matched::Text(stop.clone())) };
                n_text = Some(if job.sampling.no_stop_trim { end } else { at });
            }
        }
        (n_total, finish, n_text)
    }

    fn prefix(&self, n_tokens: usize) -> impl Iterator<Item = (&Piece, usize)> {
        let mut left = n_tokens;
        self.pieces.iter().map_while(move |piece| {
            let taken = piece.n_tokens().min(left);
            left -= taken;
            (taken > 0).then_some((piece, taken))
        })
    }

    fn ids(&self, cast: &Cast, n_tokens: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(n_tokens);
        for (piece, taken) in self.prefix(n_tokens) {
            match piece {
                Piece::Words { start, .. } => ids.extend_from_slice(cast.tape.ids(*start, count(taken))),
                Piece::Marker { is_start } => ids.push(cast.marker(*is_start).0),
                Piece::Stop(id) => ids.push(*id),
                Piece::Given(given) => ids.extend_from_slice(&given[..taken]),
            }
        }
        ids
    }

    /// Text of the first tokens, unescaped, the stop token left out unless it is asked for.
    fn text(&self, cast: &Cast, n_tokens: usize, job: &Job) -> Vec<u8> {
        let mut text = Vec::new();
        self.each_text(cast, n_tokens, job, |part| text.extend_from_slice(part.bytes()));
        text
    }

    fn each_text(&self, cast: &Cast, n_tokens: usize, job: &Job, mut put: impl FnMut(TextPart<'_>)) {
        if let Some(text) = &self.text
            && n_tokens >= self.n_tokens()
        {
            return put(TextPart::Wild(text));
        }
        for (piece, taken) in self.prefix(n_tokens) {
            match piece {
                Piece::Words { start, .. } => put(TextPart::Plain(cast.tape.text(*start, count(taken)))),
                Piece::Marker { is_start } => {
                    if !(cast.script.reasoning.markers_are_special && job.sampling.skip_special_tokens) {
                        put(TextPart::Wild(cast.marker(*is_start).1));
                    }
                }
                Piece::Stop(id) => {
                    if job.sampling.no_stop_trim && !job.sampling.skip_special_tokens {
                        put(TextPart::Wild(&cast.decode(&[*id], false)));
                    }
                }
                Piece::Given(given) => {
                    put(TextPart::Wild(&cast.decode(&given[..taken], job.sampling.skip_special_tokens)));
                }
            }
        }
    }
}

/// Text with or without characters that JSON escapes.
enum TextPart<'a> {
    Plain(&'a [u8]),
    Wild(&'a str),
}

impl TextPart<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Wild(text) => text.as_bytes(),
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// When the tokens come.
pub(crate) enum Pace {
    Instant,
    Timed { place: Place, begun: Option<Instant>, ttft: Duration, itl: Duration },
    Capacity(CapacityTicket),
}

/// An answer under way.
pub(crate) struct ScriptGeneration {
    cast: Arc<Cast>,
    job: Arc<Job>,
    outline: Outline,
    n_total: usize,
    n_now: usize,
    finish: FinishReason,
    /// How much of the text is left when it is whole, bytes; a stop string cuts it.
    n_text: Option<usize>,
    pace: Pace,
    fault: Option<FaultKind>,
    is_aborted: bool,
}

impl ScriptGeneration {
    /// `pace` is made for the number of tokens the answer will have.
    pub(crate) fn new<E>(
        cast: &Arc<Cast>,
        job: &Arc<Job>,
        outline: Outline,
        fault: Option<(FaultKind, Option<String>)>,
        pace: impl FnOnce(usize) -> Result<Pace, E>,
    ) -> Result<Self, E> {
        let (mut n_total, mut finish, mut n_text) = outline.end(cast, job);
        let kind = fault.as_ref().map(|(kind, _)| *kind);
        if matches!(kind, Some(FaultKind::Abort200 | FaultKind::NanStop)) {
            (n_total, n_text) = (n_total / 2, None);
            let message = fault.and_then(|(_, message)| message).unwrap_or_else(|| "Aborted".to_owned());
            finish = match kind {
                Some(FaultKind::NanStop) => {
                    FinishReason::Stop { matched: Some(Matched::Text("NaN happened".to_owned())) }
                }
                _ => FinishReason::Abort { message, status_code: None },
            };
        }
        let pace = pace(n_total)?;
        let job = Arc::clone(job);
        let cast = Arc::clone(cast);
        Ok(Self { cast, job, outline, n_total, n_now: 0, finish, n_text, pace, fault: kind, is_aborted: false })
    }

    /// See [`crate::backend::Generation::run`].
    pub(crate) async fn run(&mut self, whole: bool) -> Option<FinishReason> {
        let interval = self.cast.script.stream_interval as usize;
        let goal = if whole { self.n_total } else { (self.n_now + interval).min(self.n_total) };
        let reached = match &mut self.pace {
            Pace::Instant => goal,
            Pace::Timed { place, begun, ttft, itl } => {
                place.begin().await;
                let begun = *begun.get_or_insert_with(Instant::now);
                let wait = *ttft + itl.mul_f64(goal as f64);
                if !wait.is_zero() {
                    sleep_until(begun + wait).await;
                }
                goal
            }
            Pace::Capacity(ticket) => ticket.reach(goal, whole || goal == self.n_total).await.min(self.n_total),
        };
        self.n_now = reached.max(self.n_now);
        (self.n_now >= self.n_total).then(|| self.finish.clone())
    }

    /// See [`crate::backend::Generation::abort`].
    pub(crate) fn abort(&mut self) -> FinishReason {
        let (made, is_waiting) = match &self.pace {
            Pace::Instant => (self.n_now, false),
            Pace::Timed { begun: None, .. } => (0, true),
            Pace::Timed { begun: Some(begun), ttft, itl, .. } => {
                let decoding = begun.elapsed().saturating_sub(*ttft).as_secs_f64();
                let made = if itl.is_zero() { 0.0 } else { decoding / itl.as_secs_f64() };
                (to_u32(made.floor()) as usize, false)
            }
            Pace::Capacity(ticket) => {
                let (made, _, is_waiting) = ticket.progress();
                (made, is_waiting)
            }
        };
        self.n_now = made.clamp(self.n_now, self.n_total);
        self.n_text = None;
        self.is_aborted = true;
        let message = if is_waiting { "Abort in waiting queue" } else { "Aborted" };
        FinishReason::Abort { message: message.to_owned(), status_code: None }
    }

    /// Text of the reasoning and of the content, as a server with a parser would split them.
    pub(crate) fn split_text(&self) -> (Option<String>, String) {
        let text = self.text();
        let reasoning = &self.cast.script.reasoning;
        if reasoning.parser.is_none() {
            return (None, text);
        }
        let body = text.strip_prefix(reasoning.start_text.as_str()).unwrap_or(&text);
        match body.split_once(reasoning.end_text.as_str()) {
            Some((thinking, content)) => (Some(thinking.to_owned()), content.to_owned()),
            None if reasoning.pattern == Pattern::NeverThinks => (None, text),
            None => (Some(body.to_owned()), String::new()),
        }
    }

    /// The text so far.
    pub(crate) fn text(&self) -> String {
        let mut text = self.outline.text(&self.cast, self.n_now, &self.job);
        if let Some(n_bytes) = self.n_text.filter(|_| self.n_now >= self.n_total) {
            text.truncate(n_bytes);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The ids so far.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.outline.ids(&self.cast, self.n_now)
    }
}

impl Rendered for ScriptGeneration {
    fn write_output(&self, out: &mut Json) {
        if self.n_text.is_some() && self.n_now >= self.n_total {
            out.raw("\"text\":").value(&self.text());
        } else {
            out.raw("\"text\":\"");
            self.outline.each_text(&self.cast, self.n_now, &self.job, |part| match part {
                TextPart::Plain(bytes) => out.0.extend_from_slice(bytes),
                TextPart::Wild(text) => {
                    let quoted = Json::default().value(text).0.split_off(0);
                    out.0.extend_from_slice(&quoted[1..quoted.len() - 1]);
                }
            });
            out.raw("\"");
        }
        if self.fault == Some(FaultKind::MissingOutputIds) {
            return;
        }
        out.raw(",\"output_ids\":[");
        for (piece, taken) in self.outline.prefix(self.n_now) {
            match piece {
                Piece::Words { start, .. } => self.cast.tape.write_digits(out, *start, count(taken)),
                Piece::Marker { is_start } => {
                    out.ids(&[self.cast.marker(*is_start).0]).raw(",");
                }
                Piece::Stop(id) => {
                    out.ids(&[*id]).raw(",");
                }
                Piece::Given(ids) => {
                    out.ids(&ids[..taken]).raw(",");
                }
            }
        }
        if out.0.last() == Some(&b',') && self.n_now > 0 {
            out.0.pop();
        }
        out.raw("]");
    }

    fn n_tokens(&self) -> usize {
        self.n_now
    }

    fn meta(&self) -> Meta {
        let counts_reasoning = self.job.require_reasoning && self.cast.script.reasoning.parser.is_some();
        let reasoning_tokens = if counts_reasoning {
            let mut n = 0;
            let mut through_marker = None;
            for (piece, taken) in self.outline.prefix(self.n_now) {
                n += taken as u64;
                if *piece == (Piece::Marker { is_start: false }) {
                    through_marker = Some(n);
                }
            }
            through_marker.unwrap_or(n)
        } else {
            0
        };
        Meta {
            cached_tokens: 0,
            reasoning_tokens,
            num_retractions: match &self.pace {
                Pace::Capacity(ticket) => ticket.n_retractions(),
                _ => 0,
            },
            miscount: if self.fault == Some(FaultKind::WrongCounts) { 3 } else { 0 },
            wrong_rid: self.fault == Some(FaultKind::WrongRid),
        }
    }
}
