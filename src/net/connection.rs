//! Accepted connections: a byte stream that must send its preface in time and counts as open until
//! it is dropped.
//!
//! What it deliberately does not do: parse the preface, or limit how long a connection lives.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use crate::metrics::{Counted, PortCounters};
use crate::net::io::Io;

/// How long a new connection may take to send the first bytes of its protocol.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) io: Io,
    /// Address of the client; none on a unix socket.
    pub peer: Option<SocketAddr>,
    /// Deadline of the preface; none once it has arrived.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes of the preface that have not arrived.
    preface_bytes_left: usize,
    _open: Counted,
    _permit: OwnedSemaphorePermit,
}

/// A connection that is registered with no runtime, on its way from one to another.
#[derive(Debug)]
pub struct DetachedConnection(Connection);

// === impl Connection ===

impl Connection {
    /// A connection that has [`PREFACE_TIMEOUT`] to send its preface, accepted now.
    pub(super) fn new(
        io: Io,
        peer: Option<SocketAddr>,
        preface_bytes_left: usize,
        counters: &PortCounters,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        counters.accepted.inc();
        Self {
            io,
            peer,
            deadline: preface_deadline(preface_bytes_left),
            preface_bytes_left,
            _open: Counted::new(&counters.open),
            _permit: permit,
        }
    }

    /// The client's certificate in DER, if TLS has verified one.
    pub fn client_certificate(&self) -> Option<&[u8]> {
        self.io.client_certificate()
    }

    /// Deregisters the connection from its runtime.
    ///
    /// # Errors
    ///
    /// When the socket cannot be deregistered.
    pub fn detach(mut self) -> io::Result<DetachedConnection> {
        self.deadline = None;
        self.io = self.io.detach()?;
        Ok(DetachedConnection(self))
    }
}

fn preface_deadline(bytes_left: usize) -> Option<Pin<Box<Sleep>>> {
    (bytes_left > 0).then(|| Box::pin(sleep(PREFACE_TIMEOUT)))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if let Some(deadline) = &mut self.deadline {
            let expired = deadline.as_mut().poll(cx).is_ready();
            let bytes = buffer.filled().len().saturating_sub(before);
            self.preface_bytes_left = self.preface_bytes_left.saturating_sub(bytes);
            if self.preface_bytes_left == 0 {
                self.deadline = None;
            } else if expired {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

// === impl DetachedConnection ===

impl DetachedConnection {
    /// Registers the connection with the current runtime. The timeout of its preface restarts.
    ///
    /// # Errors
    ///
    /// When the socket cannot be registered.
    pub fn attach(self) -> io::Result<Connection> {
        let Self(mut connection) = self;
        connection.io = connection.io.attach()?;
        connection.deadline = preface_deadline(connection.preface_bytes_left);
        Ok(connection)
    }
}
