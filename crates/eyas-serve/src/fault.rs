//! Faults in delivery: what goes wrong between a generated answer and the client.

use crate::connection::ConnectionControl;
use crate::lifecycle::Lifecycle;
use crate::refusal::json_response;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// A fault that shows on the wire.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WireFault {
    /// Another answer in place of the real one.
    Reply { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// TCP reset before the first byte of the answer.
    Reset,
    /// TCP reset after half of the answer.
    ResetMidBody,
    /// No answer, ever.
    Hang,
    /// Half of the answer, then nothing.
    HangMidBody,
    /// A whole response whose JSON is cut.
    MalformedJson,
    /// `Content-Length` promises more than is sent; then the connection closes.
    CutBody,
    /// 200 with no body.
    EmptyBody,
    /// A byte that is not UTF-8 inside the text.
    BadUtf8,
    /// A stream that ends cleanly without a finish reason or `[DONE]`. Without streaming the same as `EmptyBody`.
    StreamEnds,
    /// The server process dies: every connection closes and new ones are refused.
    Die,
}

impl WireFault {
    /// Whether it strikes before anything is generated.
    pub(crate) fn is_immediate(&self) -> bool {
        matches!(self, Self::Reply { .. } | Self::Reset | Self::Hang | Self::Die)
    }

    /// Carries out an immediate fault.
    pub(crate) async fn strike(self, control: &ConnectionControl, lifecycle: &Lifecycle) -> Response<Body> {
        match self {
            Self::Reply { status, headers, body } => fixed(status, headers, body),
            Self::Reset => {
                control.reset();
                pending().await
            }
            Self::Die => {
                lifecycle.die();
                pending().await
            }
            _ => pending().await,
        }
    }

    /// Delivers a whole body the wrong way.
    pub(crate) fn spoil(self, mut body: Vec<u8>, control: std::sync::Arc<ConnectionControl>) -> Response<Body> {
        let half = body.len() / 2;
        match self {
            Self::MalformedJson => {
                body.truncate(half);
                json_response(StatusCode::OK, body)
            }
            Self::BadUtf8 => {
                let at = body.windows(8).position(|window| window == b"\"text\":\"").map_or(half, |at| at + 8);
                body.insert(at, 0xff);
                json_response(StatusCode::OK, body)
            }
            Self::EmptyBody | Self::StreamEnds => json_response(StatusCode::OK, Body::empty()),
            Self::CutBody => half_then(&body, async { sleep(FLUSH).await }),
            Self::ResetMidBody => half_then(&body, async move { reset_after_flush(&control).await }),
            _ => half_then(&body, pending()),
        }
    }
}

/// Time for a write to reach the client before the connection goes.
const FLUSH: Duration = Duration::from_millis(5);

/// Resets a connection whose last write should reach the client first.
pub(crate) async fn reset_after_flush(control: &ConnectionControl) {
    sleep(FLUSH).await;
    control.reset();
    pending().await
}

/// A response that promises all of `body`, sends half of it, and ends when `end` does.
fn half_then(body: &[u8], end: impl Future<Output = ()> + Send + 'static) -> Response<Body> {
    let half = Ok::<_, Infallible>(Bytes::copy_from_slice(&body[..body.len() / 2]));
    let tail = stream::once(end).filter_map(|()| async { None });
    let mut response = json_response(StatusCode::OK, Body::from_stream(stream::iter([half]).chain(tail)));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    response
}

fn fixed(status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, body);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
