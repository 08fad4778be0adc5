//! Bytes on their way, and what went wrong with them first.
//!
//! Why: what reads a connection tells the one who asked that it was cancelled, and not that the server did not believe our
//! certificate. How: the first error is kept for whoever says why there is no stream.
//!
//! What it deliberately does not do: change a byte.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What went wrong first, if anything did.
pub(super) type Seen = Arc<OnceLock<String>>;

/// Bytes that are watched.
pub(super) struct Witness<T> {
    bytes: T,
    seen: Seen,
}

// === impl Witness ===

impl<T> Witness<T> {
    pub(super) fn new(bytes: T) -> (Self, Seen) {
        let seen = Seen::default();
        let witness = Self {
            bytes,
            seen: Arc::clone(&seen),
        };
        (witness, seen)
    }

    fn look<R>(&self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.seen.get_or_init(|| error.to_string());
        }
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Witness<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.bytes).poll_read(cx, buffer);
        self.look(polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Witness<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}
