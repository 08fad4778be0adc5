//! Warnings of descriptors that can never apply: levels whose values other levels take, and levels
//! that change nothing.
//!
//! What it deliberately does not do: decide which level takes a value (`limiter::reachability`).

use crate::rules::excerpt::excerpt;
use crate::rules::file::code::Code;
use crate::rules::file::diagnostic::Diagnostic;
use crate::rules::file::loader::Loader;
use tollgate_limiter::{Level, MatchKind, Shadowed, ShadowedPart, StepBudget, Values};

/// How many steps of matching the search for shadowed levels may take.
const STEPS_MAX: u64 = 20_000_000;

// === impl Loader ===

impl Loader<'_> {
    /// Warns of the descriptors that no request reaches, and of those that change nothing.
    pub(super) fn warn_unreachable_nodes(&mut self) {
        let words = |regex: &str| self.valid_regexes.get(regex)?.as_deref();
        let steps = StepBudget::new(STEPS_MAX);
        let shadowed = self.rules.shadowed(&words, &steps);
        for shadowed in shadowed {
            self.warn_shadowed(shadowed);
        }
        for node in self.rules.nodes_without_effect() {
            self.warn_without_effect(node);
        }
    }

    fn warn_shadowed(&mut self, shadowed: Shadowed) {
        let Shadowed { node, part, by, .. } = shadowed;
        let levels = (self.rules.level(node), self.rules.level(by));
        let origins = (self.origins.get(node), self.origins.get(by));
        let ((Some(level), Some(other)), (Some(origin), Some(other_origin))) = (levels, origins)
        else {
            return;
        };
        let label = level.label();
        let name = excerpt(&label);
        let (span, what) = match part {
            ShadowedPart::Level => (origin.span, format!("'{name}' is never reached")),
            ShadowedPart::AllButOwnText => (
                origin.span,
                format!("'{name}' is reached only by its own text, never as a pattern"),
            ),
            ShadowedPart::Item(index) => {
                let span = self.origins.item(node, index).unwrap_or(origin.span);
                let item = item(level, index);
                (
                    span,
                    format!("'{}' of '{name}' is never reached", excerpt(&item)),
                )
            }
        };
        let (why, help) = reason(shadowed, level, other);
        let message = format!("{what}: {why}");
        let warning = Diagnostic::warning(Code::Unreachable, span, message)
            .related_in(self.origins.file(by), other_origin.span, "matches first")
            .help(help);
        self.report_node(node, warning);
    }

    fn warn_without_effect(&mut self, node: usize) {
        let (Some(level), Some(origin)) = (self.rules.level(node), self.origins.get(node)) else {
            return;
        };
        // Another warning of this descriptor says why it has no limit, or that it never applies.
        let (file, path) = (self.origins.file(node), self.origins.path(node));
        let mut warnings = self.warnings.iter();
        if warnings.any(|one| one.file == file && one.path == path) {
            return;
        }
        let message = format!(
            "'{}' has no limit and no descriptors, so it changes nothing",
            excerpt(&level.label())
        );
        let warning = Diagnostic::warning(Code::NoLimit, origin.span, message)
            .help("add a `rate_limit`, or remove the descriptor");
        self.report_node(node, warning);
    }
}

/// The text of an item of a level's list.
fn item(level: &Level, index: usize) -> String {
    match &*level.values {
        Values::List(values) => values.get(index).cloned().unwrap_or_default(),
        Values::Prefixes(prefixes) => {
            let prefix = prefixes.get(index);
            prefix
                .map(|prefix| format!("{prefix:#}"))
                .unwrap_or_default()
        }
        Values::Any | Values::Text(_) | Values::Regex(_) => String::new(),
    }
}

/// Why a level is not reached, and what to do.
fn reason(shadowed: Shadowed, level: &Level, other: &Level) -> (String, &'static str) {
    let label = other.label();
    let other_name = excerpt(&label);
    if let Values::Prefixes(_) = &*level.values {
        let why = format!("longer prefixes, as in '{other_name}', contain all its addresses");
        return (
            why,
            "remove it; the longest prefix that contains an address is chosen",
        );
    }
    if shadowed.with_others {
        let why = format!("'{other_name}' and others have precedence and match all its values");
        return (why, "remove it, or make the others match less");
    }
    if let ShadowedPart::Item(_) = shadowed.part {
        let why = format!("'{other_name}' has precedence and matches it");
        return (why, "remove it here, or remove the other descriptor");
    }
    if kind(level).is_some() && kind(level) == kind(other) {
        let why = format!("'{other_name}' is written earlier and matches all its values");
        return (why, "move it before the other descriptor, or remove it");
    }
    let why = format!("'{other_name}' has precedence and matches all its values");
    (why, "remove it, or make the other descriptor match less")
}

/// The kind of a level. Of levels of one kind the first that matches is chosen.
fn kind(level: &Level) -> Option<MatchKind> {
    match &*level.values {
        Values::Regex(_) => Some(MatchKind::Regex),
        Values::Text(text) if text.contains('*') => Some(MatchKind::Wildcard),
        Values::Any | Values::Text(_) if level.key.contains('*') => Some(MatchKind::Wildcard),
        _ => None,
    }
}
