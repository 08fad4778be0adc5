//! A block of headers, decoded field by field (RFC 7541, section 6).
//!
//! How: texts are laid into one vector that is used again and again, and a field says where its name and value lie. A list
//! longer than its bound is decoded to its end, since the table must learn what the client thinks it knows, but nothing more
//! is kept of it.
//!
//! What it deliberately does not do: judge what fields say (`head`).

use super::table::{DynamicTable, Remembered, counted};
use super::{Known, huffman};

/// What a connection's client has had us remember.
#[derive(Debug, Default)]
pub(in super::super) struct Decoder {
    table: DynamicTable,
}

/// The fields of a block.
#[derive(Debug, Default)]
pub(in super::super) struct Fields {
    texts: Vec<u8>,
    each: Vec<Place>,
    list_bytes: usize,
    list_bytes_max: usize,
}

/// Where a field's texts lie.
#[derive(Clone, Copy, Debug)]
struct Place {
    known: Known,
    begins: usize,
    name_bytes: usize,
    value_bytes: usize,
}

/// How long a list may be to be decoded to its end, in bytes as they are counted. Each byte of a
/// block may stand for thousands of a list.
const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A text that stands in a block: where it ends there.
type Rest<'b> = &'b [u8];

// === impl Decoder ===

impl Decoder {
    /// Another one whenever what the client may refer to has changed.
    pub(in super::super) fn version(&self) -> u64 {
        self.table.version()
    }

    /// Decodes a block. None when it is broken, which leaves nothing of the connection to be understood.
    pub(in super::super) fn decode(&mut self, block: &[u8], fields: &mut Fields) -> Option<()> {
        fields.clear();
        // The table's size may change only before the first field.
        self.decode_fields(block, &mut true, fields)
    }

    /// Decodes whole fields of a block behind those that are known. `at_start` says whether they
    /// are its first.
    pub(super) fn decode_fields(
        &mut self,
        block: &[u8],
        at_start: &mut bool,
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
                fields.push_remembered(header);
            } else if first & 0xe0 == 0x20 {
                let (bytes_max, after) = number(rest, 5)?;
                rest = after;
                (*at_start).then(|| self.table.resize(bytes_max))??;
                continue;
            } else {
                let remember = first & 0x40 != 0;
                let (index, after) = number(rest, if remember { 6 } else { 4 })?;
                rest = self.literal(index, after, remember, fields)?;
            }
            *at_start = false;
        }
        Some(())
    }

    /// Forgets all that the client had us remember, which it knows.
    pub(super) fn clear_table(&mut self) {
        self.table.clear();
    }

    /// A field whose value, and perhaps name, stands in the block.
    fn literal<'b>(
        &mut self,
        name: usize,
        rest: Rest<'b>,
        remember: bool,
        fields: &mut Fields,
    ) -> Option<Rest<'b>> {
        let begins = fields.texts.len();
        let rest = if name == 0 {
            text(rest, &mut fields.texts)?
        } else {
            fields.texts.extend_from_slice(self.table.get(name)?.name);
            rest
        };
        let name_bytes = fields.texts.len().saturating_sub(begins);
        let rest = text(rest, &mut fields.texts)?;
        let both = fields.texts.get(begins..)?;
        let (name, value) = both.split_at_checked(name_bytes)?;
        let known = Known::of(name, value);
        if remember {
            self.table.insert(known, name, value);
        }
        let value_bytes = value.len();
        fields.push(Place {
            known,
            begins,
            name_bytes,
            value_bytes,
        });
        Some(rest)
    }
}

// === impl Fields ===

impl Fields {
    /// Fields of lists that count at most so many bytes.
    pub(in super::super) fn new(list_bytes_max: usize) -> Self {
        Self {
            list_bytes_max,
            ..Self::default()
        }
    }

    /// Forgets them.
    pub(in super::super) fn clear(&mut self) {
        self.each.clear();
        self.texts.clear();
        self.list_bytes = 0;
    }

    /// Counts a field of at least so many bytes that is not kept, so that the list is too long.
    pub(super) fn count_dropped(&mut self, bytes: usize) {
        let at_least = bytes.max(self.list_bytes_max.saturating_add(1));
        self.list_bytes = self.list_bytes.saturating_add(at_least);
    }

    /// Whether there were more than may be.
    pub(in super::super) fn is_too_long(&self) -> bool {
        self.list_bytes > self.list_bytes_max
    }

    /// Each field: what it is to us, its name, its value.
    pub(in super::super) fn each(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.each.iter().filter_map(|place| {
            let both = self.texts.get(place.begins..)?;
            let (name, rest) = both.split_at_checked(place.name_bytes)?;
            Some((place.known, name, rest.get(..place.value_bytes)?))
        })
    }

    /// Gives back memory that a long list took.
    pub(in super::super) fn shrink(&mut self, bytes_max: usize) {
        if self.texts.capacity() > bytes_max {
            self.texts = Vec::new();
            self.each = Vec::new();
        }
    }

    fn push_remembered(&mut self, header: Remembered<'_>) {
        let begins = self.texts.len();
        if !self.is_too_long() {
            self.texts.extend_from_slice(header.name);
            self.texts.extend_from_slice(header.value);
        }
        self.push(Place {
            known: header.known,
            begins,
            name_bytes: header.name.len(),
            value_bytes: header.value.len(),
        });
    }

    fn push(&mut self, place: Place) {
        let bytes = counted(place.name_bytes, place.value_bytes);
        self.list_bytes = self.list_bytes.saturating_add(bytes);
        if self.is_too_long() {
            self.texts.truncate(place.begins);
        } else {
            self.each.push(place);
        }
    }
}

/// A number whose first bits stand in the low `bits` of a byte, and what follows it. None when it is cut off or absurd.
pub(super) fn number(block: &[u8], bits: u32) -> Option<(usize, Rest<'_>)> {
    let (first, mut rest) = block.split_first()?;
    let mask = u8::MAX.checked_shr(8_u32.saturating_sub(bits))?;
    let mut number = usize::from(first & mask);
    if first & mask != mask {
        return Some((number, rest));
    }
    // Nothing here is larger than a few bytes say; what goes on and on is an attack.
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

/// Decodes a text behind what `into` holds.
fn text<'b>(block: &'b [u8], into: &mut Vec<u8>) -> Option<Rest<'b>> {
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
                .each()
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
    fn broken_blocks_are_refused() {
        for block in [
            "80",             // index 0
            "be",             // nobody said what this is
            "ff ff ff ff ff", // a number without end
            "40 05 6162",     // a name that is cut off
            "40 01 61",       // no value
            "82 20",          // the table's size behind a field
            "3f e2 1f",       // a table of 4,097 bytes
            "40 81 00 00",    // no Huffman code
        ] {
            let decoder = &mut Decoder::default();
            assert_eq!(decoded(decoder, &hex(block)), None, "{block}");
        }
        // 4,096 bytes, then none, then a field.
        let seen = decoded(&mut Decoder::default(), &hex("3fe11f 20 82")).unwrap();
        assert_eq!(seen, [":method=GET"]);
    }

    #[test]
    fn a_list_that_is_too_long_teaches_the_table_all_the_same() {
        let mut decoder = Decoder::default();
        let mut fields = Fields::new(100);
        let block = hex("40 01 61 01 62 40 01 63 01 64 40 01 65 01 66");
        decoder.decode(&block, &mut fields).unwrap();
        assert!(fields.is_too_long());
        assert_eq!(fields.each().count(), 2);
        assert_eq!(fields.texts.len(), 4);
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
        assert!(fields.texts.len() <= 1_000);
        // The same where each is remembered anew.
        let anew = [&name[..], &[0x7e, 0].repeat(2_000)].concat();
        assert!(Decoder::default().decode(&anew, &mut fields).is_none());
    }

    #[test]
    fn a_version_stays_while_nothing_is_learnt() {
        let mut decoder = Decoder::default();
        let before = decoder.version();
        // By index, not to be remembered, and never to be.
        decoded(&mut decoder, &hex("82 00 01 61 01 62 10 01 61 01 62")).unwrap();
        assert_eq!(decoder.version(), before);
        decoded(&mut decoder, &hex("40 01 61 01 62")).unwrap();
        let learnt = decoder.version();
        assert_ne!(learnt, before);
        decoded(&mut decoder, &hex("3fe11f be")).unwrap();
        assert_ne!(decoder.version(), learnt);
    }
}
