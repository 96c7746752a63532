//! Requests in flight by `rid`: duplicates are refused, aborts find their request, a dropped request leaves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Locks, going on after a panic elsewhere: every holder leaves the data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    live: Mutex<HashMap<String, Arc<Aborter>>>,
}

/// A request of this id is already in flight.
#[derive(Debug)]
pub(crate) struct Duplicate(pub(crate) String);

impl Registry {
    /// Enters a request; it leaves when the ticket is dropped.
    pub(crate) fn enter(self: &Arc<Self>, rid: String) -> Result<Ticket, Duplicate> {
        let aborter = Arc::new(Aborter::default());
        let mut live = lock(&self.live);
        if live.contains_key(&rid) {
            return Err(Duplicate(rid));
        }
        live.insert(rid.clone(), Arc::clone(&aborter));
        drop(live);
        Ok(Ticket { registry: Arc::clone(self), rid, aborter })
    }

    /// Aborts one request; an unknown id is nobody's trouble.
    pub(crate) fn abort(&self, rid: &str) {
        if let Some(aborter) = lock(&self.live).get(rid) {
            aborter.abort();
        }
    }

    /// Aborts every request in flight.
    pub(crate) fn abort_all(&self) {
        lock(&self.live).values().for_each(|aborter| aborter.abort());
    }

    /// How many are in flight.
    pub(crate) fn len(&self) -> usize {
        lock(&self.live).len()
    }
}

#[derive(Debug, Default)]
struct Aborter {
    aborted: AtomicBool,
    notify: Notify,
}

impl Aborter {
    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }
}

/// A place in the registry.
#[derive(Debug)]
pub(crate) struct Ticket {
    registry: Arc<Registry>,
    rid: String,
    aborter: Arc<Aborter>,
}

impl Ticket {
    /// Waits until the request is aborted by name.
    pub(crate) async fn aborted(&self) {
        // Created before the flag is read, so that an abort in between is not missed.
        let notified = self.aborter.notify.notified();
        if !self.aborter.aborted.load(Ordering::Acquire) {
            notified.await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.registry.live).remove(&self.rid);
    }
}
