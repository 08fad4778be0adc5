//! The name that Envoy's reference service gives to a counter in Redis.
//!
//! Why: a deployment that moves from that service to tollgate, or runs both, continues its counters
//! (`--store-keys reference`). The name joins texts with `_`, so two descriptors can collide.
//! Nothing else uses it.
//!
//! What it deliberately does not do: append the second in which the window begins (`key` does).

use std::sync::Arc;

use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::key::BucketIdentity;
use tollgate_limiter::rule::IdentityValue;
use tollgate_limiter::{Algorithm as _, CountRefused, Entry, Level, Rule, Values};

/// The longest name of a counter, in bytes. A bucket with a longer name keeps its digest.
pub const REFERENCE_KEY_BYTES_MAX: usize = 512;

/// The name of a counter without the second in which its window begins: `domain_key_value_…_`. None
/// where the reference service has no such counter: another algorithm, another window length,
/// another rule for refused hits, values that count as addresses or as a whole list, or a name that
/// is too long.
pub fn reference_key(identity: &BucketIdentity<'_>) -> Option<Arc<[u8]>> {
    let limit = identity.limit;
    let is_reference_counter = identity.algorithm.name() == FixedWindow.name()
        && limit.unit().is_some()
        && limit.unit_multiplier().get() == 1
        && limit.calendar().is_none()
        && !matches!(
            limit.count_refused(),
            Some(CountRefused::None | CountRefused::All)
        );
    if !is_reference_counter {
        return None;
    }
    let mut name = identity.domain.to_vec();
    name.push(b'_');
    for (level, entry) in identity.entries.iter().enumerate() {
        name.extend_from_slice(entry.key);
        name.push(b'_');
        match identity.rule {
            Some(rule) => push_value(rule, level, entry, &mut name)?,
            None => name.extend_from_slice(entry.value),
        }
        name.push(b'_');
    }
    (name.len() <= REFERENCE_KEY_BYTES_MAX).then(|| name.into())
}

/// Appends the value of an entry: as sent or, with `share_threshold`, the pattern.
fn push_value(rule: &Rule, level: usize, entry: &Entry<'_>, name: &mut Vec<u8>) -> Option<()> {
    let shared = rule.path.get(level).filter(|level| level.share_threshold);
    match (shared, rule.identity_value(level, entry.value)) {
        (Some(level), _) => push_pattern(level, entry.key, name),
        (None, IdentityValue::Text(text)) => {
            name.extend_from_slice(text);
            Some(())
        }
        (None, IdentityValue::Address(_) | IdentityValue::All(_)) => None,
    }
}

/// Appends the pattern that replaces all values: key and value of the pattern joined by `_`,
/// without the key that was sent if they begin with it. So a pattern in the key is part of the
/// name.
fn push_pattern(level: &Level, key: &[u8], name: &mut Vec<u8>) -> Option<()> {
    let start = name.len();
    name.extend_from_slice(level.key.as_bytes());
    match &*level.values {
        Values::Text(value) => {
            name.push(b'_');
            name.extend_from_slice(value.as_bytes());
        }
        Values::Any if level.key.contains('*') => {}
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
