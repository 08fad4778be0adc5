//! State of one stream.

use std::task::{Context, Waker};

use super::flow::WINDOW_BYTES;
use crate::grpc::MESSAGE_HEAD_BYTES;
use crate::head::CallHead;

/// An open stream.
pub(super) struct Stream {
    pub(super) state: StreamState,
    pub(super) send_window: i64,
    /// The request is complete.
    pub(super) received: bool,
    /// How many bytes of the body are to come, if there is a content-length.
    pub(super) body_left: Option<u64>,
    /// Set while the body is incomplete, except for streaming requests.
    pub(super) partial_body: Option<PartialBody>,
    /// When the response was first seen to wait for a window.
    pub(super) unread_since_us: Option<u64>,
}

/// How a stream is served, and how far that is.
pub(super) enum StreamState {
    /// A call on the fast path that is incomplete.
    CallArriving {
        call: CallHead,
        body: Vec<u8>,
        /// Bytes of padding that arrived with the body.
        padding: u32,
    },
    /// A call that the embedding program is about to answer.
    CallPending(CallHead),
    /// A response to a call that waits for a window.
    CallAnswered(Box<WaitingResponse>),
    /// Any other request.
    Request(Box<RequestStream>),
}

/// A gRPC message that waits for a window.
pub(super) struct WaitingResponse {
    pub(super) message: Vec<u8>,
    pub(super) sent: usize,
}

/// A request whose body and response pass in parts.
pub(super) struct RequestStream {
    pub(super) receive_window: u32,
    /// How much of that window was used and is not yet returned.
    pub(super) receive_window_owed: u32,
    /// What the embedding program has not released; the window is smaller by as much.
    pub(super) unreleased: u32,
    /// How much of that the connection's window is smaller by as well.
    pub(super) withheld: u32,
    /// The response has no window.
    pub(super) starved: bool,
    /// The task that waits for a window, or for the end of the stream.
    pub(super) waker: Option<Waker>,
}

/// A request's body that is incomplete.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialBody {
    pub(super) since_us: u64,
    pub(super) received_bytes: u32,
    /// Length of the body by its message head or its content-length; 0 while unknown.
    declared_bytes: u32,
    /// The body's first bytes, as far as they have arrived.
    head: [u8; MESSAGE_HEAD_BYTES],
    /// How much of the budget it holds.
    pub(super) held_bytes: u32,
    /// Its stream is in `ServerConnection::unsettled`.
    pub(super) unsettled: bool,
}

// === impl Stream ===

impl Stream {
    /// Whether the embedding program knows it by [`crate::Event::Request`].
    pub(super) fn is_request(&self) -> bool {
        matches!(self.state, StreamState::Request(_))
    }

    /// Counts a part of the body. False if the body is not as long as its content-length.
    pub(super) fn count_data(&mut self, bytes: usize, end_stream: bool) -> bool {
        self.received = end_stream;
        match &mut self.body_left {
            None => true,
            Some(left) => match left.checked_sub(bytes as u64) {
                None => false,
                Some(rest) => {
                    *left = rest;
                    !end_stream || rest == 0
                }
            },
        }
    }

    /// Whether the response waits for the client to widen a window.
    pub(super) fn waits_for_window(&self) -> bool {
        match &self.state {
            StreamState::CallAnswered(_) => true,
            StreamState::Request(request) => request.starved,
            StreamState::CallArriving { .. } | StreamState::CallPending(_) => false,
        }
    }

    /// Keeps the waker of the task that waits for a window, or for the end.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>) {
        if let StreamState::Request(request) = &mut self.state
            && !request
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(cx.waker()))
        {
            request.waker = Some(cx.waker().clone());
        }
    }
}

// === impl RequestStream ===

impl RequestStream {
    pub(super) fn new() -> Self {
        Self {
            receive_window: WINDOW_BYTES,
            receive_window_owed: 0,
            unreleased: 0,
            withheld: 0,
            starved: false,
            waker: None,
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

// === impl PartialBody ===

impl PartialBody {
    /// A body of which nothing has arrived.
    pub(super) fn new(since_us: u64, content_length: Option<u64>, message_bytes_max: u32) -> Self {
        Self {
            since_us,
            received_bytes: 0,
            declared_bytes: within_message(content_length.unwrap_or(0), message_bytes_max),
            head: [0; MESSAGE_HEAD_BYTES],
            held_bytes: 0,
            unsettled: false,
        }
    }

    /// Counts a part of the body.
    pub(super) fn add(&mut self, data: &[u8], message_bytes_max: u32) {
        let known = self.received_bytes as usize;
        for (byte, received) in self.head.iter_mut().skip(known).zip(data) {
            *byte = *received;
        }
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.received_bytes = self.received_bytes.saturating_add(bytes);
        if self.declared_bytes == 0 && self.received_bytes as usize >= MESSAGE_HEAD_BYTES {
            let [_, message @ ..] = self.head;
            let bytes = u64::from(u32::from_be_bytes(message)) + MESSAGE_HEAD_BYTES as u64;
            self.declared_bytes = within_message(bytes, message_bytes_max);
        }
    }

    /// How much of the budget it needs once it has started: what has arrived, and what is declared.
    pub(super) fn needed_bytes(&self) -> u32 {
        match self.received_bytes {
            0 => 0,
            received => received.max(self.declared_bytes),
        }
    }
}

/// This length of a body if a message may be as long; 0 otherwise.
fn within_message(bytes: u64, message_bytes_max: u32) -> u32 {
    let bytes_max = u64::from(message_bytes_max) + MESSAGE_HEAD_BYTES as u64;
    u32::try_from(bytes)
        .ok()
        .filter(|_| bytes <= bytes_max)
        .unwrap_or(0)
}
