//! Bytes on their way, and what went wrong with them first.
//!
//! Why: what reads a connection tells the one who asked that it was cancelled, and not that the
//! server did not believe our certificate. How: the first error is kept for whoever says why there
//! is no answer, and the first two bytes, which tell TLS from HTTP. Where a write fails, the other
//! end has hung up, and what it said last is read before anybody hears of the failure: by TLS 1.3 a
//! client that is refused learns it after its first words, which may then meet a closed door.
//!
//! What it deliberately does not do: change a byte.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::grpc_client::ConnectionFailure;

/// What went wrong with a channel's newest connection, if anything did.
#[derive(Clone, Debug, Default)]
pub struct ErrorRecord(Arc<Mutex<Observations>>);

#[derive(Debug, Default)]
struct Observations {
    /// What came first; a lone byte is not enough to tell.
    first: Option<[u8; 2]>,
    /// The other end has hung up.
    ended: bool,
    /// The first error, in its own words and as what it is.
    error: Option<(String, ConnectionFailure)>,
}

/// How much of what was said last is read when a write has failed: more than an alert.
const FINAL_READ_BYTES_MAX: usize = 1 << 10;

/// Bytes that are watched.
pub(crate) struct ErrorTap<T> {
    bytes: T,
    errors: ErrorRecord,
    /// A write that failed, and that nobody has heard of.
    failed: Option<io::Error>,
}

// === impl ErrorRecord ===

impl ErrorRecord {
    /// The first error, in its own words.
    pub fn words(&self) -> Option<String> {
        self.look(|observations| observations.error.as_ref().map(|(words, _)| words.clone()))
    }

    /// What it was that went wrong, as far as can be told.
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
            // Who has spoken was not silent, and may hang up.
            (failure != ConnectionFailure::Closed || observations.first.is_none())
                .then_some(failure)
        })
    }

    fn look<R>(&self, at: impl FnOnce(&mut Observations) -> R) -> R {
        at(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl ErrorTap ===

impl<T> ErrorTap<T> {
    /// Watches a connection that is new; what was errors of one before it is forgotten.
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
    /// What a write comes to. One that failed waits for what the other end said last, which is
    /// there or never comes: the connection is broken, so that a read ends at once.
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
        let mut room = [0; FINAL_READ_BYTES_MAX];
        let mut buffer = ReadBuf::new(&mut room);
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
