//! Warnings of names in `replaces` that no limit has.
//!
//! A request has one domain, so a limit replaces only limits of its own domain. Which names a
//! domain has is known when all files are read.

use std::collections::HashSet;
use std::sync::Arc;

use crate::rules::excerpt::excerpt;
use crate::rules::file::code::Code;
use crate::rules::file::diagnostic::{Diagnostic, Span};
use crate::rules::file::loader::{Loader, Phase};

/// Where a limit's `replaces` names another limit.
#[derive(Clone, Debug)]
pub(super) struct ReplacedName<'s> {
    pub(super) domain: Arc<str>,
    pub(super) name: String,
    pub(super) file: &'s str,
    pub(super) path: String,
    pub(super) span: Span,
}

// === impl Loader ===

impl Loader<'_> {
    /// Warns of the names that no limit of the domain has.
    pub(super) fn warn_unknown_replaced_names(&mut self) {
        let replaced = std::mem::take(&mut self.replaced_names);
        if replaced.is_empty() {
            return;
        }
        let rules = self.rules.rules().iter();
        let known: HashSet<_> = rules
            .map(|rule| (rule.domain.to_string(), rule.name.clone()))
            .collect();
        for one in replaced {
            if known.contains(&(one.domain.to_string(), one.name.clone())) {
                continue;
            }
            let message = format!(
                "replaces names '{}', and no limit of domain '{}' has this name",
                excerpt(&one.name),
                excerpt(&one.domain)
            );
            let help = "correct the name, give the other limit this `name`, or remove the entry";
            let warning = Diagnostic::warning(Code::UnknownReplacedName, one.span, message);
            self.report_at(Phase::Meaning, (one.file, &one.path), warning.help(help));
        }
    }
}
