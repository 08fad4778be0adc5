//! HPACK's tables: the one that never changes, and the one a connection fills (RFC 7541, section 2.3 and appendix A).
//!
//! How: the dynamic table's texts lie one behind the other in one vector, so that an entry is two slices of it; room of
//! entries that were evicted is won back when the vector has grown to twice what the table may hold. With each entry
//! stands what its name means to us, found once when it came.
//!
//! What it deliberately does not do: decode (`decode`).

use std::collections::VecDeque;

use super::Known;

/// How many bytes a client may have us remember: what HTTP/2 begins with.
pub(super) const TABLE_BYTES_MAX: usize = 4_096;

/// What an entry counts beyond its texts.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The first index of the dynamic table.
const FIRST_DYNAMIC: usize = STATIC.len() + 1;

/// Index 1 stands first.
#[rustfmt::skip]
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// What a client had us remember.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// The newest first.
    entries: VecDeque<Entry>,
    texts: Vec<u8>,
    bytes: usize,
    bytes_max: usize,
    /// Another one whenever something changed.
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    known: Known,
    /// Where its name begins; its value stands behind it.
    begins: usize,
    name_bytes: usize,
    value_bytes: usize,
}

/// A header as a table has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Remembered<'t> {
    pub(super) known: Known,
    pub(super) name: &'t [u8],
    pub(super) value: &'t [u8],
}

// === impl DynamicTable ===

impl DynamicTable {
    /// Another one whenever something changed: the same bytes mean the same while this stays.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// What an index means, in either table; none when it means nothing.
    pub(super) fn get(&self, index: usize) -> Option<Remembered<'_>> {
        if let Some(place) = index.checked_sub(FIRST_DYNAMIC) {
            let entry = self.entries.get(place)?;
            let texts = self.texts.get(entry.begins..)?;
            let (name, rest) = texts.split_at_checked(entry.name_bytes)?;
            return Some(Remembered {
                known: entry.known,
                name,
                value: rest.get(..entry.value_bytes)?,
            });
        }
        let (name, value) = STATIC.get(index.checked_sub(1)?)?;
        Some(Remembered {
            known: Known::of(name.as_bytes(), value.as_bytes()),
            name: name.as_bytes(),
            value: value.as_bytes(),
        })
    }

    /// Remembers a header, and forgets the oldest for it. One that is larger than the table empties it.
    pub(super) fn insert(&mut self, known: Known, name: &[u8], value: &[u8]) {
        self.version = self.version.wrapping_add(1);
        let bytes = counted(name.len(), value.len());
        self.evict_to(self.bytes_max.saturating_sub(bytes));
        if bytes > self.bytes_max {
            return;
        }
        self.win_room_back();
        self.entries.push_front(Entry {
            known,
            begins: self.texts.len(),
            name_bytes: name.len(),
            value_bytes: value.len(),
        });
        self.texts.extend_from_slice(name);
        self.texts.extend_from_slice(value);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Forgets everything, as it does for an entry that is larger than the table.
    pub(super) fn clear(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.evict_to(0);
    }

    /// Holds so many bytes from now on. None when that is more than a client may ask for.
    pub(super) fn resize(&mut self, bytes_max: usize) -> Option<()> {
        self.version = self.version.wrapping_add(1);
        self.bytes_max = (bytes_max <= TABLE_BYTES_MAX).then_some(bytes_max)?;
        self.evict_to(bytes_max);
        Some(())
    }

    fn evict_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(oldest) = self.entries.pop_back()
        {
            let bytes = counted(oldest.name_bytes, oldest.value_bytes);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Texts of entries that are gone lie in front.
    fn win_room_back(&mut self) {
        let Some(oldest) = self.entries.back() else {
            self.texts.clear();
            return;
        };
        let gone = oldest.begins;
        if gone >= TABLE_BYTES_MAX {
            self.texts.drain(..gone.min(self.texts.len()));
            for entry in &mut self.entries {
                entry.begins = entry.begins.saturating_sub(gone);
            }
        }
    }
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            texts: Vec::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES_MAX,
            version: 0,
        }
    }
}

/// How many bytes a header counts, in a table and in a list.
pub(super) fn counted(name_bytes: usize, value_bytes: usize) -> usize {
    name_bytes
        .saturating_add(value_bytes)
        .saturating_add(ENTRY_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(table: &DynamicTable) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (FIRST_DYNAMIC..)
            .map_while(|index| table.get(index))
            .map(|entry| (text(entry.name), text(entry.value)))
            .collect()
    }

    #[test]
    fn the_newest_is_first_and_the_oldest_goes() {
        let mut table = DynamicTable::default();
        // As a plain list would have it.
        let mut model: Vec<(String, String)> = Vec::new();
        for number in 0..5_000_usize {
            let (name, value) = (
                format!("name-{}", number % 7),
                "v".repeat(number * 31 % 300),
            );
            table.insert(Known::Other, name.as_bytes(), value.as_bytes());
            model.insert(0, (name, value));
            let size = |model: &[(String, String)]| -> usize {
                model
                    .iter()
                    .map(|(name, value)| counted(name.len(), value.len()))
                    .sum()
            };
            for resized in [false, number % 1_000 == 999] {
                if resized {
                    table.resize(number * 17 % TABLE_BYTES_MAX).unwrap();
                }
                while size(&model) > table.bytes_max {
                    model.pop();
                }
            }
            assert_eq!(table.bytes, size(&model));
            assert!(table.texts.len() <= 3 * TABLE_BYTES_MAX);
            if number % 10 == 0 {
                assert_eq!(texts(&table), model, "{number}");
            }
        }
        assert!(table.resize(TABLE_BYTES_MAX + 1).is_none());
    }

    #[test]
    fn one_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::default();
        table.insert(Known::Other, b"a", b"b");
        table.insert(Known::Other, b"a", &[b'b'; TABLE_BYTES_MAX]);
        assert_eq!(texts(&table), []);
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn the_static_table_begins_at_one() {
        let table = DynamicTable::default();
        assert_eq!(table.get(0), None);
        let post = table.get(3).unwrap();
        assert_eq!((post.name, post.value), (&b":method"[..], &b"POST"[..]));
        assert_eq!(table.get(61).unwrap().name, b"www-authenticate");
        assert_eq!(table.get(31).unwrap().known, Known::ContentType);
        assert_eq!(table.get(62), None);
    }
}
