//! What an entry lets pass that the rules would refuse. Such an entry needs `may_raise: true`.
//!
//! Which algorithm can admit more is decided by `limiter::algorithm::can_admit_more`.

use std::collections::HashSet;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::overlay::entry::Entry;
use crate::file::rate_limit::limited;
use tollgate_limiter::algorithm::{can_admit_more, count_refused};
use tollgate_limiter::{Algorithm, AlgorithmOption, Limit, OnUndecided, Rule};

/// A field of an entry that lets more pass, and why.
pub(super) type Raise = (&'static str, String);

/// What to do about an entry that lets more pass.
pub(super) const RAISE_HELP: &str =
    "add `may_raise: true` to the entry if that is meant, or remove this";

/// What to do where fewer refused hits count.
pub(super) const COUNT_REFUSED_HELP: &str = "add `charged: afterwards` if requests are charged after the work, `count_refused` as it was, or `may_raise: true`";

/// Names that limits replace, with their domains.
pub(super) type ReplacedNames = HashSet<(Arc<str>, String)>;

/// What lets more pass in a rule after an entry was applied.
pub(super) fn raises_of_rule(
    entry: &Entry<'_>,
    before: &Rule,
    after: &Rule,
    replaced: &ReplacedNames,
) -> Vec<Raise> {
    let mut raises = Vec::new();
    if let (Some(old), Some(new)) = (limited(&before.allowance), limited(&after.allowance)) {
        raises.extend(raise_of_limit(entry, old, new));
    }
    if after.shadow_mode && !before.shadow_mode {
        raises.push(("shadow_mode", "shadow_mode refuses nothing".to_owned()));
    }
    let sets_reserve = entry.reserve.is_some() && before.reserve.is_some();
    if sets_reserve && before.reserve != after.reserve {
        let message = "the rules reserve otherwise, so more may start at once".to_owned();
        raises.push(("reserve", message));
    }
    if after.leases && !before.leases {
        let message = "callers could lease hits, which the limit excludes".to_owned();
        raises.push(("lease", message));
    }
    let named = (Arc::clone(&after.domain), after.name.clone());
    if after.name != before.name && replaced.contains(&named) {
        let message = format!(
            "another limit replaces '{}', so this limit would no longer count beside it",
            excerpt(&after.name)
        );
        raises.push(("name", message));
    }
    raises
}

fn raise_of_limit(
    entry: &Entry<'_>,
    (old, old_algorithm): (&Limit, &'static dyn Algorithm),
    (new, algorithm): (&Limit, &'static dyn Algorithm),
) -> Option<Raise> {
    let (requests, old_requests) = (new.requests(), old.requests());
    if requests > old_requests {
        let message =
            format!("requests_per_unit {requests} is more than the limit's {old_requests}");
        return Some(("requests_per_unit", message));
    }
    // Requests in flight have no bound in a window; their number is all that can change.
    let has_slots = algorithm.facts().options.contains(&AlgorithmOption::Slots);
    if has_slots || !can_admit_more((algorithm, new), (old_algorithm, old)) {
        return None;
    }
    let given = |name| entry.fields.has(name);
    let had_burst = old_algorithm
        .facts()
        .options
        .contains(&AlgorithmOption::Burst);
    let burst = new.burst();
    Some(if given("burst") && had_burst && burst > old.burst() {
        let message = format!("burst {burst} is above the limit's burst {}", old.burst());
        ("burst", message)
    } else if given("burst") && burst > old.requests() {
        let message = format!("burst {burst} is above the limit's {old_requests} requests");
        ("burst", message)
    } else if given("segments") && algorithm == old_algorithm {
        let message = "fewer segments can admit more in a window".to_owned();
        ("segments", message)
    } else {
        let field = ["algorithm", "segments", "burst"]
            .into_iter()
            .find(|name| given(name));
        let message = format!(
            "algorithm {} can admit more in a window than {}",
            algorithm.name(),
            old_algorithm.name()
        );
        (field.unwrap_or("requests_per_unit"), message)
    })
}

/// Whether fewer refused hits count in a rule after an entry was applied. A default that comes with
/// another algorithm counts, too: hits that are charged after the work would be lost.
pub(super) fn raise_of_count_refused(
    entry: &Entry<'_>,
    before: &Rule,
    after: &Rule,
) -> Option<Raise> {
    let (old, old_algorithm) = limited(&before.allowance)?;
    let (new, algorithm) = limited(&after.allowance)?;
    let (old, new) = (
        count_refused(old_algorithm, old),
        count_refused(algorithm, new),
    );
    if !new.is_weaker_than(old) {
        return None;
    }
    let ((old_field, old_value), (field, value)) = (old.field(), new.field());
    let mut fields = ["count_refused", "charged", "algorithm"].into_iter();
    let set = fields.find(|name| entry.fields.has(name));
    Some(match set {
        Some("algorithm") => {
            let name = algorithm.name();
            let message = format!(
                "algorithm {name} has {field} {value}, which is weaker than the limit's {old_field} {old_value}"
            );
            ("algorithm", message)
        }
        set => {
            let message =
                format!("{field} {value} is weaker than the limit's {old_field} {old_value}");
            (set.unwrap_or("count_refused"), message)
        }
    })
}

/// What lets more pass in a domain with these settings.
pub(super) fn raises_of_domain(
    entry: &Entry<'_>,
    all_or_nothing: Option<bool>,
    on_store_failure: Option<OnUndecided>,
) -> Vec<Raise> {
    let mut raises = Vec::new();
    if entry.all_or_nothing == Some(true) && all_or_nothing != Some(true) {
        let message = "with all_or_nothing a refused request takes from no limit, so more pass";
        raises.push(("all_or_nothing", message.to_owned()));
    }
    if let Some(new) = entry.on_store_failure {
        // Without a setting of the domain, --on-store-failure decides: the operator's own.
        let old = on_store_failure.unwrap_or(OnUndecided::Error);
        if leniency(new) > leniency(old) {
            let (new, old) = (new.name(), old.name());
            let message = format!("on_store_failure {new} lets more pass than {old}");
            raises.push(("on_store_failure", message));
        }
    }
    raises
}

/// The order of the answers by what passes. After an error the caller decides, and Envoy lets the
/// request pass by default.
fn leniency(answer: OnUndecided) -> u8 {
    match answer {
        OnUndecided::Deny => 0,
        OnUndecided::Local => 1,
        OnUndecided::Error => 2,
        OnUndecided::Allow => 3,
    }
}
