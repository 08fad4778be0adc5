//! A connection's bytes on their way to hyper and back.
//!
//! Why: hyper takes up all that a socket holds before anybody else has his turn, goes on reading a client that does not read,
//! and counts nothing. How: between it and the socket, frames are counted as they go by (`FrameMeter`) and a connection
//! beyond its bound is told so and closed; when a turn has seen [`FRAMES_PER_TURN_MAX`] of them it is over, and what was read
//! beyond is left for the next; nothing is read while something waits to be sent, and where that takes longer than a client
//! may be silent, it is gone.
//!
//! What it deliberately does not do: understand what goes by, or say when a turn begins (`connections`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tollgate_http2::ConnectionError;
use tollgate_http2::frame_meter::FrameMeter;

use super::Bounds;
use crate::accept::Connection;
use crate::metrics::Metrics;
use crate::service::ratelimit::RateLimit;

/// How many frames a turn brings before other connections have theirs: one call.
const FRAMES_PER_TURN_MAX: usize = 2;

/// How much is read at once. A stream opened and reset may be forty bytes.
const READ_BYTES_MAX: usize = 4_096;

/// How much of its turn a connection has left.
#[derive(Debug, Default)]
pub(super) struct Turn(AtomicUsize);

/// A connection, watched.
pub(super) struct Watched {
    connection: Connection,
    passing: FrameMeter,
    turn: Arc<Turn>,
    /// What was read and is for another turn.
    left: Bytes,
    service: Arc<RateLimit>,
    metrics: Arc<Metrics>,
    /// How long something may wait to be sent without any of it going.
    silent_max: Option<Duration>,
    /// Something waits to be sent.
    waiting: bool,
    /// For how long it may, where there is a bound.
    over: Option<Pin<Box<Sleep>>>,
}

// === impl Turn ===

impl Turn {
    /// A new one begins.
    pub(super) fn begin(&self) {
        self.0.store(FRAMES_PER_TURN_MAX, Ordering::Relaxed);
    }

    /// Whether others have waited long enough.
    pub(super) fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// How many frames it may still bring.
    fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self, frames: usize) {
        // One task has it.
        self.0
            .store(self.left().saturating_sub(frames), Ordering::Relaxed);
    }
}

// === impl Watched ===

impl Watched {
    pub(super) fn new(
        connection: Connection,
        bounds: &Bounds,
        turn: Arc<Turn>,
        service: Arc<RateLimit>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let silent_max = bounds
            .keepalive_interval
            .map(|interval| interval.saturating_add(bounds.keepalive_timeout));
        let header_list_bytes_max = usize::try_from(bounds.header_list_bytes_max);
        let passing = FrameMeter::new(
            bounds.resets_per_second_max,
            bounds.control_frames_per_second_max,
            header_list_bytes_max.unwrap_or(usize::MAX),
        );
        Self {
            connection,
            passing,
            turn,
            left: Bytes::new(),
            service,
            metrics,
            silent_max,
            waiting: false,
            over: None,
        }
    }

    /// How many of these bytes are for this turn.
    fn came(&mut self, bytes: &[u8]) -> Result<usize, ConnectionError> {
        let now_us = self.service.uptime_us();
        let (frames, rest) = self.passing.received(bytes, self.turn.left(), now_us)?;
        self.turn.take(frames.max(1));
        Ok(bytes.len().saturating_sub(rest.len()))
    }

    fn end(&mut self, cx: &mut Context<'_>, broken: ConnectionError) -> io::Error {
        if let Some(goodbye) = self.passing.goaway(&broken) {
            // As much as the socket takes; a client that reads nothing need not be told.
            let _ = Pin::new(&mut self.connection).poll_write(cx, &goodbye);
            let _ = Pin::new(&mut self.connection).poll_flush(cx);
        }
        self.metrics.count_broken_connection(broken.reason().name());
        io::Error::other(broken)
    }

    /// So many of these bytes went, or none could.
    fn sent(
        &mut self,
        cx: &mut Context<'_>,
        sent: Poll<io::Result<usize>>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(sent) = sent else {
            if !self.waiting {
                self.waiting = true;
                self.over = self.silent_max.map(|length| Box::pin(sleep(length)));
            }
            let Some(over) = &mut self.over else {
                return Poll::Pending;
            };
            ready!(over.as_mut().poll(cx));
            self.metrics.connections.silent.inc();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        };
        self.over = None;
        if std::mem::take(&mut self.waiting) {
            // Nothing was read meanwhile, and nobody is to be woken for what came.
            cx.waker().wake_by_ref();
        }
        let sent = sent?;
        if let Some(why) = self.passing.sent(bytes.get(..sent).unwrap_or_default()) {
            // hyper has bounds of its own.
            self.metrics.count_broken_connection(why);
        }
        Poll::Ready(Ok(sent))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        // Whoever waits to send is woken when that goes, and a turn that is over by whoever began it.
        if watched.waiting || watched.turn.is_over() {
            return Poll::Pending;
        }
        let room = buffer.remaining().min(READ_BYTES_MAX);
        if watched.left.is_empty() {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
            ready!(Pin::new(&mut watched.connection).poll_read(cx, &mut part))?;
            match watched.came(part.filled()) {
                Ok(bytes) => {
                    let (_, rest) = part.filled().split_at(bytes);
                    watched.left = Bytes::copy_from_slice(rest);
                    buffer.advance(bytes);
                }
                Err(broken) => return Poll::Ready(Err(watched.end(cx, broken))),
            }
        } else {
            let left = watched.left.clone();
            let (front, _) = left.split_at(room.min(left.len()));
            match watched.came(front) {
                Ok(bytes) => buffer.put_slice(&watched.left.split_to(bytes)),
                Err(broken) => return Poll::Ready(Err(watched.end(cx, broken))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let watched = self.get_mut();
        let sent = Pin::new(&mut watched.connection).poll_write(cx, bytes);
        watched.sent(cx, sent, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}
