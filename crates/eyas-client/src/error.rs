//! Everything that can go wrong with one request, by class.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

/// Why a request brought no answer. [`RequestError::class`] is the short name people count by.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No connection came about: nothing was sent.
    #[error("cannot connect to {url}: {source}")]
    Connect {
        /// Base URL.
        url: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A kept connection turned out to be closed when it was used again, before any byte of a response.
    #[error("the kept connection was closed by the server before it was used again")]
    StaleReuse,
    /// The connection broke after sending and before the response.
    #[error("the connection broke before a response came: {message}")]
    Reset {
        /// What the transport says.
        message: String,
    },
    /// The body ended before its announced length.
    #[error("the answer was cut off after {n_bytes} bytes: {message}")]
    ShortBody {
        /// Bytes that came.
        n_bytes: usize,
        /// What the transport says.
        message: String,
    },
    /// No whole answer within the time limit.
    #[error("no answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// A status other than 200.
    #[error("status {status}: {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The server's words, shortened.
        message: String,
        /// `Retry-After`, where the server sent one.
        retry_after: Option<Duration>,
    },
    /// Status 200 around an error object.
    #[error("the server reports an error with status 200: {message}")]
    ErrorBody {
        /// The server's words.
        message: String,
    },
    /// The body is no JSON of the expected shape.
    #[error("the answer is not the JSON that was expected: {message}")]
    BadJson {
        /// What the parser says.
        message: String,
    },
    /// The body is not UTF-8.
    #[error("the answer is not UTF-8 from byte {valid_up_to} on")]
    BadUtf8 {
        /// Bytes that are.
        valid_up_to: usize,
    },
    /// The server gave the request up, with status 200.
    #[error("aborted by the server: {message}")]
    Abort {
        /// The server's words.
        message: String,
        /// The status the server meant.
        status_code: Option<u16>,
    },
    /// The finish reason is none that proves an answer (`stop`, `length`, `tool_calls`).
    #[error("finish reason `{reason}` is no proof of a whole answer")]
    UnknownFinish {
        /// As received; `null` when there is none.
        reason: String,
    },
    /// A `/generate` answer without `output_ids`.
    #[error("the answer has no output_ids")]
    NoIds,
    /// An answer of no tokens at all.
    #[error("the answer has no tokens")]
    NoTokens,
    /// The engine drew an id outside the vocabulary and stopped (`matched: "NaN happened"`).
    #[error("the engine computed NaN and stopped")]
    NanHappened,
    /// The answer belongs to another request.
    #[error("the answer is for request `{got}`, not `{sent}`")]
    RidMismatch {
        /// The id that was sent.
        sent: String,
        /// The id that came back.
        got: String,
    },
    /// The server read another number of prompt tokens than were sent: it cut or changed the prompt.
    #[error("the server counted {counted} prompt tokens, {sent} were sent")]
    PromptTokens {
        /// Ids sent.
        sent: u64,
        /// Ids counted.
        counted: u64,
    },
}

/// Whether to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Another try cannot help.
    Never,
    /// At once, on a fresh connection; it does not count as a try.
    Now,
    /// After a growing pause.
    Backoff,
    /// The server is full: after a growing pause, and it does not count as a try.
    Busy,
    /// Not before this long, as the server asks; it does not count as a try.
    After(Duration),
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This request's, as far as one can tell.
    Request,
    /// The endpoint cannot be reached: no prompt is to blame, and nothing was sent.
    Unreachable,
    /// The endpoint is set up wrongly (key, route): every prompt would fail there.
    Misconfigured,
}

impl RequestError {
    /// Short name: `connect`, `status_503`, `abort`, `no_ids`, …
    pub fn class(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Connect { .. } => "connect",
            Self::StaleReuse => "stale_reuse",
            Self::Reset { .. } => "reset",
            Self::ShortBody { .. } => "short_body",
            Self::Timeout { .. } => "timeout",
            Self::Status { status, .. } => return Cow::Owned(format!("status_{status}")),
            Self::ErrorBody { .. } => "error_body",
            Self::BadJson { .. } => "bad_json",
            Self::BadUtf8 { .. } => "bad_utf8",
            Self::Abort { .. } => "abort",
            Self::UnknownFinish { .. } => "unknown_finish",
            Self::NoIds => "no_ids",
            Self::NoTokens => "no_tokens",
            Self::NanHappened => "nan",
            Self::RidMismatch { .. } => "rid_mismatch",
            Self::PromptTokens { .. } => "prompt_tokens",
        })
    }

    /// Whether to ask again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::StaleReuse => Retry::Now,
            Self::Status { status, message, retry_after } => match (*status, retry_after) {
                (429 | 503, Some(wait)) => Retry::After(*wait),
                (429, None) => Retry::Busy,
                (503, None) if message.contains("queue is full") || message.contains("queue full") => Retry::Busy,
                (408 | 409 | 425 | 500..=599, _) => Retry::Backoff,
                _ => Retry::Never,
            },
            Self::Abort { message, status_code } => match status_code {
                Some(408 | 425 | 429) => Retry::Backoff,
                Some(400..=499) => Retry::Never,
                _ if names_length(message) => Retry::Never,
                _ => Retry::Backoff,
            },
            // The same prompt would be cut in the same way again.
            Self::PromptTokens { .. } => Retry::Never,
            Self::Connect { .. }
            | Self::Reset { .. }
            | Self::ShortBody { .. }
            | Self::Timeout { .. }
            | Self::ErrorBody { .. }
            | Self::BadJson { .. }
            | Self::BadUtf8 { .. }
            | Self::UnknownFinish { .. }
            | Self::NoIds
            | Self::NoTokens
            | Self::NanHappened
            | Self::RidMismatch { .. } => Retry::Backoff,
        }
    }

    /// Whose fault it is.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Connect { .. } => Scope::Unreachable,
            Self::Status { status: 401 | 403 | 404 | 405, .. } => Scope::Misconfigured,
            _ => Scope::Request,
        }
    }

    /// Whether the server may have generated an answer that was lost, so that another try pays for it twice.
    pub fn may_have_been_answered(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::StaleReuse => false,
            Self::Status { status, .. } => *status >= 500 && *status != 503,
            _ => true,
        }
    }
}

/// Whether an abort says that the prompt is too long: another try would end the same way.
fn names_length(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["too long", "longer than", "exceed", "maximum", "over the limit", "context length"]
        .iter()
        .any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> RequestError {
        RequestError::Status { status, message: String::new(), retry_after: None }
    }

    #[test]
    fn which_statuses_are_tried_again() {
        for permanent in [400, 401, 403, 404, 413, 422, 301] {
            assert_eq!(status(permanent).retry(), Retry::Never, "{permanent}");
        }
        for transient in [408, 425, 500, 502, 503, 504] {
            assert_eq!(status(transient).retry(), Retry::Backoff, "{transient}");
        }
        assert_eq!(status(429).retry(), Retry::Busy);
        let wait = Duration::from_secs(7);
        let full = RequestError::Status { status: 503, message: String::new(), retry_after: Some(wait) };
        assert_eq!(full.retry(), Retry::After(wait));
    }

    #[test]
    fn server_01_an_abort_for_length_is_permanent_and_others_are_not() {
        let abort = |message: &str, status_code| RequestError::Abort { message: message.into(), status_code }.retry();
        assert_eq!(abort("input of 9000 tokens is over the limit of 4095", None), Retry::Never);
        assert_eq!(
            abort("Input length (9000 tokens) exceeds the maximum allowed length (4095 tokens).", None),
            Retry::Never
        );
        assert_eq!(abort("anything", Some(400)), Retry::Never);
        assert_eq!(abort("Aborted", None), Retry::Backoff);
        assert_eq!(abort("Abort in waiting queue", None), Retry::Backoff);
        assert_eq!(abort("weights are being updated", Some(503)), Retry::Backoff);
    }
}
