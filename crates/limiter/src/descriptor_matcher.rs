//! Finds the child node that matches an entry.
//!
//! Precedence: exact key and value, then a list that holds the value, then the longest prefix that
//! contains the value's address, then the first wildcard pattern in the order configured, then the
//! first regular expression, then the key's default.
//!
//! The cost of an entry does not grow with the number of children. Values and lists are one hash
//! look-up each, prefixes one for each *length* configured. The patterns and expressions of a key
//! are one [`Automaton`], which reads the value once. Keys that hold a `*` are rare: they
//! have one automaton over the keys, and one each over its values.
//!
//! The text of a pattern is an exact match of itself, in keys and in values, as in the reference
//! service.
//!
//! What it deliberately does not do: compile patterns, or know what a node holds.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::address::{Address, Prefix};
use super::descriptor::Entry;
use super::pattern::{Pattern, PatternCompiler, PatternError, PatternMatcher, StepBudget};
use super::rule::Level;
use super::values::Values;

/// The children of one node, or the roots of a domain.
#[derive(Clone, Debug, Default)]
pub(super) struct DescriptorMatcher {
    pub(super) keys: HashMap<Vec<u8>, KeyMatcher>,
    pub(super) wildcard_keys: Option<Box<WildcardKeys>>,
}

/// What is configured for one key. There can be very many keys, so what few of them have is boxed.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyMatcher {
    pub(super) exact: HashMap<Vec<u8>, NodeIndex>,
    pub(super) default: Option<NodeIndex>,
    pub(super) values: Option<Box<ValueMatchers>>,
}

/// What few keys have: lists, prefixes, patterns.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueMatchers {
    pub(super) listed: HashMap<Vec<u8>, NodeIndex>,
    pub(super) prefixes: PrefixTable,
    pub(super) patterns: Automaton,
    /// The regular expressions among the patterns.
    regexes: HashSet<String>,
    /// The key's index among those with a `*`.
    wildcard_index: Option<usize>,
}

// === impl DescriptorMatcher ===

impl DescriptorMatcher {
    /// Adds a node. Its patterns match once they are compiled.
    pub(super) fn add(&mut self, level: &Arc<Level>, node: NodeIndex) -> Result<(), AddNodeError> {
        let key_matcher = self.keys.entry(level.key.as_bytes().to_vec()).or_default();
        let is_starred = level.key.contains('*');
        let configured = || PatternNode {
            node,
            level: Arc::clone(level),
        };
        match &*level.values {
            Values::Any if key_matcher.default.is_some() => return Err(AddNodeError::Duplicate),
            Values::Any => key_matcher.default = Some(node),
            Values::Text(value) => {
                match key_matcher.exact.entry(value.as_bytes().to_vec()) {
                    Slot::Occupied(_) => return Err(AddNodeError::Duplicate),
                    Slot::Vacant(slot) => slot.insert(node),
                };
                if value.contains('*') && !is_starred {
                    let patterns = &mut key_matcher.values.get_or_insert_default().patterns;
                    patterns.wildcards.push(configured());
                    patterns.compiled = None;
                }
            }
            Values::List(_) | Values::Prefixes(_) | Values::Regex(_) if is_starred => {
                return Err(AddNodeError::WildcardKey);
            }
            Values::List(values) => {
                let listed = &mut key_matcher.values.get_or_insert_default().listed;
                check_unique(values, |value| listed.contains_key(value.as_bytes()))?;
                let values = values.iter().map(|value| value.as_bytes().to_vec());
                listed.extend(values.map(|value| (value, node)));
            }
            Values::Prefixes(prefixes) => {
                let known = &mut key_matcher.values.get_or_insert_default().prefixes;
                check_unique(prefixes, |prefix| known.nodes.contains_key(prefix))?;
                for prefix in prefixes {
                    known.add(*prefix, node);
                }
            }
            Values::Regex(regex) => {
                let matchers = key_matcher.values.get_or_insert_default();
                if !matchers.regexes.insert(regex.clone()) {
                    return Err(AddNodeError::Duplicate);
                }
                matchers.patterns.regexes.push(configured());
                matchers.patterns.compiled = None;
            }
        }
        if is_starred {
            let wildcard = self.wildcard_keys.get_or_insert_default();
            let matchers = key_matcher.values.get_or_insert_default();
            let place = *matchers.wildcard_index.get_or_insert(wildcard.all.len());
            wildcard.add(place, configured());
        }
        Ok(())
    }

    /// Compiles what was added since the last time. On an error, records the first node of the
    /// patterns that failed.
    pub(super) fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
        errors: &mut Vec<(NodeIndex, PatternError)>,
    ) {
        let key_matchers = self.keys.values_mut();
        let mut automata: Vec<_> = key_matchers
            .filter_map(|key_matcher| Some(&mut key_matcher.values.as_mut()?.patterns))
            .chain(self.wildcard_keys.iter_mut().flat_map(|wildcard| {
                let values = wildcard.all.iter_mut();
                values.map(|wildcard| &mut wildcard.values)
            }))
            .filter(|automaton| automaton.compiled.is_none())
            .filter_map(|automaton| Some((automaton.first_node()?, automaton)))
            .collect();
        // In the order configured, so that the same files give the same automata.
        automata.sort_unstable_by_key(|(node, _)| *node);
        for (node, automaton) in automata {
            let patterns: Vec<_> = automaton.patterns().collect();
            match compiler.compile(&patterns) {
                Ok(made) => automaton.compiled = Some(made),
                Err(error) => errors.push((node, error)),
            }
        }
        if let Some(wildcard) = &mut self.wildcard_keys {
            wildcard.compile(compiler, errors);
        }
    }

    /// The node that matches an entry.
    pub(super) fn find(
        &self,
        entry: &Entry<'_>,
        steps: &StepBudget,
    ) -> Option<(MatchKind, NodeIndex)> {
        let key_matcher = get(&self.keys, entry.key);
        let matchers = key_matcher.and_then(|key_matcher| key_matcher.values.as_deref());
        key_matcher
            .and_then(|key_matcher| key_matcher.exact(entry.value))
            .or_else(|| matchers?.listed(entry.value))
            .or_else(|| matchers?.prefixes.containing(entry.value).next())
            .or_else(|| self.matched(matchers, entry, steps))
            .or_else(|| Some((MatchKind::Default, key_matcher?.default?)))
    }

    /// The first wildcard pattern that matches, or else the first regular expression.
    fn matched(
        &self,
        matchers: Option<&ValueMatchers>,
        entry: &Entry<'_>,
        steps: &StepBudget,
    ) -> Option<(MatchKind, NodeIndex)> {
        let own = matchers.and_then(|matchers| matchers.patterns.first(entry.value, steps));
        let wildcard = self.wildcard_keys.as_ref();
        match (
            own,
            wildcard.and_then(|wildcard| wildcard.first(entry, steps)),
        ) {
            (Some((MatchKind::Wildcard, own)), Some(wildcard)) => {
                Some((MatchKind::Wildcard, own.min(wildcard)))
            }
            (_, Some(wildcard)) => Some((MatchKind::Wildcard, wildcard)),
            (own, None) => own,
        }
    }

    /// Every node that matches an entry, in order of precedence, each once. For `explain`.
    pub(super) fn find_all(&self, entry: &Entry<'_>) -> Vec<(MatchKind, NodeIndex)> {
        let key_matcher = self.keys.get(entry.key);
        let matchers = key_matcher.and_then(|key_matcher| key_matcher.values.as_deref());
        let mut all = Vec::new();
        all.extend(key_matcher.and_then(|key_matcher| key_matcher.exact(entry.value)));
        let mut matched = Vec::new();
        if let Some(matchers) = matchers {
            all.extend(matchers.listed(entry.value));
            all.extend(matchers.prefixes.containing(entry.value));
            matchers
                .patterns
                .each(entry.value, &mut |kind, node| matched.push((kind, node)));
        }
        if let Some(wildcard) = &self.wildcard_keys {
            wildcard.each(entry, &mut |node| matched.push((MatchKind::Wildcard, node)));
        }
        matched.sort_unstable_by_key(|(kind, node)| (*kind == MatchKind::Regex, *node));
        all.extend(matched);
        all.extend(
            key_matcher.and_then(|key_matcher| Some((MatchKind::Default, key_matcher.default?))),
        );
        let mut seen = HashSet::new();
        all.retain(|(_, node)| seen.insert(*node));
        all
    }

    /// What a caller could send here: values of this key, or for an unknown key the known keys,
    /// sorted.
    pub(super) fn suggestions(&self, key: &[u8]) -> Vec<String> {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let mut names: Vec<String> = match self.keys.get(key) {
            Some(key_matcher) => {
                let mut names: Vec<_> = key_matcher.exact.keys().map(text).collect();
                if let Some(matchers) = &key_matcher.values {
                    names.extend(matchers.listed.keys().map(text));
                    names.extend(matchers.prefixes.nodes.keys().map(Prefix::to_string));
                    let regexes = matchers.patterns.regexes.iter();
                    names.extend(regexes.map(|one| one.level.values.text().to_owned()));
                }
                names
            }
            None => self.keys.keys().map(text).collect(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Reports the positions of items that occur twice or are known already.
fn check_unique<T: Eq + std::hash::Hash>(
    items: &[T],
    is_known: impl Fn(&T) -> bool,
) -> Result<(), AddNodeError> {
    let mut seen = HashSet::new();
    let mut alike = Vec::new();
    for (place, item) in items.iter().enumerate() {
        if !seen.insert(item) || is_known(item) {
            alike.push(place);
        }
    }
    if alike.is_empty() {
        Ok(())
    } else {
        Err(AddNodeError::DuplicateItems(alike))
    }
}

// === impl KeyMatcher ===

impl KeyMatcher {
    fn exact(&self, value: &[u8]) -> Option<(MatchKind, NodeIndex)> {
        Some((MatchKind::Exact, *self.exact.get(value)?))
    }
}

// === impl ValueMatchers ===

impl ValueMatchers {
    fn listed(&self, value: &[u8]) -> Option<(MatchKind, NodeIndex)> {
        Some((MatchKind::Listed, *self.listed.get(value)?))
    }
}

/// The value of a name. Most maps of domains and keys have one name, which is compared without a
/// hash.
#[inline]
pub(super) fn get<'m, V>(map: &'m HashMap<Vec<u8>, V>, name: &[u8]) -> Option<&'m V> {
    if map.len() != 1 {
        return get_of_several(map, name);
    }
    let (only, value) = map.iter().next()?;
    (only == name).then_some(value)
}

/// A function of its own, so that the search of one name is small enough to be inlined.
fn get_of_several<'m, V>(map: &'m HashMap<Vec<u8>, V>, name: &[u8]) -> Option<&'m V> {
    map.get(name)
}

/// The index of a node. Nodes configured later have higher ones.
pub(super) type NodeIndex = usize;

/// How an entry matches a node, in order of precedence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MatchKind {
    /// Key and value are configured.
    Exact,
    /// A list holds the value.
    Listed,
    /// The value is an address in this prefix, the longest that contains it.
    Prefix(Prefix),
    /// A wildcard pattern matches. The first one counts.
    Wildcard,
    /// A regular expression matches the whole value. The first one counts.
    Regex,
    /// The key is configured without a value.
    Default,
}

/// Why a node cannot be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AddNodeError {
    /// The parent does not exist.
    NoParent,
    /// A sibling has the same key and value, the same regular expression, or no value either.
    Duplicate,
    /// The list items at these positions are also in a sibling's list, or twice in this one.
    DuplicateItems(Vec<usize>),
    /// A key with a `*` can have a value, and no list, prefixes or regular expression.
    WildcardKey,
}

// === impl AddNodeError ===

impl fmt::Display for AddNodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoParent => "there is no such parent",
            Self::Duplicate => "a sibling is alike",
            Self::DuplicateItems(_) => "an item stands twice",
            Self::WildcardKey => "the key holds a star",
        })
    }
}

impl std::error::Error for AddNodeError {}

/// The prefixes configured for one key.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixTable {
    pub(super) nodes: HashMap<Prefix, NodeIndex>,
    /// The lengths of IPv4 and IPv6 prefixes, without duplicates, longest first.
    pub(super) lengths: [Vec<u8>; 2],
}

// === impl PrefixTable ===

impl PrefixTable {
    pub(super) fn add(&mut self, prefix: Prefix, node: NodeIndex) {
        self.nodes.insert(prefix, node);
        let [v4, v6] = &mut self.lengths;
        let lengths = if prefix.is_v6() { v6 } else { v4 };
        if !lengths.contains(&prefix.length()) {
            lengths.push(prefix.length());
            lengths.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// The nodes of the prefixes that contain the value's address, longest first.
    pub(super) fn containing(&self, value: &[u8]) -> impl Iterator<Item = (MatchKind, NodeIndex)> {
        let [v4, v6] = &self.lengths;
        // Most keys have no prefixes. Then the value is not parsed.
        let address = if self.nodes.is_empty() {
            None
        } else {
            Address::parse(value)
        };
        address.into_iter().flat_map(move |address| {
            let lengths = match address {
                Address::V4(_) => v4,
                Address::V6(_) => v6,
            };
            lengths.iter().filter_map(move |length| {
                let prefix = address.prefix(*length);
                Some((MatchKind::Prefix(prefix), *self.nodes.get(&prefix)?))
            })
        })
    }
}

/// Wildcard patterns, then regular expressions, each in the order configured.
#[derive(Clone, Debug, Default)]
pub(super) struct Automaton {
    pub(super) wildcards: Vec<PatternNode>,
    pub(super) regexes: Vec<PatternNode>,
    /// None until compiled, and when there are no patterns.
    pub(super) compiled: Option<Arc<dyn PatternMatcher>>,
}

#[derive(Clone, Debug)]
pub(super) struct PatternNode {
    pub(super) node: NodeIndex,
    pub(super) level: Arc<Level>,
}

// === impl Automaton ===

impl Automaton {
    pub(super) fn first_node(&self) -> Option<NodeIndex> {
        let first = |configured: &[PatternNode]| Some(configured.first()?.node);
        first(&self.wildcards).or_else(|| first(&self.regexes))
    }

    /// All patterns, in order of precedence.
    pub(super) fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let all = self.wildcards.iter().chain(&self.regexes);
        all.filter_map(|configured| match &*configured.level.values {
            Values::Text(value) => Some(Pattern::Wildcard(value)),
            Values::Regex(regex) => Some(Pattern::Regex(regex)),
            // Only text and regular expressions are added.
            Values::Any | Values::List(_) | Values::Prefixes(_) => None,
        })
    }

    pub(super) fn at(&self, place: usize) -> Option<(MatchKind, NodeIndex)> {
        match place.checked_sub(self.wildcards.len()) {
            None => Some((MatchKind::Wildcard, self.wildcards.get(place)?.node)),
            Some(place) => Some((MatchKind::Regex, self.regexes.get(place)?.node)),
        }
    }

    pub(super) fn first(&self, value: &[u8], steps: &StepBudget) -> Option<(MatchKind, NodeIndex)> {
        if steps.is_exhausted() {
            return None;
        }
        self.at(self.compiled.as_ref()?.first_match(value, steps)?)
    }

    pub(super) fn each(&self, value: &[u8], found: &mut dyn FnMut(MatchKind, NodeIndex)) {
        if let Some(compiled) = &self.compiled {
            compiled.each_match(value, &StepBudget::unlimited(), &mut |place| {
                if let Some((kind, node)) = self.at(place) {
                    found(kind, node);
                }
            });
        }
    }
}

/// The keys that hold a `*`.
#[derive(Clone, Debug, Default)]
pub(super) struct WildcardKeys {
    pub(super) all: Vec<WildcardKey>,
    /// Matches the keys, in the same order. None until compiled.
    pub(super) keys: Option<Arc<dyn PatternMatcher>>,
}

/// A key that holds a `*`, and what is configured for the keys that match.
#[derive(Clone, Debug)]
pub(super) struct WildcardKey {
    pub(super) key: String,
    pub(super) any: Option<NodeIndex>,
    pub(super) values: Automaton,
}

// === impl WildcardKeys ===

impl WildcardKeys {
    pub(super) fn add(&mut self, place: usize, configured: PatternNode) {
        if place == self.all.len() {
            self.all.push(WildcardKey {
                key: configured.level.key.clone(),
                any: None,
                values: Automaton::default(),
            });
            self.keys = None;
        }
        if let Some(wildcard) = self.all.get_mut(place) {
            if *configured.level.values == Values::Any {
                wildcard.any = Some(configured.node);
            } else {
                wildcard.values.wildcards.push(configured);
                wildcard.values.compiled = None;
            }
        }
    }

    pub(super) fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
        errors: &mut Vec<(NodeIndex, PatternError)>,
    ) {
        let first = self.all.first().and_then(WildcardKey::first_node);
        if let (Some(first), None) = (first, &self.keys) {
            let keys: Vec<_> = self
                .all
                .iter()
                .map(|one| Pattern::Wildcard(&one.key))
                .collect();
            match compiler.compile(&keys) {
                Ok(made) => self.keys = Some(made),
                Err(error) => errors.push((first, error)),
            }
        }
    }

    /// Calls `found` with every key that matches.
    pub(super) fn each_key<'k>(
        &'k self,
        key: &[u8],
        steps: &StepBudget,
        found: &mut dyn FnMut(&'k WildcardKey),
    ) {
        if let Some(keys) = &self.keys {
            keys.each_match(key, steps, &mut |place| {
                if let Some(wildcard) = self.all.get(place) {
                    found(wildcard);
                }
            });
        }
    }

    /// The first node that matches.
    pub(super) fn first(&self, entry: &Entry<'_>, steps: &StepBudget) -> Option<NodeIndex> {
        let mut first = None;
        self.each_key(entry.key, steps, &mut |wildcard| {
            first = earlier(first, wildcard.first(entry.value, steps));
        });
        first
    }

    /// Calls `found` with every node that matches.
    pub(super) fn each(&self, entry: &Entry<'_>, found: &mut dyn FnMut(NodeIndex)) {
        self.each_key(entry.key, &StepBudget::unlimited(), &mut |wildcard| {
            if let Some(any) = wildcard.any {
                found(any);
            }
            wildcard
                .values
                .each(entry.value, &mut |_, node| found(node));
        });
    }
}

// === impl WildcardKey ===

impl WildcardKey {
    pub(super) fn first_node(&self) -> Option<NodeIndex> {
        earlier(self.any, self.values.first_node())
    }

    /// The first node that matches the value, given that the key does.
    pub(super) fn first(&self, value: &[u8], steps: &StepBudget) -> Option<NodeIndex> {
        let by_value = self.values.first(value, steps);
        earlier(self.any, by_value.map(|(_, node)| node))
    }
}

/// The node configured earlier, of two.
fn earlier(one: Option<NodeIndex>, other: Option<NodeIndex>) -> Option<NodeIndex> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
