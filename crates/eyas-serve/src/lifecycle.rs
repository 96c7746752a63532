//! Up, dead, stopped: what the accept loop and the handlers agree on.

use tokio::sync::watch;

/// State of the server as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Up,
    /// Refuses connections, as a dead process does; may come up again.
    Dead,
    Stopped,
}

/// The shared switch.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle(watch::Sender<Phase>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Up))
    }
}

impl Lifecycle {
    pub(crate) fn watch(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    /// Dies as a crashed process would.
    pub(crate) fn die(&self) {
        self.move_from(Phase::Up, Phase::Dead);
    }

    /// Comes up after a death.
    pub(crate) fn revive(&self) {
        self.move_from(Phase::Dead, Phase::Up);
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(Phase::Stopped);
    }

    fn move_from(&self, from: Phase, to: Phase) {
        self.0.send_if_modified(|phase| {
            let moves = *phase == from;
            if moves {
                *phase = to;
            }
            moves
        });
    }
}
