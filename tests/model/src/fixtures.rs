//! Rule sets, requests and a store, each in one line, so that a test shows only its subject.
//!
//! How: a tree of rules is written as paths, a descriptor as a list of pairs, and the store is one
//! map from key to state. The hash of the keys is `std`'s, twice, and a `*` is tried at every
//! length.
//!
//! What it deliberately does not do: bound its map, expire a bucket, validate a rules file, match
//! regular expressions but text and [`LETTERS`] (a tree takes another compiler for them).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;

use tollgate_limiter::Parent;
use tollgate_limiter::algorithm::from_name;
use tollgate_limiter::{
    Allowance, Check, Code, Decision, Digest, Entry, Expiry, Hits, Key, KeyHasher, Level, Limit,
    Modes, OnExpiry, Outcome, Override, Pattern, PatternCompiler, PatternError, PatternMatcher,
    Plan, Request, ReserveAmount, ReserveRule, Rule, RuleSet, State, StepBudget, Timestamp, Unit,
};

/// Pairs of key and value, in order.
pub type Path<'p> = &'p [(&'p str, &'p str)];

/// Five minutes, and then the hits stay charged.
pub const EXPIRY: Expiry = Expiry {
    after_ms: NonZeroU32::new(300_000).unwrap(),
    on_expiry: OnExpiry::Charge,
};

/// A rule set under construction, whose nodes are found by their path.
pub struct Tree {
    pub rules: RuleSet,
    nodes: HashMap<Vec<(String, String)>, usize>,
    compiler: Box<dyn PatternCompiler>,
}

/// One or more letters. The regular expressions that [`Tree::new`] knows may end with it.
const LETTERS: &str = "[a-z]+";

/// Matches patterns one after the other.
#[derive(Debug)]
struct NaiveMatcher(Vec<NaivePattern>);

#[derive(Debug)]
enum NaivePattern {
    Wildcard(String),
    /// A regular expression: this text, and then letters if so.
    Text(String, bool),
}

/// Compiles a [`NaiveMatcher`].
struct NaiveCompiler;

/// The simplest store: keeps every bucket.
#[derive(Default)]
pub struct Buckets(pub HashMap<Key, State>);

/// Two runs of `std`'s hash with different prefixes.
pub struct TwoHashes;

pub struct TwoDigests(DefaultHasher, DefaultHasher);

/// One descriptor of a request.
pub struct Asked<'p> {
    pub path: Path<'p>,
    pub hits: Hits,
    pub limit: Option<Override>,
}

// === limits and instants ===

pub fn per(requests: u64, unit: Unit) -> Limit {
    Limit::per(requests, unit, NonZeroU32::MIN)
}

pub fn with_burst(requests: u64, unit: Unit, burst: u64) -> Limit {
    Limit::new(requests, unit, NonZeroU32::MIN, Some(burst)).unwrap()
}

pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

pub const SECOND_US: u64 = 1_000_000;

// === rules ===

/// A rule that counts `limit` by the algorithm of that name.
pub fn counted(limit: Limit, algorithm: &str) -> Rule {
    allowing(Allowance::Limited {
        limit,
        algorithm: from_name(algorithm).unwrap(),
    })
}

/// A rule with fixed windows, as in the reference service.
pub fn limited(requests: u64, unit: Unit) -> Rule {
    counted(per(requests, unit), "fixed_window")
}

pub fn unlimited() -> Rule {
    allowing(Allowance::Unlimited)
}

fn allowing(allowance: Allowance) -> Rule {
    Rule {
        allowance,
        ..Rule::new(Tree::DOMAIN, Vec::new())
    }
}

/// The same rule with a name that others can replace.
pub fn called(name: &str, rule: Rule) -> Rule {
    Rule {
        name: name.to_owned(),
        ..rule
    }
}

/// The same rule, replacing those named.
pub fn replacing(names: &[&str], rule: Rule) -> Rule {
    Rule {
        replaces: names.iter().map(|&name| name.to_owned()).collect(),
        ..rule
    }
}

/// The same rule with reservations of this amount under `id`.
pub fn reserving(amount: ReserveAmount, rule: Rule) -> Rule {
    Rule {
        holder_key: Some("id".to_owned()),
        reserve: Some(Box::new(ReserveRule {
            key: Some("id".to_owned()),
            amount: Some(amount),
            expiry: EXPIRY,
        })),
        ..rule
    }
}

/// The same rule in shadow mode.
pub fn shadow(rule: Rule) -> Rule {
    Rule {
        shadow_mode: true,
        ..rule
    }
}

/// The same rule in quota mode.
pub fn quota(rule: Rule) -> Rule {
    Rule {
        quota_mode: true,
        ..rule
    }
}

// === impl Tree ===

impl Tree {
    pub const DOMAIN: &'static str = "domain";

    /// An empty tree, for wildcard patterns, and regular expressions of text and letters.
    #[expect(
        clippy::new_without_default,
        reason = "a tree with a domain is not empty"
    )]
    pub fn new() -> Self {
        Self::compiled_by(NaiveCompiler)
    }

    /// An empty tree for all patterns that this compiler knows.
    pub fn compiled_by(compiler: impl PatternCompiler + 'static) -> Self {
        let mut rules = RuleSet::default();
        assert!(rules.add_domain(Self::DOMAIN));
        Self {
            rules,
            nodes: HashMap::new(),
            compiler: Box::new(compiler),
        }
    }

    /// Adds a rule at the end of `path`, and the nodes on the way.
    #[must_use]
    pub fn with(mut self, path: Path<'_>, rule: Rule) -> Self {
        let node = self.node(path);
        self.rules.set_rules(node, [rule]);
        self
    }

    /// Several limits on one descriptor.
    #[must_use]
    pub fn with_all<const N: usize>(mut self, path: Path<'_>, rules: [Rule; N]) -> Self {
        let node = self.node(path);
        self.rules.set_rules(node, rules);
        self
    }

    /// Adds a node without a rule, which lets everything pass that reaches it.
    #[must_use]
    pub fn with_bare(mut self, path: Path<'_>) -> Self {
        self.node(path);
        self
    }

    fn node(&mut self, path: Path<'_>) -> usize {
        let spelt: Vec<_> = path
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        if let Some(node) = self.nodes.get(&spelt) {
            return *node;
        }
        let (&(key, value), parents) = path.split_last().expect("a node has a key");
        let parent = if parents.is_empty() {
            Parent::Domain(Self::DOMAIN)
        } else {
            Parent::Node(self.node(parents))
        };
        let level = Level::new(key, value);
        let node = self.rules.add_node(parent, level).expect("no twin");
        self.rules.compile(&mut *self.compiler).expect("small");
        self.nodes.insert(spelt, node);
        node
    }

    /// Adds a rule at the end of levels of any kind.
    #[must_use]
    pub fn with_levels(mut self, levels: &[Level], rule: Rule) -> Self {
        let path: Vec<_> = levels.iter().cloned().map(Arc::new).collect();
        let mut parent = None;
        for level in &path {
            let below = parent.map_or(Parent::Domain(Self::DOMAIN), Parent::Node);
            let node = self.rules.add_node(below, Arc::clone(level));
            parent = Some(node.expect("no twin"));
        }
        let rule = Rule { path, ..rule };
        self.rules
            .set_rules(parent.expect("a node has a key"), [rule]);
        self.rules.compile(&mut *self.compiler).expect("small");
        self
    }
}

// === wildcard patterns ===

/// Whether the pattern matches, by trying every length for every `*`.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
        Some((letter, rest)) => text
            .split_first()
            .is_some_and(|(first, text)| first == letter && glob(rest, text)),
    }
}

impl PatternCompiler for NaiveCompiler {
    fn compile(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let known = |pattern: &Pattern<'_>| match *pattern {
            Pattern::Wildcard(text) => NaivePattern::Wildcard(text.to_owned()),
            Pattern::Regex(regex) => {
                let text = regex.strip_suffix(LETTERS).unwrap_or(regex);
                let special = ['.', '+', '*', '?', '(', '[', '|', '\\'];
                assert!(!text.contains(special), "{regex} is not known");
                NaivePattern::Text(text.to_owned(), text != regex)
            }
        };
        Ok(Arc::new(NaiveMatcher(patterns.iter().map(known).collect())))
    }
}

impl NaivePattern {
    fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Wildcard(pattern) => glob(pattern.as_bytes(), value),
            Self::Text(text, ends_with_letters) => {
                let rest = value.strip_prefix(text.as_bytes());
                rest.is_some_and(|rest| {
                    rest.is_empty() != *ends_with_letters && rest.iter().all(u8::is_ascii_lowercase)
                })
            }
        }
    }
}

impl PatternMatcher for NaiveMatcher {
    fn first_match(&self, text: &[u8], _: &StepBudget) -> Option<usize> {
        self.0.iter().position(|pattern| pattern.matches(text))
    }

    fn each_match(&self, text: &[u8], _: &StepBudget, found: &mut dyn FnMut(usize)) {
        for (place, pattern) in self.0.iter().enumerate() {
            if pattern.matches(text) {
                found(place);
            }
        }
    }
}

// === requests ===

/// These pairs as entries of a descriptor.
pub fn entries(path: Path<'_>) -> Vec<Entry<'_>> {
    path.iter()
        .map(|(key, value)| Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
        })
        .collect()
}

/// One descriptor that takes `hits`.
pub fn take(path: Path<'_>, hits: u64) -> Asked<'_> {
    Asked {
        path,
        hits: Hits::Take(hits),
        limit: None,
    }
}

/// One descriptor that carries a limit.
pub fn take_within(path: Path<'_>, hits: u64, limit: Override) -> Asked<'_> {
    Asked {
        limit: Some(limit),
        ..take(path, hits)
    }
}

/// A request in [`Tree::DOMAIN`].
pub fn request<'p>(asked: &[Asked<'p>]) -> Request<'p> {
    request_in(Tree::DOMAIN, asked)
}

pub fn request_in<'p>(domain: &'p str, asked: &[Asked<'p>]) -> Request<'p> {
    let mut request = Request::new(domain.as_bytes());
    for one in asked {
        request.push_descriptor(entries(one.path), one.hits, one.limit);
    }
    request
}

// === impl Buckets ===

impl Buckets {
    /// Applies each check, in order, as a store does.
    pub fn apply(&mut self, checks: &[Check], now: Timestamp) -> Vec<Outcome> {
        checks
            .iter()
            .map(|check| {
                let state = self.0.entry(check.key).or_default();
                state.apply(check.algorithm, &check.limit, check.operation, now)
            })
            .collect()
    }

    /// Runs a request from plan to decision.
    pub fn decide<'r>(
        &mut self,
        rules: &'r RuleSet,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<'r> {
        let plan = Plan::new(rules, request, &TwoHashes);
        let outcomes = self.apply(plan.checks(), now);
        conclude(&plan, &outcomes)
    }
}

/// The decision without service-wide modes.
pub fn conclude<'r>(plan: &Plan<'r>, outcomes: &[Outcome]) -> Decision<'r> {
    concluded(plan, outcomes, Modes::default())
}

/// The decision when every check has an outcome.
pub fn concluded<'r>(plan: &Plan<'r>, outcomes: &[Outcome], modes: Modes) -> Decision<'r> {
    let outcomes: Vec<_> = outcomes.iter().copied().map(Some).collect();
    plan.decide(&outcomes, Code::Ok, modes)
}

/// The decision when the store could not be asked.
pub fn conclude_unasked<'r>(plan: &Plan<'r>, code: Code) -> Decision<'r> {
    plan.decide(&[], code, Modes::default())
}

// === impl TwoHashes ===

impl KeyHasher for TwoHashes {
    type Digest = TwoDigests;

    fn start(&self) -> TwoDigests {
        let mut second = DefaultHasher::new();
        second.write_u8(2);
        TwoDigests(DefaultHasher::new(), second)
    }
}

impl Digest for TwoDigests {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }
}
