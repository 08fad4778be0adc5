//! The messages to a proxy, as its connection takes them.
//!
//! What it deliberately does not do: read reports (`exchange`).

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::quota::registry::{QuotaRegistry, StreamId};

/// A message that is ready to be sent.
pub(super) struct EncodedMessage {
    pub(super) bytes: Bytes,
    /// When it was queued, in milliseconds of the clock's uptime.
    pub(super) queued_ms: u64,
}

/// The messages of a stream. Dropping it ends the stream.
pub(super) struct Assignments {
    pub(super) registry: Arc<QuotaRegistry>,
    pub(super) stream: StreamId,
    pub(super) encoded: mpsc::Receiver<EncodedMessage>,
    /// What the proxy is answered at the end, if not success.
    pub(super) last_status: Arc<OnceLock<Status>>,
    /// When the last message was handed over, until the next one is wanted.
    pub(super) handed_over_ms: Option<u64>,
    pub(super) ended: bool,
}

/// The end of a stream whose proxy reads too slowly.
pub(super) fn too_slow() -> Status {
    Status::resource_exhausted(
        "assignments wait too long to be read; read the stream, and open it again",
    )
}

// === impl Assignments ===

impl Assignments {
    /// Whether this is longer ago than an assignment may be on its way.
    fn is_late(&self, since_ms: u64) -> bool {
        let waited_ms = self.registry.now_ms().saturating_sub(since_ms);
        waited_ms > self.registry.times().delivery_ms_max
    }
}

impl Stream for Assignments {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.handed_over_ms = None;
        let Some(message) = std::task::ready!(self.encoded.poll_recv(cx)) else {
            self.ended = true;
            return Poll::Ready(self.last_status.get().cloned().map(Err));
        };
        if self.is_late(message.queued_ms) {
            self.ended = true;
            if self.registry.close(self.stream) {
                self.registry.count_slow();
            }
            return Poll::Ready(Some(Err(too_slow())));
        }
        self.handed_over_ms = Some(self.registry.now_ms());
        Poll::Ready(Some(Ok(message.bytes)))
    }
}

impl Drop for Assignments {
    fn drop(&mut self) {
        // Where flow control stands still nothing is polled, and the connection resets the stream.
        let was_open = self.registry.close(self.stream);
        if was_open
            && self
                .handed_over_ms
                .is_some_and(|since_ms| self.is_late(since_ms))
        {
            self.registry.count_slow();
        }
    }
}
