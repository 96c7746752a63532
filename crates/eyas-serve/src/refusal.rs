//! Errors as a client sees them: SGLang has three body shapes for them, and a client has to cope with each.

use crate::fault::WireFault;
use crate::json::Json;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};

/// A request that is turned down before anything was generated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    status: StatusCode,
    shape: Shape,
    message: String,
    retry_after_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `{"error":{"message":"…"}}`: values out of range, too long, duplicates.
    Object,
    /// `{"error":"…"}`: the JSON contract, unknown sampling keys and wrong types.
    Text,
    /// `{"object":"error","message":"…","type":"…","param":null,"code":N}`: broken bodies, a full queue.
    Flat(&'static str),
}

impl Refusal {
    /// 400 with an error object.
    pub(crate) fn bad_value(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, shape: Shape::Object, message: message.into(), retry_after_s: None }
    }

    /// 400 whose `error` is a plain string.
    pub(crate) fn bad_contract(message: impl Into<String>) -> Self {
        Self { shape: Shape::Text, ..Self::bad_value(message) }
    }

    /// 400 for a body that is no JSON object.
    pub(crate) fn bad_body(body: &[u8], error: &serde_json::Error) -> Self {
        let line_start = match error.line().saturating_sub(1) {
            0 => 0,
            n => body.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(n - 1).map_or(0, |(at, _)| at + 1),
        };
        let offset = line_start + error.column();
        let message = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': ('body', {offset}), 'msg': 'JSON decode error', \
             'input': {{}}, 'ctx': {{'error': '{}'}}}}",
            without_position(error)
        );
        Self { shape: Shape::Flat("Bad Request"), ..Self::bad_value(message) }
    }

    /// 503: the waiting queue is at its limit.
    pub(crate) fn queue_full() -> Self {
        Self::flat(StatusCode::SERVICE_UNAVAILABLE, "503", "The request queue is full.")
    }

    /// An error in the flat shape.
    pub(crate) fn flat(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, shape: Shape::Flat(kind), message: message.into(), retry_after_s: None }
    }

    /// An error object with any status.
    pub(crate) fn object(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, ..Self::bad_value(message) }
    }

    /// Adds a `Retry-After` header. Whole seconds are written as such; fractions, which HTTP does not know, as they are.
    pub(crate) fn retry_after(self, seconds: Option<f64>) -> Self {
        Self { retry_after_s: seconds, ..self }
    }

    /// The same as a scripted response.
    pub(crate) fn into_wire_fault(self, retry_after_s: Option<f64>) -> WireFault {
        let headers = retry_after_s.map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
        WireFault::Reply { status: self.status.as_u16(), headers: headers.into_iter().collect(), body: self.body() }
    }

    /// The body, without a line end.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut out = Json::default();
        match self.shape {
            Shape::Object => out.raw("{\"error\":{\"message\":").value(&self.message).raw("}}"),
            Shape::Text => out.raw("{\"error\":").value(&self.message).raw("}"),
            Shape::Flat(kind) => {
                out.raw("{\"object\":\"error\",\"message\":").value(&self.message).raw(",\"type\":").value(kind);
                out.raw(",\"param\":null,\"code\":").int(u64::from(self.status.as_u16())).raw("}")
            }
        };
        out.0
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = json_response(self.status, self.body());
        if let Some(seconds) = self.retry_after_s
            && let Ok(value) = HeaderValue::from_str(&seconds.to_string())
        {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}

/// A JSON response; its length is known.
pub(crate) fn json_response(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What serde_json says, without ` at line 1 column 2`.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
