//! Stopping a run from outside.

use std::sync::Arc;
use tokio::sync::watch;

/// A switch with three positions: run, drain, abort. Clones share it; it only moves forward.
#[derive(Debug, Clone)]
pub struct Cancel {
    level: Arc<watch::Sender<Level>>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Run,
    Drain,
    Abort,
}

impl Cancel {
    /// In the position "run".
    pub fn new() -> Self {
        Self { level: Arc::new(watch::Sender::new(Level::Run)) }
    }

    /// Admit nothing more; wait for what is in flight.
    pub fn drain(&self) {
        self.raise(Level::Drain);
    }

    /// Give up what is in flight too; it stays pending.
    pub fn abort(&self) {
        self.raise(Level::Abort);
    }

    /// One position further: what Ctrl-C should do.
    pub fn press(&self) {
        let next = if *self.level.borrow() == Level::Run { Level::Drain } else { Level::Abort };
        self.raise(next);
    }

    fn raise(&self, level: Level) {
        self.level.send_if_modified(|now| {
            let raised = *now < level;
            *now = level.max(*now);
            raised
        });
    }

    pub(crate) fn listen(&self) -> watch::Receiver<Level> {
        self.level.subscribe()
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}
