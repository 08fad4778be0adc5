//! Limits with `rlqs`: a bucket's id has no order, so each must fit the keys of one such limit
//! only.
//!
//! Which limits there are is known when all files are read.

use std::collections::HashMap;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::loader::Loader;
use crate::file::node_origin::LimitFieldOrigin;
use tollgate_limiter::Rule;

/// What is wrong with a limit, and the other limit that it is wrong beside.
struct Finding {
    at: LimitFieldOrigin,
    other: Option<LimitFieldOrigin>,
    message: String,
    help: &'static str,
}

// === impl Loader ===

impl Loader<'_> {
    /// Records where a limit of the newest node says `rlqs`.
    pub(super) fn record_quota(&mut self, span: Span) {
        let node = self.nodes.len().saturating_sub(1);
        let place = self.place(span);
        self.quotas.push(LimitFieldOrigin { node, place });
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
                Some(other) => self.cite_place(error, (at.place, other.place), "the other limit"),
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
