//! The door to the servers, so that a simulation can stand in for them.

use eyas_client::{Answer, Ask, Connection, Endpoint, RequestError};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Servers, by their index in the plan.
pub trait Transport: Send + Sync {
    /// A way to ask one server one thing at a time.
    fn line(&self, endpoint: usize) -> Box<dyn Line>;
    /// Whether a server that was gone can be asked again.
    fn health(&self, endpoint: usize) -> BoxFuture<'static, Result<(), RequestError>>;
}

/// What a slot asks through.
pub trait Line: Send {
    /// One request, one answer, no retries.
    fn ask<'a>(&'a mut self, ask: Ask<'a>) -> BoxFuture<'a, Result<Answer, RequestError>>;
    /// Tells the server to give up a request that may still be running there. Best effort.
    fn abort<'a>(&'a mut self, rid: &'a str) -> BoxFuture<'a, ()>;
}

/// The real thing: one keep-alive connection a slot.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    endpoints: Vec<Arc<Endpoint>>,
}

impl HttpTransport {
    /// In the order of the plan.
    pub fn new(endpoints: Vec<Arc<Endpoint>>) -> Self {
        Self { endpoints }
    }
}

/// Longest wait for a server's word on its health. SGLang generates a token for it and waits at least a second.
const HEALTH_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for a server to take note of an abort.
const ABORT_LIMIT: Duration = Duration::from_secs(2);

impl Transport for HttpTransport {
    fn line(&self, endpoint: usize) -> Box<dyn Line> {
        Box::new(HttpLine(Connection::new(Arc::clone(&self.endpoints[endpoint]))))
    }

    fn health(&self, endpoint: usize) -> BoxFuture<'static, Result<(), RequestError>> {
        let endpoint = Arc::clone(&self.endpoints[endpoint]);
        Box::pin(async move { eyas_client::health(&endpoint, HEALTH_LIMIT).await })
    }
}

struct HttpLine(Connection);

impl Line for HttpLine {
    fn ask<'a>(&'a mut self, ask: Ask<'a>) -> BoxFuture<'a, Result<Answer, RequestError>> {
        Box::pin(async move { self.0.ask(&ask).await })
    }

    fn abort<'a>(&'a mut self, rid: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.abort(rid, ABORT_LIMIT).await })
    }
}
