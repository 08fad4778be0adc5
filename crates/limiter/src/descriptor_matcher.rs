//! The nodes that may follow one node, and how an entry finds its own among them.
//!
//! How: exactly this key and value first, then a list that holds the value, then the longest prefix that holds the
//! address it spells, then the first pattern with stars that fits, in the order configured, then the first regular
//! expression that does, then the key's default. What an entry costs does not grow with the number of siblings: values
//! and lists are one hash look-up each, prefixes one for each *length* configured, and the patterns and expressions of
//! a key are one automaton (`pattern`), which reads the value once. Keys that hold a `*` themselves, which are rare,
//! have one more automaton over the keys, and each key that fits has its own over the values.
//!
//! The text of a pattern is an exact match of it, in keys and in values, as in the reference.
//!
//! What it deliberately does not do: compile patterns by itself, or know what a node holds.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::address::{Address, Prefix};
use super::descriptor::Entry;
use super::pattern::{Pattern, PatternCompiler, PatternError, PatternMatcher, StepBudget};
use super::rule::Level;
use super::values::Values;

/// The number of a node: nodes configured later have higher ones.
pub(super) type NodeIndex = usize;

/// What may follow one node, or what stands at the root of a domain.
#[derive(Clone, Debug, Default)]
pub(super) struct DescriptorMatcher {
    keys: HashMap<Vec<u8>, KeyMatcher>,
    wildcard_keys: Option<Box<WildcardKeys>>,
}

/// What is configured for one key, by its text. There may be a great many, so what few have is kept apart.
#[derive(Clone, Debug, Default)]
struct KeyMatcher {
    exact: HashMap<Vec<u8>, NodeIndex>,
    default: Option<NodeIndex>,
    values: Option<Box<ValueMatchers>>,
}

/// What few keys have.
#[derive(Clone, Debug, Default)]
struct ValueMatchers {
    listed: HashMap<Vec<u8>, NodeIndex>,
    prefixes: Prefixes,
    patterns: Automaton,
    /// The regular expressions among the patterns.
    regexes: HashSet<String>,
    /// The key's place among those with stars.
    wildcard_index: Option<usize>,
}

/// The keys that hold stars.
#[derive(Clone, Debug, Default)]
struct WildcardKeys {
    all: Vec<WildcardKey>,
    /// Over the keys, in the same order. None until compiled.
    keys: Option<Arc<dyn PatternMatcher>>,
}

/// A key that holds a star, and what is configured for the keys that fit.
#[derive(Clone, Debug)]
struct WildcardKey {
    key: String,
    any: Option<NodeIndex>,
    values: Automaton,
}

#[derive(Clone, Debug, Default)]
struct Prefixes {
    nodes: HashMap<Prefix, NodeIndex>,
    /// Lengths of version 4 and of version 6, each once, longest first.
    lengths: [Vec<u8>; 2],
}

/// Patterns with stars, then regular expressions, each in the order configured.
#[derive(Clone, Debug, Default)]
struct Automaton {
    wildcards: Vec<PatternNode>,
    regexes: Vec<PatternNode>,
    /// None until compiled, and when there are none.
    compiled: Option<Arc<dyn PatternMatcher>>,
}

#[derive(Clone, Debug)]
struct PatternNode {
    node: NodeIndex,
    level: Arc<Level>,
}

/// How an entry fits a node, in the order in which they count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MatchKind {
    /// Key and value are configured.
    Exact,
    /// A list holds the value.
    Listed,
    /// The address that the value spells lies in this prefix, the longest that holds it.
    Prefix(Prefix),
    /// A pattern with stars fits, the first that does.
    Wildcard,
    /// A regular expression matches the whole value, the first that does.
    Regex,
    /// The key is configured without a value.
    Default,
}

/// Why a node cannot be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AddNodeError {
    /// There is no such parent.
    NoParent,
    /// A sibling has this key and value, or this regular expression, or no value either.
    Duplicate,
    /// These items of the list, by their places, stand in a sibling's list too, or twice in this.
    DuplicateItems(Vec<usize>),
    /// Beside a key that holds a star there can be a value, and nothing else.
    WildcardKey,
}

// === impl AddError ===

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

// === impl Siblings ===

impl DescriptorMatcher {
    /// Adds a node. Patterns match only once they are compiled.
    pub(super) fn add(&mut self, level: &Arc<Level>, node: NodeIndex) -> Result<(), AddNodeError> {
        let of_key = self.keys.entry(level.key.as_bytes().to_vec()).or_default();
        let is_starred = level.key.contains('*');
        let configured = || PatternNode {
            node,
            level: Arc::clone(level),
        };
        match &*level.values {
            Values::Any if of_key.default.is_some() => return Err(AddNodeError::Duplicate),
            Values::Any => of_key.default = Some(node),
            Values::Text(value) => {
                match of_key.exact.entry(value.as_bytes().to_vec()) {
                    Slot::Occupied(_) => return Err(AddNodeError::Duplicate),
                    Slot::Vacant(slot) => slot.insert(node),
                };
                if value.contains('*') && !is_starred {
                    let patterns = &mut of_key.values.get_or_insert_default().patterns;
                    patterns.wildcards.push(configured());
                    patterns.compiled = None;
                }
            }
            Values::List(_) | Values::Prefixes(_) | Values::Regex(_) if is_starred => {
                return Err(AddNodeError::WildcardKey);
            }
            Values::List(values) => {
                let listed = &mut of_key.values.get_or_insert_default().listed;
                check_unique(values, |value| listed.contains_key(value.as_bytes()))?;
                let values = values.iter().map(|value| value.as_bytes().to_vec());
                listed.extend(values.map(|value| (value, node)));
            }
            Values::Prefixes(prefixes) => {
                let known = &mut of_key.values.get_or_insert_default().prefixes;
                check_unique(prefixes, |prefix| known.nodes.contains_key(prefix))?;
                for prefix in prefixes {
                    known.add(*prefix, node);
                }
            }
            Values::Regex(regex) => {
                let rare = of_key.values.get_or_insert_default();
                if !rare.regexes.insert(regex.clone()) {
                    return Err(AddNodeError::Duplicate);
                }
                rare.patterns.regexes.push(configured());
                rare.patterns.compiled = None;
            }
        }
        if is_starred {
            let starred = self.wildcard_keys.get_or_insert_default();
            let rare = of_key.values.get_or_insert_default();
            let place = *rare.wildcard_index.get_or_insert(starred.all.len());
            starred.add(place, configured());
        }
        Ok(())
    }

    /// Compiles what was added since the last time. Of patterns that cannot be compiled the first one's node is noted.
    pub(super) fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
        wrong: &mut Vec<(NodeIndex, PatternError)>,
    ) {
        let of_keys = self.keys.values_mut();
        let mut automata: Vec<_> = of_keys
            .filter_map(|of_key| Some(&mut of_key.values.as_mut()?.patterns))
            .chain(self.wildcard_keys.iter_mut().flat_map(|starred| {
                let values = starred.all.iter_mut();
                values.map(|starred| &mut starred.values)
            }))
            .filter(|automaton| automaton.compiled.is_none())
            .filter_map(|automaton| Some((automaton.first_node()?, automaton)))
            .collect();
        // In the order configured, so that the same files come to the same automata.
        automata.sort_unstable_by_key(|(node, _)| *node);
        for (node, automaton) in automata {
            let patterns: Vec<_> = automaton.patterns().collect();
            match compiler.compile(&patterns) {
                Ok(made) => automaton.compiled = Some(made),
                Err(error) => wrong.push((node, error)),
            }
        }
        if let Some(starred) = &mut self.wildcard_keys {
            starred.compile(compiler, wrong);
        }
    }

    /// The node that an entry finds.
    pub(super) fn find(
        &self,
        entry: &Entry<'_>,
        steps: &StepBudget,
    ) -> Option<(MatchKind, NodeIndex)> {
        let of_key = self.keys.get(entry.key);
        let rare = of_key.and_then(|of_key| of_key.values.as_deref());
        of_key
            .and_then(|of_key| of_key.exact(entry.value))
            .or_else(|| rare?.listed(entry.value))
            .or_else(|| rare?.prefixes.containing(entry.value).next())
            .or_else(|| self.matched(rare, entry, steps))
            .or_else(|| Some((MatchKind::Default, of_key?.default?)))
    }

    /// The first pattern that fits, or else the first regular expression.
    fn matched(
        &self,
        rare: Option<&ValueMatchers>,
        entry: &Entry<'_>,
        steps: &StepBudget,
    ) -> Option<(MatchKind, NodeIndex)> {
        let own = rare.and_then(|rare| rare.patterns.first(entry.value, steps));
        let starred = self.wildcard_keys.as_ref();
        match (own, starred.and_then(|starred| starred.first(entry, steps))) {
            (Some((MatchKind::Wildcard, own)), Some(starred)) => {
                Some((MatchKind::Wildcard, own.min(starred)))
            }
            (_, Some(starred)) => Some((MatchKind::Wildcard, starred)),
            (own, None) => own,
        }
    }

    /// Every node that fits an entry, in the order in which they count, each once: for people.
    pub(super) fn find_all(&self, entry: &Entry<'_>) -> Vec<(MatchKind, NodeIndex)> {
        let of_key = self.keys.get(entry.key);
        let rare = of_key.and_then(|of_key| of_key.values.as_deref());
        let mut all = Vec::new();
        all.extend(of_key.and_then(|of_key| of_key.exact(entry.value)));
        let mut matched = Vec::new();
        if let Some(rare) = rare {
            all.extend(rare.listed(entry.value));
            all.extend(rare.prefixes.containing(entry.value));
            rare.patterns
                .each(entry.value, &mut |how, node| matched.push((how, node)));
        }
        if let Some(starred) = &self.wildcard_keys {
            starred.each(entry, &mut |node| matched.push((MatchKind::Wildcard, node)));
        }
        matched.sort_unstable_by_key(|(how, node)| (*how == MatchKind::Regex, *node));
        all.extend(matched);
        all.extend(of_key.and_then(|of_key| Some((MatchKind::Default, of_key.default?))));
        let mut seen = HashSet::new();
        all.retain(|(_, node)| seen.insert(*node));
        all
    }

    /// What a caller could have sent here: values of this key, or else the keys there are, sorted.
    pub(super) fn suggestions(&self, key: &[u8]) -> Vec<String> {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let mut names: Vec<String> = match self.keys.get(key) {
            Some(of_key) => {
                let mut names: Vec<_> = of_key.exact.keys().map(text).collect();
                if let Some(rare) = &of_key.values {
                    names.extend(rare.listed.keys().map(text));
                    names.extend(rare.prefixes.nodes.keys().map(Prefix::to_string));
                    let regexes = rare.patterns.regexes.iter();
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

/// Says which items stand twice, among themselves or by what is there already.
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

/// The one configured earlier, where there are two.
fn earlier(one: Option<NodeIndex>, other: Option<NodeIndex>) -> Option<NodeIndex> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

// === impl OfKey ===

impl KeyMatcher {
    fn exact(&self, value: &[u8]) -> Option<(MatchKind, NodeIndex)> {
        Some((MatchKind::Exact, *self.exact.get(value)?))
    }
}

// === impl Rare ===

impl ValueMatchers {
    fn listed(&self, value: &[u8]) -> Option<(MatchKind, NodeIndex)> {
        Some((MatchKind::Listed, *self.listed.get(value)?))
    }
}

// === impl StarredKeys ===

impl WildcardKeys {
    fn add(&mut self, place: usize, configured: PatternNode) {
        if place == self.all.len() {
            self.all.push(WildcardKey {
                key: configured.level.key.clone(),
                any: None,
                values: Automaton::default(),
            });
            self.keys = None;
        }
        if let Some(starred) = self.all.get_mut(place) {
            if *configured.level.values == Values::Any {
                starred.any = Some(configured.node);
            } else {
                starred.values.wildcards.push(configured);
                starred.values.compiled = None;
            }
        }
    }

    fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
        wrong: &mut Vec<(NodeIndex, PatternError)>,
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
                Err(error) => wrong.push((first, error)),
            }
        }
    }

    /// Every key that fits.
    fn each_key<'k>(
        &'k self,
        key: &[u8],
        steps: &StepBudget,
        found: &mut dyn FnMut(&'k WildcardKey),
    ) {
        if let Some(keys) = &self.keys {
            keys.each_match(key, steps, &mut |place| {
                if let Some(starred) = self.all.get(place) {
                    found(starred);
                }
            });
        }
    }

    /// The first that fits.
    fn first(&self, entry: &Entry<'_>, steps: &StepBudget) -> Option<NodeIndex> {
        let mut first = None;
        self.each_key(entry.key, steps, &mut |starred| {
            first = earlier(first, starred.first(entry.value, steps));
        });
        first
    }

    /// Every node that fits.
    fn each(&self, entry: &Entry<'_>, found: &mut dyn FnMut(NodeIndex)) {
        self.each_key(entry.key, &StepBudget::unlimited(), &mut |starred| {
            if let Some(any) = starred.any {
                found(any);
            }
            starred.values.each(entry.value, &mut |_, node| found(node));
        });
    }
}

// === impl StarredKey ===

impl WildcardKey {
    fn first_node(&self) -> Option<NodeIndex> {
        earlier(self.any, self.values.first_node())
    }

    /// The first that fits, its key given.
    fn first(&self, value: &[u8], steps: &StepBudget) -> Option<NodeIndex> {
        let of_values = self.values.first(value, steps);
        earlier(self.any, of_values.map(|(_, node)| node))
    }
}

// === impl Prefixes ===

impl Prefixes {
    fn add(&mut self, prefix: Prefix, node: NodeIndex) {
        self.nodes.insert(prefix, node);
        let [v4, v6] = &mut self.lengths;
        let lengths = if prefix.is_v6() { v6 } else { v4 };
        if !lengths.contains(&prefix.length()) {
            lengths.push(prefix.length());
            lengths.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// The prefixes that hold the address a value spells, longest first.
    fn containing(&self, value: &[u8]) -> impl Iterator<Item = (MatchKind, NodeIndex)> {
        let [v4, v6] = &self.lengths;
        // Most keys have no prefixes, and then the value need not be read.
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

// === impl Automaton ===

impl Automaton {
    fn first_node(&self) -> Option<NodeIndex> {
        let first = |configured: &[PatternNode]| Some(configured.first()?.node);
        first(&self.wildcards).or_else(|| first(&self.regexes))
    }

    /// In the order in which they count.
    fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let all = self.wildcards.iter().chain(&self.regexes);
        all.filter_map(|configured| match &*configured.level.values {
            Values::Text(value) => Some(Pattern::Wildcard(value)),
            Values::Regex(regex) => Some(Pattern::Regex(regex)),
            // Nothing else is put here.
            Values::Any | Values::List(_) | Values::Prefixes(_) => None,
        })
    }

    fn at(&self, place: usize) -> Option<(MatchKind, NodeIndex)> {
        match place.checked_sub(self.wildcards.len()) {
            None => Some((MatchKind::Wildcard, self.wildcards.get(place)?.node)),
            Some(place) => Some((MatchKind::Regex, self.regexes.get(place)?.node)),
        }
    }

    fn first(&self, value: &[u8], steps: &StepBudget) -> Option<(MatchKind, NodeIndex)> {
        if steps.is_exhausted() {
            return None;
        }
        self.at(self.compiled.as_ref()?.first(value, steps)?)
    }

    fn each(&self, value: &[u8], found: &mut dyn FnMut(MatchKind, NodeIndex)) {
        if let Some(compiled) = &self.compiled {
            compiled.each_match(value, &StepBudget::unlimited(), &mut |place| {
                if let Some((how, node)) = self.at(place) {
                    found(how, node);
                }
            });
        }
    }
}
