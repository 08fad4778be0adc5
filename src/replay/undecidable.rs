//! Limits about which a recording says nothing: its requests are a sample of other buckets, or its
//! values are hashes of what a rule compares.

use tollgate_limiter::{Level, Rule, RuleSet, Values};

use super::comparison::text;
use super::report::Undecidable;
use crate::admin_api::rule_name;
use crate::proto::tollgate::recording::v1::{Header, PlainKey};

/// The undecidable limits of a side. `recorded` are the rules of the recording, as far as they are
/// known.
pub(super) fn list(
    side: &str,
    rules: &RuleSet,
    recorded: &RuleSet,
    header: &Header,
) -> Vec<Undecidable> {
    let rules = rules.rules().iter().filter_map(|rule| {
        let why = not_sampled(rule, header).or_else(|| hashed(rule, recorded, header))?;
        Some(Undecidable {
            side: side.to_owned(),
            domain: rule.domain.to_string(),
            rule: rule_name(rule),
            why,
        })
    });
    rules.collect()
}

/// Why the recorded requests are only some of those in a bucket of this rule.
fn not_sampled(rule: &Rule, header: &Header) -> Option<String> {
    let sampling = header.sampling.as_ref()?;
    let is_own = |level: &&std::sync::Arc<Level>| level.key.as_bytes() == sampling.key;
    let key = text(&sampling.key);
    match rule.path.iter().find(is_own) {
        Some(level) if !level.share_threshold => None,
        Some(_) => Some(format!(
            "its values of {key} share a bucket, and only requests of some values were recorded"
        )),
        None => Some(format!(
            "its buckets do not contain {key}, and only requests of some values of {key} were recorded"
        )),
    }
}

/// Which value of this rule cannot be compared, because the recording has hashes.
fn hashed(rule: &Rule, recorded: &RuleSet, header: &Header) -> Option<String> {
    if !header.hashed {
        return None;
    }
    let unknown = rule.path.iter().find(|level| {
        !matches!(&*level.values, Values::Any) && !is_plain(rule, level, recorded, header)
    })?;
    Some(format!(
        "it compares values of {}, and the recording has hashes of them",
        unknown.key
    ))
}

/// Whether the values that this level compares are in the recording as they were sent.
fn is_plain(rule: &Rule, level: &Level, recorded: &RuleSet, header: &Header) -> bool {
    let of_level = |plain: &&PlainKey| {
        plain.domain == rule.domain.as_bytes() && plain.key == level.key.as_bytes()
    };
    match header.plain_keys.iter().find(of_level) {
        None => false,
        Some(plain) if plain.which == "all" => true,
        // The values that rules named when they were recorded.
        Some(_) => recorded.rules().iter().any(|other| {
            let mut levels = other.path.iter();
            other.domain == rule.domain
                && levels.any(|one| one.key == level.key && one.values == level.values)
        }),
    }
}
