//! Skips a header block that is too long to be kept.
//!
//! Why: each block may change the dynamic table that later blocks refer to (RFC 7541, section 2.2),
//! so a connection survives a long block only if all of it is read. How: fields are decoded as soon
//! as they are whole, and what is left of the last one waits for the next part. A string longer
//! than any that the table can hold is not kept but skipped; if it was to be indexed it empties the
//! table (section 4.4). So a connection keeps two such strings at most, however long the block is.
//!
//! The Huffman code of strings that are skipped is not checked. The request is refused in any case.

use super::decode::{Decoder, Fields, number};
use super::table::TABLE_BYTES_MAX;

/// The longest string that is decoded, in bytes as it is in the block. No code is longer than 30
/// bits, so a longer string is larger than the table.
const STRING_BYTES_MAX: usize = TABLE_BYTES_MAX * 4;

/// The longest integer in bytes.
const INTEGER_BYTES_MAX: usize = 5;

/// Reads one block and keeps nothing but its changes to the table.
#[derive(Debug, Default)]
pub(crate) struct BlockSkipper {
    /// The beginning of a field whose rest has not arrived.
    left: Vec<u8>,
    /// How many bytes of a long string are still to arrive.
    skipped_bytes: usize,
    /// The value of a field whose name was too long comes next.
    value_next: bool,
    /// A field has been read: the table's size may not change any more.
    has_begun: bool,
}

/// The first field of some bytes.
#[derive(Debug, Eq, PartialEq)]
enum FirstField {
    /// A whole field of this many bytes.
    Field(usize),
    /// Less than a field.
    Part,
    /// A field with a string that is too long.
    Long {
        /// Where that string ends, from the beginning of the field.
        end: usize,
        /// It is the name, and the value follows.
        name: bool,
        index_it: bool,
    },
}

// === impl BlockSkipper ===

impl BlockSkipper {
    /// Reads the next part of the block. None if it is invalid.
    pub(crate) fn skip_part(
        &mut self,
        part: &[u8],
        decoder: &mut Decoder,
        fields: &mut Fields,
    ) -> Option<()> {
        let mut bytes = std::mem::take(&mut self.left);
        let skipped = self.skipped_bytes.min(part.len());
        self.skipped_bytes = self.skipped_bytes.saturating_sub(skipped);
        bytes.extend_from_slice(part.get(skipped..)?);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if self.value_next {
                let Some((length, after)) = number(rest, 7) else {
                    is_cut_off(rest).then_some(())?;
                    break;
                };
                self.value_next = false;
                rest = self.skip(after, length);
                continue;
            }
            match first_field(rest)? {
                FirstField::Part => break,
                FirstField::Field(length) => {
                    let (field, after) = rest.split_at_checked(length)?;
                    decoder.decode_fields(field, &mut self.has_begun, fields)?;
                    rest = after;
                }
                FirstField::Long {
                    end,
                    name,
                    index_it,
                } => {
                    if index_it {
                        decoder.clear_table();
                    }
                    self.has_begun = true;
                    self.value_next = name;
                    fields.count_skipped(end);
                    rest = self.skip(rest, end);
                }
            }
        }
        self.left = rest.to_vec();
        Some(())
    }

    /// Whether the block may end here.
    pub(crate) fn is_between_fields(&self) -> bool {
        self.left.is_empty() && self.skipped_bytes == 0 && !self.value_next
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], length: usize) -> &'b [u8] {
        self.skipped_bytes = length.saturating_sub(bytes.len());
        bytes.get(length..).unwrap_or_default()
    }
}

/// Whether an integer that could not be read may only lack its end.
fn is_cut_off(bytes: &[u8]) -> bool {
    bytes.len() < INTEGER_BYTES_MAX
}

/// Finds the end of the first field. None if it is invalid.
fn first_field(bytes: &[u8]) -> Option<FirstField> {
    let first = bytes.first()?;
    let (bits, literal) = match first {
        0x80.. => (7, false),
        0x40..=0x7f => (6, true),
        0x20..=0x3f => (5, false),
        _ => (4, true),
    };
    let Some((index, mut rest)) = number(bytes, bits) else {
        return is_cut_off(bytes).then_some(FirstField::Part);
    };
    let strings = match (literal, index) {
        (false, _) => 0,
        (true, 0) => 2,
        (true, _) => 1,
    };
    for string in (0..strings).rev() {
        let Some((length, after)) = number(rest, 7) else {
            return is_cut_off(rest).then_some(FirstField::Part);
        };
        if length > STRING_BYTES_MAX {
            let start = bytes.len().saturating_sub(after.len());
            return Some(FirstField::Long {
                end: start.saturating_add(length),
                name: string == 1,
                index_it: bits == 6,
            });
        }
        let Some(after) = after.get(length..) else {
            return Some(FirstField::Part);
        };
        rest = after;
    }
    Some(FirstField::Field(bytes.len().saturating_sub(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A literal field, to be indexed_names or not.
    fn literal(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut field = vec![first];
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                field.push(u8::try_from(length).unwrap());
            } else {
                field.push(127);
                length -= 127;
                while length > 127 {
                    field.push(u8::try_from(length % 128).unwrap() | 0x80);
                    length /= 128;
                }
                field.push(u8::try_from(length).unwrap());
            }
            field.extend_from_slice(text);
        }
        field
    }

    /// The decoder after this block was skipped in parts of `part` bytes, or none if it is invalid.
    fn skipped(block: &[u8], part: usize) -> Option<(Decoder, Fields)> {
        let mut decoder = Decoder::default();
        let mut fields = Fields::new(1_000);
        let mut skipper = BlockSkipper::default();
        for part in block.chunks(part) {
            skipper.skip_part(part, &mut decoder, &mut fields)?;
            assert!(skipper.left.len() <= 2 * STRING_BYTES_MAX + 16);
        }
        skipper.is_between_fields().then_some((decoder, fields))
    }

    fn indexed_names(decoder: &mut Decoder, indexes: &[u8]) -> Option<Vec<String>> {
        let mut fields = Fields::new(100_000);
        decoder.decode(indexes, &mut fields)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let names = fields.iter();
        Some(names.map(|(_, name, _)| text(name)).collect())
    }

    #[test]
    fn a_skipped_block_leaves_the_table_as_a_decoded_one() {
        let mut block = vec![0x3f, 0xe1, 0x1f, 0x83, 0x86];
        for number in 0..400_usize {
            let first = [0x40, 0, 0x10][number % 3];
            let name = format!("name-{number}");
            block.extend(literal(
                first,
                name.as_bytes(),
                &vec![b'v'; number * 7 % 300],
            ));
        }
        let mut decoder = Decoder::default();
        decoder.decode(&block, &mut Fields::new(1_000)).unwrap();
        let indexes: Vec<u8> = (0x80 + 62..0x80 + 75).collect();
        let expected = indexed_names(&mut decoder, &indexes).unwrap();
        for part in [1, 2, 3, 7, 100, 16_384, block.len()] {
            let (mut decoder, fields) = skipped(&block, part).unwrap();
            assert!(fields.is_too_long());
            assert_eq!(
                indexed_names(&mut decoder, &indexes).unwrap(),
                expected,
                "{part}"
            );
        }
    }

    #[test]
    fn a_string_larger_than_the_table_is_skipped_and_empties_it() {
        let long = vec![b'x'; 100_000];
        let known = literal(0x40, b"known", b"v");
        let after = literal(0x40, b"after", b"v");
        for part in [1, 1_000, 16_384] {
            for (name, value) in [
                (&b"long"[..], &long[..]),
                (&long[..], &b"v"[..]),
                (&long, &long),
            ] {
                let kept = [&known[..], &literal(0, name, value), &after].concat();
                let (mut decoder, fields) = skipped(&kept, part).unwrap();
                assert!(fields.is_too_long());
                let both = indexed_names(&mut decoder, &[0xbe, 0xbf]).unwrap();
                assert_eq!(both, ["after", "known"], "{part}");
                let evicted = [&known[..], &literal(0x40, name, value), &after].concat();
                let (mut decoder, _) = skipped(&evicted, part).unwrap();
                assert_eq!(indexed_names(&mut decoder, &[0xbe]).unwrap(), ["after"]);
                assert_eq!(indexed_names(&mut decoder, &[0xbf]), None, "{part}");
            }
        }
    }

    #[test]
    fn an_invalid_or_cut_off_block_is_found() {
        let long = literal(0, b"long", &vec![b'x'; 100_000]);
        let cases: [&[u8]; 5] = [
            &[0x80],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x82, 0x20],
            &long[..long.len() - 1],
        ];
        for block in cases {
            for part in [1, 1_000_000] {
                assert!(
                    skipped(block, part).is_none(),
                    "{:?}",
                    &block[..block.len().min(9)]
                );
            }
        }
    }
}
