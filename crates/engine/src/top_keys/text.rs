//! The text of a key: the descriptor that it stands for, as it is shown.

use crate::value_hash::{ShownValues, plain_text};
use tollgate_limiter::{Address, Entry, IdentityValue, Rule, Values};

/// The longest text of a key or a value, in bytes; the rest is replaced by `…`.
const PART_BYTES_MAX: usize = 128;

/// The most entries of a text.
const ENTRIES_MAX: usize = 32;

/// The text of one key.
#[derive(Debug)]
pub struct Text {
    /// The domain, where the limit came with the request; else the rule has it.
    pub(super) domain: Option<String>,
    pub(super) entries: Vec<tollgate_admin_api::Entry>,
}

/// An entry that a reader asks for.
#[derive(Debug)]
pub(super) struct AskedEntry {
    key: String,
    /// Every form in which its value can be shown.
    shown: Vec<String>,
}

// === impl Text ===

impl Text {
    /// The text of a descriptor's entries that a rule matched; without a rule, of a limit that came
    /// with a request. A value that shares its bucket with others is shown as the rule has it.
    pub fn new(
        rule: Option<&Rule>,
        domain: &[u8],
        entries: &[Entry<'_>],
        values: &ShownValues,
    ) -> Self {
        let entries = entries.iter().take(ENTRIES_MAX).enumerate();
        let shown = entries.map(|(level, entry)| tollgate_admin_api::Entry {
            key: cut(plain_text(entry.key)),
            value: cut(shown(rule, level, entry.value, values)),
        });
        Self {
            domain: rule.is_none().then(|| cut(plain_text(domain))),
            entries: shown.collect(),
        }
    }

    /// The bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let strings = self
            .entries
            .iter()
            .flat_map(|entry| [&entry.key, &entry.value]);
        let texts: usize = strings.chain(&self.domain).map(String::capacity).sum();
        let entries = self.entries.capacity() * size_of::<tollgate_admin_api::Entry>();
        texts + entries + size_of::<Self>() + 2 * size_of::<usize>()
    }

    /// Whether each of these entries is one of its own.
    pub(super) fn has(&self, asked: &[AskedEntry]) -> bool {
        asked.iter().all(|asked| {
            let mut own = self.entries.iter();
            own.any(|entry| entry.key == asked.key && asked.shown.contains(&entry.value))
        })
    }
}

// === impl AskedEntry ===

impl AskedEntry {
    /// The entry with this key and value. The value is as it was sent or as it is shown. An address
    /// also stands for each prefix that it is in, since a rule can count prefixes.
    pub(super) fn new(entry: &tollgate_admin_api::Entry, values: &ShownValues) -> Self {
        let value = entry.value.as_bytes();
        let mut shown = vec![entry.value.clone(), cut(values.show(value))];
        if let Some(address) = Address::parse(value) {
            let bits = match address {
                Address::V4(_) => 32,
                Address::V6(_) => 128,
            };
            let prefixes = (0..=bits).map(|length| address.prefix(length).to_string());
            shown.extend(prefixes.map(|prefix| values.show(prefix.as_bytes())));
        }
        Self {
            key: entry.key.clone(),
            shown,
        }
    }
}

fn shown(rule: Option<&Rule>, level: usize, value: &[u8], values: &ShownValues) -> String {
    let Some(rule) = rule else {
        return values.show(value);
    };
    let configured = rule.path.get(level);
    let shares = configured.is_some_and(|level| level.share_threshold);
    let is_spelled = configured.is_some_and(|level| match &*level.values {
        Values::Text(text) => text.as_bytes() == value,
        Values::List(list) => list.iter().any(|text| text.as_bytes() == value),
        Values::Any | Values::Prefixes(_) | Values::Regex(_) => false,
    });
    if is_spelled {
        // Of the rules file: not personal data.
        return plain_text(value);
    }
    match rule.identity_value(level, value) {
        // Of the rules file: not personal data.
        IdentityValue::Text(pattern) if shares => plain_text(pattern),
        IdentityValue::All(level) => level.text().to_owned(),
        IdentityValue::Address(prefix) => values.show(prefix.to_string().as_bytes()),
        IdentityValue::Text(value) => values.show(value),
    }
}

/// The text, at most [`PART_BYTES_MAX`] bytes of it.
fn cut(mut text: String) -> String {
    if text.len() > PART_BYTES_MAX {
        let boundaries = (0..=PART_BYTES_MAX).rev();
        let end = boundaries.into_iter().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text.shrink_to_fit();
    text
}
