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

use super::descriptor::Entry;
use super::pattern::KeyValuePattern;
use super::rule::Rule;

/// Everything configured, for all domains. Never changed once in use: a reload makes a new one.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Vec<u8>, Siblings>,
    nodes: Vec<Node>,
    rules: Vec<Rule>,
}

/// Where a descriptor led.
#[derive(Clone, Copy, Debug, PartialEq)]
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
struct Siblings {
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
    children: Siblings,
}

type NodeIndex = usize;

/// How many names a [`Step`] lists.
const NAMES_SHOWN_MAX: usize = 10;

/// How an entry was matched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How<'r> {
    /// Key and value are configured.
    Exact,
    /// This pattern is configured, and is the first that fits.
    Pattern(&'r str),
    /// The key is configured without a value.
    Default,
}

/// One step of [`RuleSet::trace`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step<'r> {
    /// How this entry was matched; none when nothing fits.
    pub found: Option<How<'r>>,
    /// Values configured here for the entry's key, or, when the key is unknown, keys; some of them.
    pub instead: Vec<String>,
    /// Whether the level reached has a limit of its own.
    pub has_rule: bool,
}

/// Where [`RuleSet::add_node`] puts a node.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'d> {
    /// At the root of this domain.
    Domain(&'d str),
    /// Below the node of this number.
    Node(usize),
}

// === impl RuleSet ===

impl RuleSet {
    /// Makes a domain known, with no rules yet. Says whether it was new.
    pub fn add_domain(&mut self, domain: &str) -> bool {
        match self.domains.entry(domain.as_bytes().to_vec()) {
            Slot::Occupied(_) => false,
            Slot::Vacant(slot) => {
                slot.insert(Siblings::default());
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

    /// The names of the known domains, sorted.
    pub fn domains(&self) -> Vec<String> {
        let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
        let mut names: Vec<_> = self.domains.keys().map(text).collect();
        names.sort_unstable();
        names
    }

    /// Whether `domain` is known.
    pub fn knows(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(domain)
    }

    /// How a descriptor finds its rule, step by step: for people.
    pub fn trace<'r>(&'r self, domain: &[u8], entries: &[Entry<'_>]) -> Vec<Step<'r>> {
        let Some(mut siblings) = self.domains.get(domain) else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        for entry in entries {
            let found = siblings.find(entry);
            steps.push(Step {
                found: found.map(|(how, _)| how),
                instead: siblings.names(entry.key),
                has_rule: found.is_some_and(|(_, node)| {
                    self.nodes.get(node).is_some_and(|node| node.rule.is_some())
                }),
            });
            let Some(node) = found.and_then(|(_, node)| self.nodes.get(node)) else {
                break;
            };
            siblings = &node.children;
        }
        steps
    }

    /// The rule for a descriptor.
    pub fn find(&self, domain: &[u8], entries: &[Entry<'_>]) -> Match<'_> {
        let Some(mut level) = self.domains.get(domain) else {
            return Match::UnknownDomain;
        };
        let mut reached = None;
        for entry in entries {
            let found = level.find(entry);
            let Some(node) = found.and_then(|(_, node)| self.nodes.get(node)) else {
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

// === impl Siblings ===

impl Siblings {
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
        if let Some(pattern) = KeyValuePattern::new(key, value) {
            self.patterns.push((pattern, node));
        }
        true
    }

    fn find(&self, entry: &Entry<'_>) -> Option<(How<'_>, NodeIndex)> {
        let values = self.keys.get(entry.key);
        if let Some(node) = values.and_then(|values| values.exact.get(entry.value)) {
            return Some((How::Exact, *node));
        }
        let mut patterns = self.patterns.iter();
        if let Some((pattern, node)) = patterns.find(|(pattern, _)| pattern.matches(entry)) {
            return Some((How::Pattern(&pattern.text), *node));
        }
        let default = values.and_then(|values| values.default);
        default.map(|node| (How::Default, node))
    }

    /// What a caller could have sent here: values of this key, or else the keys there are; some of them, sorted.
    fn names(&self, key: &[u8]) -> Vec<String> {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let mut names: Vec<String> = match self.keys.get(key) {
            Some(values) => values.exact.keys().map(text).collect(),
            None => self.keys.keys().map(text).collect(),
        };
        names.sort_unstable();
        names.truncate(NAMES_SHOWN_MAX);
        names
    }
}
