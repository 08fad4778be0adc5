//! How a connection ends, and whether the client is still there.

use super::stream::StreamState;
use super::{Goaway, Handshake, ServerConnection};
use crate::{Reason, frame};

/// Payload of the PING that follows the first GOAWAY: its acknowledgement shows that the client
/// has seen both.
pub(super) const GOAWAY_PING: [u8; 8] = *b"goodbye!";

/// Payload of keepalive pings.
pub(super) const KEEPALIVE_PING: [u8; 8] = *b"hello? !";

// === impl ServerConnection ===

impl ServerConnection {
    /// Begins a graceful shutdown and wakes the task that drives the connection.
    ///
    /// Sends GOAWAY. Streams that the client opened before it knew are served (RFC 9113, section
    /// 6.8); [`ServerConnection::is_finished`] once they have ended. A connection that is not
    /// established sends nothing: close it.
    pub fn graceful_shutdown(&mut self) {
        if self.goaway == Goaway::NotSent {
            self.goaway = Goaway::Sent;
            if self.handshake == Handshake::Complete {
                self.write_goaway(frame::MAX_31_BITS, Reason::NoError);
                self.write_frame(frame::PING, 0, 0, &GOAWAY_PING);
            }
            self.wake();
        }
    }

    /// Whether a graceful shutdown has begun.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.goaway != Goaway::NotSent
    }

    /// Asks the task that drives the connection to close it at once, and wakes it.
    pub fn abort(&mut self) {
        if !self.aborted {
            self.aborted = true;
            self.wake();
        }
    }

    /// Whether [`ServerConnection::abort`] was called.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// Sends GOAWAY with this reason. Write the output, then close the socket.
    pub fn abrupt_shutdown(&mut self, reason: Reason) {
        let last_stream = match self.goaway {
            Goaway::Final(last_stream) => last_stream,
            Goaway::NotSent | Goaway::Sent => self.last_stream,
        };
        self.write_goaway(last_stream, reason);
    }

    /// Whether the connection is to be closed once the output is written: a shutdown has begun, or
    /// the client leaves, and all streams have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let leaving = matches!(self.goaway, Goaway::Final(_)) || self.client_leaves;
        leaving && self.streams.open() == 0 && self.header_block.is_none()
    }

    /// The client has closed its side of the socket: requests that are incomplete end.
    pub fn receive_eof(&mut self) {
        self.client_leaves = true;
        self.header_block = None;
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
        self.buffers.put(std::mem::take(&mut self.output));
        self.output_sent = 0;
        self.driver.waker = None;
    }

    /// Sends a PING that [`ServerConnection::is_keepalive_acknowledged`] tells of.
    pub fn send_keepalive_ping(&mut self) {
        self.keepalive_acknowledged = false;
        self.write_frame(frame::PING, 0, 0, &KEEPALIVE_PING);
        self.wake();
    }

    /// Whether the client has acknowledged the last keepalive ping.
    #[must_use]
    pub fn is_keepalive_acknowledged(&self) -> bool {
        self.keepalive_acknowledged
    }

    /// The client acknowledged a PING.
    pub(super) fn ping_acknowledged(&mut self, payload: &[u8]) {
        if payload == GOAWAY_PING {
            if self.goaway == Goaway::Sent {
                self.goaway = Goaway::Final(self.last_stream);
                self.write_goaway(self.last_stream, Reason::NoError);
            }
        } else if payload == KEEPALIVE_PING {
            self.keepalive_acknowledged = true;
        }
    }

    fn write_goaway(&mut self, last_stream: u32, reason: Reason) {
        let [l0, l1, l2, l3] = last_stream.to_be_bytes();
        let [r0, r1, r2, r3] = reason.code().to_be_bytes();
        let payload = [l0, l1, l2, l3, r0, r1, r2, r3];
        self.write_frame(frame::GOAWAY, 0, 0, &payload);
    }
}
