//! What all handlers share.

use crate::backend::Backend;
use crate::lifecycle::Lifecycle;
use crate::meters::Meters;
use crate::registry::Registry;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The state behind the routes.
pub(crate) struct App {
    pub(crate) backend: Backend,
    pub(crate) registry: Arc<Registry>,
    pub(crate) meters: Meters,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) started: Instant,
    pub(crate) started_unix_s: u64,
}

impl App {
    pub(crate) fn new(backend: Backend, lifecycle: Lifecycle) -> Self {
        Self {
            backend,
            registry: Arc::default(),
            meters: Meters::default(),
            lifecycle,
            started: Instant::now(),
            started_unix_s: unix_now().as_secs(),
        }
    }
}

/// Wall-clock time since 1970.
pub(crate) fn unix_now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
