//! Decodes a header block field by field (RFC 7541, section 6).
//!
//! How: names and values go into one vector that is reused, and a span says where each field is. A
//! list longer than its limit is decoded to its end, since the dynamic table must stay the same as
//! the client's, but nothing more of it is kept.

use super::huffman;
use super::table::{DynamicTable, TableField, list_size};
use crate::header_list::{FieldKind, FieldSpan, HeaderList};

/// Decoder of one connection, with its dynamic table.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    table: DynamicTable,
}

/// Fields of one block.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    list: HeaderList,
    list_bytes: usize,
    list_bytes_max: usize,
}

/// The longest list that is decoded to its end, in bytes as they are counted. Each byte of a block
/// may expand to thousands of bytes of a list.
const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What follows in a block.
type Rest<'b> = &'b [u8];

// === impl Decoder ===

impl Decoder {
    /// Changes whenever the dynamic table changes.
    pub(crate) fn version(&self) -> u64 {
        self.table.version()
    }

    /// Decodes a block. None if it is invalid, and no later block can be decoded.
    pub(crate) fn decode(&mut self, block: &[u8], fields: &mut Fields) -> Option<()> {
        fields.clear();
        // The table's size may change only before the first field.
        self.decode_fields(block, &mut false, fields)
    }

    /// Decodes whole fields and adds them to `fields`. `has_begun` says whether others came
    /// before them.
    pub(super) fn decode_fields(
        &mut self,
        block: &[u8],
        has_begun: &mut bool,
        fields: &mut Fields,
    ) -> Option<()> {
        let mut rest = block;
        while let Some(first) = rest.first().copied() {
            if fields.list_bytes > LIST_BYTES_MAX {
                return None;
            }
            if first & 0x80 != 0 {
                let (index, after) = number(rest, 7)?;
                rest = after;
                let header = self.table.get(index)?;
                fields.push_from_table(header);
            } else if first & 0xe0 == 0x20 {
                let (bytes_max, after) = number(rest, 5)?;
                rest = after;
                (!*has_begun).then(|| self.table.resize(bytes_max))??;
                continue;
            } else {
                let index_it = first & 0x40 != 0;
                let (index, after) = number(rest, if index_it { 6 } else { 4 })?;
                rest = self.literal(index, after, index_it, fields)?;
            }
            *has_begun = true;
        }
        Some(())
    }

    /// Empties the dynamic table.
    pub(super) fn clear_table(&mut self) {
        self.table.clear();
    }

    /// Decodes a literal field, whose value and perhaps name are in the block.
    fn literal<'b>(
        &mut self,
        name: usize,
        rest: Rest<'b>,
        index_it: bool,
        fields: &mut Fields,
    ) -> Option<Rest<'b>> {
        let start = fields.list.text.len();
        let rest = if name == 0 {
            string(rest, &mut fields.list.text)?
        } else {
            fields
                .list
                .text
                .extend_from_slice(self.table.get(name)?.name);
            rest
        };
        let name_bytes = fields.list.text.len().saturating_sub(start);
        let rest = string(rest, &mut fields.list.text)?;
        let both = fields.list.text.get(start..)?;
        let (name, value) = both.split_at_checked(name_bytes)?;
        let kind = FieldKind::of(name, value);
        if index_it {
            self.table.insert(kind, name, value);
        }
        let value_bytes = value.len();
        fields.push(FieldSpan {
            kind,
            start,
            name_bytes,
            value_bytes,
        });
        Some(rest)
    }
}

// === impl Fields ===

impl Fields {
    /// Fields of lists of at most this size.
    pub(crate) fn new(list_bytes_max: usize) -> Self {
        Self {
            list_bytes_max,
            ..Self::default()
        }
    }

    /// Removes all fields.
    pub(crate) fn clear(&mut self) {
        self.list.fields.clear();
        self.list.text.clear();
        self.list_bytes = 0;
    }

    /// Counts a field of at least this size that is not kept: the list is too long.
    pub(super) fn count_skipped(&mut self, bytes: usize) {
        let at_least = bytes.max(self.list_bytes_max.saturating_add(1));
        self.list_bytes = self.list_bytes.saturating_add(at_least);
    }

    /// Whether the list exceeds its limit.
    pub(crate) fn is_too_long(&self) -> bool {
        self.list_bytes > self.list_bytes_max
    }

    /// Each field's kind, name and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FieldKind, &[u8], &[u8])> {
        self.list.each()
    }

    /// A copy that outlives the block.
    pub(crate) fn to_list(&self) -> HeaderList {
        self.list.clone()
    }

    /// Frees the memory of a long list.
    pub(crate) fn shrink(&mut self, bytes_max: usize) {
        if self.list.text.capacity() > bytes_max {
            self.list = HeaderList::default();
        }
    }

    fn push_from_table(&mut self, header: TableField<'_>) {
        let start = self.list.text.len();
        if !self.is_too_long() {
            self.list.text.extend_from_slice(header.name);
            self.list.text.extend_from_slice(header.value);
        }
        self.push(FieldSpan {
            kind: header.kind,
            start,
            name_bytes: header.name.len(),
            value_bytes: header.value.len(),
        });
    }

    fn push(&mut self, span: FieldSpan) {
        let bytes = list_size(span.name_bytes, span.value_bytes);
        self.list_bytes = self.list_bytes.saturating_add(bytes);
        if self.is_too_long() {
            self.list.text.truncate(span.start);
        } else {
            self.list.fields.push(span);
        }
    }
}

/// Reads an integer with a prefix of `bits` (section 5.1), and what follows it. None if it is cut
/// off or absurdly large.
pub(super) fn number(block: &[u8], bits: u32) -> Option<(usize, Rest<'_>)> {
    let (first, mut rest) = block.split_first()?;
    let mask = u8::MAX.checked_shr(8_u32.saturating_sub(bits))?;
    let mut number = usize::from(first & mask);
    if first & mask != mask {
        return Some((number, rest));
    }
    // No valid integer here needs more than four further bytes.
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        number = number.checked_add(usize::from(byte & 0x7f) << shift)?;
        if byte & 0x80 == 0 {
            return Some((number, rest));
        }
    }
    None
}

/// Decodes a string (section 5.2) behind what `into` holds.
fn string<'b>(block: &'b [u8], into: &mut Vec<u8>) -> Option<Rest<'b>> {
    let coded = block.first()? & 0x80 != 0;
    let (length, rest) = number(block, 7)?;
    let (text, rest) = rest.split_at_checked(length)?;
    if coded {
        huffman::decode(text, into)?;
    } else {
        into.extend_from_slice(text);
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<String>> {
        let mut fields = Fields::new(10_000);
        decoder.decode(block, &mut fields)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(
            fields
                .iter()
                .map(|(_, name, value)| format!("{}={}", text(name), text(value)))
                .collect(),
        )
    }

    // RFC 7541, appendix C.3 (plain) and C.4 (Huffman): three requests on one connection.
    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let seen = [
            vec![
                ":method=GET",
                ":scheme=http",
                ":path=/",
                ":authority=www.example.com",
            ],
            vec![
                ":method=GET",
                ":scheme=http",
                ":path=/",
                ":authority=www.example.com",
                "cache-control=no-cache",
            ],
            vec![
                ":method=GET",
                ":scheme=https",
                ":path=/index.html",
                ":authority=www.example.com",
                "custom-key=custom-value",
            ],
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            for (block, seen) in blocks.iter().zip(&seen) {
                assert_eq!(decoded(&mut decoder, &hex(block)).unwrap(), *seen);
            }
        }
    }

    // RFC 7541, appendix C.1.
    #[test]
    fn numbers_are_read() {
        assert_eq!(number(&[0b1110_1010], 5), Some((10, &[][..])));
        assert_eq!(number(&[31, 154, 10, 7], 5), Some((1_337, &[7][..])));
        assert_eq!(number(&[42], 8), Some((42, &[][..])));
        assert_eq!(number(&[31, 154], 5), None);
        assert_eq!(number(&[31, 0xff, 0xff, 0xff, 0xff, 0], 5), None);
    }

    #[test]
    fn invalid_blocks_are_refused() {
        for block in [
            "80",             // index 0
            "be",             // an index without an entry
            "ff ff ff ff ff", // an integer without end
            "40 05 6162",     // a name that is cut off
            "40 01 61",       // no value
            "82 20",          // a table size update behind a field
            "3f e2 1f",       // a table of 4,097 bytes
            "40 81 00 00",    // not a Huffman code
        ] {
            let decoder = &mut Decoder::default();
            assert_eq!(decoded(decoder, &hex(block)), None, "{block}");
        }
        // 4,096 bytes, then none, then a field.
        let seen = decoded(&mut Decoder::default(), &hex("3fe11f 20 82")).unwrap();
        assert_eq!(seen, [":method=GET"]);
    }

    #[test]
    fn a_list_that_is_too_long_changes_the_table_all_the_same() {
        let mut decoder = Decoder::default();
        let mut fields = Fields::new(100);
        let block = hex("40 01 61 01 62 40 01 63 01 64 40 01 65 01 66");
        decoder.decode(&block, &mut fields).unwrap();
        assert!(fields.is_too_long());
        assert_eq!(fields.iter().count(), 2);
        assert_eq!(fields.list.text.len(), 4);
        let seen = decoded(&mut decoder, &hex("be bf c0")).unwrap();
        assert_eq!(seen, ["e=f", "c=d", "a=b"]);
        decoder.decode(&hex("be"), &mut fields).unwrap();
        assert!(!fields.is_too_long());
    }

    #[test]
    fn a_list_that_is_far_too_long_is_not_decoded_to_its_end() {
        let mut decoder = Decoder::default();
        let mut fields = Fields::new(1_000);
        // A name of 4,000 bytes, and then it again and again in one byte each.
        let name = [&[0x40, 127, 0xa1, 0x1e][..], &[b'a'; 4_000], &[0]].concat();
        decoder.decode(&name, &mut fields).unwrap();
        assert!(decoder.decode(&[0xbe; 1_000], &mut fields).is_some());
        assert!(fields.is_too_long());
        assert!(decoder.decode(&[0xbe; 2_000], &mut fields).is_none());
        assert!(fields.list.text.len() <= 1_000);
        // The same where each is added to the table.
        let anew = [&name[..], &[0x7e, 0].repeat(2_000)].concat();
        assert!(Decoder::default().decode(&anew, &mut fields).is_none());
    }

    #[test]
    fn a_version_stays_while_the_table_is_unchanged() {
        let mut decoder = Decoder::default();
        let before = decoder.version();
        // Indexed, without indexing, never indexed.
        decoded(&mut decoder, &hex("82 00 01 61 01 62 10 01 61 01 62")).unwrap();
        assert_eq!(decoder.version(), before);
        decoded(&mut decoder, &hex("40 01 61 01 62")).unwrap();
        let changed = decoder.version();
        assert_ne!(changed, before);
        decoded(&mut decoder, &hex("3fe11f be")).unwrap();
        assert_ne!(decoder.version(), changed);
    }
}
