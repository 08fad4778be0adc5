//! Levels of the tree that no entry reaches, because siblings take all their values.
//!
//! How: a level's values become words, in which the byte 0xFF stands for any text: `a*b` is
//! `a\xFFb`. Patterns are UTF-8 text, so no pattern holds that byte, and a pattern that matches a
//! word has a `*` at each such byte. It then matches everything that the word stands for. So one
//! look-up with the word decides whether a sibling takes all of it, and the precedence is that of
//! the look-up. A prefix is taken when longer prefixes contain both its halves.
//!
//! The result is sound: a level is reported only if no entry reaches it. It is not complete: a
//! regular expression is known by its words only if it has few of them, and several siblings that
//! take a level together are seen only word by word.
//!
//! The cost is one look-up for each word, so it grows with the text of the patterns; all look-ups
//! share one [`StepBudget`].
//!
//! What it deliberately does not do: parse regular expressions (the caller gives their words).

use std::collections::{HashMap, HashSet};

use super::address::Prefix;
use super::descriptor::Entry;
use super::descriptor_matcher::{DescriptorMatcher, MatchKind, NodeIndex};
use super::pattern::StepBudget;
use super::rule::Level;
use super::values::Values;

/// The byte of a word that stands for any text.
pub const ANY_TEXT: u8 = 0xff;

/// How many lengths a prefix can have.
const LENGTHS: usize = 129;

/// A level, or a part of it, that no entry reaches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shadowed {
    /// The node of the level.
    pub node: usize,
    /// The part that is not reached.
    pub part: ShadowedPart,
    /// A node that takes these values, or some of them.
    pub by: usize,
    /// Whether other nodes take the rest of the values.
    pub with_others: bool,
}

/// The part of a level that no entry reaches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShadowedPart {
    /// All of it.
    Level,
    /// All of it except an entry that is the text of the pattern itself.
    AllButOwnText,
    /// The item at this index of its list of values or prefixes.
    Item(usize),
}

/// Gives the words of a regular expression; none when they are unknown or too many.
pub type RegexWords<'w> = &'w dyn Fn(&str) -> Option<&'w [Vec<u8>]>;

/// The siblings of one parent, as they are examined.
pub(super) struct ShadowSearch<'m> {
    matcher: &'m DescriptorMatcher,
    words: RegexWords<'m>,
    steps: &'m StepBudget,
    /// For each key with prefixes, those of which longer ones contain every address.
    covered: HashMap<&'m [u8], CoveredPrefixes>,
}

/// A prefix, and a node of each of its halves.
type CoveredPrefixes = HashMap<Prefix, [NodeIndex; 2]>;

// === impl DescriptorMatcher ===

impl DescriptorMatcher {
    /// The nodes that siblings can shadow, in order, each once. An exact value is always reached.
    pub(super) fn shadowable(&self) -> Vec<NodeIndex> {
        let mut nodes = Vec::new();
        for (key, key_matcher) in &self.keys {
            let is_starred = key.contains(&b'*');
            let values = key_matcher.values.as_deref();
            let has_patterns = values.is_some_and(|values| values.patterns.first_node().is_some());
            if is_starred || has_patterns || self.wildcard_keys.is_some() {
                nodes.extend(key_matcher.default);
            }
            if is_starred || has_patterns {
                let exact = key_matcher.exact.iter();
                let starred = exact.filter(|(value, _)| is_starred || value.contains(&b'*'));
                nodes.extend(starred.map(|(_, node)| *node));
            }
            let Some(values) = values else {
                continue;
            };
            if !key_matcher.exact.is_empty() {
                nodes.extend(values.listed.values());
            }
            nodes.extend(values.prefixes.nodes.values());
            nodes.extend(values.patterns.regexes.iter().map(|regex| regex.node));
        }
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The nodes without which no sibling would match their values; each once. There may be more
    /// than are found.
    pub(super) fn nodes_that_hide_nothing(&self) -> impl Iterator<Item = NodeIndex> {
        let keys = self.keys.iter().filter(|(key, _)| !key.contains(&b'*'));
        keys.flat_map(|(_, key_matcher)| {
            let has_exact_only = key_matcher.default.is_none()
                && key_matcher.values.is_none()
                && self.wildcard_keys.is_none();
            let exact = has_exact_only.then(|| key_matcher.exact.values().copied());
            // The default of a key comes last.
            key_matcher
                .default
                .into_iter()
                .chain(exact.into_iter().flatten())
        })
    }

    /// Whether there are no levels.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

// === impl ShadowSearch ===

impl<'m> ShadowSearch<'m> {
    pub(super) fn new(
        matcher: &'m DescriptorMatcher,
        words: RegexWords<'m>,
        steps: &'m StepBudget,
    ) -> Self {
        let keys = matcher.keys.iter();
        let covered = keys.filter_map(|(key, key_matcher)| {
            let prefixes = &key_matcher.values.as_deref()?.prefixes.nodes;
            (prefixes.len() > 2).then(|| (key.as_slice(), covered_prefixes(prefixes)))
        });
        Self {
            matcher,
            words,
            steps,
            covered: covered.collect(),
        }
    }

    /// Adds what is shadowed of this node to `found`.
    pub(super) fn examine(&self, node: NodeIndex, level: &Level, found: &mut Vec<Shadowed>) {
        let key = word(&level.key);
        let shadowed = |part| {
            move |by| Shadowed {
                node,
                part,
                by,
                with_others: false,
            }
        };
        match &*level.values {
            Values::Any => {
                let by = self.taken_by(node, &key, &[ANY_TEXT]);
                found.extend(by.map(shadowed(ShadowedPart::Level)));
            }
            Values::Text(value) => {
                let by = self.taken_by(node, &key, &word(value));
                found.extend(by.map(shadowed(ShadowedPart::AllButOwnText)));
            }
            Values::Regex(regex) => {
                let words = (self.words)(regex).unwrap_or_default();
                let taken = words.iter().map(|word| self.taken_by(node, &key, word));
                let taken: Option<Vec<_>> = taken.collect();
                found.extend(taken.and_then(|taken| whole_level(node, &taken)));
            }
            Values::List(values) => {
                let taken = values
                    .iter()
                    .map(|value| self.taken_by(node, &key, value.as_bytes()));
                add_items(node, &taken.collect::<Vec<_>>(), found);
            }
            Values::Prefixes(prefixes) => {
                let covered = self.covered.get(level.key.as_bytes());
                let taken = prefixes.iter().map(|prefix| {
                    let [low, high] = *covered?.get(prefix)?;
                    // Prefixes of the same level are only redundant.
                    [low, high].into_iter().find(|by| *by != node)
                });
                add_items(node, &taken.collect::<Vec<_>>(), found);
            }
        }
    }

    /// The node that takes everything that these words stand for from `node`.
    fn taken_by(&self, node: NodeIndex, key: &[u8], value: &[u8]) -> Option<NodeIndex> {
        let (kind, by) = self.matcher.find(&Entry { key, value }, self.steps)?;
        let takes_all = match kind {
            MatchKind::Regex if value.contains(&ANY_TEXT) => self.regex_takes(by, key, value),
            _ => true,
        };
        (by != node && takes_all && !self.steps.is_exhausted()).then_some(by)
    }

    /// Whether a regular expression matches everything that a word stands for. To it, the byte
    /// that stands for any text is a byte like others.
    fn regex_takes(&self, regex: NodeIndex, key: &[u8], word: &[u8]) -> bool {
        let values = self
            .matcher
            .keys
            .get(key)
            .and_then(|key| key.values.as_ref());
        let regexes = values.map(|values| values.patterns.regexes.as_slice());
        let mut regexes = regexes.unwrap_or_default().iter();
        let level = regexes
            .find(|other| other.node == regex)
            .map(|one| &one.level);
        let words = level.and_then(|level| match &*level.values {
            Values::Regex(regex) => (self.words)(regex),
            _ => None,
        });
        words.is_some_and(|words| {
            words.iter().any(|pattern| {
                self.steps.spend(pattern.len().saturating_add(word.len()));
                contains(pattern, word)
            })
        })
    }
}

/// The prefixes of which longer ones contain every address.
fn covered_prefixes(nodes: &HashMap<Prefix, NodeIndex>) -> CoveredPrefixes {
    let mut covered = HashMap::new();
    // The prefixes of which every address is in a prefix of the same length or longer.
    let mut contained: HashMap<Prefix, NodeIndex> = HashMap::new();
    let mut by_length: Vec<HashSet<Prefix>> = Vec::new();
    by_length.resize_with(LENGTHS, HashSet::new);
    for prefix in nodes.keys() {
        if let Some(same) = by_length.get_mut(usize::from(prefix.length())) {
            same.insert(*prefix);
        }
    }
    for length in (0..by_length.len()).rev() {
        let same = by_length.get_mut(length).map(std::mem::take);
        for prefix in same.unwrap_or_default() {
            let halves = prefix
                .halves()
                .and_then(|[low, high]| Some([*contained.get(&low)?, *contained.get(&high)?]));
            let own = nodes.get(&prefix).copied();
            if let (Some(halves), Some(_)) = (halves, own) {
                covered.insert(prefix, halves);
            }
            let Some(node) = own.or(halves.map(|[low, _]| low)) else {
                continue;
            };
            contained.insert(prefix, node);
            // The prefix that is one bit shorter may be contained too.
            let shorter = prefix.shorter();
            let same = shorter.and_then(|one| by_length.get_mut(usize::from(one.length())));
            if let (Some(same), Some(shorter)) = (same, shorter) {
                same.insert(shorter);
            }
        }
    }
    covered
}

/// The word of a text with `*`.
fn word(text: &str) -> Vec<u8> {
    let bytes = text.bytes();
    bytes
        .map(|byte| if byte == b'*' { ANY_TEXT } else { byte })
        .collect()
}

/// Whether one word contains everything that another stands for.
fn contains(pattern: &[u8], word: &[u8]) -> bool {
    let (mut rest, mut text) = (pattern, word);
    // Where to go on when the text does not fit: after the last star, one byte further.
    let mut retry = None;
    loop {
        match (rest.split_first(), text.split_first()) {
            (Some((&ANY_TEXT, after)), _) => {
                retry = Some((after, text));
                rest = after;
            }
            (None, None) => return true,
            (Some((byte, after)), Some((other, more))) if byte == other => {
                (rest, text) = (after, more);
            }
            _ => {
                let Some((after, [_, more @ ..])) = retry else {
                    return false;
                };
                retry = Some((after, more));
                (rest, text) = (after, more);
            }
        }
    }
}

/// Adds the items that are taken, or the whole level when all are.
fn add_items(node: NodeIndex, taken: &[Option<NodeIndex>], found: &mut Vec<Shadowed>) {
    let all: Option<Vec<_>> = taken.iter().copied().collect();
    if let Some(whole) = all.and_then(|taken| whole_level(node, &taken)) {
        found.push(whole);
        return;
    }
    let items = taken.iter().enumerate();
    found.extend(items.filter_map(|(index, by)| {
        Some(Shadowed {
            node,
            part: ShadowedPart::Item(index),
            by: (*by)?,
            with_others: false,
        })
    }));
}

/// A whole level of which these nodes take all values; none when there are no values.
fn whole_level(node: NodeIndex, taken: &[NodeIndex]) -> Option<Shadowed> {
    let by = *taken.first()?;
    Some(Shadowed {
        node,
        part: ShadowedPart::Level,
        by,
        with_others: taken.iter().any(|other| *other != by),
    })
}
