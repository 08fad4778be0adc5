//! Limits that share a bucket: those of one domain with the same `budget` whose descriptors differ
//! only in their last entry.
//!
//! A bucket has one limit, so they must agree in all that counts but their prices. Which limits
//! there are is known when all files are read, and what an overlay makes of them when it is
//! applied.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::loader::{LimitFieldOrigin, Loader};
use crate::file::rate_limit::share_bucket;
use tollgate_limiter::{Allowance, Limit, Rule};

/// What limits that share a bucket have in common: the domain, the level above, and the name.
type Shared<'r> = (&'r str, *const tollgate_limiter::Level, &'r str);

// === impl Loader ===

impl Loader<'_> {
    /// Reports limits that cannot share a bucket. The rules have no errors, so they name budgets in
    /// the order in which that was recorded. Gives whether there are none.
    pub(super) fn check_budgets(&mut self) -> bool {
        if self.budgets.is_empty() {
            return true;
        }
        let rules = self.rules.rules();
        let mut wrong = Vec::new();
        let mut first_of: HashMap<Shared<'_>, (&Rule, LimitFieldOrigin)> = HashMap::new();
        let with_budget = rules.iter().filter(|rule| rule.budget.is_some());
        for (rule, origin) in with_budget.zip(&self.budgets) {
            let Some(shared) = shared(rule) else {
                continue;
            };
            let (first, first_origin) = *first_of.entry(shared).or_insert((rule, *origin));
            if let Some(what) = difference(first, rule) {
                let message = format!(
                    "budget '{}' has limits with another {what}, and they share one bucket",
                    excerpt(shared.2)
                );
                wrong.push((*origin, first_origin, message, what));
            }
        }
        let are_valid = wrong.is_empty();
        for (origin, first, message, what) in wrong {
            let error = Diagnostic::error(Code::ConflictingKeys, origin.place.span, message);
            let error = self.cite_in(origin.place.file, error, first.place, "the first of them");
            let help =
                format!("give them the same {what}, or name another budget; only costs may differ");
            self.report_node(origin.node, error.help(help));
        }
        are_valid
    }
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
    let numbers = |rule: &Rule| match &rule.allowance {
        Allowance::Limited { limit, .. } => Some(*limit),
        Allowance::Unlimited => None,
    };
    let options = |limit: &Limit| (limit.segments(), limit.count_refused());
    let (limit, other_limit) = (numbers(one)?, numbers(other)?);
    if !share_bucket(&one.allowance, &other.allowance) {
        Some("algorithm or window")
    } else if limit.requests() != other_limit.requests() {
        Some("requests_per_unit")
    } else if limit.burst() != other_limit.burst() {
        Some("burst")
    } else if options(&limit) != options(&other_limit) {
        Some("segments, count_refused or charged")
    } else if one.reserve != other.reserve {
        Some("reserve")
    } else if one.shadow_mode != other.shadow_mode || one.quota_mode != other.quota_mode {
        Some("shadow_mode or quota_mode")
    } else {
        None
    }
}
