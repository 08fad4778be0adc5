//! One configured limit: its path in the tree, what it allows, and its identity.
//!
//! Why the path is kept: a rule's metrics, the bucket that its values share, and every message
//! about it follow from the levels that lead to it. Matching does not use it: it has its own tree
//! (`rule_set`).
//!
//! What it deliberately does not do: match, count, read YAML.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::address::{Address, Prefix};
use super::allowance::Allowance;
use super::descriptor::Entry;
use super::limit::Limit;
use super::limit_table::{RuleLines, TableLine};
use super::reservation::{COST_ONE, Cost, ReserveRule};
use super::time::{Calendar, Timestamp};
use super::values::{LevelValues, Values};

/// One level of the tree, as configured.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Level {
    /// The key, or a pattern for it.
    pub key: String,
    /// The values.
    pub values: LevelValues,
    /// The number of leading bits of an IPv6 address that identify its bucket. Values that are not
    /// addresses stay as they are.
    pub ipv6_prefix: Option<u8>,
    /// All values that match a pattern, list, prefix or regular expression share one bucket and one
    /// label: the level's.
    pub share_threshold: bool,
    /// The metric's label holds the value as sent.
    pub value_to_metric: bool,
}

/// The text that replaces a value in a bucket's identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IdentityValue<'v> {
    /// This text: the value as sent, or a pattern that many values share.
    Text(&'v [u8]),
    /// This address or prefix, however it was spelled.
    Address(Prefix),
    /// All values of the level together.
    All(&'v LevelValues),
}

/// The response sent to the client when this limit refuses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OverLimitResponse {
    /// The response body; empty for none.
    pub body: Template,
    /// The response headers, in the order written.
    pub headers: Vec<(String, Template)>,
}

/// Text with placeholders.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(String),
    Placeholder(Placeholder),
}

crate::named! {
    /// A placeholder in a template.
    pub enum Placeholder {
        /// The number of requests that may pass.
        Limit = "{limit}",
        /// The window, in words.
        Window = "{window}",
        /// The seconds until the client can retry.
        RetryAfterSeconds = "{retry_after_seconds}",
    }
}

/// Free-form metadata that the answer carries when its descriptor passed.
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

/// A limit that is tried beside the one in force. Never enforced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// What it allows.
    pub allowance: Allowance,
    /// The key of the entry that names the holder of a slot.
    pub holder_key: Option<String>,
}

crate::named! {
    /// What a limit that comes with a request is to the rule that the request meets.
    pub enum LimitFromRequest {
        /// It applies in place of the rule, as a fixed window in a bucket of its own. The meaning
        /// in the reference service.
        Replace = "replace",
        /// Its numbers and its window apply in place of those of the rule. All else is the rule's.
        Adjust = "adjust",
    }
}

/// What only a rule of an override has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Overriding {
    /// Until when it is a limit of 0; none where it does not block.
    pub blocked_until: Option<Timestamp>,
    /// Where it is among all rules of its set, after those that are written.
    pub position: usize,
}

/// Shares of a limit, in percent: 1 to 100, ascending. A rule holds them in a box, because few
/// rules have any.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotifyShares(pub Vec<u8>);

/// One configured limit.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // each is a field of rules files
pub struct Rule {
    /// The domain that it is configured in. Shared by the domain's rules.
    pub domain: Arc<str>,
    /// The levels that lead to it, outermost first. Shared by neighbouring rules.
    pub path: Vec<Arc<Level>>,
    /// The name in its status and in the `replaces` of other rules. Can be empty.
    pub name: String,
    /// What it allows.
    pub allowance: Allowance,
    /// The key of the entry that names the holder of a slot, or is the id of a reservation.
    pub holder_key: Option<String>,
    /// Reservations of its buckets. Its key is the holder key, too.
    pub reserve: Option<Box<ReserveRule>>,
    /// Whether callers may lease its hits.
    pub leases: bool,
    /// The price of a hit.
    pub cost: Cost,
    /// The name of a budget that it shares with limits of the same parent entries.
    pub budget: Option<Box<str>>,
    /// The limit that is tried beside this one.
    pub candidate: Option<Box<Candidate>>,
    /// What a request's limit is to it; none where the files do not say, which is
    /// [`LimitFromRequest::Replace`].
    pub limit_from_request: Option<LimitFromRequest>,
    /// The shares of the limit, in percent, at which its owner is notified; none for never.
    pub notify: Option<Box<NotifyShares>>,
    /// Apportioned over proxies that decide alone (RLQS), and not answered to requests.
    pub rlqs: bool,
    /// Names of rules that this one replaces when both match one request.
    pub replaces: Box<[String]>,
    /// Counted and measured, never enforced.
    pub shadow_mode: bool,
    /// A quota: quotas refuse only when all of them do.
    pub quota_mode: bool,
    /// The labels of its metric hold every value as sent.
    pub detailed_metric: bool,
    /// Metadata of the answer when the descriptor passed; [`MetadataValue::Map`] or none.
    pub metadata: Option<MetadataValue>,
    /// The response sent to the client on a refusal. Shared by the limits of the descriptor.
    pub over_limit: Option<Arc<OverLimitResponse>>,
    /// The plan that it is of; none for a limit of its own.
    pub plan: Option<Arc<str>>,
    /// The lines of a table that it is for; none for a limit of the rules file itself.
    pub lines: Option<Box<RuleLines>>,
    /// What an override makes of it; none for a rule as written.
    pub overriding: Option<Box<Overriding>>,
    /// Its index in its rule set, or that of the rule that it overrides.
    pub index: usize,
    /// Identifies the rule across rule sets: a rule with the same path that counts alike has the
    /// same number.
    pub fingerprint: u64,
}

// === impl Level ===

impl Level {
    /// A level in the reference service's grammar: an empty value matches any.
    #[inline]
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

    /// The text that replaces a value of this level in a bucket's identity.
    #[inline]
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

    fn address<'v>(&self, value: &'v [u8]) -> IdentityValue<'v> {
        match Address::parse(value) {
            Some(address) => IdentityValue::Address(address.bucket_prefix(self.ipv6_prefix)),
            None => IdentityValue::Text(value),
        }
    }
}

// === impl Template ===

impl Template {
    /// Parses text with placeholders. Other braces are text, since a body can be JSON.
    pub fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let placeholders = Placeholder::ALL.iter().filter_map(|placeholder| {
                let written = placeholder.name();
                let at = rest.find(written)?;
                Some((at, *placeholder, at.saturating_add(written.len())))
            });
            let next = placeholders.min_by_key(|(at, ..)| *at);
            let until = next.map_or(rest.len(), |(at, ..)| at);
            match rest.get(..until) {
                Some("") | None => {}
                Some(text) => parts.push(Part::Text(text.to_owned())),
            }
            let Some((_, placeholder, after)) = next else {
                return Self { parts };
            };
            parts.push(Part::Placeholder(placeholder));
            rest = rest.get(after..).unwrap_or_default();
        }
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The text with each placeholder filled.
    pub fn render(&self, value_of: impl Fn(Placeholder) -> String) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Placeholder(placeholder) => text.push_str(&value_of(*placeholder)),
            }
        }
        text
    }
}

// === impl Rule ===

impl Rule {
    /// A rule at the end of `path` without a limit.
    #[inline]
    pub fn new(domain: impl Into<Arc<str>>, path: Vec<Arc<Level>>) -> Self {
        Self {
            domain: domain.into(),
            path,
            name: String::new(),
            allowance: Allowance::Unlimited,
            holder_key: None,
            reserve: None,
            leases: true,
            cost: COST_ONE,
            budget: None,
            candidate: None,
            limit_from_request: None,
            notify: None,
            rlqs: false,
            replaces: Box::default(),
            shadow_mode: false,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
            over_limit: None,
            plan: None,
            lines: None,
            overriding: None,
            index: 0,
            fingerprint: 0,
        }
    }

    /// The rules of one descriptor with their candidates as limits. Rules without one are left out,
    /// but what they replace is replaced.
    pub(super) fn candidates(rules: &[Self]) -> Vec<Self> {
        let with_candidate = |rule: &Self| {
            let candidate = rule.candidate.as_ref()?;
            // Without a reservation it must still match descriptors with an id.
            let id = rule
                .reserve
                .as_ref()
                .and_then(|reserve| reserve.key.clone());
            Some(Self {
                allowance: candidate.allowance,
                holder_key: candidate.holder_key.clone().or(id),
                reserve: None,
                budget: None,
                candidate: None,
                ..rule.clone()
            })
        };
        let mut tried: Vec<Self> = rules.iter().filter_map(with_candidate).collect();
        let left_out = rules.iter().filter(|rule| rule.candidate.is_none());
        let replaces: Vec<String> = left_out.flat_map(|rule| rule.replaces.clone()).collect();
        match tried.first_mut() {
            Some(first) => {
                let all = first.replaces.iter().cloned().chain(replaces);
                first.replaces = all.collect();
            }
            None if replaces.is_empty() => {}
            None => tried.extend(rules.first().map(|rule| Self {
                name: String::new(),
                allowance: Allowance::Unlimited,
                holder_key: None,
                replaces: replaces.into(),
                ..rule.clone()
            })),
        }
        tried
    }

    /// Where it is among all rules of its set, with those of overrides.
    #[inline]
    pub(super) fn position(&self) -> usize {
        let overriding = self.overriding.as_ref();
        overriding.map_or(self.index, |overriding| overriding.position)
    }

    /// Until when an override blocks the descriptor; none where it does not.
    #[inline]
    pub fn blocked_until(&self) -> Option<Timestamp> {
        self.overriding.as_ref()?.blocked_until
    }

    /// Computes `fingerprint` from domain, path, name, algorithm and window. It costs one hash when
    /// rules are read. The hash needs no secret, since its input comes from the operator.
    pub(super) fn compute_fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.domain, self.labels(), &self.name).hash(&mut hasher);
        if let Allowance::Limited { limit, algorithm } = &self.allowance {
            (algorithm.name(), limit.window().as_us()).hash(&mut hasher);
            limit.calendar().map(Calendar::name).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Its limit for the values of a line; `limit` without a table.
    #[inline]
    pub fn limit_of(&self, line: TableLine, limit: &Limit) -> Limit {
        match &self.lines {
            Some(lines) if !lines.is_plan => lines.table.limit(line, limit),
            _ => *limit,
        }
    }

    /// Whether a request's limit adjusts it. What is unlimited has nothing to adjust.
    #[inline]
    pub(super) fn is_adjusted(&self) -> bool {
        self.limit_from_request == Some(LimitFromRequest::Adjust)
            && self.allowance != Allowance::Unlimited
    }

    /// The label of each level, outermost first, as configured.
    pub fn labels(&self) -> Vec<String> {
        self.path.iter().map(|level| level.label()).collect()
    }

    /// The domain and the labels, joined by dots. For messages.
    pub fn full_name(&self) -> String {
        let mut names = vec![self.domain.to_string()];
        names.extend(self.labels());
        names.join(".")
    }

    /// Whether its metric's labels depend on the request.
    #[inline]
    pub fn has_request_labels(&self) -> bool {
        self.detailed_metric || self.path.iter().any(|level| self.label_has_value(level))
    }

    /// Whether a level's label holds the value as sent.
    #[inline]
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

    /// Whether an empty value is `key_` in the metric's labels, not `key`. The reference service
    /// writes `key_` for `detailed_metric`, except where a level of the rule shares its threshold.
    /// A value equal to the pattern's own text counts there as configured, and shares nothing.
    #[inline]
    pub fn empty_values_keep_underscore(&self, entries: &[Entry<'_>]) -> bool {
        let mut levels = self.path.iter().zip(entries);
        self.detailed_metric
            && !levels.any(|(level, entry)| {
                level.share_threshold && entry.value != level.values.text().as_bytes()
            })
    }

    /// Whether this entry names the holder of a slot.
    #[inline]
    pub fn is_holder_entry(&self, entry: &Entry<'_>) -> bool {
        let key = self.holder_key.as_ref();
        key.is_some_and(|key| key.as_bytes() == entry.key)
    }

    /// The text that replaces the value at a level in a bucket's identity.
    #[inline]
    pub fn identity_value<'v>(&'v self, level: usize, value: &'v [u8]) -> IdentityValue<'v> {
        let level = self.path.get(level);
        level.map_or(IdentityValue::Text(value), |level| {
            level.identity_value(value)
        })
    }
}
