//! A client that shows what was on the wire, half answers and resets included.

use eyas_serve::{Script, ScriptBackend, Server, ServerConfig, ServerHandle};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// Decoded from chunks where it was chunked.
    pub(crate) body: Vec<u8>,
    /// How reading ended: an orderly close is `Ok`.
    pub(crate) end: Result<(), io::ErrorKind>,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The data of server-sent events.
    pub(crate) fn events(&self) -> Vec<&str> {
        self.text().split("\n\n").filter(|e| !e.is_empty()).map(|e| e.strip_prefix("data: ").expect("data:")).collect()
    }
}

/// Sends one request on a connection of its own and reads until the server closes it.
pub(crate) async fn call(addr: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<Reply> {
    let mut stream = open(addr, method, path, body).await?;
    let mut raw = Vec::new();
    let end = stream.read_to_end(&mut raw).await.map(|_| ()).map_err(|e| e.kind());
    let Some(split) = raw.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(Reply { status: 0, head: String::new(), body: raw, end });
    };
    let head = String::from_utf8_lossy(&raw[..split]).into_owned();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let body = &raw[split + 4..];
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { dechunk(body) } else { body.to_vec() };
    Ok(Reply { status, head, body, end })
}

/// Sends a request and leaves the connection open.
pub(crate) async fn open(addr: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr).await?;
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(stream)
}

fn dechunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = raw.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..line]).unwrap_or("0"), 16).unwrap_or(0);
        raw = &raw[line + 2..];
        let size = size.min(raw.len());
        body.extend_from_slice(&raw[..size]);
        raw = raw.get(size + 2..).unwrap_or_default();
    }
    body
}

pub(crate) async fn post(server: &ServerHandle, path: &str, body: &str) -> Reply {
    call(server.addr(), "POST", path, body).await.expect("the server answers")
}

pub(crate) async fn get(server: &ServerHandle, path: &str) -> Reply {
    call(server.addr(), "GET", path, "").await.expect("the server answers")
}

/// Starts a server with a script given as TOML.
pub(crate) async fn scripted(toml: &str) -> ServerHandle {
    let script = Script::parse(toml).expect("the script is valid");
    let backend = ScriptBackend::new(script).expect("the script can be played");
    Server::start(backend, ServerConfig::default()).await.expect("a loopback port is free")
}
