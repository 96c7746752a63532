//! The state machine for bracketed reasoning.

use super::output::{IdOutput, Output};
use super::split::Cut;
use super::{Marker, TagMarkers};
use crate::tokenizer::Tokenizer;
use eyas_types::{Flag, ThinkState};

/// See [`super::ReasoningFormat::think_state`].
pub(super) fn think_state(markers: &TagMarkers, tokenizer: &Tokenizer, prompt_ids: &[u32]) -> ThinkState {
    let output = IdOutput::new(tokenizer, prompt_ids);
    let start = output.find_any(&markers.start).pop();
    let end = output.find_any(&markers.end).pop();
    let (state, after) = match (start, end) {
        (Some(start), Some(end)) if end.start >= start.start => (ThinkState::Closed, end.end),
        (Some(start), _) => (ThinkState::Open, start.end),
        (None, Some(end)) => (ThinkState::Closed, end.end),
        (None, None) => return ThinkState::Undecided,
    };
    let added = tokenizer.added_tokens();
    let is_control = |id: &u32| added.get(id).is_some_and(|token| !token.content.trim().is_empty());
    if prompt_ids.iter().skip(after).any(is_control) { ThinkState::Undecided } else { state }
}

/// Takes an answer apart. `ended_by_itself`: whether it stopped, as against being cut.
pub(super) fn cut(
    markers: &TagMarkers,
    tools: &[Marker],
    output: &impl Output,
    think: ThinkState,
    ended_by_itself: bool,
) -> Cut {
    let starts = output.find_any(&markers.start);
    let ends = output.find_any(&markers.end);
    let mut cut = Cut::all_content(output.len());
    cut.markers_seen = !starts.is_empty() || !ends.is_empty();

    // A start marker at the very beginning belongs to the answer's own markup.
    let own_start = starts.first().filter(|start| think != ThinkState::Closed && output.is_blank(0..start.start));
    let start_end = own_start.map(|start| start.end);
    if start_end.is_some() || think == ThinkState::Open {
        let begin = start_end.unwrap_or(0);
        let end = ends.iter().find(|end| end.start >= begin);
        let tool = output.find_any(tools).into_iter().find(|tool| tool.start >= begin);
        let (reasoning_end, content_start) = match (end, tool) {
            (Some(end), _) => (end.start, end.end),
            (None, Some(tool)) => (tool.start, tool.start),
            (None, None) => {
                cut.flags.push(if ended_by_itself { Flag::UnclosedReasoning } else { Flag::TruncatedInReasoning });
                (output.len(), output.len())
            }
        };
        cut.set(begin, reasoning_end, content_start);
    } else if think == ThinkState::Undecided {
        let first_start = starts.first().map_or(usize::MAX, |start| start.start);
        if let Some(end) = ends.first().filter(|end| end.start < first_start) {
            cut.flags.push(Flag::MissingStart);
            cut.set(0, end.start, end.end);
        }
    }
    if starts.iter().any(|start| start.start >= cut.content_start()) {
        cut.flags.push(Flag::ExtraThink);
    }
    cut
}
