//! One TCP connection, in a form that can be cut from inside a handler.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// What a handler may do to the connection its request came over. Lies in the request's extensions.
#[derive(Debug, Default)]
pub(crate) struct ConnectionControl {
    reset: AtomicBool,
    busy: AtomicBool,
    cut: Notify,
}

impl ConnectionControl {
    /// Tears the connection down with a TCP reset. What was flushed before may still arrive.
    pub(crate) fn reset(&self) {
        self.reset.store(true, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Marks that a request is being worked on, so that the keep-alive limit leaves the connection alone.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Waits until [`ConnectionControl::reset`] is called.
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }
}

/// A stream whose drop sends RST instead of FIN when its control says so.
pub(crate) struct Connection {
    stream: TcpStream,
    control: std::sync::Arc<ConnectionControl>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, control: std::sync::Arc<ConnectionControl>) -> Self {
        Self { stream, control }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.control.reset.load(Ordering::Relaxed) {
            // A socket that refuses the option closes the ordinary way: still a cut connection.
            self.stream.set_zero_linger().ok();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
