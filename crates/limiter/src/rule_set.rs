//! The configured tree of rules, and how a descriptor finds its rules in it.
//!
//! How: one level of the tree for each entry of the descriptor. At each level `descriptor_matcher`
//! finds the node: exact value first, then lists, prefixes, patterns, regular expressions, and the
//! key's default. The branch taken is final. Only the rule of the node that the *last* entry
//! reaches applies, not deeper or shallower ones. This is how the reference service matches, with
//! one difference: keys and values are compared separately, never as joined text, so `a` + `b_c`
//! and `a_b` + `c` cannot collide.
//!
//! A set is built node by node and then compiled once, which makes its patterns match.
//!
//! Why an arena of nodes: a pattern can be reached by its own text too (an exact match of the
//! pattern). Two paths to one node need an index, not a box.
//!
//! What it deliberately does not do: read YAML (`rules`), count (`store`), know metrics. A node
//! without a rule lets a value pass: no limit applies to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use super::descriptor::Entry;
pub use super::descriptor_matcher::{AddNodeError, MatchKind};
use super::descriptor_matcher::{DescriptorMatcher, NodeIndex, get};
use super::limit_table::{LimitTable, RuleLines, TableLine};
use super::overrides::{OverrideCounts, Overrides, RuleOverride, WithoutEffect};
use super::pattern::{MATCHING_STEPS_MAX, PatternCompiler, PatternError, StepBudget};
use super::reachability::ShadowSearch;
pub use super::reachability::{ANY_TEXT, RegexWords, Shadowed, ShadowedPart};
use super::rule::{Level, LimitFromRequest, Rule};
use super::values::Values;

/// The rules of all domains. Immutable once in use: a reload makes a new set.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Vec<u8>, Domain>,
    nodes: Vec<Node>,
    /// Those that are written, then those of overrides.
    rules: Vec<Rule>,
    /// How many of them are of overrides.
    overriding: usize,
}

/// What a descriptor matched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Match<'r> {
    /// The domain has no rules.
    UnknownDomain,
    /// No rule applies.
    None,
    /// These rules apply.
    Rules(MatchedRules<'r>),
}

/// The rules of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MatchedRules<'r> {
    /// One for each limit, in the order written.
    pub rules: &'r [Rule],
    /// How many of the descriptor's entries led there: all, or all but the last, which then names
    /// the holder of a slot.
    pub entries: usize,
    /// The line of a table that has the limit; there is one rule then.
    pub line: Option<TableLine>,
}

/// The rules of one domain, to match requests against.
#[derive(Clone, Copy, Debug)]
pub struct DomainRules<'r> {
    rules: &'r RuleSet,
    domain: &'r Domain,
}

/// The rules of one domain.
#[derive(Clone, Debug, Default)]
struct Domain {
    matcher: DescriptorMatcher,
    /// Whether a request takes from all its limits or from none; none when not configured.
    all_or_nothing: Option<bool>,
    /// The answer when the shared store does not decide; none when not configured.
    on_store_failure: Option<OnUndecided>,
    /// None while there are none.
    overrides: Option<Arc<Overrides>>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// As configured, for `explain`.
    level: Arc<Level>,
    domain: Arc<str>,
    /// The range of its rules in [`RuleSet::rules`].
    rules: Range<usize>,
    /// Limits by value, which come before its rules.
    by_value: Option<Box<LimitsByValue>>,
    children: DescriptorMatcher,
}

/// The table of a node.
#[derive(Clone, Debug)]
struct LimitsByValue {
    table: Arc<LimitTable>,
    /// The rules of each form, as indices.
    forms: Box<[Range<usize>]>,
}

/// How many suggestions and other matches a [`TraceStep`] lists.
const NAMES_SHOWN_MAX: usize = 10;

/// One step of [`RuleSet::trace`].
#[derive(Clone, Debug)]
pub struct TraceStep<'r> {
    /// How this entry matched, and which level; none when no level matches.
    pub matched: Option<(MatchKind, &'r Level)>,
    /// What else matches with lower precedence, in order of precedence, at most some.
    pub other_matches: Vec<(MatchKind, &'r Level)>,
    /// Values configured here for the entry's key or, for an unknown key, the known keys; at most
    /// some.
    pub suggestions: Vec<String>,
    /// Whether the level reached has a limit of its own.
    pub has_rule: bool,
    /// The table of the level reached, and the line of the entry's value; none without a table.
    pub in_table: Option<(&'r LimitTable, Option<TableLine>)>,
}

/// The parent of a node that [`RuleSet::add_node`] adds.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'d> {
    /// The root of this domain.
    Domain(&'d str),
    /// The node with this index.
    Node(usize),
}

// === impl RuleSet ===

impl RuleSet {
    /// Adds a domain without rules. Gives whether it is new.
    #[inline]
    pub fn add_domain(&mut self, domain: &str) -> bool {
        match self.domains.entry(domain.as_bytes().to_vec()) {
            Slot::Occupied(_) => false,
            Slot::Vacant(slot) => {
                slot.insert(Domain::default());
                true
            }
        }
    }

    /// Adds a node for a level of the tree. Gives its index.
    ///
    /// # Errors
    ///
    /// When the parent does not exist or has an equal child.
    pub fn add_node(
        &mut self,
        parent: Parent<'_>,
        level: impl Into<Arc<Level>>,
    ) -> Result<usize, AddNodeError> {
        let node = self.nodes.len();
        let (domain, matcher) = match parent {
            Parent::Domain(name) => {
                let domain = self.domains.get_mut(name.as_bytes());
                (name.into(), domain.map(|domain| &mut domain.matcher))
            }
            Parent::Node(parent) => match self.nodes.get_mut(parent) {
                Some(node) => (Arc::clone(&node.domain), Some(&mut node.children)),
                None => ("".into(), None),
            },
        };
        let level = level.into();
        matcher.ok_or(AddNodeError::NoParent)?.add(&level, node)?;
        self.nodes.push(Node {
            level,
            domain,
            ..Node::default()
        });
        Ok(node)
    }

    /// Compiles the patterns that were added since the last time. They do not match before.
    ///
    /// # Errors
    ///
    /// For each group of patterns that cannot be compiled, the index of its first node, and why.
    pub fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
    ) -> Result<(), Vec<(usize, PatternError)>> {
        let mut errors = Vec::new();
        // By name, so that the same files give the same automata.
        let mut domains: Vec<_> = self.domains.iter_mut().collect();
        domains.sort_unstable_by_key(|(name, _)| *name);
        for (_, domain) in domains {
            domain.matcher.compile(compiler, &mut errors);
        }
        for node in &mut self.nodes {
            node.children.compile(compiler, &mut errors);
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    /// Sets the rules of a node, and their `index` and `fingerprint`.
    #[inline]
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

    /// Sets the table of a node whose rules are set: `rules` has those of each form, in order.
    /// Values in the table have the limit of their line, others the rules of the node.
    pub fn set_limit_table(
        &mut self,
        node: usize,
        table: &Arc<LimitTable>,
        rules: impl IntoIterator<Item = Vec<Rule>>,
    ) {
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        let mut forms = Vec::new();
        for (form, rules) in rules.into_iter().enumerate() {
            let start = self.rules.len();
            for mut rule in rules {
                rule.lines = Some(Box::new(RuleLines {
                    table: Arc::clone(table),
                    form,
                    is_plan: rule.plan.is_some(),
                }));
                rule.index = self.rules.len();
                rule.fingerprint = rule.compute_fingerprint();
                self.rules.push(rule);
            }
            forms.push(start..self.rules.len());
        }
        node.by_value = Some(Box::new(LimitsByValue {
            table: Arc::clone(table),
            forms: forms.into(),
        }));
    }

    /// The tables of all nodes, in the order added.
    pub fn limit_tables(&self) -> impl Iterator<Item = &Arc<LimitTable>> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|node| Some(&node.by_value.as_ref()?.table))
    }

    /// The rules as they are written, in order, each with its table: a descriptor with a table is
    /// one rule, whatever limits its lines have.
    pub fn written_rules(&self) -> impl Iterator<Item = (&Rule, Option<&Arc<LimitTable>>)> {
        let level = |index: usize| self.rules.get(index).and_then(|rule| rule.path.last());
        let same_level = move |one: usize, other: usize| {
            let levels = level(one).zip(level(other));
            levels.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        self.rules()
            .iter()
            .enumerate()
            .filter_map(move |(index, rule)| {
                if let Some(lines) = &rule.lines {
                    let follows = index.checked_sub(1).is_some_and(|it| same_level(it, index));
                    return (!follows).then_some((rule, Some(&lines.table)));
                }
                let next = index.saturating_add(1);
                let lines = self.rules.get(next).and_then(|next| next.lines.as_ref());
                let lines = lines.filter(|_| same_level(index, next));
                Some((rule, lines.map(|lines| &lines.table)))
            })
    }

    /// The rules with only those limits that are candidates ([`Rule::candidate`]); none when no
    /// rule has one. Levels, names and modes are those of the rules.
    pub fn candidates(&self) -> Option<Self> {
        if self.rules.iter().all(|rule| rule.candidate.is_none()) {
            return None;
        }
        let mut set = self.clone();
        set.clear_overrides();
        set.rules.clear();
        for node in 0..set.nodes.len() {
            // No rule with a table has a candidate.
            if let Some(node) = set.nodes.get_mut(node) {
                node.by_value = None;
            }
            let live = self.nodes.get(node).map(|node| node.rules.clone());
            let live = live.and_then(|range| self.rules.get(range));
            set.set_rules(node, Rule::candidates(live.unwrap_or_default()));
        }
        Some(set)
    }

    /// Replaces the rule with this index by one of the same path. Gives whether there is one.
    pub fn replace_rule(&mut self, index: usize, mut rule: Rule) -> bool {
        rule.index = index;
        rule.fingerprint = rule.compute_fingerprint();
        let replaced = self.rules.get_mut(index);
        replaced.map(|replaced| *replaced = rule).is_some()
    }

    /// Moves the only rule of a level without values to the level above, which must have no rule.
    /// Descriptors reach it there with one entry more if that entry names the holder. Gives
    /// whether it could be moved.
    pub fn move_up(&mut self, index: usize) -> bool {
        let path = self.rules.get(index).map(|rule| rule.path.clone());
        let Some([.., above, last]) = path.as_deref() else {
            return false;
        };
        let rules = index..index.saturating_add(1);
        let position = |level: &Arc<Level>, rules: &Range<usize>| {
            let mut nodes = self.nodes.iter();
            nodes.position(|node| {
                Arc::ptr_eq(&node.level, level) && node.rules == *rules && node.by_value.is_none()
            })
        };
        let without_rules = |level: &Arc<Level>| {
            let mut nodes = self.nodes.iter();
            nodes.position(|node| Arc::ptr_eq(&node.level, level) && node.rules.is_empty())
        };
        let (Some(from), Some(to)) = (position(last, &rules), without_rules(above)) else {
            return false;
        };
        if !matches!(*last.values, Values::Any) {
            return false;
        }
        for (node, rules) in [(from, 0..0), (to, rules)] {
            if let Some(node) = self.nodes.get_mut(node) {
                node.rules = rules;
            }
        }
        let Some(rule) = self.rules.get_mut(index) else {
            return false;
        };
        rule.path.pop();
        rule.fingerprint = rule.compute_fingerprint();
        true
    }

    /// Sets what a request's limit is to the rules from this index on that have not set it.
    pub fn set_limit_from_request(&mut self, first: usize, default: LimitFromRequest) {
        for rule in self.rules.iter_mut().skip(first) {
            rule.limit_from_request.get_or_insert(default);
        }
    }

    /// Sets the shadow mode of the rule with this index. Gives whether there is one.
    #[inline]
    pub fn set_shadow_mode(&mut self, index: usize, shadow_mode: bool) -> bool {
        let rule = self.rules.get_mut(index);
        rule.map(|rule| rule.shadow_mode = shadow_mode).is_some()
    }

    /// Sets whether a request in this domain takes from all its limits or from none.
    #[inline]
    pub fn set_all_or_nothing(&mut self, domain: &str, whole: bool) {
        if let Some(domain) = self.domains.get_mut(domain.as_bytes()) {
            domain.all_or_nothing = Some(whole);
        }
    }

    /// Whether a request in this domain takes from all its limits or from none; none when its rules
    /// do not set it.
    #[inline]
    pub fn all_or_nothing(&self, domain: &[u8]) -> Option<bool> {
        self.domains.get(domain)?.all_or_nothing
    }

    /// Sets the answer to requests in this domain when the shared store does not decide.
    #[inline]
    pub fn set_on_store_failure(&mut self, domain: &str, on_store_failure: OnUndecided) {
        if let Some(domain) = self.domains.get_mut(domain.as_bytes()) {
            domain.on_store_failure = Some(on_store_failure);
        }
    }

    /// The answer to requests in this domain when the shared store does not decide; none when its
    /// rules do not set it.
    #[inline]
    pub fn on_store_failure(&self, domain: &[u8]) -> Option<OnUndecided> {
        self.domains.get(domain)?.on_store_failure
    }

    /// Every rule, in the order added. Those of overrides are not among them.
    #[inline]
    pub fn rules(&self) -> &[Rule] {
        let written = self.rules.len().saturating_sub(self.overriding);
        self.rules.get(..written).unwrap_or_default()
    }

    /// The rules of overrides.
    pub fn override_rules(&self) -> &[Rule] {
        let written = self.rules.len().saturating_sub(self.overriding);
        self.rules.get(written..).unwrap_or_default()
    }

    /// Every rule by its position, with those of overrides.
    #[inline]
    pub(super) fn all_rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Takes all overrides away.
    fn clear_overrides(&mut self) {
        self.rules
            .truncate(self.rules.len().saturating_sub(self.overriding));
        self.overriding = 0;
        for domain in self.domains.values_mut() {
            domain.overrides = None;
        }
    }

    /// Sets the overrides, in place of any before. Those without effect are left out.
    pub fn set_overrides<'o>(&mut self, overrides: impl IntoIterator<Item = RuleOverride<'o>>) {
        self.clear_overrides();
        let mut by_domain: HashMap<&[u8], Overrides> = HashMap::new();
        for one in overrides {
            let Ok((_, rules)) = self.rules_of_override(&one) else {
                continue;
            };
            let start = self.rules.len();
            for mut rule in rules {
                if let Some(overriding) = &mut rule.overriding {
                    overriding.position = self.rules.len();
                }
                rule.fingerprint = rule.compute_fingerprint();
                self.rules.push(rule);
                self.overriding = self.overriding.saturating_add(1);
            }
            let of_domain = by_domain.entry(one.domain).or_default();
            of_domain.add(&one.entries, start..self.rules.len());
        }
        for (name, overrides) in by_domain {
            if let Some(domain) = self.domains.get_mut(name) {
                domain.overrides = Some(Arc::new(overrides));
            }
        }
    }

    /// The rules that an override takes the place of.
    ///
    /// # Errors
    ///
    /// Why it has no effect.
    pub fn overridden_by(&self, one: &RuleOverride<'_>) -> Result<&[Rule], WithoutEffect> {
        let (met, _) = self.rules_of_override(one)?;
        Ok(self.rules.get(met).unwrap_or_default())
    }

    /// The positions of the rules that an override takes the place of, and its own rules.
    fn rules_of_override(
        &self,
        one: &RuleOverride<'_>,
    ) -> Result<(Range<usize>, Vec<Rule>), WithoutEffect> {
        let steps = StepBudget::new(MATCHING_STEPS_MAX);
        let domain = self.domain(one.domain);
        let domain = domain.ok_or(WithoutEffect::UnknownDomain)?;
        let matched = domain.find_written(&one.entries, &steps);
        let matched = matched.filter(|_| !steps.is_exhausted());
        let matched = matched.ok_or(WithoutEffect::NoRule)?;
        if matched.entries < one.entries.len() {
            return Err(WithoutEffect::NamesHolder);
        }
        let first = matched.rules.first().map_or(0, Rule::position);
        let met = first..first.saturating_add(matched.rules.len());
        Ok((met, one.effect.rules(matched.rules)?))
    }

    /// How many overrides take the place of the rules of each level.
    pub fn override_counts(&self) -> OverrideCounts {
        let domains = self.domains.values();
        let overrides = domains.filter_map(|domain| domain.overrides.as_ref());
        let first = overrides.flat_map(|overrides| overrides.first_rules());
        OverrideCounts::of(first.filter_map(|position| self.rules.get(position)))
    }

    /// The most limits that a descriptor has.
    pub fn descriptor_limits_max(&self) -> usize {
        let of_lines = |node: &Node| node.by_value.as_ref()?.forms.iter().map(Range::len).max();
        let limits = self.nodes.iter();
        let limits = limits.map(|node| node.rules.len().max(of_lines(node).unwrap_or_default()));
        let of_overrides = self.domains.values();
        let of_overrides = of_overrides.filter_map(|domain| domain.overrides.as_ref());
        let of_overrides = of_overrides.map(|overrides| overrides.limits_max());
        limits.chain(of_overrides).max().unwrap_or_default().max(1)
    }

    /// The number of known domains.
    #[inline]
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
    #[inline]
    pub fn has_domain(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(domain)
    }

    /// Traces how a descriptor finds its rule. For `explain`.
    pub fn trace<'r>(&'r self, domain: &[u8], entries: &[Entry<'_>]) -> Vec<TraceStep<'r>> {
        let Some(domain) = self.domains.get(domain) else {
            return Vec::new();
        };
        let mut matcher = &domain.matcher;
        let mut steps = Vec::new();
        for entry in entries {
            let mut fitting = matcher.find_all(entry).into_iter();
            let found = fitting.next();
            let level = |(kind, node): (MatchKind, NodeIndex)| {
                Some((kind, self.nodes.get(node)?.level.as_ref()))
            };
            let mut instead = matcher.suggestions(entry.key);
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
                in_table: found.and_then(|(_, node)| {
                    let table = &self.nodes.get(node)?.by_value.as_ref()?.table;
                    Some((table.as_ref(), table.find(entry.value)))
                }),
            });
            let Some(node) = found.and_then(|(_, node)| self.nodes.get(node)) else {
                break;
            };
            matcher = &node.children;
        }
        steps
    }

    /// The levels that no descriptor reaches, because siblings take their values; in order. There
    /// may be more than are found, and none once `steps` are exhausted.
    pub fn shadowed<'w>(&'w self, words: RegexWords<'w>, steps: &'w StepBudget) -> Vec<Shadowed> {
        let mut found = Vec::new();
        for matcher in self.matchers() {
            let nodes = matcher.shadowable();
            if nodes.is_empty() {
                continue;
            }
            let search = ShadowSearch::new(matcher, words, steps);
            for index in nodes {
                if let Some(node) = self.nodes.get(index) {
                    search.examine(index, &node.level, &mut found);
                }
            }
        }
        found.sort_by_key(|shadowed| shadowed.node);
        found
    }

    /// The nodes that change nothing: they have no limit and no level below, and no other level
    /// would match their values. In order; there may be more than are found.
    pub fn nodes_without_effect(&self) -> Vec<usize> {
        let mut found = Vec::new();
        for matcher in self.matchers() {
            found.extend(matcher.nodes_that_hide_nothing().filter(|index| {
                let node = self.nodes.get(*index);
                node.is_some_and(|node| {
                    node.rules.is_empty() && node.by_value.is_none() && node.children.is_empty()
                })
            }));
        }
        found.sort_unstable();
        found
    }

    /// The level of a node, as configured.
    pub fn level(&self, node: usize) -> Option<&Level> {
        Some(&self.nodes.get(node)?.level)
    }

    /// The levels of all domains, each with its domain, as configured.
    pub fn levels(&self) -> impl Iterator<Item = (&str, &Level)> {
        let nodes = self.nodes.iter();
        nodes.map(|node| (&*node.domain, &*node.level))
    }

    /// The matchers of all domains and nodes.
    fn matchers(&self) -> impl Iterator<Item = &DescriptorMatcher> {
        let roots = self.domains.values().map(|domain| &domain.matcher);
        let below = self.nodes.iter().map(|node| &node.children);
        roots.chain(below.filter(|matcher| !matcher.is_empty()))
    }

    /// The rules of a domain; none when it is unknown.
    #[inline]
    pub fn domain(&self, domain: &[u8]) -> Option<DomainRules<'_>> {
        let domain = get(&self.domains, domain)?;
        Some(DomainRules {
            rules: self,
            domain,
        })
    }

    /// The rules for a descriptor.
    #[inline]
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

// === impl MatchedRules ===

impl MatchedRules<'_> {
    /// The rules with the limit of the line, if there is one.
    pub fn as_applied(&self) -> Vec<Rule> {
        let mut rules = self.rules.to_vec();
        for rule in &mut rules {
            let lines = rule.lines.as_ref();
            if let Some(form) = lines.and_then(|lines| lines.table.form(self.line?))
                && form.plan.is_none()
            {
                rule.allowance = form.allowance;
            }
        }
        rules
    }
}

// === impl DomainRules ===

impl<'r> DomainRules<'r> {
    /// Whether a request takes from all its limits or from none; none when the rules do not set it.
    #[inline]
    pub fn all_or_nothing(&self) -> Option<bool> {
        self.domain.all_or_nothing
    }

    /// The answer when the shared store does not decide; none when the rules do not set it.
    #[inline]
    pub fn on_store_failure(&self) -> Option<OnUndecided> {
        self.domain.on_store_failure
    }

    /// Whether a level is configured for all these entries, with a limit or without one. Takes at
    /// most as many steps as the matching of a request.
    pub fn has_level(&self, entries: &[Entry<'_>]) -> bool {
        let steps = StepBudget::new(MATCHING_STEPS_MAX);
        let mut matcher = &self.domain.matcher;
        for entry in entries {
            let found = matcher.find(entry, &steps);
            let Some(node) = found.and_then(|(_, node)| self.rules.nodes.get(node)) else {
                return false;
            };
            matcher = &node.children;
        }
        !entries.is_empty()
    }

    /// The rules for a descriptor; none when no limit applies. The result is meaningless once
    /// `steps` are exhausted.
    #[inline]
    pub fn find(&self, entries: &[Entry<'_>], steps: &StepBudget) -> Option<MatchedRules<'r>> {
        let matched = self.find_written(entries, steps)?;
        match &self.domain.overrides {
            None => Some(matched),
            Some(overrides) => Some(self.overridden(overrides, matched, entries)),
        }
    }

    /// The rules of a descriptor's override, if it has one. A function of its own, so that the
    /// search without overrides stays small.
    #[inline(never)]
    fn overridden(
        &self,
        overrides: &Overrides,
        matched: MatchedRules<'r>,
        entries: &[Entry<'_>],
    ) -> MatchedRules<'r> {
        let entries = entries.get(..matched.entries).unwrap_or_default();
        let rules = overrides.find(entries);
        let rules = rules.and_then(|rules| self.rules.rules.get(rules));
        match rules {
            None => matched,
            Some(rules) => MatchedRules {
                rules,
                line: None,
                ..matched
            },
        }
    }

    /// The rules as written for a descriptor.
    #[inline]
    fn find_written(&self, entries: &[Entry<'_>], steps: &StepBudget) -> Option<MatchedRules<'r>> {
        let mut matcher = &self.domain.matcher;
        let mut reached: &[Rule] = &[];
        let mut line = None;
        for (level, entry) in entries.iter().enumerate() {
            let last = level.saturating_add(1) == entries.len();
            if last && reached.iter().any(|rule| rule.is_holder_entry(entry)) {
                return Some(MatchedRules {
                    rules: reached,
                    entries: level,
                    line,
                });
            }
            let (_, node) = matcher.find(entry, steps)?;
            let node = self.rules.nodes.get(node)?;
            let rules = self.rules.rules.get(node.rules.clone());
            reached = rules.unwrap_or_default();
            line = None;
            if let Some(by_value) = &node.by_value
                && let Some((rule, found)) = self.rule_of_value(by_value, entry.value)
            {
                (reached, line) = (rule, Some(found));
            }
            matcher = &node.children;
        }
        (!reached.is_empty()).then_some(MatchedRules {
            rules: reached,
            entries: entries.len(),
            line,
        })
    }

    /// The rules of a value that is in a table, and its line there. A function of its own, so that
    /// the search without tables stays small.
    #[inline(never)]
    fn rule_of_value(
        &self,
        by_value: &LimitsByValue,
        value: &[u8],
    ) -> Option<(&'r [Rule], TableLine)> {
        let line = by_value.table.find(value)?;
        let rules = by_value.forms.get(by_value.table.form_of(line))?;
        Some((self.rules.rules.get(rules.clone())?, line))
    }
}

crate::named! {
    /// The answer to a request that a store did not decide, or that exceeds a bound. Not every
    /// setting allows each. The rules of a domain can set it for the store that replicas share.
    pub enum OnUndecided {
        /// An error. The caller decides.
        Error = "error",
        /// The request passes.
        Allow = "allow",
        /// The request is refused.
        Deny = "deny",
        /// This replica decides alone, with each limit divided by the number of replicas.
        Local = "local",
    }
}

impl FromStr for OnUndecided {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| "use error, allow, deny or local".to_owned())
    }
}
