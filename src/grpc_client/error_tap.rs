//! A stream that records its first error.
//!
//! Above it, the HTTP/2 client only reports that a call was cancelled, not that TLS rejected the
//! certificate. The first error is kept for the error message, and so are the first two bytes,
//! which tell TLS from HTTP. When a write fails, the peer has closed the connection; its last bytes
//! are then read before the failure is reported. Under TLS 1.3 a rejected client learns of it only
//! after it has sent its first data, and its write may then fail before it has read the alert.
//!
//! What it deliberately does not do: change a byte.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::grpc_client::ConnectionFailure;
use crate::per_thread::lock;

/// The first error of a channel's newest connection, shared with the stream that records it.
#[derive(Clone, Debug, Default)]
pub struct ErrorRecord(Arc<Mutex<Observations>>);

#[derive(Debug, Default)]
struct Observations {
    /// The first two bytes; one byte is not enough to tell TLS.
    first: Option<[u8; 2]>,
    /// The peer has closed the connection.
    ended: bool,
    /// The first error: its message and its class.
    error: Option<(String, ConnectionFailure)>,
}

/// How much is read after a failed write: more than an alert.
const FINAL_READ_BYTES_MAX: usize = 1 << 10;

/// A stream whose first error is recorded.
pub(crate) struct ErrorTap<T> {
    bytes: T,
    errors: ErrorRecord,
    /// An error of a write that has not been reported yet.
    failed: Option<io::Error>,
}

// === impl ErrorRecord ===

impl ErrorRecord {
    /// The message of the first error.
    pub fn words(&self) -> Option<String> {
        self.look(|observations| observations.error.as_ref().map(|(words, _)| words.clone()))
    }

    /// The class of the failure, if it is known.
    pub fn failure(&self) -> Option<ConnectionFailure> {
        self.look(|observations| {
            let spoken = observations
                .first
                .and_then(ConnectionFailure::of_first_bytes);
            let error = observations
                .error
                .as_ref()
                .map(|(_, failure)| failure.clone());
            let ended = observations.ended.then_some(ConnectionFailure::Closed);
            let failure = spoken.or(error).or(ended)?;
            // A peer that has sent bytes may close the connection.
            (failure != ConnectionFailure::Closed || observations.first.is_none())
                .then_some(failure)
        })
    }

    fn look<R>(&self, at: impl FnOnce(&mut Observations) -> R) -> R {
        at(&mut lock(&self.0))
    }
}

// === impl ErrorTap ===

impl<T> ErrorTap<T> {
    /// Wraps a new connection. The record of the connection before it is cleared.
    pub(crate) fn new(bytes: T, errors: &ErrorRecord) -> Self {
        errors.look(|observations| *observations = Observations::default());
        Self {
            bytes,
            errors: errors.clone(),
            failed: None,
        }
    }

    fn noted(&self, error: &io::Error) {
        self.errors.look(|observations| {
            let said = || (error.to_string(), ConnectionFailure::of(error));
            observations.error.get_or_insert_with(said);
        });
    }

    fn came(&self, bytes: &[u8]) {
        self.errors.look(|observations| {
            observations.ended |= bytes.is_empty();
            if let (None, Some(first)) = (observations.first, bytes.first_chunk()) {
                observations.first = Some(*first);
            }
        });
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> ErrorTap<T> {
    /// Writes. After a failure, reads the peer's last bytes before the failure is reported. They
    /// are there or never come: the connection is broken, so the read ends at once.
    fn write<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if self.failed.is_none() {
            match write(Pin::new(&mut self.bytes), cx) {
                Poll::Ready(Err(error)) => self.failed = Some(error),
                polled => return polled,
            }
        }
        let mut bytes = [0; FINAL_READ_BYTES_MAX];
        let mut buffer = ReadBuf::new(&mut bytes);
        match ready!(Pin::new(&mut self.bytes).poll_read(cx, &mut buffer)) {
            Ok(()) => self.came(buffer.filled()),
            Err(last) => self.noted(&last),
        }
        let error = self.failed.take();
        let error = error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        self.noted(&error);
        Poll::Ready(Err(error))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ErrorTap<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.bytes).poll_read(cx, buffer);
        match &polled {
            Poll::Ready(Ok(())) => self.came(buffer.filled().get(before..).unwrap_or_default()),
            Poll::Ready(Err(error)) => self.noted(error),
            Poll::Pending => {}
        }
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ErrorTap<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |to, cx| to.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, T::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, T::poll_shutdown)
    }
}
