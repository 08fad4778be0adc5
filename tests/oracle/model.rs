//! Which rule a descriptor finds and which counter it has, in each of the two services.
//!
//! Why: a known difference must be recognised by its cause, not by its looks. The reference
//! compares joined text; tollgate compares keys and values apart. Where both models agree, the
//! services must.
//!
//! What it deliberately does not do: count.

use crate::oracle::case::{
    Case, Domain, LABEL_BYTES_MAX, Node, OracleDescriptor, OracleRequest, UNITS,
};

/// A counter: how the reference names it, and what makes it one in tollgate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Counter {
    /// The reference's name without prefix and domain.
    pub(crate) name: String,
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) of_request: bool,
    pub(crate) unit: usize,
}

type Siblings<'c> = &'c [Node];

/// The reference's search: `key_value` exactly, then patterns that end with a star, then the key
/// alone.
pub(crate) fn joined<'c>(nodes: Siblings<'c>, (key, value): &(String, String)) -> Option<&'c Node> {
    let whole = format!("{key}_{value}");
    let exact = |node: &&Node| composite(node) == whole;
    let pattern = |node: &&Node| {
        let composite = composite(node);
        let prefix = composite.strip_suffix('*');
        prefix.is_some_and(|prefix| whole.starts_with(prefix))
    };
    let default = |node: &&Node| composite(node) == *key;
    let nodes = nodes.iter();
    nodes
        .clone()
        .find(exact)
        .or_else(|| nodes.clone().find(pattern))
        .or_else(|| nodes.clone().find(default))
}

/// tollgate's search: this key and value, then patterns with stars anywhere in either, then the key
/// alone.
pub(crate) fn apart<'c>(nodes: Siblings<'c>, (key, value): &(String, String)) -> Option<&'c Node> {
    let exact = |node: &&Node| node.key == *key && node.value == *value && !value.is_empty();
    let pattern = |node: &&Node| {
        (node.key.contains('*') || node.value.contains('*'))
            && fits(node.key.as_bytes(), key.as_bytes())
            && (node.value.is_empty() || fits(node.value.as_bytes(), value.as_bytes()))
    };
    let default = |node: &&Node| node.key == *key && node.value.is_empty();
    let nodes = nodes.iter();
    nodes
        .clone()
        .find(exact)
        .or_else(|| nodes.clone().find(pattern))
        .or_else(|| nodes.clone().find(default))
}

/// The nodes that entries walk through by one of the searches; none if an entry finds none.
pub(crate) fn path<'c>(
    case: &'c Case,
    entries: &[(String, String)],
    search: impl Fn(Siblings<'c>, &(String, String)) -> Option<&'c Node>,
) -> Vec<&'c Node> {
    let mut nodes: Siblings<'_> = &case.descriptors;
    let mut path = Vec::new();
    for entry in entries {
        let Some(node) = search(nodes, entry) else {
            return Vec::new();
        };
        path.push(node);
        nodes = &node.children;
    }
    path
}

/// The node whose limit applies in tollgate, if there is one.
pub(crate) fn limited<'c>(case: &'c Case, asked: &OracleDescriptor) -> Option<&'c Node> {
    let node = path(case, &asked.entries, apart).pop()?;
    node.limit.is_some().then_some(node)
}

/// A star that the reference of the pinned version reads as a letter: any but the last of
/// `key_value`.
pub(crate) fn has_inner_star(node: &Node) -> bool {
    let composite = composite(node);
    composite
        .strip_suffix('*')
        .unwrap_or(&composite)
        .contains('*')
}

/// Whether a descriptor of the request finds its limit by a key that holds a star.
pub(crate) fn finds_starred_key(case: &Case, asked: &OracleRequest) -> bool {
    asked.domain == Domain::Own
        && asked.descriptors.iter().any(|descriptor| {
            descriptor.limit.is_none()
                && path(case, &descriptor.entries, apart)
                    .iter()
                    .any(|node| node.key.contains('*'))
        })
}

/// Whether metrics have a text of the request in a label that is cut.
pub(crate) fn has_long_label(case: &Case, asked: &OracleRequest) -> bool {
    let long = |(key, value): &(String, String)| key.len() + 1 + value.len() > LABEL_BYTES_MAX;
    let counted = counters(case, asked).into_iter().zip(&asked.descriptors);
    counted
        .filter(|(counter, _)| counter.is_some())
        .any(|(_, descriptor)| descriptor.entries.iter().any(long))
}

pub(crate) fn composite(node: &Node) -> String {
    if node.value.is_empty() {
        node.key.clone()
    } else {
        format!("{}_{}", node.key, node.value)
    }
}

/// The counters that a request adds to, descriptor by descriptor, where both searches agree.
pub(crate) fn counters(case: &Case, asked: &OracleRequest) -> Vec<Option<Counter>> {
    if asked.domain != Domain::Own {
        return vec![None; asked.descriptors.len()];
    }
    let rules: Vec<_> = asked
        .descriptors
        .iter()
        .map(|asked| match asked.limit {
            Some(_) => None,
            None => limited(case, asked),
        })
        .collect();
    let limits = rules
        .iter()
        .flatten()
        .filter_map(|node| node.limit.as_ref());
    let replaced: Vec<_> = limits.flat_map(|limit| limit.replaces.clone()).collect();
    let counter = |(asked, rule): (&OracleDescriptor, Option<&Node>)| {
        let unit = match (asked.limit, rule) {
            (Some((_, unit)), _) => unit,
            (None, Some(node)) => {
                let limit = node.limit.as_ref()?;
                if limit.unlimited || !limit.name.is_empty() && replaced.contains(&limit.name) {
                    return None;
                }
                limit.unit
            }
            (None, None) => return None,
        };
        let mut entries = asked.entries.clone();
        if asked.limit.is_none() {
            let path = path(case, &asked.entries, apart);
            for (entry, node) in entries.iter_mut().zip(path) {
                let by_pattern = composite(node) != format!("{}_{}", entry.0, entry.1);
                if node.share_threshold && by_pattern {
                    let whole = composite(node);
                    let start = format!("{}_", entry.0);
                    whole
                        .strip_prefix(&start)
                        .unwrap_or(&whole)
                        .clone_into(&mut entry.1);
                }
            }
        }
        Some(Counter {
            name: entries
                .iter()
                .flat_map(|(key, value)| [key, "_", value, "_"])
                .collect(),
            entries,
            of_request: asked.limit.is_some(),
            unit,
        })
    };
    let descriptors = asked.descriptors.iter();
    descriptors
        .zip(rules.iter().copied())
        .map(counter)
        .collect()
}

// === impl Counter ===

impl Counter {
    /// When the window that holds this second began.
    pub(crate) fn window_start(&self, now_s: u64) -> u64 {
        let (_, window_s) = UNITS[self.unit];
        now_s - now_s % window_s
    }

    /// Whether tollgate's own keys tell it from the other.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        self.entries != other.entries
            || self.of_request != other.of_request
            || self.unit != other.unit
    }
}

/// Whether a pattern matches a text: a star matches any number of bytes.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|taken| fits(rest, &text[taken..])),
        Some((first, rest)) => text.first() == Some(first) && fits(rest, &text[1..]),
    }
}
