//! Output that waits for the socket: frames, and the header blocks of responses.
//!
//! Connections are many, and few of them have something to write at the same moment. So those of
//! one thread share buffers, and an idle connection holds none.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use super::flow::{DEFAULT_WINDOW_BYTES, WINDOW_BYTES};
use crate::config::Config;
use crate::error::Reason;
use crate::frame::{self, FrameHead, PAYLOAD_BYTES_MAX};
use crate::hpack::Encoder;

/// How many bytes of output may wait before nothing more is read.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// How much output that was sent may lie before what was not, beside half of all. So what is left
/// is seldom moved.
const SENT_BYTES_MAX: usize = 64 * 1024;

/// How many streams that were reset here are remembered, so that frames which their client had
/// already sent draw no second RST_STREAM.
pub(super) const RESET_STREAMS_REMEMBERED_MAX: usize = 1_024;

/// Capacity of a new buffer, and the largest that is kept, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
const BUFFER_KEPT_BYTES_MAX: usize = 128 * 1024;

/// How many buffers are kept.
const BUFFERS_KEPT_MAX: usize = 32;

/// Output buffers for reuse. At most 32 are kept, of at most 128 KiB each.
#[derive(Debug, Default)]
pub struct BufferPool {
    buffers: RefCell<Vec<Vec<u8>>>,
}

/// The output of a connection.
pub(super) struct Outbox {
    pub(super) encoder: Encoder,
    pub(super) bytes: Vec<u8>,
    /// How much of them the socket has taken.
    sent: usize,
    buffers: Rc<BufferPool>,
    /// Streams that were reset here, the newest last.
    pub(super) reset_streams: VecDeque<u32>,
}

// === impl BufferPool ===

impl BufferPool {
    /// Takes an empty buffer.
    fn take(&self) -> Vec<u8> {
        let buffer = self.buffers.borrow_mut().pop();
        buffer.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Returns a buffer.
    fn put(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        let worth_keeping = (1..=BUFFER_KEPT_BYTES_MAX).contains(&buffer.capacity());
        if worth_keeping && buffers.len() < BUFFERS_KEPT_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

// === impl Outbox ===

impl Outbox {
    /// An outbox with the server's SETTINGS, and a wider window for the connection.
    pub(super) fn new(config: &Config, buffers: Rc<BufferPool>) -> Self {
        let mut outbox = Self {
            encoder: Encoder::default(),
            bytes: Vec::new(),
            sent: 0,
            buffers,
            reset_streams: VecDeque::new(),
        };
        let bounded = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
        let settings = [
            (frame::MAX_CONCURRENT_STREAMS, bounded(config.streams_max)),
            (frame::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            (
                frame::MAX_HEADER_LIST_SIZE,
                bounded(config.header_list_bytes_max),
            ),
        ];
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        outbox.write_frame(frame::SETTINGS, 0, 0, &payload);
        outbox.write_window_update(0, WINDOW_BYTES.saturating_sub(DEFAULT_WINDOW_BYTES));
        outbox
    }

    /// What the socket has not taken.
    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len().saturating_sub(self.sent) > OUTPUT_BYTES_MAX
    }

    /// The socket has taken this many bytes.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes);
        if self.sent >= self.bytes.len() {
            self.bytes.clear();
            self.free();
        } else if self.sent >= SENT_BYTES_MAX.max(self.bytes.len() / 2) {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Drops what is there, and returns the buffer.
    pub(super) fn free(&mut self) {
        self.sent = 0;
        self.buffers.put(mem::take(&mut self.bytes));
    }

    /// The buffer to write into.
    #[inline]
    fn out(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = self.buffers.take();
        }
        &mut self.bytes
    }

    /// Writes what is before a message of this length that is a whole response, and says where to
    /// write it.
    pub(super) fn begin_unary(&mut self, id: u32, bytes: usize) -> &mut Vec<u8> {
        if self.encoder.knows_unary_responses() {
            let [s0, s1, s2, s3] = id.to_be_bytes();
            let [h0, h1] = Encoder::UNARY_HEAD;
            let flags = frame::END_HEADERS;
            let bytes = [0, 0, 2, frame::HEADERS, flags, s0, s1, s2, s3, h0, h1];
            self.out().extend_from_slice(&bytes);
        } else {
            let mut block = Vec::new();
            self.encoder.unary_head(&mut block);
            self.write_block(id, &block, 0);
        }
        let head = FrameHead {
            length: bytes,
            kind: frame::DATA,
            flags: 0,
            stream: id,
        };
        let out = self.out();
        head.write(out);
        out
    }

    /// Writes the trailers behind that message.
    pub(super) fn end_unary(&mut self, id: u32) {
        if self.encoder.knows_unary_responses() {
            let [s0, s1, s2, s3] = id.to_be_bytes();
            let [h0] = Encoder::UNARY_TRAILERS;
            let flags = frame::END_HEADERS | frame::END_STREAM;
            let bytes = [0, 0, 1, frame::HEADERS, flags, s0, s1, s2, s3, h0];
            self.out().extend_from_slice(&bytes);
        } else {
            let mut block = Vec::new();
            self.encoder.unary_trailers(&mut block);
            self.write_block(id, &block, frame::END_STREAM);
        }
    }

    pub(super) fn write_head<'h>(
        &mut self,
        id: u32,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        end_stream: bool,
    ) {
        let mut block = Vec::new();
        self.encoder.head(status, headers, &mut block);
        let flags = if end_stream { frame::END_STREAM } else { 0 };
        self.write_block(id, &block, flags);
    }

    pub(super) fn write_trailers<'h>(
        &mut self,
        id: u32,
        trailers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
    ) {
        let mut block = Vec::new();
        self.encoder.trailers(trailers, &mut block);
        self.write_block(id, &block, frame::END_STREAM);
    }

    /// Writes a header block in as many frames as it takes.
    fn write_block(&mut self, id: u32, block: &[u8], flags: u8) {
        let (mut kind, mut flags, mut rest) = (frame::HEADERS, flags, block);
        while let Some((part, more)) = rest.split_at_checked(PAYLOAD_BYTES_MAX)
            && !more.is_empty()
        {
            self.write_frame(kind, flags, id, part);
            (kind, flags, rest) = (frame::CONTINUATION, 0, more);
        }
        self.write_frame(kind, flags | frame::END_HEADERS, id, rest);
    }

    pub(super) fn write_reset(&mut self, id: u32, reason: Reason) {
        if self.reset_streams.len() >= RESET_STREAMS_REMEMBERED_MAX {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(id);
        self.write_frame(frame::RST_STREAM, 0, id, &reason.code().to_be_bytes());
    }

    /// Whether a stream is among those that were reset here.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.reset_streams.iter().rev().any(|reset| *reset == id)
    }

    pub(super) fn write_goaway(&mut self, last_stream: u32, reason: Reason) {
        let [l0, l1, l2, l3] = last_stream.to_be_bytes();
        let [r0, r1, r2, r3] = reason.code().to_be_bytes();
        let payload = [l0, l1, l2, l3, r0, r1, r2, r3];
        self.write_frame(frame::GOAWAY, 0, 0, &payload);
    }

    pub(super) fn write_window_update(&mut self, id: u32, bytes: u32) {
        self.write_frame(frame::WINDOW_UPDATE, 0, id, &bytes.to_be_bytes());
    }

    pub(super) fn write_frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        frame::write(kind, flags, id, payload, self.out());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_few_are_kept() {
        let pool = BufferPool::default();
        let mut first = pool.take();
        first.extend_from_slice(b"x");
        let address = first.as_ptr();
        pool.put(first);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), address);
        for _ in 0..100 {
            pool.put(Vec::with_capacity(10));
        }
        pool.put(Vec::new());
        assert_eq!(pool.buffers.borrow().len(), BUFFERS_KEPT_MAX);
        let pool = BufferPool::default();
        pool.put(Vec::with_capacity(BUFFER_KEPT_BYTES_MAX + 1));
        pool.put(Vec::new());
        assert!(pool.buffers.borrow().is_empty());
    }
}
