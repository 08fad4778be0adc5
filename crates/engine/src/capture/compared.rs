//! Which values rules compare: those stay plain in a hashed recording, so that the same rules
//! match.

use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate_limiter::{RuleSet, Values};

/// A key pattern with compared values stands for every key of its domain.
const EVERY_KEY: &str = "*";

/// The keys of a rule set whose values are compared.
#[derive(Clone, Debug, Default)]
pub struct ComparedKeys {
    domains: HashMap<Vec<u8>, HashMap<Vec<u8>, Compared>>,
}

/// Which values of a key are compared.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Compared {
    /// These.
    Values(HashSet<Vec<u8>>),
    /// Any may be: by a pattern, a prefix, a regular expression or a file of limits.
    All,
}

/// A key whose values are compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ComparedKey {
    /// The domain.
    pub domain: String,
    /// The key; `*` for all keys of the domain.
    pub key: String,
    /// Whether all of its values stay plain; else only those in the rules.
    pub all: bool,
}

// === impl ComparedKeys ===

impl ComparedKeys {
    /// The compared keys of these rules.
    pub fn of(rules: &RuleSet) -> Self {
        let mut compared = Self::default();
        for (domain, level) in rules.levels() {
            let values = match &*level.values {
                Values::Any if level.ipv6_prefix.is_none() => continue,
                Values::Text(text) if !text.contains('*') => Some(vec![text]),
                Values::List(list) => Some(list.iter().collect()),
                Values::Any | Values::Text(_) | Values::Prefixes(_) | Values::Regex(_) => None,
            };
            let (key, values) = if level.key.contains('*') {
                (EVERY_KEY, None)
            } else {
                (&*level.key, values.filter(|_| level.ipv6_prefix.is_none()))
            };
            compared.add(domain, key, values);
        }
        // A file of limits compares any value. Most values of its key are in it.
        for rule in rules.rules().iter().filter(|rule| rule.lines.is_some()) {
            let level = rule.path.last();
            let key = level.map_or(EVERY_KEY, |level| &*level.key);
            let key = if key.contains('*') { EVERY_KEY } else { key };
            compared.add(&rule.domain, key, None);
        }
        compared
    }

    fn add(&mut self, domain: &str, key: &str, values: Option<Vec<&String>>) {
        let keys = self.domains.entry(domain.into()).or_default();
        let known = keys
            .entry(key.into())
            .or_insert_with(|| Compared::Values(HashSet::new()));
        match (known, values) {
            (known, None) => *known = Compared::All,
            (Compared::All, Some(_)) => {}
            (Compared::Values(known), Some(values)) => {
                known.extend(values.into_iter().map(|value| value.clone().into_bytes()));
            }
        }
    }

    /// Whether a value of an entry stays plain.
    pub(super) fn stays(&self, domain: &[u8], key: &[u8], value: &[u8]) -> bool {
        let Some(keys) = self.domains.get(domain) else {
            return false;
        };
        if keys.contains_key(EVERY_KEY.as_bytes()) {
            return true;
        }
        match keys.get(key) {
            None => false,
            Some(Compared::All) => true,
            Some(Compared::Values(values)) => values.contains(value),
        }
    }

    /// The keys, by domain and name.
    pub fn keys(&self) -> Vec<ComparedKey> {
        let mut sorted = BTreeMap::new();
        for (domain, keys) in &self.domains {
            for (key, compared) in keys {
                sorted.insert((domain, key), *compared == Compared::All);
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let keys = sorted.into_iter().map(|((domain, key), all)| ComparedKey {
            domain: text(domain),
            key: text(key),
            all,
        });
        keys.collect()
    }
}
