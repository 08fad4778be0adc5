//! Diagnostics of a limit with an entry, made into diagnostics of the entry.

use crate::rules::file::diagnostic::{Diagnostic, Span};
use crate::rules::file::loader::Loader;

// === impl Loader ===

impl Loader<'_> {
    /// How many errors and warnings there are.
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.report.errors.len(), self.report.warnings.len())
    }

    /// Completes what was reported since a mark: an error without a place gets this one, a warning
    /// without a place and what was reported before are removed, and each gets the path.
    pub(super) fn place_since(&mut self, (errors, warnings): (usize, usize), at: Span, path: &str) {
        let report = &mut self.report;
        report.warnings = without_repeats(&mut report.warnings, warnings, |warning| {
            warning.span.at.line > 0
        });
        for error in report.errors.iter_mut().skip(errors) {
            if error.span.at.line == 0 {
                error.span = at;
            }
            error.related.retain(|related| related.span.at.line > 0);
        }
        report.errors = without_repeats(&mut report.errors, errors, |_| true);
        let later = report.errors.iter_mut().skip(errors);
        for one in later.chain(report.warnings.iter_mut().skip(warnings)) {
            path.clone_into(&mut one.path);
        }
    }
}

/// The diagnostics without those after the first `known` that are not kept or repeat another.
fn without_repeats(
    all: &mut Vec<Diagnostic>,
    known: usize,
    keep: impl Fn(&Diagnostic) -> bool,
) -> Vec<Diagnostic> {
    let mut later = all.split_off(known.min(all.len()));
    later.retain(&keep);
    let mut kept = std::mem::take(all);
    for one in later {
        let is_same = |other: &Diagnostic| {
            (other.code, other.span, &other.message) == (one.code, one.span, &one.message)
        };
        if !kept.iter().any(is_same) {
            kept.push(one);
        }
    }
    kept
}
