//! A block of headers that is too long to be kept, read for what it does to the table and dropped.
//!
//! Why: each block may change the table that later blocks refer to (RFC 7541, section 2.2), so a
//! connection survives a long block only if all of it is read. How: fields are decoded as soon as
//! they are whole, and what is left of the last one waits for the next part. A text longer than any
//! that the table can hold is not kept but skipped; if it was to be remembered it empties the table
//! (section 4.4). So a connection keeps two such texts at most, however long the block is.
//!
//! What it deliberately does not do: check the Huffman code of texts that it skips. The request is
//! refused in any case.

use super::decode::{Decoder, Fields, number};
use super::table::TABLE_BYTES_MAX;

/// The longest text that is decoded, in bytes as it stands in the block. No code is longer than 30
/// bits, so a longer text is larger than the table.
const TEXT_BYTES_MAX: usize = TABLE_BYTES_MAX * 4;

/// A number takes this many bytes at most.
const NUMBER_BYTES_MAX: usize = 5;

/// Reads one block.
#[derive(Debug)]
pub(in super::super) struct BlockDropper {
    /// The beginning of a field whose rest has not come.
    left: Vec<u8>,
    /// How many bytes of a long text are still to come.
    skipped_bytes: usize,
    /// The next thing is the value of a field whose name was too long.
    value_next: bool,
    at_start: bool,
}

/// What stands at the beginning of some bytes.
#[derive(Debug, Eq, PartialEq)]
enum Next {
    /// A whole field of this many bytes.
    Field(usize),
    /// Less than a field.
    Part,
    /// A field with a text that is too long.
    Long {
        /// Where that text ends, seen from the beginning of the field.
        end: usize,
        /// It is the name, and the value follows.
        name: bool,
        remember: bool,
    },
}

// === impl BlockDropper ===

impl Default for BlockDropper {
    fn default() -> Self {
        Self {
            left: Vec::new(),
            skipped_bytes: 0,
            value_next: false,
            at_start: true,
        }
    }
}

impl BlockDropper {
    /// Reads the next part of the block. None when it is broken.
    pub(in super::super) fn drop_part(
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
            match next(rest)? {
                Next::Part => break,
                Next::Field(length) => {
                    let (field, after) = rest.split_at_checked(length)?;
                    decoder.decode_fields(field, &mut self.at_start, fields)?;
                    rest = after;
                }
                Next::Long {
                    end,
                    name,
                    remember,
                } => {
                    if remember {
                        decoder.clear_table();
                    }
                    self.at_start = false;
                    self.value_next = name;
                    fields.count_dropped(end);
                    rest = self.skip(rest, end);
                }
            }
        }
        self.left = rest.to_vec();
        Some(())
    }

    /// Whether the block may end here.
    pub(in super::super) fn is_between_fields(&self) -> bool {
        self.left.is_empty() && self.skipped_bytes == 0 && !self.value_next
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], length: usize) -> &'b [u8] {
        self.skipped_bytes = length.saturating_sub(bytes.len());
        bytes.get(length..).unwrap_or_default()
    }
}

/// Whether a number that could not be read may only lack its end.
fn is_cut_off(bytes: &[u8]) -> bool {
    bytes.len() < NUMBER_BYTES_MAX
}

/// Looks at the first field of `bytes`. None when it is broken.
fn next(bytes: &[u8]) -> Option<Next> {
    let first = bytes.first()?;
    let (bits, literal) = match first {
        0x80.. => (7, false),
        0x40..=0x7f => (6, true),
        0x20..=0x3f => (5, false),
        _ => (4, true),
    };
    let Some((index, mut rest)) = number(bytes, bits) else {
        return is_cut_off(bytes).then_some(Next::Part);
    };
    let texts = match (literal, index) {
        (false, _) => 0,
        (true, 0) => 2,
        (true, _) => 1,
    };
    for text in (0..texts).rev() {
        let Some((length, after)) = number(rest, 7) else {
            return is_cut_off(rest).then_some(Next::Part);
        };
        if length > TEXT_BYTES_MAX {
            let begins = bytes.len().saturating_sub(after.len());
            return Some(Next::Long {
                end: begins.saturating_add(length),
                name: text == 1,
                remember: bits == 6,
            });
        }
        let Some(after) = after.get(length..) else {
            return Some(Next::Part);
        };
        rest = after;
    }
    Some(Next::Field(bytes.len().saturating_sub(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A literal field, to be remembered or not.
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

    /// The decoder after this block was dropped in parts of `part` bytes, or none if it is broken.
    fn dropped(block: &[u8], part: usize) -> Option<(Decoder, Fields)> {
        let mut decoder = Decoder::default();
        let mut fields = Fields::new(1_000);
        let mut dropper = BlockDropper::default();
        for part in block.chunks(part) {
            dropper.drop_part(part, &mut decoder, &mut fields)?;
            assert!(dropper.left.len() <= 2 * TEXT_BYTES_MAX + 16);
        }
        dropper.is_between_fields().then_some((decoder, fields))
    }

    fn remembered(decoder: &mut Decoder, indexes: &[u8]) -> Option<Vec<String>> {
        let mut fields = Fields::new(100_000);
        decoder.decode(indexes, &mut fields)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let each = fields.each();
        Some(each.map(|(_, name, _)| text(name)).collect())
    }

    #[test]
    fn a_dropped_block_leaves_the_table_as_a_decoded_one() {
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
        let expected = remembered(&mut decoder, &indexes).unwrap();
        for part in [1, 2, 3, 7, 100, 16_384, block.len()] {
            let (mut decoder, fields) = dropped(&block, part).unwrap();
            assert!(fields.is_too_long());
            assert_eq!(
                remembered(&mut decoder, &indexes).unwrap(),
                expected,
                "{part}"
            );
        }
    }

    #[test]
    fn a_text_larger_than_the_table_is_skipped_and_empties_it() {
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
                let (mut decoder, fields) = dropped(&kept, part).unwrap();
                assert!(fields.is_too_long());
                let both = remembered(&mut decoder, &[0xbe, 0xbf]).unwrap();
                assert_eq!(both, ["after", "known"], "{part}");
                let forgotten = [&known[..], &literal(0x40, name, value), &after].concat();
                let (mut decoder, _) = dropped(&forgotten, part).unwrap();
                assert_eq!(remembered(&mut decoder, &[0xbe]).unwrap(), ["after"]);
                assert_eq!(remembered(&mut decoder, &[0xbf]), None, "{part}");
            }
        }
    }

    #[test]
    fn a_broken_or_cut_off_block_is_told() {
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
                    dropped(block, part).is_none(),
                    "{:?}",
                    &block[..block.len().min(9)]
                );
            }
        }
    }
}
