//! The headers of answers.
//!
//! How: a good answer's head and trailers never differ, so the client is had to remember the two texts in them once, and
//! from then on they are two bytes and one. All other headers are written out: they are rare, and what is remembered stays
//! where it is.
//!
//! What it deliberately does not do: Huffman, more than those two entries.

use http::{HeaderMap, StatusCode};

use super::table::{ENTRY_OVERHEAD_BYTES, STATIC};

const CONTENT_TYPE: (&[u8], &[u8]) = (b"content-type", b"application/grpc");
const GRPC_STATUS: (&[u8], &[u8]) = (b"grpc-status", b"0");

/// By index: what was remembered last has the first index behind the static table.
const GRPC_STATUS_INDEX: usize = STATIC.len() + 1;
const CONTENT_TYPE_INDEX: usize = STATIC.len() + 2;
const STATUS_200_INDEX: usize = 8;

/// How much a client must be able to remember.
const REMEMBERED_BYTES: usize = CONTENT_TYPE.0.len()
    + CONTENT_TYPE.1.len()
    + GRPC_STATUS.0.len()
    + GRPC_STATUS.1.len()
    + 2 * ENTRY_OVERHEAD_BYTES;

/// How much a client remembers that says nothing.
const USUAL_TABLE_BYTES: usize = 4_096;

/// First bytes of fields.
const INDEXED: u8 = 0x80;
const REMEMBERED: u8 = 0x40;
const NOT_REMEMBERED: u8 = 0;
const TABLE_SIZE: u8 = 0x20;

/// What a connection's client remembers of what we sent.
#[derive(Debug, Default)]
pub(in super::super) struct Encoder {
    memory: Memory,
    /// The client was promised less than it might have remembered, and not yet told that nothing is used.
    owes_size: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Memory {
    /// Nothing yet.
    #[default]
    Empty,
    /// The two.
    Full,
    /// It has too little.
    None,
}

// === impl Encoder ===

impl Encoder {
    /// The client remembers so many bytes at most.
    pub(in super::super) fn client_remembers(&mut self, bytes: usize) {
        if bytes < USUAL_TABLE_BYTES {
            self.owes_size = true;
            // Told that the table is empty from now on, it has forgotten.
            self.memory = Memory::None;
        }
    }

    /// Whether a good answer's head and trailers are no more than [`Encoder::GOOD_HEAD`] and
    /// [`Encoder::GOOD_TRAILERS`].
    pub(in super::super) fn knows_good_answers(&self) -> bool {
        self.memory == Memory::Full
    }

    /// A good answer's head.
    #[allow(clippy::cast_possible_truncation)] // below 128
    pub(in super::super) const GOOD_HEAD: [u8; 2] = [
        INDEXED | STATUS_200_INDEX as u8,
        INDEXED | CONTENT_TYPE_INDEX as u8,
    ];

    /// What stands behind a good answer.
    #[allow(clippy::cast_possible_truncation)]
    pub(in super::super) const GOOD_TRAILERS: [u8; 1] = [INDEXED | GRPC_STATUS_INDEX as u8];

    /// Writes the head of a good answer whose trailers come next of all that is sent.
    pub(in super::super) fn good_head(&mut self, into: &mut Vec<u8>) {
        self.begin(into);
        match self.memory {
            Memory::Full => into.extend_from_slice(&Self::GOOD_HEAD),
            memory => {
                number(into, INDEXED, 7, STATUS_200_INDEX);
                let first = if memory == Memory::Empty {
                    REMEMBERED
                } else {
                    NOT_REMEMBERED
                };
                literal(into, first, CONTENT_TYPE.0, CONTENT_TYPE.1);
            }
        }
    }

    /// Writes those trailers.
    pub(in super::super) fn good_trailers(&mut self, into: &mut Vec<u8>) {
        match self.memory {
            Memory::Full => into.extend_from_slice(&Self::GOOD_TRAILERS),
            Memory::Empty => {
                literal(into, REMEMBERED, GRPC_STATUS.0, GRPC_STATUS.1);
                self.memory = Memory::Full;
            }
            Memory::None => literal(into, NOT_REMEMBERED, GRPC_STATUS.0, GRPC_STATUS.1),
        }
    }

    /// Writes any head.
    pub(in super::super) fn head(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        into: &mut Vec<u8>,
    ) {
        self.begin(into);
        if status == StatusCode::OK {
            number(into, INDEXED, 7, STATUS_200_INDEX);
        } else {
            literal(into, NOT_REMEMBERED, b":status", status.as_str().as_bytes());
        }
        put_all(headers, into);
    }

    /// Writes any trailers.
    pub(in super::super) fn trailers(&mut self, trailers: &HeaderMap, into: &mut Vec<u8>) {
        self.begin(into);
        put_all(trailers, into);
    }

    /// What must stand first in the next block, whatever that is.
    fn begin(&mut self, into: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_size) {
            number(into, TABLE_SIZE, 5, 0);
        }
    }
}

const _: () = assert!(REMEMBERED_BYTES < USUAL_TABLE_BYTES);

fn put_all(headers: &HeaderMap, into: &mut Vec<u8>) {
    for (name, value) in headers {
        literal(
            into,
            NOT_REMEMBERED,
            name.as_str().as_bytes(),
            value.as_bytes(),
        );
    }
}

fn literal(into: &mut Vec<u8>, first: u8, name: &[u8], value: &[u8]) {
    into.push(first);
    for text in [name, value] {
        number(into, 0, 7, text.len());
        into.extend_from_slice(text);
    }
}

/// Writes a number into the low `bits` of a byte and as many more as it takes.
fn number(into: &mut Vec<u8>, first: u8, bits: u32, number: usize) {
    let mask = usize::from(u8::MAX >> 8_u32.saturating_sub(bits));
    let low = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    if number < mask {
        into.push(first | low(number));
        return;
    }
    into.push(first | low(mask));
    let mut rest = number.saturating_sub(mask);
    while rest >= 0x80 {
        into.push(low(rest & 0x7f) | 0x80);
        rest >>= 7;
    }
    into.push(low(rest));
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, Fields};
    use super::*;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
        let mut fields = Fields::new(10_000);
        decoder.decode(block, &mut fields).unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        fields
            .each()
            .map(|(_, name, value)| format!("{}={}", text(name), text(value)))
            .collect()
    }

    fn good(encoder: &mut Encoder) -> (Vec<u8>, Vec<u8>) {
        let (mut head, mut trailers) = (Vec::new(), Vec::new());
        encoder.good_head(&mut head);
        encoder.good_trailers(&mut trailers);
        (head, trailers)
    }

    fn any(encoder: &mut Encoder) -> Vec<u8> {
        let mut block = Vec::new();
        let mut headers = HeaderMap::new();
        headers.insert("grpc-message", "x".repeat(300).parse().unwrap());
        encoder.head(StatusCode::NOT_FOUND, &headers, &mut block);
        block
    }

    #[test]
    fn good_answers_are_three_bytes_once_they_are_known() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for round in 0..5 {
            let (head, trailers) = good(&mut encoder);
            assert!(encoder.knows_good_answers());
            if round > 0 {
                assert_eq!((head.len(), trailers.len()), (2, 1));
            }
            let seen = decoded(&mut decoder, &head);
            assert_eq!(seen, [":status=200", "content-type=application/grpc"]);
            assert_eq!(decoded(&mut decoder, &trailers), ["grpc-status=0"]);
            let seen = decoded(&mut decoder, &any(&mut encoder));
            assert_eq!(seen[0], ":status=404");
            assert_eq!(seen[1], format!("grpc-message={}", "x".repeat(300)));
        }
    }

    #[test]
    fn a_client_that_remembers_less_is_told_once_that_nothing_is_left_to_it() {
        for good_before in [false, true] {
            for good_first in [false, true] {
                let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
                if good_before {
                    let (head, trailers) = good(&mut encoder);
                    decoded(&mut decoder, &head);
                    decoded(&mut decoder, &trailers);
                }
                encoder.client_remembers(REMEMBERED_BYTES);
                assert!(!encoder.knows_good_answers());
                for round in 0..2 {
                    if good_first || round > 0 {
                        let (head, trailers) = good(&mut encoder);
                        assert_eq!(head.starts_with(&[0x20]), round == 0 && good_first);
                        let seen = decoded(&mut decoder, &head);
                        assert_eq!(seen, [":status=200", "content-type=application/grpc"]);
                        assert_eq!(decoded(&mut decoder, &trailers), ["grpc-status=0"]);
                    } else {
                        assert_eq!(decoded(&mut decoder, &any(&mut encoder)).len(), 2);
                    }
                }
            }
        }
    }
}
