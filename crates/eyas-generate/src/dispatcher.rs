//! The one owner of a run's state.
use crate::{cancel::Cancel, event::Event, outcome::*, plan::GeneratePlan, resume::Opened, transport::Transport};
use std::sync::Arc;
pub(crate) async fn execute(
    _plan: GeneratePlan,
    opened: Vec<Opened>,
    _transport: Arc<dyn Transport>,
    _cancel: Cancel,
    _on_event: &mut (dyn FnMut(Event<'_>) + Send),
) -> Outcome {
    let states: Vec<_> = opened.iter().map(|o| o.state.clone()).collect();
    Outcome { reason: ExitReason::Complete, snapshot: crate::run::opening_snapshot(&states) }
}
