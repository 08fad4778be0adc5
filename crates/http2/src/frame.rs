//! HTTP/2's frames: nine bytes of head, and what follows it (RFC 9113, sections 4 and 6).
//!
//! What it deliberately does not do: know what a frame means for a stream or a connection (`receive`, `send`).

/// What a client says first.
pub(in super::super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a frame's head is.
pub(in super::super) const HEAD_BYTES: usize = 9;

/// How long a frame may be, without its head: what HTTP/2 begins with, and all that we ask for.
pub(in super::super) const FRAME_BYTES_MAX: usize = 16_384;

/// Kinds of frames.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Flags.
pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const PRIORITISED: u8 = 32;

/// Settings.
pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The largest window, and the largest stream's number.
pub(super) const MAX_31_BITS: u32 = 0x7fff_ffff;

/// Why a stream or a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Reason {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Cancel = 8,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// What a frame begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// How many bytes follow.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

// === impl Reason ===

impl Reason {
    /// What the reason of this number is called in a metric; of those that nobody here gives, `other`.
    pub(super) fn named(code: u32) -> &'static str {
        let mut reasons = REASONS.iter();
        let reason = reasons.find(|reason| **reason as u32 == code);
        reason.map_or("other", |reason| reason.label())
    }

    /// What it is called in a metric.
    pub(in super::super) fn label(self) -> &'static str {
        match self {
            Self::NoError => "no_error",
            Self::Protocol => "protocol",
            Self::Internal => "internal",
            Self::FlowControl => "flow_control",
            Self::StreamClosed => "stream_closed",
            Self::FrameSize => "frame_size",
            Self::RefusedStream => "refused_stream",
            Self::Cancel => "cancel",
            Self::Compression => "compression",
            Self::EnhanceYourCalm => "enhance_your_calm",
        }
    }
}

/// All of them.
const REASONS: [Reason; 10] = [
    Reason::NoError,
    Reason::Protocol,
    Reason::Internal,
    Reason::FlowControl,
    Reason::StreamClosed,
    Reason::FrameSize,
    Reason::RefusedStream,
    Reason::Cancel,
    Reason::Compression,
    Reason::EnhanceYourCalm,
];

// === impl Head ===

impl Head {
    /// Reads one; none while it is not all there.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_31_BITS,
        })
    }

    /// Writes it.
    pub(super) fn write(self, into: &mut Vec<u8>) {
        // Nothing of ours is longer than three bytes say.
        let [_, l0, l1, l2] = u32::try_from(self.length)
            .unwrap_or(MAX_31_BITS)
            .to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        into.extend_from_slice(&[l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]);
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a frame whole.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], into: &mut Vec<u8>) {
    let head = Head {
        length: payload.len(),
        kind,
        flags,
        stream,
    };
    head.write(into);
    into.extend_from_slice(payload);
}

/// What a frame holds without its padding; none when the padding is longer than the frame.
pub(super) fn without_padding(head: Head, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(PADDED) {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

/// A number of 32 bits at the beginning.
pub(super) fn u32_at_start(payload: &[u8]) -> Option<u32> {
    payload
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head {
            length: 0x01_02_03,
            kind: HEADERS,
            flags: END_HEADERS | END_STREAM,
            stream: 0x7fff_fffd,
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 1, 5, 0x7f, 0xff, 0xff, 0xfd]);
        assert_eq!(Head::read(&bytes), Some(head));
        assert_eq!(Head::read(&bytes[..8]), None);
        // A bit that nobody uses.
        bytes[5] |= 0x80;
        assert_eq!(Head::read(&bytes), Some(head));
    }

    #[test]
    fn padding_is_taken_off_and_never_longer_than_the_frame() {
        let head = |flags| Head {
            length: 4,
            kind: DATA,
            flags,
            stream: 1,
        };
        let payload = [2, 7, 0, 0];
        assert_eq!(without_padding(head(0), &payload), Some(&payload[..]));
        assert_eq!(without_padding(head(PADDED), &payload), Some(&[7][..]));
        assert_eq!(without_padding(head(PADDED), &[3, 7, 0, 0]), Some(&[][..]));
        assert_eq!(without_padding(head(PADDED), &[4, 7, 0, 0]), None);
        assert_eq!(without_padding(head(PADDED), &[]), None);
    }
}
