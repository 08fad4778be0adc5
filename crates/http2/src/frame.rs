//! HTTP/2 frames: nine bytes of head and a payload (RFC 9113, sections 4 and 6).

/// The connection preface of a client.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame's head in bytes.
pub(crate) const HEAD_BYTES: usize = 9;

/// The longest payload in bytes: the initial value of SETTINGS_MAX_FRAME_SIZE, which the server
/// leaves as it is.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;

/// Frame types.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const HAS_PRIORITY: u8 = 32;

/// Settings.
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The largest window and the largest stream identifier.
pub(crate) const MAX_31_BITS: u32 = 0x7fff_ffff;

/// FrameHead of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FrameHead {
    /// Length of the payload in bytes.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

// === impl FrameHead ===

impl FrameHead {
    /// Reads the head of a frame; none if `bytes` are fewer than a head.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_31_BITS,
        })
    }

    pub(crate) fn write(self, into: &mut Vec<u8>) {
        // No frame that is written here is longer than three bytes can say.
        let [_, l0, l1, l2] = u32::try_from(self.length)
            .unwrap_or(MAX_31_BITS)
            .to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        into.extend_from_slice(&[l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]);
    }

    /// Whether a flag is set.
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a frame.
pub(crate) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], into: &mut Vec<u8>) {
    let head = FrameHead {
        length: payload.len(),
        kind,
        flags,
        stream,
    };
    head.write(into);
    into.extend_from_slice(payload);
}

/// Payload without its padding; none if the padding is longer than the payload.
pub(crate) fn without_padding(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(PADDED) {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

/// The 32-bit number at the start of a payload.
pub(crate) fn leading_u32(payload: &[u8]) -> Option<u32> {
    payload
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead {
            length: 0x01_02_03,
            kind: HEADERS,
            flags: END_HEADERS | END_STREAM,
            stream: 0x7fff_fffd,
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 1, 5, 0x7f, 0xff, 0xff, 0xfd]);
        assert_eq!(FrameHead::read(&bytes), Some(head));
        assert_eq!(FrameHead::read(&bytes[..8]), None);
        // The reserved bit is ignored.
        bytes[5] |= 0x80;
        assert_eq!(FrameHead::read(&bytes), Some(head));
    }

    #[test]
    fn padding_is_removed_and_is_never_longer_than_the_payload() {
        let head = |flags| FrameHead {
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
