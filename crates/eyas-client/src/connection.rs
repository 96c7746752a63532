//! One keep-alive connection, driven by whoever asks.

use crate::answer::{self, Answer};
use crate::ask::{self, Ask};
use crate::endpoint::Endpoint;
use crate::error::RequestError;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::RETRY_AFTER;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A close by the server's keep-alive timer meets the next request within a round trip; what breaks later was broken by something else.
const STALE_WITHIN: Duration = Duration::from_secs(2);
/// A body larger than this is a server gone wrong.
const MAX_BODY_BYTES: usize = 1 << 30;

/// One connection to one server, opened when first needed, kept as long as the server keeps it, replaced when it breaks.
///
/// Dropping a running [`Connection::ask`] leaves the connection unusable; the next call opens a fresh one, and the closed socket tells
/// the server to stop generating.
pub struct Connection {
    endpoint: Arc<Endpoint>,
    live: Option<Live>,
    body: Vec<u8>,
}

struct Live {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>,
    used: bool,
}

/// A response whose body lies in the connection's buffer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
}

impl Connection {
    /// Nothing is opened yet.
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint, live: None, body: Vec::new() }
    }

    /// The server.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks for one answer and waits until it is whole. Never retries: that is for the caller, who counts.
    pub async fn ask(&mut self, ask: &Ask<'_>) -> Result<Answer, RequestError> {
        let endpoint = Arc::clone(&self.endpoint);
        let body = ask::body(&endpoint, ask);
        let sent_unix_ms = unix_ms();
        let started = Instant::now();
        let exchange = self.exchange(Method::POST, endpoint.protocol().path(), body);
        let reply = match endpoint.request_timeout {
            Some(limit) => match tokio::time::timeout(limit, exchange).await {
                Ok(reply) => reply?,
                Err(_) => {
                    self.live = None;
                    return Err(RequestError::Timeout { limit });
                }
            },
            None => exchange.await?,
        };
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if reply.status != 200 {
            let message = answer::error_message(&self.body);
            return Err(RequestError::Status { status: reply.status, message, retry_after: reply.retry_after });
        }
        let mut answer = answer::parse(&endpoint, ask, &self.body)?;
        answer.timing.sent_unix_ms = sent_unix_ms;
        answer.timing.elapsed_ms = elapsed_ms;
        Ok(answer)
    }

    /// Tells an SGLang server to give up the request of that name, where an earlier try may still be running. Best effort: servers
    /// without the route say 404.
    pub async fn abort(&mut self, rid: &str, limit: Duration) {
        let body = Bytes::from(serde_json::json!({ "rid": rid }).to_string());
        if tokio::time::timeout(limit, self.exchange(Method::POST, "/abort_request", body)).await.is_err() {
            self.live = None;
        }
    }

    /// The body of the last reply.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Sends one request and reads the whole reply into the buffer.
    pub(crate) async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> Result<Reply, RequestError> {
        // Taken out, so that an abandoned future leaves no half-used connection behind.
        let kept = match self.live.take() {
            Some(mut live) => live.is_open().await.then_some(live),
            None => None,
        };
        let mut live = match kept {
            Some(live) => live,
            None => connect(&self.endpoint).await?,
        };
        let started = Instant::now();
        let request = request(&self.endpoint, method, path, body);
        let sent = {
            let Live { sender, driver, .. } = &mut live;
            let response = sender.send_request(request);
            drive(driver, response).await
        };
        let response = sent.map_err(|error| {
            if live.used && started.elapsed() < STALE_WITHIN {
                RequestError::StaleReuse
            } else {
                RequestError::Reset { message: words(&error) }
            }
        })?;
        let reply = Reply { status: response.status().as_u16(), retry_after: retry_after(&response) };
        self.body.clear();
        read_body(&mut live.driver, response, &mut self.body).await?;
        live.used = true;
        if !live.sender.is_closed() {
            self.live = Some(live);
        }
        Ok(reply)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint.base_url())
            .field("open", &self.live.is_some())
            .finish_non_exhaustive()
    }
}

impl Live {
    /// Looks once whether the server has closed the connection while it lay idle.
    async fn is_open(&mut self) -> bool {
        let ended = std::future::poll_fn(|cx| Poll::Ready(self.driver.as_mut().poll(cx).is_ready())).await;
        !ended && !self.sender.is_closed()
    }
}

async fn connect(endpoint: &Endpoint) -> Result<Live, RequestError> {
    let failed = |source| RequestError::Connect { url: endpoint.base_url().to_owned(), source };
    let stream = tokio::time::timeout(endpoint.connect_timeout, TcpStream::connect(endpoint.address()))
        .await
        .map_err(|_| failed(io::Error::new(io::ErrorKind::TimedOut, "no connection within the time limit")))?
        .map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (sender, driver) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(io::Error::other(error)))?;
    Ok(Live { sender, driver: Box::pin(driver), used: false })
}

/// Runs the connection's own work and the caller's future in one task: no second task, no wake-ups between the two.
async fn drive<F: Future>(
    driver: &mut Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    let mut ended = false;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if !ended {
            // How the connection ended is told by the future, which fails with it.
            ended = driver.as_mut().poll(cx).is_ready();
        }
        future.as_mut().poll(cx)
    })
    .await
}

async fn read_body(
    driver: &mut Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>,
    response: Response<Incoming>,
    out: &mut Vec<u8>,
) -> Result<(), RequestError> {
    let mut body = response.into_body();
    drive(driver, async {
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| RequestError::ShortBody { n_bytes: out.len(), message: words(&error) })?;
            if let Some(data) = frame.data_ref() {
                if out.len() + data.len() > MAX_BODY_BYTES {
                    return Err(RequestError::BadJson {
                        message: format!("the body is longer than {MAX_BODY_BYTES} bytes"),
                    });
                }
                out.extend_from_slice(data);
            }
        }
        Ok(())
    })
    .await
}

fn request(endpoint: &Endpoint, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.headers_mut() = endpoint.headers().clone();
    // The prefix was checked when the endpoint was made; a path of ours is always valid.
    if let Ok(uri) = endpoint.route(path).parse() {
        *request.uri_mut() = uri;
    }
    request
}

/// `Retry-After` in seconds. The form with a date is left: it would trust the two clocks to agree.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let seconds: f64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The error with its causes: hyper's own words seldom say what happened.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
