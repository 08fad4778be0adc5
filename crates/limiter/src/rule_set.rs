//! The configured tree, and how a descriptor finds its rule in it.
//!
//! How: one level of the tree per entry of the descriptor. At each level `descriptor_matcher` finds the node: exactly this value
//! wins, then lists, prefixes, patterns, regular expressions, and the key's default. The branch taken is final, and
//! only the rule of the node that the *last* entry reaches applies: deeper or shallower ones do not. These are the
//! reference service's rules, but for one thing: keys and values are compared apart, never as joined text, so `a` +
//! `b_c` and `a_b` + `c` cannot meet.
//!
//! A set is built node by node and then compiled, once, which makes its patterns match.
//!
//! Why an arena of nodes: a pattern is reachable by its own text as well (an exact match of the pattern), and two ways
//! to one node want an index, not a box.
//!
//! What it deliberately does not do: read YAML (`config`), count (`store`), know metrics. A node without a rule is
//! how a value is let through: no limit applies to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::ops::Range;
use std::sync::Arc;

use super::descriptor::Entry;
use super::descriptor_matcher::{DescriptorMatcher, NodeIndex};
use super::pattern::{PatternCompiler, PatternError, StepBudget};
use super::rule::{Level, Rule};
use super::store_failure::OnStoreFailure;

pub use super::descriptor_matcher::{AddNodeError, MatchKind};

/// Everything configured, for all domains. Never changed once in use: a reload makes a new one.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Vec<u8>, Domain>,
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
    /// These do.
    Rules(MatchedRules<'r>),
}

/// The rules of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MatchedRules<'r> {
    /// One a limit, in the order written.
    pub rules: &'r [Rule],
    /// How many of the descriptor's entries led there: all, or all but the last, which then says who holds a slot.
    pub entries: usize,
}

/// The rules of one domain, as requests see them.
#[derive(Clone, Copy, Debug)]
pub struct DomainRules<'r> {
    rules: &'r RuleSet,
    domain: &'r Domain,
}

/// The rules of one domain.
#[derive(Clone, Debug, Default)]
struct Domain {
    matcher: DescriptorMatcher,
    /// Whether a request takes from all its limits or from none; none when nothing is said.
    all_or_nothing: Option<bool>,
    /// What becomes of a request that the shared store did not decide; none when nothing is said.
    on_store_failure: Option<OnStoreFailure>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// As configured, for people.
    level: Arc<Level>,
    /// Where its rules stand among all.
    rules: Range<usize>,
    children: DescriptorMatcher,
}

/// How many names a [`TraceStep`] lists.
const NAMES_SHOWN_MAX: usize = 10;

/// One step of [`RuleSet::trace`].
#[derive(Clone, Debug, PartialEq)]
pub struct TraceStep<'r> {
    /// How this entry was matched, and by which level; none when nothing fits.
    pub matched: Option<(MatchKind, &'r Level)>,
    /// What would fit too but counts for less, some of it, first what would be next.
    pub other_matches: Vec<(MatchKind, &'r Level)>,
    /// Values configured here for the entry's key, or, when the key is unknown, keys; some of them.
    pub suggestions: Vec<String>,
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
                slot.insert(Domain::default());
                true
            }
        }
    }

    /// Adds a node for a level of the tree. Gives its number.
    ///
    /// # Errors
    ///
    /// When the parent does not exist or has a node alike.
    pub fn add_node(
        &mut self,
        parent: Parent<'_>,
        level: impl Into<Arc<Level>>,
    ) -> Result<usize, AddNodeError> {
        let node = self.nodes.len();
        let siblings = match parent {
            Parent::Domain(domain) => self
                .domains
                .get_mut(domain.as_bytes())
                .map(|domain| &mut domain.matcher),
            Parent::Node(parent) => self.nodes.get_mut(parent).map(|node| &mut node.children),
        };
        let level = level.into();
        siblings.ok_or(AddNodeError::NoParent)?.add(&level, node)?;
        self.nodes.push(Node {
            level,
            ..Node::default()
        });
        Ok(node)
    }

    /// Makes patterns match: those added since the last time. Until then they do not.
    ///
    /// # Errors
    ///
    /// Of patterns that cannot be compiled together, the number of the first one's node, and why.
    pub fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
    ) -> Result<(), Vec<(usize, PatternError)>> {
        let mut wrong = Vec::new();
        // By name, so that the same files come to the same automata.
        let mut domains: Vec<_> = self.domains.iter_mut().collect();
        domains.sort_unstable_by_key(|(name, _)| *name);
        for (_, domain) in domains {
            domain.matcher.compile(compiler, &mut wrong);
        }
        for node in &mut self.nodes {
            node.children.compile(compiler, &mut wrong);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Gives a node its rules. `index` and `source` are set here.
    pub fn set_rules(&mut self, node: usize, rules: impl IntoIterator<Item = Rule>) {
        if let Some(node) = self.nodes.get_mut(node) {
            let start = self.rules.len();
            for mut rule in rules {
                rule.index = self.rules.len();
                rule.fingerprint = rule.compute_fingerprint();
                self.rules.push(rule);
            }
            node.rules = start..self.rules.len();
        }
    }

    /// Says whether from now on a request in this domain takes from all its limits or from none.
    pub fn set_all_or_nothing(&mut self, domain: &str, whole: bool) {
        if let Some(domain) = self.domains.get_mut(domain.as_bytes()) {
            domain.all_or_nothing = Some(whole);
        }
    }

    /// Whether a request in this domain takes from all its limits or from none; none when its rules do not say.
    pub fn all_or_nothing(&self, domain: &[u8]) -> Option<bool> {
        self.domains.get(domain)?.all_or_nothing
    }

    /// Says what from now on becomes of a request in this domain that the shared store did not decide.
    pub fn set_on_store_failure(&mut self, domain: &str, on_store_failure: OnStoreFailure) {
        if let Some(domain) = self.domains.get_mut(domain.as_bytes()) {
            domain.on_store_failure = Some(on_store_failure);
        }
    }

    /// What becomes of a request in this domain that the shared store did not decide; none when its rules do not say.
    pub fn on_store_failure(&self, domain: &[u8]) -> Option<OnStoreFailure> {
        self.domains.get(domain)?.on_store_failure
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
    pub fn has_domain(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(domain)
    }

    /// How a descriptor finds its rule, step by step: for people.
    pub fn trace<'r>(&'r self, domain: &[u8], entries: &[Entry<'_>]) -> Vec<TraceStep<'r>> {
        let Some(domain) = self.domains.get(domain) else {
            return Vec::new();
        };
        let mut siblings = &domain.matcher;
        let mut steps = Vec::new();
        for entry in entries {
            let mut fitting = siblings.find_all(entry).into_iter();
            let found = fitting.next();
            let level = |(how, node): (MatchKind, NodeIndex)| {
                Some((how, self.nodes.get(node)?.level.as_ref()))
            };
            let mut instead = siblings.suggestions(entry.key);
            instead.truncate(NAMES_SHOWN_MAX);
            steps.push(TraceStep {
                matched: found.and_then(level),
                other_matches: fitting.take(NAMES_SHOWN_MAX).filter_map(level).collect(),
                suggestions: instead,
                has_rule: found.is_some_and(|(_, node)| {
                    self.nodes
                        .get(node)
                        .is_some_and(|node| !node.rules.is_empty())
                }),
            });
            let Some(node) = found.and_then(|(_, node)| self.nodes.get(node)) else {
                break;
            };
            siblings = &node.children;
        }
        steps
    }

    /// The rules of a domain; none when there are none.
    pub fn domain(&self, domain: &[u8]) -> Option<DomainRules<'_>> {
        let domain = self.domains.get(domain)?;
        Some(DomainRules {
            rules: self,
            domain,
        })
    }

    /// The rules for a descriptor.
    pub fn find(&self, domain: &[u8], entries: &[Entry<'_>]) -> Match<'_> {
        let steps = StepBudget::unlimited();
        let domain = self.domain(domain);
        match domain.map(|domain| domain.find(entries, &steps)) {
            None => Match::UnknownDomain,
            Some(None) => Match::None,
            Some(Some(matched)) => Match::Rules(matched),
        }
    }
}

// === impl DomainRules ===

impl<'r> DomainRules<'r> {
    /// Whether a request here takes from all its limits or from none; none when the rules do not say.
    pub fn all_or_nothing(&self) -> Option<bool> {
        self.domain.all_or_nothing
    }

    /// What becomes of a request here that the shared store did not decide; none when the rules do not say.
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.domain.on_store_failure
    }

    /// The rules for a descriptor; none when no limit applies. Once `steps` are used up what it
    /// says means nothing.
    pub fn find(&self, entries: &[Entry<'_>], steps: &StepBudget) -> Option<MatchedRules<'r>> {
        let mut siblings = &self.domain.matcher;
        let mut reached: &[Rule] = &[];
        for (level, entry) in entries.iter().enumerate() {
            let last = level.saturating_add(1) == entries.len();
            if last && reached.iter().any(|rule| rule.is_holder_entry(entry)) {
                return Some(MatchedRules {
                    rules: reached,
                    entries: level,
                });
            }
            let (_, node) = siblings.find(entry, steps)?;
            let node = self.rules.nodes.get(node)?;
            let rules = self.rules.rules.get(node.rules.clone());
            reached = rules.unwrap_or_default();
            siblings = &node.children;
        }
        (!reached.is_empty()).then_some(MatchedRules {
            rules: reached,
            entries: entries.len(),
        })
    }
}
