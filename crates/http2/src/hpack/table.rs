//! The static and the dynamic table (RFC 7541, section 2.3 and appendix A).
//!
//! How: names and values of the dynamic table are in one vector, one behind the other, so an entry
//! is two slices of it. Space of evicted entries is reclaimed when they fill as much as the table
//! may hold. Each entry keeps its kind, found once when it arrived.

use std::collections::VecDeque;

use crate::header_list::{FieldKind, FieldSpan};

/// The largest dynamic table in bytes: the initial value of SETTINGS_HEADER_TABLE_SIZE, which the
/// server leaves as it is.
pub(super) const TABLE_BYTES_MAX: usize = 4_096;

/// What an entry counts beyond its name and value.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The first index of the dynamic table.
const FIRST_DYNAMIC: usize = STATIC.len() + 1;

/// The static table, from index 1.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The dynamic table.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Newest first.
    entries: VecDeque<FieldSpan>,
    text: Vec<u8>,
    bytes: usize,
    bytes_max: usize,
    /// Changes with every change of the table.
    version: u64,
}

/// A field of either table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TableField<'t> {
    pub(super) kind: FieldKind,
    pub(super) name: &'t [u8],
    pub(super) value: &'t [u8],
}

// === impl DynamicTable ===

impl DynamicTable {
    /// Changes with every change: while it stays, equal header blocks mean the same.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Field with this index, in either table.
    pub(super) fn get(&self, index: usize) -> Option<TableField<'_>> {
        if let Some(position) = index.checked_sub(FIRST_DYNAMIC) {
            let entry = self.entries.get(position)?;
            let (name, value) = entry.read(&self.text)?;
            let kind = entry.kind;
            return Some(TableField { kind, name, value });
        }
        let (name, value) = STATIC.get(index.checked_sub(1)?)?;
        let (name, value) = (name.as_bytes(), value.as_bytes());
        let kind = FieldKind::of(name, value);
        Some(TableField { kind, name, value })
    }

    /// Adds a field and evicts the oldest for it. A field larger than the table empties it
    /// (section 4.4).
    pub(super) fn insert(&mut self, kind: FieldKind, name: &[u8], value: &[u8]) {
        self.version = self.version.wrapping_add(1);
        let bytes = list_size(name.len(), value.len());
        self.evict_to(self.bytes_max.saturating_sub(bytes));
        if bytes > self.bytes_max {
            return;
        }
        self.reclaim();
        self.entries.push_front(FieldSpan {
            kind,
            start: self.text.len(),
            name_bytes: name.len(),
            value_bytes: value.len(),
        });
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Evicts everything, as for a field that is larger than the table.
    pub(super) fn clear(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.evict_to(0);
    }

    /// Changes the size of the table. None if it is larger than allowed.
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
            let bytes = list_size(oldest.name_bytes, oldest.value_bytes);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Frees the space of evicted entries, which is at the front.
    fn reclaim(&mut self) {
        let Some(oldest) = self.entries.back() else {
            self.text.clear();
            return;
        };
        let evicted_bytes = oldest.start;
        if evicted_bytes >= TABLE_BYTES_MAX {
            self.text.drain(..evicted_bytes.min(self.text.len()));
            for entry in &mut self.entries {
                entry.start = entry.start.saturating_sub(evicted_bytes);
            }
        }
    }
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            text: Vec::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES_MAX,
            version: 0,
        }
    }
}

/// Size of a field in a table and in a list (section 4.1).
pub(super) fn list_size(name_bytes: usize, value_bytes: usize) -> usize {
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
    fn the_newest_is_first_and_the_oldest_is_evicted() {
        let mut table = DynamicTable::default();
        // The same as a plain list.
        let mut model: Vec<(String, String)> = Vec::new();
        for number in 0..5_000_usize {
            let (name, value) = (
                format!("name-{}", number % 7),
                "v".repeat(number * 31 % 300),
            );
            table.insert(FieldKind::Other, name.as_bytes(), value.as_bytes());
            model.insert(0, (name, value));
            let size = |model: &[(String, String)]| -> usize {
                model
                    .iter()
                    .map(|(name, value)| list_size(name.len(), value.len()))
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
            assert!(table.text.len() <= 3 * TABLE_BYTES_MAX);
            if number % 10 == 0 {
                assert_eq!(texts(&table), model, "{number}");
            }
        }
        assert!(table.resize(TABLE_BYTES_MAX + 1).is_none());
    }

    #[test]
    fn a_field_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::default();
        table.insert(FieldKind::Other, b"a", b"b");
        table.insert(FieldKind::Other, b"a", &[b'b'; TABLE_BYTES_MAX]);
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
        assert_eq!(table.get(31).unwrap().kind, FieldKind::ContentType);
        assert_eq!(table.get(62), None);
    }
}
