//! One configured limit: where it stands, what it allows, how it is told from others.
//!
//! Why the place is kept: a rule's metrics, its bucket where values share one, and everything a person is told about it
//! follow from the levels that lead to it. Matching does not: the tree (`rule_set`) is made for that.
//!
//! What it deliberately does not do: find itself, count, read YAML.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::address::{Address, Prefix};
use super::algorithm::Algorithm;
use super::calendar::Calendar;
use super::descriptor::Entry;
use super::limit::Limit;
use super::values::{LevelValues, Values};

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
    /// The values.
    pub values: LevelValues,
    /// How many bits of an IPv6 address tell its bucket from others. Values that are no address are left as they are.
    pub ipv6_prefix: Option<u8>,
    /// All values that match a pattern, list, prefix or regular expression share one bucket and one label: the level's.
    pub share_threshold: bool,
    /// The value as it came stands in the metric's label.
    pub value_to_metric: bool,
}

/// What a value counts as: what stands for it in a bucket's identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IdentityValue<'v> {
    /// This text: the value as it came, or a pattern that many values share.
    Text(&'v [u8]),
    /// This address, or all of this prefix, however spelled.
    Address(Prefix),
    /// All values of the level together.
    All(&'v LevelValues),
}

/// What the caller's caller sees when this limit refuses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OverLimitResponse {
    /// The body of the answer; empty for none.
    pub body: Template,
    /// Headers of the answer, in the order written.
    pub headers: Vec<(String, Template)>,
}

/// Text with gaps that each answer fills.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(String),
    Placeholder(Placeholder),
}

/// What fills a gap.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Placeholder {
    /// How many may pass.
    Limit,
    /// In how long, in words.
    Window,
    /// When to try again.
    RetryAfterSeconds,
}

/// Free-form values that go back to the caller with a rule's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// Nothing.
    Null,
    /// True or false.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<MetadataValue>),
    /// Values by name, in the order written.
    Map(Vec<(String, MetadataValue)>),
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
    /// The key of the entry that says who holds a slot.
    pub holder_key: Option<String>,
    /// Names of rules that this one replaces where both match one request.
    pub replaces: Vec<String>,
    /// Counted and measured, never enforced.
    pub shadow_mode: bool,
    /// One of several ways to pass: quotas refuse only when all of them do.
    pub quota_mode: bool,
    /// Its metric's labels hold every value as it came.
    pub detailed_metric: bool,
    /// What goes back to the caller when the descriptor passed; [`Value::Map`] or nothing.
    pub metadata: Option<MetadataValue>,
    /// What the caller's caller sees on a refusal, shared with the other limits of the descriptor.
    pub over_limit: Option<Arc<OverLimitResponse>>,
    /// Its position in its rule set.
    pub index: usize,
    /// Tells it from other rules, also those of other rule sets: what stands where it stood and counts alike has the same.
    pub fingerprint: u64,
}

// === impl Level ===

impl Level {
    /// A level of the reference's grammar: an empty value stands for any.
    pub fn new(key: &str, value: &str) -> Self {
        Self {
            key: key.to_owned(),
            values: Values::from_text(value).into(),
            ..Self::default()
        }
    }

    /// `key` or `key_value`, as configured.
    pub fn label(&self) -> String {
        let values = self.values.text();
        if values.is_empty() {
            self.key.clone()
        } else {
            format!("{}_{values}", self.key)
        }
    }

    /// What a value that came to this level counts as.
    pub fn identity_value<'v>(&'v self, value: &'v [u8]) -> IdentityValue<'v> {
        match &*self.values {
            Values::Any if self.share_threshold => IdentityValue::Text(b""),
            Values::Text(text) if self.share_threshold => IdentityValue::Text(text.as_bytes()),
            _ if self.share_threshold => IdentityValue::All(&self.values),
            Values::Prefixes(_) => self.address(value),
            _ if self.ipv6_prefix.is_some() => self.address(value),
            _ => IdentityValue::Text(value),
        }
    }

    /// Appends the pattern that stands for all values in the reference's name of a counter: key and value of the pattern joined
    /// by `_`, without the key that was sent if they begin with it. So where the key itself is a pattern, that is part of it.
    fn push_reference_pattern(&self, key: &[u8], name: &mut Vec<u8>) -> Option<()> {
        let start = name.len();
        name.extend_from_slice(self.key.as_bytes());
        match &*self.values {
            Values::Text(value) => {
                name.push(b'_');
                name.extend_from_slice(value.as_bytes());
            }
            Values::Any if self.key.contains('*') => {}
            Values::Any | Values::List(_) | Values::Prefixes(_) | Values::Regex(_) => return None,
        }
        let pattern = name.get(start..).unwrap_or_default();
        let begins_with_key = pattern
            .strip_prefix(key)
            .is_some_and(|rest| rest.starts_with(b"_"));
        if begins_with_key {
            name.drain(start..start.saturating_add(key.len()).saturating_add(1));
        }
        Some(())
    }

    fn address<'v>(&self, value: &'v [u8]) -> IdentityValue<'v> {
        match Address::parse(value) {
            Some(address) => IdentityValue::Address(address.bucket_prefix(self.ipv6_prefix)),
            None => IdentityValue::Text(value),
        }
    }
}

// === impl Gap ===

impl Placeholder {
    /// Every gap.
    pub const ALL: [Self; 3] = [Self::Limit, Self::Window, Self::RetryAfterSeconds];

    /// How it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "{limit}",
            Self::Window => "{window}",
            Self::RetryAfterSeconds => "{retry_after_seconds}",
        }
    }
}

// === impl Template ===

impl Template {
    /// Reads text with gaps. Other braces are text: a body may well be JSON.
    pub fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let gaps = Placeholder::ALL.iter().filter_map(|gap| {
                let written = gap.as_str();
                let at = rest.find(written)?;
                Some((at, *gap, at.saturating_add(written.len())))
            });
            let next = gaps.min_by_key(|(at, ..)| *at);
            let until = next.map_or(rest.len(), |(at, ..)| at);
            match rest.get(..until) {
                Some("") | None => {}
                Some(text) => parts.push(Part::Text(text.to_owned())),
            }
            let Some((_, gap, after)) = next else {
                return Self { parts };
            };
            parts.push(Part::Placeholder(gap));
            rest = rest.get(after..).unwrap_or_default();
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The text, each gap filled.
    pub fn render(&self, filling: impl Fn(Placeholder) -> String) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Placeholder(gap) => text.push_str(&filling(*gap)),
            }
        }
        text
    }
}

// === impl Rule ===

impl Rule {
    /// A rule at the end of `path` that says nothing yet.
    pub fn new(domain: impl Into<Arc<str>>, path: Vec<Arc<Level>>) -> Self {
        Self {
            domain: domain.into(),
            path,
            name: String::new(),
            allowance: Allowance::Unlimited,
            holder_key: None,
            replaces: Vec::new(),
            shadow_mode: false,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
            over_limit: None,
            index: 0,
            fingerprint: 0,
        }
    }

    /// The number that is to be its `source`, made of domain, path, name, algorithm and window. Costs a hash: once, when
    /// rules are read. Its secret is known, for all this comes from the operator.
    pub(super) fn compute_fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.domain, self.labels(), &self.name).hash(&mut hasher);
        if let Allowance::Limited { limit, algorithm } = &self.allowance {
            (algorithm.name(), limit.window().as_us()).hash(&mut hasher);
            limit.calendar().map(Calendar::name).hash(&mut hasher);
        }
        hasher.finish()
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
        let keeps_underscore = self.empty_values_keep_underscore(entries);
        let labels = self.path.iter().zip(entries).map(|(level, entry)| {
            if self.label_has_value(level) {
                let mut label = entry.label();
                if keeps_underscore && entry.value.is_empty() {
                    label.push('_');
                }
                label
            } else {
                level.label()
            }
        });
        labels.collect()
    }

    /// Whether an empty value is `key_` in the metric's labels, not `key`. The reference service writes `key_` for
    /// `detailed_metric`, except where a level of the rule shares its threshold. A value that is the pattern's own text counts
    /// there as named by the rule, and shares nothing.
    pub fn empty_values_keep_underscore(&self, entries: &[Entry<'_>]) -> bool {
        let mut levels = self.path.iter().zip(entries);
        self.detailed_metric
            && !levels.any(|(level, entry)| {
                level.share_threshold && entry.value != level.values.text().as_bytes()
            })
    }

    /// Whether this entry says who holds a slot.
    pub fn is_holder_entry(&self, entry: &Entry<'_>) -> bool {
        let key = self.holder_key.as_ref();
        key.is_some_and(|key| key.as_bytes() == entry.key)
    }

    /// What a value that came to a level counts as.
    pub fn identity_value<'v>(&'v self, level: usize, value: &'v [u8]) -> IdentityValue<'v> {
        let level = self.path.get(level);
        level.map_or(IdentityValue::Text(value), |level| {
            level.identity_value(value)
        })
    }

    /// Appends the value of an entry as it appears in the name that Envoy's reference service gives to a counter: the value as
    /// sent or, with `share_threshold`, the pattern. None where that service has no such level.
    pub fn push_reference_value(
        &self,
        level: usize,
        entry: &Entry<'_>,
        name: &mut Vec<u8>,
    ) -> Option<()> {
        let configured = self.path.get(level).filter(|level| level.share_threshold);
        match (configured, self.identity_value(level, entry.value)) {
            (Some(level), _) => level.push_reference_pattern(entry.key, name),
            (None, IdentityValue::Text(text)) => {
                name.extend_from_slice(text);
                Some(())
            }
            (None, IdentityValue::Address(_) | IdentityValue::All(_)) => None,
        }
    }
}
