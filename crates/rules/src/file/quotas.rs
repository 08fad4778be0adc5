//! Limits with `rlqs`, which are apportioned over proxies: what such a limit may have beside it,
//! and which other limits.
//!
//! A bucket's id has no order, so it must fit the keys of one such limit only. Which limits there
//! are is known when all files are read.

use std::collections::HashMap;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::{LimitFieldOrigin, Loader};
use tollgate_limiter::{Allowance, Rule};

/// The only algorithm that a proxy is assigned.
const ALGORITHM: &str = "token_bucket";

/// Fields of a limit that no proxy can obey.
const WITHOUT_EFFECT: [&str; 10] = [
    "burst",
    "refill",
    "calendar",
    "count_refused",
    "charged",
    "reserve",
    "cost",
    "budget",
    "replaces",
    "candidate",
];

/// What is wrong with a limit, and the other limit that it is wrong beside.
struct Finding {
    at: LimitFieldOrigin,
    other: Option<LimitFieldOrigin>,
    message: String,
    help: &'static str,
}

// === impl Loader ===

impl Loader<'_> {
    /// Whether a limit is apportioned over proxies.
    pub(super) fn rlqs(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        allowance: Option<&Allowance>,
    ) -> bool {
        if !self.boolean(fields, path, "rlqs") {
            return false;
        }
        let span = fields.span_of("rlqs");
        for name in WITHOUT_EFFECT {
            if fields.given(name).is_some() {
                let message = format!("'{name}' beside rlqs, which no proxy can obey");
                let error =
                    Diagnostic::error(Code::ConflictingKeys, fields.key_span(name), message);
                let error = error.related(span, "the limit is apportioned over proxies");
                self.report(path, error.help(format!("remove `{name}`, or `rlqs`")));
            }
        }
        match allowance {
            Some(Allowance::Limited { algorithm, .. }) if algorithm.name() == ALGORITHM => {}
            Some(Allowance::Limited { algorithm, .. }) => {
                let message = format!("rlqs with the algorithm {}", algorithm.name());
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let help = "write `algorithm: token_bucket`, which a proxy can enforce alone";
                self.report(path, error.help(help));
            }
            // Reported with `unlimited`, or as an invalid limit.
            Some(Allowance::Unlimited) | None => {}
        }
        self.quotas.push(self.limit_field(span));
        true
    }
    /// Reports limits that an id could fit in two ways. The rules have no errors, so they have
    /// `rlqs` in the order in which that was recorded. Gives whether there are none.
    pub(super) fn check_quotas(&mut self) -> bool {
        if self.quotas.is_empty() {
            return true;
        }
        let found = findings(self.rules.rules(), &self.quotas);
        let are_valid = found.is_empty();
        for Finding {
            at,
            other,
            message,
            help,
        } in found
        {
            let error = Diagnostic::error(Code::ConflictingKeys, at.place.span, message);
            let error = match other {
                Some(other) => self.cite_in(at.place.file, error, other.place, "the other limit"),
                None => error,
            };
            self.report_node(at.node, error.help(help));
        }
        are_valid
    }
}

/// A domain, and the keys of a path in their order as text.
type SortedKeys<'r> = (&'r str, Vec<&'r str>);

fn findings(rules: &[Rule], places: &[LimitFieldOrigin]) -> Vec<Finding> {
    let mut found = Vec::new();
    // By domain and sorted keys: the keys in the order of the path.
    let mut orders: HashMap<SortedKeys<'_>, (Vec<&str>, LimitFieldOrigin)> = HashMap::new();
    let mut before: Option<(&Rule, LimitFieldOrigin)> = None;
    let quotas = rules.iter().filter(|rule| rule.rlqs);
    for (rule, at) in quotas.zip(places.iter().copied()) {
        let keys: Vec<&str> = rule.path.iter().map(|level| level.key.as_str()).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        }) {
            found.push(Finding {
                at,
                other: None,
                message: format!("rlqs below two levels with the key '{}'", excerpt(twice)),
                help: "rename one of the keys: a bucket's id has each key once",
            });
            continue;
        }
        if let Some(key) = keys.iter().find(|key| key.contains('*')) {
            found.push(Finding {
                at,
                other: None,
                message: format!("rlqs below the pattern of keys '{}'", excerpt(key)),
                help: "write the keys that bucket ids have",
            });
            continue;
        }
        if let Some((other, other_at)) = before
            && other.path == rule.path
            && other.domain == rule.domain
        {
            found.push(Finding {
                at,
                other: Some(other_at),
                message: "two limits with rlqs on one descriptor".to_owned(),
                help: "keep one of them: a proxy is assigned one rate for a bucket",
            });
        }
        before = Some((rule, at));
        let (order, first) = orders
            .entry((&rule.domain, sorted))
            .or_insert_with(|| (keys.clone(), at));
        if *order != keys {
            found.push(Finding {
                at,
                other: Some(*first),
                message: "rlqs below the keys of another such limit in another order".to_owned(),
                help: "nest the keys in the same order: a bucket's id has no order, so it would fit both",
            });
        }
    }
    found
}
