//! What limits must have in common with others: those of one budget, those with `rlqs`, and those
//! that others replace. Which limits there are is known when all files are read.
//!
//! Limits with the same `budget` share a bucket if they are of one domain and their descriptors
//! differ only in their last entry. A bucket has one limit, so they must agree in all that counts
//! but their prices; an overlay must keep that. Limits with `rlqs` are apportioned over proxies. A
//! bucket's id has no order, so it must fit the keys of one such limit only.
//!
//! A rule without an error has its fields in the order in which their places were recorded.

use std::collections::{BTreeSet, HashMap};
use std::ptr;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::corrections::nearest;
use crate::file::loader::{LimitFieldOrigin, Loader};
use crate::file::rate_limit::{limited, share_bucket};
use crate::file::{Code, DIAGNOSTICS_MAX, Diagnostic};
use tollgate_limiter::{Level, Limit, Rule};

/// How many names of a domain an unknown one is compared with.
const NAMES_COMPARED_MAX: usize = 1_000;

/// What limits that share a bucket have in common: the domain, the level above, and the name.
type Shared<'r> = (&'r str, *const Level, &'r str);

/// A domain, and the keys of a path in their order as text.
type SortedKeys<'r> = (&'r str, Vec<&'r str>);

/// What is wrong with a limit, and the other limit that it is wrong beside.
struct Finding {
    at: LimitFieldOrigin,
    other: Option<LimitFieldOrigin>,
    message: String,
    help: String,
}

/// Reports limits that cannot share a bucket. Gives whether there are none.
pub(super) fn check_budgets(loader: &mut Loader<'_>) -> bool {
    let mut wrong = Vec::new();
    let mut first_of: HashMap<Shared<'_>, (&Rule, LimitFieldOrigin)> = HashMap::new();
    let rules = loader.rules.rules().iter();
    let with_budget = rules.filter(|rule| rule.budget.is_some());
    for (rule, at) in with_budget.zip(loader.budgets.iter().copied()) {
        let Some(shared) = shared(rule) else {
            continue;
        };
        let (first, other) = *first_of.entry(shared).or_insert((rule, at));
        if let Some(what) = difference(first, rule) {
            let budget = excerpt(shared.2);
            wrong.push(Finding {
                at,
                other: Some(other),
                message: format!(
                    "budget '{budget}' has limits with another {what}, and they share one bucket"
                ),
                help: format!(
                    "give them the same {what}, or name another budget; only costs may differ"
                ),
            });
        }
    }
    report(loader, wrong, "the first of them")
}

/// Reports limits that an id could fit in two ways. Gives whether there are none.
pub(super) fn check_quotas(loader: &mut Loader<'_>) -> bool {
    let wrong = wrong_quotas(loader.rules.rules(), &loader.quotas);
    report(loader, wrong, "the other limit")
}

fn report(loader: &mut Loader<'_>, wrong: Vec<Finding>, label: &str) -> bool {
    let are_valid = wrong.is_empty();
    for finding in wrong {
        let at = finding.at;
        let error = Diagnostic::error(Code::ConflictingKeys, at.place.span, finding.message);
        let other = finding.other.map(|other| (other.place, label));
        loader.report_node(at.node, error.help(finding.help), other);
    }
    are_valid
}

/// What identifies the bucket of a rule with a budget, but for what requests send.
pub(super) fn shared(rule: &Rule) -> Option<Shared<'_>> {
    let budget = rule.budget.as_deref()?;
    let above = rule.path.len().checked_sub(2);
    let above = above.and_then(|above| rule.path.get(above));
    let above = above.map_or(ptr::null(), Arc::as_ptr);
    Some((&rule.domain, above, budget))
}

/// What two limits of one budget do not have in common, in words.
pub(super) fn difference(one: &Rule, other: &Rule) -> Option<&'static str> {
    let options = |limit: &Limit| (limit.segments(), limit.count_refused());
    let (limit, other_limit) = (limited(&one.allowance)?.0, limited(&other.allowance)?.0);
    if !share_bucket(&one.allowance, &other.allowance) {
        Some("algorithm or window")
    } else if limit.requests() != other_limit.requests() {
        Some("requests_per_unit")
    } else if limit.burst() != other_limit.burst() {
        Some("burst")
    } else if options(limit) != options(other_limit) {
        Some("segments, count_refused or charged")
    } else if limit.penalty() != other_limit.penalty() {
        Some("penalty")
    } else if one.reserve != other.reserve {
        Some("reserve")
    } else if one.leases != other.leases {
        Some("value of lease")
    } else if one.shadow_mode != other.shadow_mode || one.quota_mode != other.quota_mode {
        Some("shadow_mode or quota_mode")
    } else {
        None
    }
}

fn wrong_quotas(rules: &[Rule], places: &[LimitFieldOrigin]) -> Vec<Finding> {
    let mut found = Vec::new();
    // By domain and sorted keys: the keys in the order of the path.
    let mut orders: HashMap<SortedKeys<'_>, (Vec<&str>, LimitFieldOrigin)> = HashMap::new();
    let mut before: Option<(&Rule, LimitFieldOrigin)> = None;
    let quotas = rules.iter().filter(|rule| rule.rlqs);
    for (rule, at) in quotas.zip(places.iter().copied()) {
        let mut wrong = |other, message: String, help: &str| {
            found.push(Finding {
                at,
                other,
                message,
                help: help.to_owned(),
            });
        };
        let keys: Vec<&str> = rule.path.iter().map(|level| level.key.as_str()).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        }) {
            let message = format!("rlqs below two levels with the key '{}'", excerpt(twice));
            let help = "rename one of the keys: a bucket's id has each key once";
            wrong(None, message, help);
            continue;
        }
        if let Some(key) = keys.iter().find(|key| key.contains('*')) {
            let message = format!("rlqs below the pattern of keys '{}'", excerpt(key));
            wrong(None, message, "write the keys that bucket ids have");
            continue;
        }
        if let Some((other, other_at)) = before
            && other.path == rule.path
            && other.domain == rule.domain
        {
            let message = "two limits with rlqs on one descriptor".to_owned();
            let help = "keep one of them: a proxy is assigned one rate for a bucket";
            wrong(Some(other_at), message, help);
        }
        before = Some((rule, at));
        let (order, first) = orders
            .entry((&rule.domain, sorted))
            .or_insert_with(|| (keys.clone(), at));
        if *order != keys {
            let message = "rlqs below the keys of another such limit in another order".to_owned();
            let help =
                "nest the keys in the same order: a bucket's id has no order, so it would fit both";
            wrong(Some(*first), message, help);
        }
    }
    found
}

/// Warns of names in `replaces` that no limit of the domain has. A request has one domain, so a
/// limit replaces only limits of its own domain.
pub(super) fn warn_unknown_replaced_names(loader: &mut Loader<'_>) {
    if loader.replaced_names.is_empty() {
        return;
    }
    let rules = loader.rules.rules();
    let with_name = rules.iter().filter(|rule| !rule.name.is_empty());
    let known: BTreeSet<(&str, &str)> =
        with_name.map(|rule| (&*rule.domain, &*rule.name)).collect();
    // The rules of a table have the names of the rule that they belong to.
    let written = rules.iter().filter(|rule| rule.lines.is_none());
    let replaced = written.flat_map(|rule| {
        let names = rule.replaces.iter();
        names.map(move |name| (&*rule.domain, name.as_str()))
    });
    let unknown = replaced
        .zip(&loader.replaced_names)
        .filter(|(name, _)| !known.contains(name))
        .take(DIAGNOSTICS_MAX);
    let warnings = unknown.map(|((domain, name), at)| {
        let message = format!(
            "replaces names '{}', and no limit of domain '{}' has this name",
            excerpt(name),
            excerpt(domain)
        );
        let near = known.iter().filter(|(other, _)| *other == domain);
        let near = near.take(NAMES_COMPARED_MAX).map(|(_, name)| *name);
        let help = match nearest(name, near) {
            Some(meant) => format!("did you mean `{}`?", excerpt(meant)),
            None => "give the other limit this `name`, or remove the entry".to_owned(),
        };
        let warning = Diagnostic::warning(Code::UnknownReplacedName, at.place.span, message);
        (at.node, warning.help(help))
    });
    for (node, warning) in warnings.collect::<Vec<_>>() {
        loader.report_node(node, warning, None);
    }
}
