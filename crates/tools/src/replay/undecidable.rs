//! Limits about which a recording says nothing.
//!
//! A sampled recording has all requests of some values of one entry. A limit whose bucket counts
//! requests of other values too cannot be decided from it; its counts are not scaled.
//!
//! A hashed recording has other values than the requests. A level that compares values decides
//! nothing where the values that it names are hashed, nor do its siblings, which match what it does
//! not.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate_limiter::{Allowance, IdentityValue, Level, Rule, RuleSet, Values};

use super::report::Undecidable;
use tollgate_admin_api::rule_name;
use tollgate_wire::proto::tollgate::recording::v1::{Header, PlainKey};

/// The values that the rules of a recording name: domain, key, value.
pub(super) type NamedValues = HashSet<(String, String, String)>;

/// The undecidable limits of a side: the indices of their rules, and rows for the report. `named`
/// are the values that the rules of the recording name; none when those rules are not at hand.
pub(super) fn list(
    side: &str,
    rules: &RuleSet,
    header: &Header,
    named: Option<&NamedValues>,
) -> (HashSet<usize>, Vec<Undecidable>) {
    let rules = rules.rules();
    let unknown = header.hashed.then(|| unknown_levels(header, rules, named));
    let mut indices = HashSet::new();
    let mut rows = Vec::new();
    for rule in rules {
        let hidden = unknown
            .as_ref()
            .and_then(|unknown| hidden_key(rule, unknown));
        let why = match (hidden, &header.sampling) {
            (Some(key), _) => format!(
                "it depends on values of the key {key:?}, which are hashed in the recording"
            ),
            (None, Some(sampling)) if !is_whole(rule, &sampling.key) => format!(
                "its bucket also counts requests that were not sampled: it is not one value of \
                 the entry {:?}",
                String::from_utf8_lossy(&sampling.key)
            ),
            (None, _) => continue,
        };
        indices.insert(rule.index);
        rows.push(Undecidable {
            side: side.to_owned(),
            domain: rule.domain.to_string(),
            rule: rule_name(rule),
            why,
        });
    }
    (indices, rows)
}

/// Whether all requests of a bucket of this rule share one value of the sampled entry, or the rule
/// decides without counting.
fn is_whole(rule: &Rule, sampled: &[u8]) -> bool {
    let Allowance::Limited { limit, .. } = &rule.allowance else {
        return true;
    };
    limit.requests() == 0
        || rule.path.iter().any(|level| {
            level.key.as_bytes() == sampled
                && level.ipv6_prefix.is_none()
                && !level.share_threshold
                && !matches!(&*level.values, Values::Prefixes(_))
                && matches!(level.identity_value(b"value"), IdentityValue::Text(_))
        })
}

/// The values that rules name: domain, key, value.
pub(super) fn named_values(rules: &RuleSet) -> NamedValues {
    let mut named = HashSet::new();
    for rule in rules.rules() {
        for level in &rule.path {
            for value in exact_values(level) {
                named.insert((rule.domain.to_string(), level.key.clone(), value.to_owned()));
            }
        }
    }
    named
}

/// The values that a level names one by one.
fn exact_values(level: &Level) -> Vec<&str> {
    match &*level.values {
        Values::Text(text) if !text.contains('*') => vec![text],
        Values::List(values) => values.iter().map(String::as_str).collect(),
        Values::Any | Values::Text(_) | Values::Prefixes(_) | Values::Regex(_) => Vec::new(),
    }
}

/// The places in the tree where hashed values are compared: domain, labels of the levels before,
/// key.
type Places = HashSet<(String, Vec<String>, String)>;

fn place(rule: &Rule, level: usize) -> Option<(String, Vec<String>, String)> {
    let labels = rule.path.iter().take(level).map(|level| level.label());
    let key = rule.path.get(level)?.key.clone();
    Some((rule.domain.to_string(), labels.collect(), key))
}

fn unknown_levels(header: &Header, rules: &[Rule], named: Option<&NamedValues>) -> Places {
    // The levels of limits by value, which compare any value.
    let by_value = rules.iter().filter(|rule| rule.lines.is_some());
    let by_value = by_value.filter_map(|rule| rule.path.last().map(Arc::as_ptr));
    let by_value: HashSet<*const Level> = by_value.collect();
    let mut places = Places::new();
    for rule in rules {
        for (position, level) in rule.path.iter().enumerate() {
            let by_value = by_value.contains(&Arc::as_ptr(level));
            if !is_known(header, rule, level, by_value, named) {
                places.extend(place(rule, position));
            }
        }
    }
    places
}

/// Whether a level matches in the recording what it matched in the requests. `by_value`: the values
/// of its limits are in a file.
fn is_known(
    header: &Header,
    rule: &Rule,
    level: &Level,
    by_value: bool,
    named: Option<&NamedValues>,
) -> bool {
    // A prefix of an address is a part of the bucket's identity.
    if matches!(&*level.values, Values::Any) && level.ipv6_prefix.is_none() && !by_value {
        return true;
    }
    let is_key = |plain: &&PlainKey| {
        plain.domain == rule.domain.as_bytes() && plain.key == level.key.as_bytes()
    };
    let (Some(key), values) = (header.plain_keys.iter().find(is_key), exact_values(level)) else {
        return false;
    };
    let is_named = |value: &&str| {
        let name = (
            rule.domain.to_string(),
            level.key.clone(),
            (*value).to_owned(),
        );
        named.is_some_and(|named| named.contains(&name))
    };
    // Otherwise only the values that the rules of the recording name.
    key.which == "all" || !by_value && !values.is_empty() && values.iter().all(is_named)
}

/// The first key of a rule that hides what the rule matches.
fn hidden_key(rule: &Rule, unknown: &Places) -> Option<String> {
    (0..rule.path.len()).find_map(|level| {
        let place = place(rule, level)?;
        unknown.contains(&place).then_some(place.2)
    })
}
