//! Reads the header blocks of requests.
//!
//! How: calls of one method by one client have the same headers again and again, by index and so in
//! the same bytes. A block equal to the last call's, with the dynamic table unchanged in between,
//! means the same and is not decoded. All others are decoded and checked field by field.
//!
//! A call keeps only the headers that its handler reads. A declined call is rebuilt from them.

mod fields;

pub(crate) use self::fields::CallHead;
use self::fields::HeadFields;
use crate::config::Config;
use crate::error::{ConnectionError, Reason, protocol, too_much};
use crate::event::CapturedValue;
use crate::frame::{self, FrameHead, PAYLOAD_BYTES_MAX};
use crate::grpc::CONTENT_TYPES;
use crate::header_list::{FieldKind, HeaderList, RequestHead};
use crate::hpack::{BlockSkipper, Decoder, Fields};

/// The longest block that is kept and compared with the next, in bytes.
const CACHED_BLOCK_BYTES_MAX: usize = 512;

/// How much memory of a header list is kept for the next, in bytes.
const KEPT_TEXT_BYTES_MAX: usize = 4_096;

/// The longest header block that is read at all, in bytes. A block longer than a connection keeps
/// is skipped as it arrives, up to here; beyond it the connection is closed.
const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// A block may arrive in this many frames however short, and in one more for each of so many bytes.
const BLOCK_FRAMES_MIN: usize = 8;
const BYTES_PER_BLOCK_FRAME: usize = 4 * 1024;

/// A header block cannot be decoded.
pub(crate) const INVALID_BLOCK: ConnectionError = ConnectionError {
    reason: Reason::Compression,
    message: "a header block cannot be decoded",
};

/// Reads the header blocks of one connection.
#[derive(Debug)]
pub(crate) struct HeaderDecoder {
    decoder: Decoder,
    fields: Fields,
    unary_paths: &'static [&'static str],
    captured_header: Option<&'static str>,
    /// Block of the last call, what it means, and the version of the table that it refers to.
    cached_block: Vec<u8>,
    cached_call: CallHead,
    cached_version: u64,
    /// The block whose end has not arrived.
    block: Option<HeaderBlock>,
    /// How many bytes a block may have whose list is within its limit: its encoded form may be a
    /// little longer than the list's size.
    kept_block_bytes_max: usize,
    /// Set while a block is too long to be kept: it is read for the changes of the dynamic table
    /// alone.
    skipper: Option<Box<BlockSkipper>>,
}

/// A header block in several frames.
#[derive(Debug)]
pub(crate) struct HeaderBlock {
    pub(crate) stream: u32,
    pub(crate) end_stream: bool,
    /// What has arrived; empty while it is skipped.
    pub(crate) bytes: Vec<u8>,
    received_bytes: usize,
    frames: usize,
}

/// What a header block means.
#[derive(Debug)]
pub(crate) enum ParsedHead {
    /// A call on the fast path.
    Call(CallHead),
    /// Any other request, and its content-length.
    Request(RequestHead, Option<u64>),
    /// The list exceeds its limit; whether it is known to be of a gRPC call.
    TooLong { grpc: bool },
    /// It is not a request.
    Malformed,
}

/// What a block behind a body means.
#[derive(Debug)]
pub(crate) enum ParsedTrailers {
    Valid(HeaderList),
    /// It has fields that trailers must not have, or is too long.
    Malformed,
}

// === impl HeaderDecoder ===

impl HeaderDecoder {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            decoder: Decoder::default(),
            fields: Fields::new(config.header_list_bytes_max),
            unary_paths: config.unary_paths,
            captured_header: config.captured_header,
            cached_block: Vec::new(),
            cached_call: CallHead::default(),
            cached_version: 0,
            block: None,
            kept_block_bytes_max: config
                .header_list_bytes_max
                .saturating_add(PAYLOAD_BYTES_MAX),
            skipper: None,
        }
    }

    /// Reads a request's block. None if it is invalid, and the connection must end.
    pub(crate) fn read(&mut self, block: &[u8]) -> Option<ParsedHead> {
        if !block.is_empty()
            && block == self.cached_block
            && self.cached_version == self.decoder.version()
        {
            return Some(ParsedHead::Call(self.cached_call));
        }
        let version = self.decoder.version();
        self.decoder.decode(block, &mut self.fields)?;
        let head = self.parse();
        if let ParsedHead::Call(call) = head
            && block.len() <= CACHED_BLOCK_BYTES_MAX
            && version == self.decoder.version()
        {
            self.cached_block.clear();
            self.cached_block.extend_from_slice(block);
            self.cached_call = call;
            self.cached_version = version;
        }
        self.fields.shrink(KEPT_TEXT_BYTES_MAX);
        Some(head)
    }

    /// Whether the end of a block has not arrived.
    #[inline]
    pub(crate) fn is_in_block(&self) -> bool {
        self.block.is_some()
    }

    /// Whether the last block is too long to be kept.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipper.is_some()
    }

    /// Keeps the first part of a block.
    pub(crate) fn begin_block(&mut self, stream: u32, end_stream: bool, part: &[u8]) {
        self.skipper = None;
        self.block = Some(HeaderBlock {
            stream,
            end_stream,
            bytes: part.to_vec(),
            received_bytes: part.len(),
            frames: 1,
        });
    }

    /// The end of a block will not arrive.
    pub(crate) fn drop_block(&mut self) {
        self.block = None;
    }

    /// Handles CONTINUATION. Returns the block if that is its end.
    pub(crate) fn continue_block(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<HeaderBlock>, ConnectionError> {
        let mut block = self
            .block
            .take()
            .ok_or(protocol("CONTINUATION without HEADERS"))?;
        if block.stream != head.stream {
            return Err(protocol("CONTINUATION of another stream"));
        }
        block.frames = block.frames.saturating_add(1);
        block.received_bytes = block.received_bytes.saturating_add(payload.len());
        let frames_max =
            BLOCK_FRAMES_MIN.saturating_add(block.received_bytes / BYTES_PER_BLOCK_FRAME);
        if block.received_bytes > BLOCK_BYTES_MAX || block.frames > frames_max {
            return Err(too_much("a header block is too long or in too many frames"));
        }
        self.keep_or_skip(&mut block, payload)
            .ok_or(INVALID_BLOCK)?;
        if head.has(frame::END_HEADERS) {
            return Ok(Some(block));
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Keeps what has arrived of a block, or skips all of it once it is too long. None if it is
    /// invalid, and the connection must end.
    fn keep_or_skip(&mut self, block: &mut HeaderBlock, payload: &[u8]) -> Option<()> {
        if self.skipper.is_some() {
            return self.skip_part(payload);
        }
        block.bytes.extend_from_slice(payload);
        if block.bytes.len() <= self.kept_block_bytes_max {
            return Some(());
        }
        self.fields.clear();
        self.skipper = Some(Box::default());
        self.skip_part(&std::mem::take(&mut block.bytes))
    }

    fn skip_part(&mut self, part: &[u8]) -> Option<()> {
        let skipper = self.skipper.as_mut()?;
        skipper.skip_part(part, &mut self.decoder, &mut self.fields)
    }

    /// Ends a block that was too long to be kept. None if it is cut off.
    pub(crate) fn end_skipped(&mut self) -> Option<ParsedHead> {
        let skipper = self.skipper.take()?;
        skipper.is_between_fields().then(|| {
            let head = self.parse();
            self.fields.shrink(KEPT_TEXT_BYTES_MAX);
            match head {
                // Its fields were few and long: the list is within its limit, the block is not.
                ParsedHead::Call(_) => ParsedHead::TooLong { grpc: true },
                ParsedHead::Request(..) | ParsedHead::Malformed => {
                    ParsedHead::TooLong { grpc: false }
                }
                too_long @ ParsedHead::TooLong { .. } => too_long,
            }
        })
    }

    /// Ends a block behind a body that was too long to be kept. None if it is cut off.
    pub(crate) fn end_skipped_trailers(&mut self) -> Option<ParsedTrailers> {
        self.end_skipped().map(|_| ParsedTrailers::Malformed)
    }

    /// Reads the block behind a body. None if it is invalid, and the connection must end.
    pub(crate) fn read_trailers(&mut self, block: &[u8]) -> Option<ParsedTrailers> {
        self.decoder.decode(block, &mut self.fields)?;
        let valid = !self.fields.is_too_long()
            && self
                .fields
                .iter()
                .all(|(kind, ..)| kind != FieldKind::Malformed && !kind.is_pseudo());
        let trailers = if valid {
            ParsedTrailers::Valid(self.fields.to_list())
        } else {
            ParsedTrailers::Malformed
        };
        self.fields.shrink(KEPT_TEXT_BYTES_MAX);
        Some(trailers)
    }

    /// A call as a request, of the headers that were kept.
    pub(crate) fn request_of(&self, call: &CallHead) -> RequestHead {
        let mut list = HeaderList::default();
        list.push(FieldKind::Method, b":method", b"POST");
        list.push(FieldKind::Path, b":path", call.path.as_bytes());
        list.push(FieldKind::ContentType, b"content-type", CONTENT_TYPES[0]);
        if let Some(timeout) = &call.timeout {
            list.push(FieldKind::GrpcTimeout, b"grpc-timeout", timeout.text());
        }
        if let (Some(name), Some(value)) = (self.captured_header, &call.captured) {
            list.push(FieldKind::Other, name.as_bytes(), value.as_bytes());
        }
        RequestHead::new(list)
    }

    /// What the decoded fields mean.
    fn parse(&self) -> ParsedHead {
        let mut found = HeadFields::new(self.captured_header);
        let well_formed = self
            .fields
            .iter()
            .all(|(kind, name, value)| found.add(kind, name, value).is_some());
        if self.fields.is_too_long() {
            return ParsedHead::TooLong {
                grpc: found.is_grpc(),
            };
        }
        if !well_formed || !found.is_request() {
            return ParsedHead::Malformed;
        }
        if let Some(path) = found.call_path(self.unary_paths) {
            return ParsedHead::Call(CallHead {
                path,
                timeout: found.timeout,
                content_length: found.content_length,
                captured: found.captured_once().map(CapturedValue::new),
            });
        }
        let head = RequestHead::new(self.fields.to_list());
        ParsedHead::Request(head, found.content_length)
    }
}

#[cfg(test)]
mod tests;
