//! As much of HTTP/1.1 as a scripted server needs.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) body: Vec<u8>,
}

pub(super) enum Reply {
    Whole {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Announces `n_bytes`, sends less, closes.
    Short {
        n_bytes: usize,
        body: Vec<u8>,
    },
    /// Never answers.
    Hang,
    /// Closes without a word.
    Close,
    /// Closes everything.
    Die,
}

impl Reply {
    pub(super) fn text(status: u16, body: &str) -> Self {
        Self::Whole { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
    }

    pub(super) fn json(status: u16, headers: Vec<(String, String)>, body: &serde_json::Value) -> Self {
        Self::Whole { status, headers, body: body.to_string().into_bytes() }
    }
}

pub(super) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, keep_alive: Duration) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(keep_alive))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub(super) fn close(&self) {
        self.reader.get_ref().shutdown(Shutdown::Both).unwrap_or_default();
    }

    pub(super) fn local_port(&self) -> u16 {
        self.reader.get_ref().local_addr().map_or(0, |address| address.port())
    }

    /// `None` when the connection is closed, idle for too long, or not HTTP.
    pub(super) fn read_request(&mut self) -> Option<Request> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut n_bytes, mut authorization) = (0, None);
        loop {
            line.clear();
            self.reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => n_bytes = value.trim().parse().ok()?,
                "authorization" => authorization = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; n_bytes];
        self.reader.read_exact(&mut body).ok()?;
        Some(Request { method, path, authorization, body })
    }

    /// Whether the connection can go on.
    pub(super) fn write(&mut self, reply: &Reply) -> bool {
        let (status, headers, n_bytes, body, goes_on) = match reply {
            Reply::Whole { status, headers, body } => (*status, headers.as_slice(), body.len(), body, true),
            Reply::Short { n_bytes, body } => (200, &[][..], *n_bytes, body, false),
            Reply::Hang | Reply::Close | Reply::Die => return false,
        };
        let mut head =
            format!("HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {n_bytes}\r\n");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").expect("writing to a string");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.reader.get_mut().write_all(&bytes).is_ok() && goes_on
    }

    pub(super) fn wait_for_close(&mut self) {
        self.reader.get_mut().set_read_timeout(Some(Duration::from_secs(3_600))).unwrap_or_default();
        while self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            let n = self.reader.buffer().len();
            self.reader.consume(n);
        }
    }
}
