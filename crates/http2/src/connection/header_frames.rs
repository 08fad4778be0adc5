//! Header blocks: requests and trailers begin here.
//!
//! How: a call on the fast path whose body is whole in one DATA frame is handed out as it is in the
//! input. One whose body arrives in parts waits in its stream; a long one becomes a request.

use std::borrow::Cow;

use super::receive::Received;
use super::stream::{PartialBody, RequestStream, Stream, StreamState};
use super::{Goaway, ServerConnection};
use crate::error::{frame_size, protocol};
use crate::frame::{self, FrameHead};
use crate::head::{INVALID_BLOCK, ParsedHead, ParsedTrailers};
use crate::{Call, ConnectionError, Event, Reason, Request};

// === impl ServerConnection ===

impl ServerConnection {
    pub(super) fn headers<'b>(
        &mut self,
        head: FrameHead,
        payload: &'b [u8],
        now_us: u64,
    ) -> Received<'b> {
        if head.stream == 0 {
            return Err(protocol("HEADERS on stream 0"));
        }
        let mut block = frame::without_padding(head, payload)
            .ok_or(protocol("padding is longer than its frame"))?;
        if head.has(frame::HAS_PRIORITY) {
            block = block
                .get(5..)
                .ok_or(frame_size("HEADERS are too short for their priority"))?;
        }
        let end_stream = head.has(frame::END_STREAM);
        if head.has(frame::END_HEADERS) {
            return self.header_block(head.stream, Some(block), end_stream, now_us);
        }
        self.headers.begin_block(head.stream, end_stream, block);
        Ok(None)
    }

    pub(super) fn continuation<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now_us: u64,
    ) -> Received<'b> {
        let Some(block) = self.headers.continue_block(head, payload)? else {
            return Ok(None);
        };
        let bytes = (!self.headers.is_skipping()).then_some(&block.bytes[..]);
        self.header_block(block.stream, bytes, block.end_stream, now_us)
    }

    /// Handles a whole block; none if it was too long to be kept.
    fn header_block<'b>(
        &mut self,
        stream: u32,
        block: Option<&[u8]>,
        end_stream: bool,
        now_us: u64,
    ) -> Received<'b> {
        if stream.is_multiple_of(2) {
            return Err(protocol("a client's stream identifiers must be odd"));
        }
        if stream <= self.last_stream {
            return self.trailers(stream, block, end_stream, now_us);
        }
        let head = match block {
            Some(block) => self.headers.read(block),
            None => self.headers.end_skipped(),
        };
        let head = head.ok_or(INVALID_BLOCK)?;
        self.last_stream = stream;
        if matches!(self.ending.goaway, Goaway::Final(_)) {
            return Ok(None);
        }
        if self.streams.open() >= self.config.streams_max {
            self.flood_limits.reset(now_us)?;
            self.outbox.write_reset(stream, Reason::RefusedStream);
            return Ok(None);
        }
        self.open_stream(stream, head, end_stream, now_us)
    }

    fn open_stream<'b>(
        &mut self,
        stream: u32,
        head: ParsedHead,
        end_stream: bool,
        now_us: u64,
    ) -> Received<'b> {
        let content_length = match &head {
            ParsedHead::Call(call) => call.content_length,
            ParsedHead::Request(_, content_length) => *content_length,
            ParsedHead::TooLong { .. } | ParsedHead::Malformed => None,
        };
        let streams = matches!(&head, ParsedHead::Request(request, _)
            if (self.config.is_client_streaming)(request.path().unwrap_or_default()));
        let partial_body = (!end_stream && !streams)
            .then(|| PartialBody::new(now_us, content_length, self.config.message_bytes_max));
        let body_is_missing = end_stream && content_length.is_some_and(|bytes| bytes > 0);
        let (state, request) = match head {
            ParsedHead::Malformed => return self.refuse_malformed(stream, now_us),
            _ if body_is_missing => return self.refuse_malformed(stream, now_us),
            ParsedHead::TooLong { grpc } => {
                self.flood_limits.reset(now_us)?;
                self.refuse_header_list(stream, grpc, end_stream);
                return Ok(None);
            }
            ParsedHead::Call(call) => {
                let (body, padding) = (Vec::new(), 0);
                let state = StreamState::CallArriving {
                    call,
                    body,
                    padding,
                };
                (state, None)
            }
            ParsedHead::Request(head, _) => {
                let state = StreamState::Request(Box::new(RequestStream::new()));
                (state, Some(head))
            }
        };
        let opened = Stream {
            state,
            send_window: self.flow.initial_send_window,
            received: end_stream,
            body_left: content_length,
            partial_body,
            unread_since_us: None,
        };
        self.streams.push(stream, opened);
        match request {
            Some(head) => Ok(Some(Event::Request(Request {
                stream,
                head,
                body: Cow::Borrowed(&[]),
                end_stream,
            }))),
            None if end_stream => Ok(self.call_arrived(stream, Cow::Borrowed(&[]))),
            None => Ok(None),
        }
    }

    /// Refuses a request whose header list is too long, on its stream alone: with the status that
    /// gRPC clients show, or with 431.
    fn refuse_header_list(&mut self, stream: u32, grpc: bool, end_stream: bool) {
        self.counts.header_lists_refused = self.counts.header_lists_refused.saturating_add(1);
        if grpc {
            let (bytes_max, hint) = (
                self.config.header_list_bytes_max,
                self.config.header_list_hint,
            );
            let message = format!(
                "the call's metadata is larger than {bytes_max} bytes; send less of it{hint}"
            );
            let headers: [(&[u8], &[u8]); 3] = [
                (b"content-type", b"application/grpc"),
                // RESOURCE_EXHAUSTED
                (b"grpc-status", b"8"),
                (b"grpc-message", message.as_bytes()),
            ];
            self.outbox.write_head(stream, 200, headers, true);
        } else {
            self.outbox.write_head(stream, 431, [], true);
        }
        if !end_stream {
            // The response is complete, so the rest of the request is not needed.
            self.outbox.write_reset(stream, Reason::NoError);
        }
    }

    fn refuse_malformed<'b>(&mut self, stream: u32, now_us: u64) -> Received<'b> {
        self.flood_limits.reset(now_us)?;
        self.outbox.write_reset(stream, Reason::Protocol);
        Ok(None)
    }

    /// Handles the block behind a body.
    fn trailers<'b>(
        &mut self,
        id: u32,
        block: Option<&[u8]>,
        end_stream: bool,
        now_us: u64,
    ) -> Received<'b> {
        // gRPC clients send none.
        self.flood_limits.control_frame(now_us)?;
        let trailers = match block {
            Some(block) => self.headers.read_trailers(block),
            None => self.headers.end_skipped_trailers(),
        };
        let trailers = trailers.ok_or(INVALID_BLOCK)?;
        let Some(stream) = self.streams.get_mut(id) else {
            return self.frame_of_closed_stream(id, now_us);
        };
        if stream.received {
            return self.reset_for_fault(id, Reason::StreamClosed, now_us);
        }
        let whole = stream.body_left.is_none_or(|left| left == 0);
        let (ParsedTrailers::Valid(headers), true, true) = (trailers, end_stream, whole) else {
            return self.reset_for_fault(id, Reason::Protocol, now_us);
        };
        stream.received = true;
        if let Some(partial_body) = stream.partial_body.take() {
            self.bodies.release(partial_body.held_bytes);
        }
        match &mut stream.state {
            StreamState::CallArriving { body, .. } => {
                let body = std::mem::take(body);
                Ok(self.call_arrived(id, Cow::Owned(body)))
            }
            StreamState::Request(_) => Ok(Some(Event::Trailers {
                stream: id,
                headers,
            })),
            StreamState::CallPending(_) | StreamState::CallAnswered(_) => Ok(None),
        }
    }

    /// A frame for a stream that has ended here. If it was reset here the client did not know yet,
    /// and the frame is ignored (RFC 9113, section 5.1).
    pub(super) fn frame_of_closed_stream<'b>(&mut self, id: u32, now_us: u64) -> Received<'b> {
        self.flood_limits.control_frame(now_us)?;
        let ignored = matches!(self.ending.goaway, Goaway::Final(last) if id > last)
            || self.outbox.was_reset(id);
        if !ignored {
            self.outbox.write_reset(id, Reason::StreamClosed);
        }
        Ok(None)
    }

    /// A call on the fast path is complete.
    #[inline]
    pub(super) fn call_arrived<'b>(&mut self, id: u32, body: Cow<'b, [u8]>) -> Option<Event<'b>> {
        let stream = self.streams.get_mut(id)?;
        let StreamState::CallArriving { call, .. } = &stream.state else {
            return None;
        };
        let call = *call;
        stream.state = StreamState::CallPending(call);
        Some(Event::Call(Call {
            stream: id,
            path: call.path,
            body,
            timeout_us: call.timeout.map(|timeout| timeout.us),
            captured: call.captured,
        }))
    }

    /// Turns a call into a request, for a program that has one handler for all unusual calls.
    ///
    /// Its head has the path, `content-type`, `grpc-timeout` and the captured header; no other
    /// header of a call is kept. None if the stream has ended.
    pub fn decline_call<'b>(&mut self, call: Call<'b>) -> Option<Request<'b>> {
        let stream = self.streams.get_mut(call.stream)?;
        let StreamState::CallPending(head) = &stream.state else {
            return None;
        };
        let head = self.headers.request_of(head);
        // All of its body has arrived, and no receive window matters any more.
        stream.state = StreamState::Request(Box::new(RequestStream::new()));
        Some(Request {
            stream: call.stream,
            head,
            body: call.body,
            end_stream: true,
        })
    }

    /// Turns a call that is too long for the fast path into a request. `data` is the last part of
    /// its body.
    pub(super) fn long_call(&mut self, id: u32, data: &[u8]) -> Option<Event<'static>> {
        let stream = self.streams.get_mut(id)?;
        let StreamState::CallArriving {
            call,
            body,
            padding,
        } = &mut stream.state
        else {
            return None;
        };
        let head = self.headers.request_of(call);
        let mut request = RequestStream::new();
        let mut body = std::mem::take(body);
        body.extend_from_slice(data);
        // The connection's window has been returned already. The stream's is returned at once,
        // since the whole body so far leaves with the event.
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let used = bytes.saturating_add(*padding);
        request.receive_window = request.receive_window.saturating_sub(used);
        request.receive_window_owed = request.receive_window_owed.saturating_add(used);
        let end_stream = stream.received;
        stream.state = StreamState::Request(Box::new(request));
        self.return_stream_window(id);
        Some(Event::Request(Request {
            stream: id,
            head,
            body: Cow::Owned(body),
            end_stream,
        }))
    }

    /// Resets a request whose head or trailers the embedding program finds malformed, and counts
    /// it as if the client had reset it.
    ///
    /// # Errors
    ///
    /// If the client has had too many streams reset: the connection must end, as after an error of
    /// [`ServerConnection::receive`].
    pub fn reset_malformed(&mut self, stream: u32, now_us: u64) -> Result<(), ConnectionError> {
        self.flood_limits.reset(now_us)?;
        self.send_reset(stream, Reason::Protocol);
        Ok(())
    }
}
