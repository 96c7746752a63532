//! Where requests go and in which dialect.

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// The dialect of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// SGLang's native `/generate`: prompt ids in, output ids out.
    SglangGenerate,
    /// OpenAI's `/v1/chat/completions`: messages in; ids come back only where the server gives them.
    OpenaiChat,
}

impl Protocol {
    /// The route it posts to, below the base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::SglangGenerate => "/generate",
            Self::OpenaiChat => "/v1/chat/completions",
        }
    }
}

/// A server: address, dialect, headers, time limits.
#[derive(Clone)]
pub struct Endpoint {
    base_url: String,
    protocol: Protocol,
    host: String,
    port: u16,
    prefix: String,
    headers: HeaderMap,
    /// Model name sent in the dialects that want one.
    pub model: String,
    /// Further top-level fields of the request body, sent as they stand (`chat_template_kwargs`, `return_token_ids`, `lora_path`, …).
    pub extra_body: Map<String, Value>,
    /// Accept a `/generate` answer without `output_ids`. Its text is then all there is; off by default.
    pub allow_text: bool,
    /// Limit on establishing a connection. Default 10 s.
    pub connect_timeout: Duration,
    /// Limit from sending a request to having its whole answer. Default none: a long answer is not an error.
    pub request_timeout: Option<Duration>,
}

/// An endpoint that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not `http://host[:port][/prefix]`.
    #[error("`{url}` is no usable base URL: {problem}")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A header that HTTP does not allow. The value is not shown: it may be a key.
    #[error("header `{name}` holds characters that HTTP does not allow")]
    Header {
        /// Its name.
        name: String,
    },
}

impl Endpoint {
    /// `base_url` as `http://127.0.0.1:30000`, with or without a path prefix. Without a port: 80.
    pub fn new(base_url: &str, protocol: Protocol) -> Result<Self, EndpointError> {
        let bad = |problem| EndpointError::Url { url: base_url.to_owned(), problem };
        let base_url = base_url.trim_end_matches('/');
        if base_url.starts_with("https://") {
            return Err(bad("https is not supported yet; put a local proxy in front or use http"));
        }
        let rest = base_url.strip_prefix("http://").ok_or_else(|| bad("it must begin with http://"))?;
        let (authority, prefix) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(bad("user names in it are not supported; give a header instead"));
        }
        let after_v6 = authority.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match authority[after_v6..].rfind(':') {
            Some(colon) => {
                let (host, port) = authority.split_at(after_v6 + colon);
                (host, port[1..].parse().map_err(|_| bad("the port is no number from 1 to 65535"))?)
            }
            None => (authority, 80),
        };
        if host.is_empty() {
            return Err(bad("the host is missing"));
        }
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| bad("the host holds odd characters"))?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("eyas/", env!("CARGO_PKG_VERSION"))));
        Ok(Self {
            base_url: base_url.to_owned(),
            protocol,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            prefix: prefix.to_owned(),
            headers,
            model: "default".to_owned(),
            extra_body: Map::new(),
            allow_text: false,
            connect_timeout: Duration::from_secs(10),
            request_timeout: None,
        })
    }

    /// Sends `Authorization: Bearer KEY` with every request. The key is never shown.
    pub fn set_api_key(&mut self, key: &str) -> Result<(), EndpointError> {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
            .map_err(|_| EndpointError::Header { name: "authorization".to_owned() })?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// Sends one more header with every request.
    pub fn set_header(&mut self, name: &str, value: &str) -> Result<(), EndpointError> {
        let bad = || EndpointError::Header { name: name.to_owned() };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        self.headers.insert(header, HeaderValue::from_str(value).map_err(|_| bad())?);
        Ok(())
    }

    /// The base URL, without a slash at the end.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The dialect.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Path of a route on this server.
    pub(crate) fn route(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expect: Result<(&str, u16, &str), &str>) {
        let got = Endpoint::new(url, Protocol::SglangGenerate);
        match (expect, got) {
            (Ok((host, port, route)), Ok(endpoint)) => {
                assert_eq!(endpoint.address(), (host, port), "{url}");
                assert_eq!(endpoint.route("/generate"), route, "{url}");
            }
            (Err(words), Err(error)) => assert!(error.to_string().contains(words), "{url}: {error}"),
            (expect, got) => panic!("{url}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn base_urls() {
        check("http://127.0.0.1:30000", Ok(("127.0.0.1", 30000, "/generate")));
        check("http://gpu-7/", Ok(("gpu-7", 80, "/generate")));
        check("http://[::1]:8000/llm/", Ok(("::1", 8000, "/llm/generate")));
        check("http://[::1]", Ok(("::1", 80, "/generate")));
        check("127.0.0.1:30000", Err("must begin with http://"));
        check("https://host", Err("not supported yet"));
        check("http://host:70000", Err("port"));
        check("http://:80", Err("host is missing"));
    }

    #[test]
    fn keys_are_not_shown() {
        let mut endpoint = Endpoint::new("http://h", Protocol::OpenaiChat).unwrap();
        endpoint.set_api_key("hush").unwrap();
        assert!(!format!("{endpoint:?}{:?}", endpoint.headers()).contains("hush"));
        endpoint.set_api_key("a\nb").unwrap_err();
    }
}
