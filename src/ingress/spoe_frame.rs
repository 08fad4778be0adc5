//! Frames of SPOP 2.0, the protocol between HAProxy and its agents: bytes in, messages out.
//!
//! No crate of a maintained project speaks it. A frame is read whole, within a bound, and its
//! values are slices of it. Fragments are refused, which the protocol allows.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most bytes of a frame. HAProxy's default is 16,384 less a few.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// The least that both sides must support.
const FRAME_BYTES_MIN: u64 = 256;

const HAPROXY_HELLO: u8 = 1;
const HAPROXY_DISCONNECT: u8 = 2;
const NOTIFY: u8 = 3;
const AGENT_HELLO: u8 = 101;
const AGENT_DISCONNECT: u8 = 102;
const ACK: u8 = 103;

/// The flag of the last fragment.
const FIN: u32 = 1;

/// Types of values.
const NULL: u8 = 0;
const BOOLEAN: u8 = 1;
const UINT32: u8 = 3;
const INT64: u8 = 4;
const IPV4: u8 = 6;
const IPV6: u8 = 7;
const STRING: u8 = 8;
const BINARY: u8 = 9;

/// The action that sets a variable, its arguments, and the scope of a transaction.
const SET_VARIABLE: [u8; 3] = [1, 3, 2];

/// A frame of HAProxy.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<'a> {
    /// The first of a connection.
    Hello {
        /// The largest frame that HAProxy reads.
        bytes_max: usize,
        /// The connection only tests the agent.
        is_healthcheck: bool,
    },
    /// HAProxy closes the connection.
    Disconnect,
    /// Messages of one stream.
    Notify(Notify<'a>),
}

/// Messages of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Notify<'a> {
    /// The number of the stream and of the frame, for the answer.
    pub id: (u64, u64),
    /// Name and arguments of each message. A value is none where HAProxy had none.
    pub messages: Vec<(&'a [u8], Vec<Argument<'a>>)>,
}

/// A name and a value as text.
pub type Argument<'a> = (&'a [u8], Option<Cow<'a, [u8]>>);

/// Why a connection is closed: a status of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Disconnect(pub u8, pub &'static str);

/// Closed without an error.
pub const NORMAL: Disconnect = Disconnect(0, "normal");
const TOO_BIG: Disconnect = Disconnect(3, "frame is too big");
const INVALID: Disconnect = Disconnect(4, "invalid frame received");
const NO_VERSION: Disconnect = Disconnect(8, "unsupported version; the agent speaks 2.0");
const BAD_FRAME_SIZE: Disconnect = Disconnect(9, "max-frame-size too small");
const FRAGMENT: Disconnect = Disconnect(10, "fragmentation not supported");

/// Bytes that are still to be read.
struct Bytes<'a>(&'a [u8]);

/// The length of the first frame, with its head of four bytes; none until the head has come.
///
/// # Errors
///
/// When the frame is larger than it may be.
pub fn frame_length(input: &[u8]) -> Result<Option<usize>, Disconnect> {
    let Some(head) = input.first_chunk::<4>() else {
        return Ok(None);
    };
    let bytes = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
    if bytes > FRAME_BYTES_MAX {
        return Err(TOO_BIG);
    }
    Ok(Some(bytes.saturating_add(4)))
}

/// Reads a frame, without its length.
///
/// # Errors
///
/// How the connection is to be closed.
pub fn read(frame: &[u8]) -> Result<Frame<'_>, Disconnect> {
    let mut bytes = Bytes(frame);
    let kind = bytes.byte().ok_or(INVALID)?;
    let flags = bytes.take(4).and_then(|flags| flags.first_chunk::<4>());
    let flags = u32::from_be_bytes(*flags.ok_or(INVALID)?);
    let stream = bytes.number().ok_or(INVALID)?;
    let number = bytes.number().ok_or(INVALID)?;
    if flags & FIN == 0 || kind == 0 {
        return Err(FRAGMENT);
    }
    match kind {
        HAPROXY_HELLO => hello(bytes),
        HAPROXY_DISCONNECT => Ok(Frame::Disconnect),
        NOTIFY => Ok(Frame::Notify(Notify {
            id: (stream, number),
            messages: messages(bytes).ok_or(INVALID)?,
        })),
        _ => Err(INVALID),
    }
}

fn hello<'a>(mut bytes: Bytes<'_>) -> Result<Frame<'a>, Disconnect> {
    let (mut bytes_max, mut is_healthcheck, mut speaks) = (0, false, false);
    while !bytes.0.is_empty() {
        let (name, value) = bytes.argument().ok_or(INVALID)?;
        let value = value.unwrap_or_default();
        match name {
            b"supported-versions" => {
                let mut versions = value.split(|byte| *byte == b',');
                speaks = versions.any(|version| version.trim_ascii().starts_with(b"2."));
            }
            b"max-frame-size" => {
                let text = str::from_utf8(&value).unwrap_or_default();
                bytes_max = text.parse().unwrap_or_default();
            }
            b"healthcheck" => is_healthcheck = *value == *b"true",
            _ => {}
        }
    }
    if !speaks {
        return Err(NO_VERSION);
    }
    if bytes_max < FRAME_BYTES_MIN {
        return Err(BAD_FRAME_SIZE);
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(FRAME_BYTES_MAX);
    Ok(Frame::Hello {
        bytes_max: bytes_max.min(FRAME_BYTES_MAX),
        is_healthcheck,
    })
}

fn messages(mut bytes: Bytes<'_>) -> Option<Vec<(&[u8], Vec<Argument<'_>>)>> {
    let mut messages = Vec::new();
    while !bytes.0.is_empty() {
        let name = bytes.text()?;
        let count = bytes.byte()?;
        let arguments = (0..count).map(|_| bytes.argument());
        messages.push((name, arguments.collect::<Option<_>>()?));
    }
    Some(messages)
}

/// The answer to the first frame.
pub fn agent_hello(bytes_max: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    put_text(&mut payload, b"version");
    put_string(&mut payload, b"2.0");
    put_text(&mut payload, b"max-frame-size");
    payload.push(UINT32);
    put_number(&mut payload, bytes_max as u64);
    put_text(&mut payload, b"capabilities");
    put_string(&mut payload, b"pipelining");
    frame(AGENT_HELLO, (0, 0), &payload)
}

/// The last frame of a connection.
pub fn agent_disconnect(Disconnect(status, why): Disconnect) -> Vec<u8> {
    let mut payload = Vec::new();
    put_text(&mut payload, b"status-code");
    payload.push(UINT32);
    put_number(&mut payload, u64::from(status));
    put_text(&mut payload, b"message");
    put_string(&mut payload, why.as_bytes());
    frame(AGENT_DISCONNECT, (0, 0), &payload)
}

/// The answer to messages: variables of the transaction.
pub fn ack(id: (u64, u64), allowed: Option<bool>, numbers: &[(&str, i64)]) -> Vec<u8> {
    let mut payload = Vec::new();
    if let Some(allowed) = allowed {
        payload.extend(SET_VARIABLE);
        put_text(&mut payload, b"allowed");
        payload.push(BOOLEAN | u8::from(allowed) << 4);
    }
    for (name, number) in numbers {
        payload.extend(SET_VARIABLE);
        put_text(&mut payload, name.as_bytes());
        payload.push(INT64);
        put_number(&mut payload, number.cast_unsigned());
    }
    frame(ACK, id, &payload)
}

fn frame(kind: u8, (stream, number): (u64, u64), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.push(kind);
    frame.extend(FIN.to_be_bytes());
    put_number(&mut frame, stream);
    put_number(&mut frame, number);
    frame.extend(payload);
    let bytes = u32::try_from(frame.len().saturating_sub(4)).unwrap_or(u32::MAX);
    if let Some(head) = frame.first_chunk_mut() {
        *head = bytes.to_be_bytes();
    }
    frame
}

fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    put_number(into, text.len() as u64);
    into.extend(text);
}

fn put_string(into: &mut Vec<u8>, text: &[u8]) {
    into.push(STRING);
    put_text(into, text);
}

/// A number: one byte below 240, else the low four bits of the first byte and seven of each other.
#[allow(clippy::cast_possible_truncation)] // seven bits at a time
fn put_number(into: &mut Vec<u8>, number: u64) {
    let Some(mut rest) = number.checked_sub(240) else {
        return into.push(number as u8);
    };
    into.push(number as u8 | 0xf0);
    rest >>= 4;
    while rest >= 0x80 {
        into.push(rest as u8 | 0x80);
        rest = rest.saturating_sub(0x80) >> 7;
    }
    into.push(rest as u8);
}

// === impl Bytes ===

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let first = u64::from(self.byte()?);
        let mut number = first;
        if first < 240 {
            return Some(number);
        }
        for shift in (4..64).step_by(7) {
            let byte = u64::from(self.byte()?);
            number = number.checked_add(byte.checked_mul(1 << shift)?)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// A name and a typed value.
    fn argument(&mut self) -> Option<Argument<'a>> {
        let name = self.text()?;
        let head = self.byte()?;
        let text = |text: String| Some(Cow::Owned(text.into_bytes()));
        let value = match head & 0x0f {
            NULL => None,
            BOOLEAN => text((head & 0x10 != 0).to_string()),
            2 | INT64 => text(self.number()?.cast_signed().to_string()),
            UINT32 | 5 => text(self.number()?.to_string()),
            IPV4 => {
                let address: [u8; 4] = self.take(4)?.try_into().ok()?;
                text(Ipv4Addr::from(address).to_string())
            }
            IPV6 => {
                let address: [u8; 16] = self.take(16)?.try_into().ok()?;
                text(Ipv6Addr::from(address).to_canonical().to_string())
            }
            STRING | BINARY => Some(Cow::Borrowed(self.text()?)),
            _ => return None,
        };
        Some((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of HAProxy with this payload.
    fn of_haproxy(kind: u8, payload: &[u8]) -> Vec<u8> {
        frame(kind, (7, 300), payload).split_off(4)
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let edges = [
            0, 1, 239, 240, 241, 2_287, 2_288, 264_431, 264_432, 33_818_864,
        ];
        for number in edges.into_iter().chain([u64::from(u32::MAX), u64::MAX]) {
            let mut written = Vec::new();
            put_number(&mut written, number);
            let mut bytes = Bytes(&written);
            assert_eq!(bytes.number(), Some(number), "{written:?}");
            assert!(bytes.0.is_empty());
        }
        // As in HAProxy's documentation: 2,287 is the last of two bytes.
        let lengths = [239, 240, 2_287, 2_288].map(|number| {
            let mut written = Vec::new();
            put_number(&mut written, number);
            written.len()
        });
        assert_eq!(lengths, [1, 2, 2, 3]);
        assert_eq!(Bytes(&[0xff; 12]).number(), None);
    }

    #[test]
    fn arguments_are_texts() {
        let mut payload = Vec::new();
        put_text(&mut payload, b"edge");
        payload.push(6);
        let values: [(&[u8], &[u8]); 6] = [
            (b"path", b"\x08\x02/a"),
            (b"ip", b"\x06\xc0\x00\x02\x07"),
            (b"six", b"\x07\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x07"),
            (b"none", b"\x00"),
            (b"yes", b"\x11"),
            (b"port", b"\x03\xf0\x00"),
        ];
        for (name, value) in values {
            put_text(&mut payload, name);
            payload.extend(value);
        }
        let whole = of_haproxy(NOTIFY, &payload);
        let Ok(Frame::Notify(notify)) = read(&whole) else {
            panic!("{:?}", read(&whole));
        };
        assert_eq!(notify.id, (7, 300));
        let (name, arguments) = &notify.messages[0];
        assert_eq!(*name, b"edge");
        let texts = arguments.iter().map(|(_, value)| value.as_deref());
        let expected: [Option<&[u8]>; 6] = [
            Some(b"/a"),
            Some(b"192.0.2.7"),
            Some(b"192.0.2.7"),
            None,
            Some(b"true"),
            Some(b"240"),
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        for end in 0..whole.len() {
            // Before its arguments end, a cut frame is an error.
            assert!(read(&whole[..end]).is_err() || end == 8, "{end}");
        }
    }

    #[test]
    fn what_the_agent_does_not_speak_is_refused_with_the_status_of_the_protocol() {
        let hello = |versions: &[u8], size: u64| {
            let mut payload = Vec::new();
            put_text(&mut payload, b"supported-versions");
            put_string(&mut payload, versions);
            put_text(&mut payload, b"max-frame-size");
            payload.push(UINT32);
            put_number(&mut payload, size);
            of_haproxy(HAPROXY_HELLO, &payload)
        };
        let good = Frame::Hello {
            bytes_max: 16_380,
            is_healthcheck: false,
        };
        assert_eq!(read(&hello(b"1.0, 2.0", 16_380)), Ok(good));
        assert_eq!(read(&hello(b"1.0", 16_380)), Err(NO_VERSION));
        assert_eq!(read(&hello(b"2.0", 10)), Err(BAD_FRAME_SIZE));
        let mut fragment = of_haproxy(NOTIFY, b"");
        fragment[4] = 0;
        assert_eq!(read(&fragment), Err(FRAGMENT));
        assert_eq!(read(&of_haproxy(0, b"")), Err(FRAGMENT));
        assert_eq!(read(&of_haproxy(99, b"")), Err(INVALID));
        assert_eq!(frame_length(&[0, 1, 0, 1, 3]), Err(TOO_BIG));
        assert_eq!(frame_length(&[0, 1, 0, 0]), Ok(Some(FRAME_BYTES_MAX + 4)));
        assert_eq!(frame_length(&[0, 1, 0]), Ok(None));
    }
}
