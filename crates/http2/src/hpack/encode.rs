//! Encodes the headers of responses.
//!
//! How: HEADERS and trailers of a successful unary response never differ, so their two literals are
//! added to the client's dynamic table once, and from then on they are two bytes and one. All other
//! fields are literals without indexing: they are rare, and the two entries keep their indexes.

use super::table::{ENTRY_OVERHEAD_BYTES, STATIC};

const CONTENT_TYPE: (&[u8], &[u8]) = (b"content-type", b"application/grpc");
const GRPC_STATUS: (&[u8], &[u8]) = (b"grpc-status", b"0");

/// The newest entry has the first index behind the static table.
const GRPC_STATUS_INDEX: usize = STATIC.len() + 1;
const CONTENT_TYPE_INDEX: usize = STATIC.len() + 2;
const STATUS_200_INDEX: usize = 8;

/// Size that the client's table must have.
const INDEXED_BYTES: usize = CONTENT_TYPE.0.len()
    + CONTENT_TYPE.1.len()
    + GRPC_STATUS.0.len()
    + GRPC_STATUS.1.len()
    + 2 * ENTRY_OVERHEAD_BYTES;

/// Size of the client's table by default.
const DEFAULT_TABLE_BYTES: usize = 4_096;

/// First bytes of representations (RFC 7541, section 6).
const INDEXED: u8 = 0x80;
const INCREMENTAL_INDEXING: u8 = 0x40;
const WITHOUT_INDEXING: u8 = 0;
const TABLE_SIZE: u8 = 0x20;

/// Encoder of one connection.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    client_table: ClientTable,
    /// A size update must be the start of the next block: the client reduced its table.
    owes_size_update: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum ClientTable {
    /// No entry yet.
    #[default]
    Empty,
    /// The two entries.
    Filled,
    /// It is smaller than the default, and not used.
    Unused,
}

// === impl Encoder ===

impl Encoder {
    /// Takes note of the client's SETTINGS_HEADER_TABLE_SIZE.
    pub(crate) fn set_client_table_bytes(&mut self, bytes: usize) {
        if bytes < DEFAULT_TABLE_BYTES {
            self.owes_size_update = true;
            // The size update to 0 evicts all entries.
            self.client_table = ClientTable::Unused;
        }
    }

    /// Whether a successful unary response is no more than [`Encoder::UNARY_HEAD`] and
    /// [`Encoder::UNARY_TRAILERS`].
    pub(crate) fn knows_unary_responses(&self) -> bool {
        self.client_table == ClientTable::Filled
    }

    /// Header block of a successful unary response.
    #[allow(clippy::cast_possible_truncation)] // below 128
    pub(crate) const UNARY_HEAD: [u8; 2] = [
        INDEXED | STATUS_200_INDEX as u8,
        INDEXED | CONTENT_TYPE_INDEX as u8,
    ];

    /// Its trailers.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) const UNARY_TRAILERS: [u8; 1] = [INDEXED | GRPC_STATUS_INDEX as u8];

    /// Writes that header block. The trailers must be the next block of the connection.
    pub(crate) fn unary_head(&mut self, into: &mut Vec<u8>) {
        self.begin(into);
        match self.client_table {
            ClientTable::Filled => into.extend_from_slice(&Self::UNARY_HEAD),
            memory => {
                number(into, INDEXED, 7, STATUS_200_INDEX);
                let first = if memory == ClientTable::Empty {
                    INCREMENTAL_INDEXING
                } else {
                    WITHOUT_INDEXING
                };
                literal(into, first, CONTENT_TYPE.0, CONTENT_TYPE.1);
            }
        }
    }

    /// Writes its trailers.
    pub(crate) fn unary_trailers(&mut self, into: &mut Vec<u8>) {
        match self.client_table {
            ClientTable::Filled => into.extend_from_slice(&Self::UNARY_TRAILERS),
            ClientTable::Empty => {
                literal(into, INCREMENTAL_INDEXING, GRPC_STATUS.0, GRPC_STATUS.1);
                self.client_table = ClientTable::Filled;
            }
            ClientTable::Unused => literal(into, WITHOUT_INDEXING, GRPC_STATUS.0, GRPC_STATUS.1),
        }
    }

    /// Writes the header block of any response.
    pub(crate) fn head<'h>(
        &mut self,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        into: &mut Vec<u8>,
    ) {
        self.begin(into);
        if status == 200 {
            number(into, INDEXED, 7, STATUS_200_INDEX);
        } else {
            let status = status.to_string();
            literal(into, WITHOUT_INDEXING, b":status", status.as_bytes());
        }
        put_all(headers, into);
    }

    /// Writes any trailers.
    pub(crate) fn trailers<'h>(
        &mut self,
        trailers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        into: &mut Vec<u8>,
    ) {
        self.begin(into);
        put_all(trailers, into);
    }

    /// Writes what must be the start of the next block.
    fn begin(&mut self, into: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_size_update) {
            number(into, TABLE_SIZE, 5, 0);
        }
    }
}

const _: () = assert!(INDEXED_BYTES < DEFAULT_TABLE_BYTES);

fn put_all<'h>(headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>, into: &mut Vec<u8>) {
    for (name, value) in headers {
        literal(into, WITHOUT_INDEXING, name, value);
    }
}

fn literal(into: &mut Vec<u8>, first: u8, name: &[u8], value: &[u8]) {
    into.push(first);
    for text in [name, value] {
        number(into, 0, 7, text.len());
        into.extend_from_slice(text);
    }
}

/// Writes an integer with a prefix of `bits` (section 5.1).
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
            .iter()
            .map(|(_, name, value)| format!("{}={}", text(name), text(value)))
            .collect()
    }

    fn unary(encoder: &mut Encoder) -> (Vec<u8>, Vec<u8>) {
        let (mut head, mut trailers) = (Vec::new(), Vec::new());
        encoder.unary_head(&mut head);
        encoder.unary_trailers(&mut trailers);
        (head, trailers)
    }

    fn any(encoder: &mut Encoder) -> Vec<u8> {
        let mut block = Vec::new();
        let message = "x".repeat(300);
        encoder.head(
            404,
            [(&b"grpc-message"[..], message.as_bytes())],
            &mut block,
        );
        block
    }

    #[test]
    fn unary_responses_are_three_bytes_once_they_are_indexed() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for round in 0..5 {
            let (head, trailers) = unary(&mut encoder);
            assert!(encoder.knows_unary_responses());
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
    fn a_smaller_client_table_is_emptied_once_and_not_used() {
        for unary_before in [false, true] {
            for unary_first in [false, true] {
                let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
                if unary_before {
                    let (head, trailers) = unary(&mut encoder);
                    decoded(&mut decoder, &head);
                    decoded(&mut decoder, &trailers);
                }
                encoder.set_client_table_bytes(INDEXED_BYTES);
                assert!(!encoder.knows_unary_responses());
                for round in 0..2 {
                    if unary_first || round > 0 {
                        let (head, trailers) = unary(&mut encoder);
                        assert_eq!(head.starts_with(&[0x20]), round == 0 && unary_first);
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
