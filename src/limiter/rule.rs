//! The configured tree, and how a descriptor finds its rule in it.
//!
//! How: one level of the tree per entry of the descriptor. At each level an exact key and value wins, then the
//! patterns of that level in the order configured, then the key's default. The branch taken is final, and only the
//! rule of the node that the *last* entry reaches applies: deeper or shallower ones do not. These are the reference
//! service's rules, but for one thing: keys and values are compared apart, never as joined text, so `a` + `b_c` and
//! `a_b` + `c` cannot meet.
//!
//! Why an arena of nodes: a pattern is reachable by its own text as well (an exact match of the pattern), and two ways
//! to one node want an index, not a box. Exact and default lookups cost two hash look-ups however many siblings
//! there are.
//!
//! What it deliberately does not do: read YAML (`config`), count (`store`), know metrics. A node without a rule is
//! how a value is let through: no limit applies to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::algorithm::Algorithm;
use super::descriptor::Entry;
use super::limit::Limit;

/// What a rule allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allowance {
    /// Never counted, always within.
    Unlimited,
    /// So many, counted that way.
    Limited {
        /// How many, in how long.
        limit: Limit,
        /// How they are counted.
        algorithm: &'static dyn Algorithm,
    },
}

/// One configured limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The domain it is configured in.
    pub domain: String,
    /// The key and value of each level, outermost first, as configured: an empty value stands for any. For people and
    /// labels; matching has its own tree.
    pub path: Vec<(String, String)>,
    /// The label by which other rules replace this one, and which goes out with its status. May be empty.
    pub name: String,
    /// What it allows.
    pub allowance: Allowance,
    /// Names of rules that this one replaces where both match one request.
    pub replaces: Vec<String>,
    /// Counted and measured, never enforced.
    pub shadow_mode: bool,
    /// Its position in [`RuleSet::rules`].
    pub index: usize,
}

/// Everything configured, for all domains. Never changed once in use: a reload makes a new one.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Vec<u8>, Level>,
    nodes: Vec<Node>,
    rules: Vec<Rule>,
}

/// Where a descriptor led.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Match<'r> {
    /// No rules at all for this domain.
    UnknownDomain,
    /// No rule applies.
    None,
    /// This one does.
    Rule(&'r Rule),
}

/// What may follow one node, or what stands at the root of a domain.
#[derive(Clone, Debug, Default)]
pub struct Level {
    keys: HashMap<Vec<u8>, Values>,
    patterns: Vec<(KeyValuePattern, NodeIndex)>,
}

#[derive(Clone, Debug, Default)]
struct Values {
    exact: HashMap<Vec<u8>, NodeIndex>,
    default: Option<NodeIndex>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    rule: Option<usize>,
    children: Level,
}

type NodeIndex = usize;

/// A key and value of which at least one holds a `*`. No value: any value.
#[derive(Clone, Debug)]
struct KeyValuePattern {
    key: Pattern,
    value: Option<Pattern>,
}

/// Text with any number of `*`, each standing for zero or more bytes.
#[derive(Clone, Debug)]
struct Pattern {
    /// What stands between the stars; at least one part, and exactly one when there is no star.
    parts: Vec<Vec<u8>>,
}

/// Where [`RuleSet::add_node`] puts a node.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'d> {
    /// At the root of this domain.
    Domain(&'d str),
    /// Below the node of this number.
    Node(usize),
}

// === impl Rule ===

impl Rule {
    /// `key` or `key_value` of each level, outermost first: what its metrics are labelled with.
    pub fn labels(&self) -> Vec<String> {
        self.path
            .iter()
            .map(|(key, value)| match value.as_str() {
                "" => key.clone(),
                value => format!("{key}_{value}"),
            })
            .collect()
    }

    /// Where it stands, for people: the domain and its labels, joined by dots.
    pub fn full_name(&self) -> String {
        let mut names = vec![self.domain.clone()];
        names.extend(self.labels());
        names.join(".")
    }
}

// === impl RuleSet ===

impl RuleSet {
    /// Makes a domain known, with no rules yet. Says whether it was new.
    pub fn add_domain(&mut self, domain: &str) -> bool {
        match self.domains.entry(domain.as_bytes().to_vec()) {
            Slot::Occupied(_) => false,
            Slot::Vacant(slot) => {
                slot.insert(Level::default());
                true
            }
        }
    }

    /// Adds a node that matches `key` and `value`; an empty value matches any that nothing else matches. Gives its
    /// number, or none when the parent does not exist or has a node alike.
    pub fn add_node(&mut self, parent: Parent<'_>, key: &str, value: &str) -> Option<usize> {
        let node = self.nodes.len();
        let level = match parent {
            Parent::Domain(domain) => self.domains.get_mut(domain.as_bytes())?,
            Parent::Node(parent) => &mut self.nodes.get_mut(parent)?.children,
        };
        level.add(key, value, node).then(|| {
            self.nodes.push(Node::default());
            node
        })
    }

    /// Gives a node its rule. `rule.index` is set here.
    pub fn set_rule(&mut self, node: usize, mut rule: Rule) {
        if let Some(node) = self.nodes.get_mut(node) {
            rule.index = self.rules.len();
            node.rule = Some(rule.index);
            self.rules.push(rule);
        }
    }

    /// Every rule, in the order added.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// How many domains are known.
    pub fn domain_count(&self) -> usize {
        self.domains.len()
    }

    /// Whether `domain` is known.
    pub fn knows(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(domain)
    }

    /// The rule for a descriptor.
    pub fn find(&self, domain: &[u8], entries: &[Entry<'_>]) -> Match<'_> {
        let Some(mut level) = self.domains.get(domain) else {
            return Match::UnknownDomain;
        };
        let mut reached = None;
        for entry in entries {
            let Some(node) = level.find(entry).and_then(|node| self.nodes.get(node)) else {
                return Match::None;
            };
            reached = Some(node);
            level = &node.children;
        }
        reached
            .and_then(|node| self.rules.get(node.rule?))
            .map_or(Match::None, Match::Rule)
    }
}

// === impl Level ===

impl Level {
    fn add(&mut self, key: &str, value: &str, node: NodeIndex) -> bool {
        let values = self.keys.entry(key.as_bytes().to_vec()).or_default();
        if value.is_empty() {
            if values.default.is_some() {
                return false;
            }
            values.default = Some(node);
        } else {
            match values.exact.entry(value.as_bytes().to_vec()) {
                Slot::Occupied(_) => return false,
                Slot::Vacant(slot) => slot.insert(node),
            };
        }
        if key.contains('*') || value.contains('*') {
            let pattern = KeyValuePattern {
                key: Pattern::new(key),
                value: (!value.is_empty()).then(|| Pattern::new(value)),
            };
            self.patterns.push((pattern, node));
        }
        true
    }

    fn find(&self, entry: &Entry<'_>) -> Option<NodeIndex> {
        let values = self.keys.get(entry.key);
        if let Some(node) = values.and_then(|values| values.exact.get(entry.value)) {
            return Some(*node);
        }
        if let Some((_, node)) = self
            .patterns
            .iter()
            .find(|(pattern, _)| pattern.matches(entry))
        {
            return Some(*node);
        }
        values.and_then(|values| values.default)
    }
}

// === impl KeyValuePattern ===

impl KeyValuePattern {
    fn matches(&self, entry: &Entry<'_>) -> bool {
        self.key.matches(entry.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| value.matches(entry.value))
    }
}

// === impl Pattern ===

impl Pattern {
    fn new(text: &str) -> Self {
        Self {
            parts: text
                .split('*')
                .map(|part| part.as_bytes().to_vec())
                .collect(),
        }
    }

    /// The first part must begin the text, the last end it, and the others stand between in order, without overlap.
    /// Taking each at its earliest place is enough, and linear but for the search itself.
    fn matches(&self, text: &[u8]) -> bool {
        let Some((first, rest)) = self.parts.split_first() else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return text == first.as_slice();
        };
        let Some(text) = text.strip_prefix(first.as_slice()) else {
            return false;
        };
        let Some(mut text) = text.strip_suffix(last.as_slice()) else {
            return false;
        };
        for part in middle {
            match after(text, part) {
                Some(rest) => text = rest,
                None => return false,
            }
        }
        true
    }
}

/// What follows the first `part` in `text`.
fn after<'t>(text: &'t [u8], part: &[u8]) -> Option<&'t [u8]> {
    if part.is_empty() {
        return Some(text);
    }
    let at = text.windows(part.len()).position(|window| window == part)?;
    text.get(at.saturating_add(part.len())..)
}
