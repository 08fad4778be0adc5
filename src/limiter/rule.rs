//! One configured limit: where it stands, what it allows, how it is told from others.
//!
//! Why the place is kept: a rule's metrics, its bucket where values share one, and everything a person is told about it
//! follow from the levels that lead to it. Matching does not: the tree (`rule_set`) is made for that.
//!
//! What it deliberately does not do: find itself, count, read YAML.

use std::sync::Arc;

use super::algorithm::Algorithm;
use super::descriptor::Entry;
use super::limit::Limit;
use super::pattern::joined;

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

/// One level of the tree, as configured.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Level {
    /// The key, or a pattern for it.
    pub key: String,
    /// The value, or a pattern for it; empty stands for any value.
    pub value: String,
    /// All values that match the pattern share one bucket and one label: the pattern's.
    pub share_threshold: bool,
    /// The value as it came stands in the metric's label.
    pub value_to_metric: bool,
}

/// Free-form values that go back to the caller with a rule's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// Values by name, in the order written.
    Map(Vec<(String, Value)>),
}

/// One configured limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The domain it is configured in, shared with its neighbours.
    pub domain: Arc<str>,
    /// The levels that lead to it, outermost first, shared with its neighbours. Matching has its own tree.
    pub path: Vec<Arc<Level>>,
    /// The label by which other rules replace this one, and which goes out with its status. May be empty.
    pub name: String,
    /// What it allows.
    pub allowance: Allowance,
    /// Names of rules that this one replaces where both match one request.
    pub replaces: Vec<String>,
    /// Counted and measured, never enforced.
    pub shadow_mode: bool,
    /// One of several ways to pass: quotas refuse only when all of them do.
    pub quota_mode: bool,
    /// Its metric's labels hold every value as it came.
    pub detailed_metric: bool,
    /// What goes back to the caller when the descriptor passed; [`Value::Map`] or nothing.
    pub metadata: Option<Value>,
    /// Its position in its rule set.
    pub index: usize,
}

// === impl Level ===

impl Level {
    /// `key` or `key_value`, as configured.
    pub fn label(&self) -> String {
        joined(&self.key, &self.value)
    }
}

// === impl Rule ===

impl Rule {
    /// A rule at the end of `path` that says nothing yet.
    pub fn at(domain: impl Into<Arc<str>>, path: Vec<Arc<Level>>) -> Self {
        Self {
            domain: domain.into(),
            path,
            name: String::new(),
            allowance: Allowance::Unlimited,
            replaces: Vec::new(),
            shadow_mode: false,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
            index: 0,
        }
    }

    /// The label of each level, outermost first, as configured.
    pub fn labels(&self) -> Vec<String> {
        self.path.iter().map(|level| level.label()).collect()
    }

    /// Where it stands, for people: the domain and its labels, joined by dots.
    pub fn full_name(&self) -> String {
        let mut names = vec![self.domain.to_string()];
        names.extend(self.labels());
        names.join(".")
    }

    /// Whether its metric's labels depend on the request.
    pub fn has_request_labels(&self) -> bool {
        self.detailed_metric || self.path.iter().any(|level| self.label_has_value(level))
    }

    /// Whether a level's label holds the value as it came.
    pub fn label_has_value(&self, level: &Level) -> bool {
        (self.detailed_metric || level.value_to_metric) && !level.share_threshold
    }

    /// The labels of its metric for a descriptor that it matched.
    pub fn request_labels(&self, entries: &[Entry<'_>]) -> Vec<String> {
        let labels = self.path.iter().zip(entries).map(|(level, entry)| {
            if self.label_has_value(level) {
                entry.label()
            } else {
                level.label()
            }
        });
        labels.collect()
    }

    /// The value that stands for the one sent at this level in a bucket's identity, where all that match share one.
    pub fn shared_value(&self, level: usize) -> Option<&[u8]> {
        let level = self.path.get(level)?;
        level.share_threshold.then_some(level.value.as_bytes())
    }
}
