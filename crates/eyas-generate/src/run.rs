//! A run: opened, then executed.

use crate::cancel::Cancel;
use crate::dispatcher;
use crate::event::Event;
use crate::outcome::Outcome;
use crate::plan::GeneratePlan;
use crate::resume::{DatasetState, OpenError, Opened, open_dataset};
use crate::transport::{HttpTransport, Transport};
use std::sync::Arc;

/// A run whose state has been read from disk and whose journals are locked. Dropping it lets go of the locks and changes nothing.
pub struct Run {
    plan: GeneratePlan,
    opened: Vec<Opened>,
    states: Vec<DatasetState>,
}

impl Run {
    /// Locks the journals, mends torn tails, reads what is done, and refuses to go on with other settings. Blocks; asks no server.
    pub fn open(plan: GeneratePlan) -> Result<Self, OpenError> {
        if plan.datasets.is_empty() {
            return Err(OpenError::Nothing { what: "data set" });
        }
        let opened = plan.datasets.iter().map(|dataset| open_dataset(&plan, dataset)).collect::<Result<Vec<_>, _>>()?;
        let states = opened.iter().map(|opened| opened.state.clone()).collect();
        Ok(Self { plan, opened, states })
    }

    /// What was found, one entry for each data set of the plan.
    pub fn datasets(&self) -> &[DatasetState] {
        &self.states
    }

    /// Prompts to be asked.
    pub fn pending(&self) -> u64 {
        self.states.iter().map(DatasetState::pending).sum()
    }

    /// Asks the pending prompts. With nothing pending it returns at once, without a connection and without touching a file.
    ///
    /// Must be called within a tokio runtime (time and I/O enabled). `on_event` runs in the dispatcher.
    pub async fn execute(self, cancel: Cancel, on_event: impl FnMut(Event<'_>) + Send) -> Result<Outcome, OpenError> {
        let endpoints = self.plan.endpoints.iter().map(|endpoint| Arc::clone(&endpoint.endpoint)).collect();
        self.execute_on(Arc::new(HttpTransport::new(endpoints)), cancel, on_event).await
    }

    /// [`Run::execute`] through a given door to the servers.
    pub async fn execute_on(
        self,
        transport: Arc<dyn Transport>,
        cancel: Cancel,
        mut on_event: impl FnMut(Event<'_>) + Send,
    ) -> Result<Outcome, OpenError> {
        if self.plan.endpoints.is_empty() && self.pending() > 0 {
            return Err(OpenError::Nothing { what: "endpoint" });
        }
        if self.plan.endpoints.iter().all(|endpoint| endpoint.slots == 0) && self.pending() > 0 {
            return Err(OpenError::Nothing { what: "slot" });
        }
        Ok(dispatcher::execute(self.plan, self.opened, transport, cancel, &mut on_event).await)
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("datasets", &self.states).finish_non_exhaustive()
    }
}
