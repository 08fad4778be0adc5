//! How a connection ends, whether the client is still there, and streams that make no progress:
//! bodies that do not arrive, and responses that are not read.

use super::stream::StreamState;
use super::{Goaway, Handshake, ServerConnection};
use crate::{Reason, frame};

/// Payload of the PING that follows the first GOAWAY: its acknowledgement shows that the client
/// has seen both.
pub(super) const GOAWAY_PING: [u8; 8] = *b"goodbye!";

/// Payload of keepalive pings.
pub(super) const KEEPALIVE_PING: [u8; 8] = *b"hello? !";

/// What [`ServerConnection::reset_stalled`] has reset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stalled {
    /// Requests that did not arrive in full.
    pub requests: usize,
    /// Responses that waited for a window.
    pub responses: usize,
    /// There may be more of them.
    pub more: bool,
}

// === impl ServerConnection ===

impl ServerConnection {
    /// Begins a graceful shutdown and wakes the task that drives the connection.
    ///
    /// Sends GOAWAY. Streams that the client opened before it knew are served (RFC 9113, section
    /// 6.8); [`ServerConnection::is_finished`] once they have ended. A connection that is not
    /// established sends nothing: close it.
    pub fn graceful_shutdown(&mut self) {
        if self.ending.goaway == Goaway::NotSent {
            self.ending.goaway = Goaway::Sent;
            if self.handshake == Handshake::Complete {
                self.outbox
                    .write_goaway(frame::MAX_31_BITS, Reason::NoError);
                self.outbox.write_frame(frame::PING, 0, 0, &GOAWAY_PING);
            }
            self.wake();
        }
    }

    /// Whether a graceful shutdown has begun.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.ending.goaway != Goaway::NotSent
    }

    /// Asks the task that drives the connection to close it at once, and wakes it.
    pub fn abort(&mut self) {
        if !self.ending.aborted {
            self.ending.aborted = true;
            self.wake();
        }
    }

    /// Whether [`ServerConnection::abort`] was called.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.ending.aborted
    }

    /// Sends GOAWAY with this reason. Write the output, then close the socket.
    pub fn abrupt_shutdown(&mut self, reason: Reason) {
        let last_stream = match self.ending.goaway {
            Goaway::Final(last_stream) => last_stream,
            Goaway::NotSent | Goaway::Sent => self.last_stream,
        };
        self.outbox.write_goaway(last_stream, reason);
    }

    /// Whether the connection is to be closed once the output is written: a shutdown has begun, or
    /// the client leaves, and all streams have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let leaving = matches!(self.ending.goaway, Goaway::Final(_)) || self.ending.client_leaves;
        leaving && self.streams.open() == 0 && !self.headers.is_in_block()
    }

    /// The client has closed its side of the socket: requests that are incomplete end.
    pub fn receive_eof(&mut self) {
        self.ending.client_leaves = true;
        self.headers.drop_block();
        let incomplete: Vec<u32> = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| !stream.received)
            .map(|(id, _)| id)
            .collect();
        for id in incomplete {
            self.remove(id);
        }
    }

    /// The socket is closed: ends all streams, wakes their handlers and frees memory.
    pub fn close(&mut self) {
        for (_, stream) in std::mem::take(&mut self.streams).iter_mut() {
            if let StreamState::Request(request) = &mut stream.state {
                request.wake();
            }
            if let Some(body) = stream.partial_body.take() {
                self.bodies.release(body.held_bytes);
            }
        }
        self.outbox.free();
        self.driver.waker = None;
    }

    /// Sends a PING that [`ServerConnection::is_keepalive_acknowledged`] tells of.
    pub fn send_keepalive_ping(&mut self) {
        self.ending.awaits_keepalive = true;
        self.outbox.write_frame(frame::PING, 0, 0, &KEEPALIVE_PING);
        self.wake();
    }

    /// Whether the client has acknowledged the last keepalive ping.
    #[must_use]
    pub fn is_keepalive_acknowledged(&self) -> bool {
        !self.ending.awaits_keepalive
    }

    /// The client acknowledged a PING.
    pub(super) fn ping_acknowledged(&mut self, payload: &[u8]) {
        if payload == GOAWAY_PING {
            if self.ending.goaway == Goaway::Sent {
                self.ending.goaway = Goaway::Final(self.last_stream);
                self.outbox.write_goaway(self.last_stream, Reason::NoError);
            }
        } else if payload == KEEPALIVE_PING {
            self.ending.awaits_keepalive = false;
        }
    }

    /// Resets at most `streams_max` streams that make no progress for longer than `wait_us`.
    ///
    /// These are requests that began longer ago and are incomplete, and responses that an earlier
    /// call of this function saw waiting for a window as long ago. Requests that stream
    /// ([`crate::Config::is_client_streaming`]) may be incomplete for ever.
    pub fn reset_stalled(&mut self, now_us: u64, wait_us: u64, streams_max: usize) -> Stalled {
        let is_over = |since_us: u64| now_us.saturating_sub(since_us) > wait_us;
        let (mut stalled, mut ids) = (Stalled::default(), Vec::new());
        for (id, stream) in self.streams.iter_mut() {
            if ids.len() >= streams_max {
                stalled.more = true;
                break;
            }
            let partial_body = stream.partial_body.as_ref();
            if partial_body.is_some_and(|body| is_over(body.since_us)) {
                stalled.requests = stalled.requests.saturating_add(1);
                ids.push(id);
            } else if !stream.waits_for_window() {
                stream.unread_since_us = None;
            } else if is_over(*stream.unread_since_us.get_or_insert(now_us)) {
                stalled.responses = stalled.responses.saturating_add(1);
                ids.push(id);
            }
        }
        for id in ids {
            self.reset(id, Reason::Cancel);
        }
        stalled
    }
}
