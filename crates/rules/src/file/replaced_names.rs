//! Warnings of names in `replaces` that no limit has.
//!
//! A request has one domain, so a limit replaces only limits of its own domain. Which names a
//! domain has is known when all files are read.

use std::collections::BTreeSet;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{DIAGNOSTICS_MAX, Diagnostic};
use crate::file::loader::Loader;
use crate::file::nearest::nearest;

/// How many names of a domain an unknown one is compared with.
const NAMES_COMPARED_MAX: usize = 1_000;

// === impl Loader ===

impl Loader<'_> {
    /// Warns of the names that no limit of the domain has. The rules have no errors, so they name
    /// others in the order in which that was recorded.
    pub(super) fn warn_unknown_replaced_names(&mut self) {
        if self.replaced_names.is_empty() {
            return;
        }
        let rules = self.rules.rules();
        let with_name = rules.iter().filter(|rule| !rule.name.is_empty());
        let known: BTreeSet<(&str, &str)> =
            with_name.map(|rule| (&*rule.domain, &*rule.name)).collect();
        // The rules of a table have the names of the rule that they belong to.
        let written = rules.iter().filter(|rule| rule.lines.is_none());
        let replaced = written.flat_map(|rule| {
            let names = rule.replaces.iter();
            names.map(move |name| (&*rule.domain, name.as_str()))
        });
        let unknown: Vec<_> = replaced
            .zip(&self.replaced_names)
            .filter(|(name, _)| !known.contains(name))
            .take(DIAGNOSTICS_MAX)
            .map(|((domain, name), at)| {
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
                (*at, message, help)
            })
            .collect();
        for (at, message, help) in unknown {
            let warning = Diagnostic::warning(Code::UnknownReplacedName, at.place.span, message);
            self.report_node(at.node, warning.help(help));
        }
    }
}
