//! Warnings of descriptors that can never apply: levels whose values other levels take, and levels
//! that change nothing.
//!
//! What it deliberately does not do: decide which level takes a value (`limiter::reachability`).

use std::cell::RefCell;
use std::collections::HashMap;

use crate::rules::excerpt::excerpt;
use crate::rules::file::code::Code;
use crate::rules::file::diagnostic::Diagnostic;
use crate::rules::file::loader::Loader;
use crate::rules::patterns::regex_words;
use tollgate_limiter::{Level, MatchKind, Shadowed, ShadowedPart, StepBudget, Values};

/// How many steps of matching the search for shadowed levels may take.
const STEPS_MAX: u64 = 20_000_000;

// === impl Loader ===

impl Loader<'_> {
    /// Warns of the descriptors that no request reaches, and of those that change nothing.
    pub(super) fn warn_unreachable_nodes(&mut self) {
        let known = RefCell::new(HashMap::new());
        let words = |regex: &str| {
            let mut known = known.borrow_mut();
            let words = known.entry(regex.to_owned());
            words.or_insert_with(|| regex_words(regex)).clone()
        };
        for shadowed in self.rules.shadowed(&words, &StepBudget::new(STEPS_MAX)) {
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
                let span = origin.items.get(index).copied().unwrap_or(origin.span);
                let item = item(level, index);
                (
                    span,
                    format!("'{}' of '{name}' is never reached", excerpt(&item)),
                )
            }
        };
        let (why, help) = reason(shadowed, level, other);
        let message = format!("{what}: '{}' {why}", excerpt(&other.label()));
        let warning = Diagnostic::warning(Code::Unreachable, span, message)
            .related_in(other_origin.file, other_origin.span, "matches first")
            .help(help);
        self.report_node(node, warning);
    }

    fn warn_without_effect(&mut self, node: usize) {
        let (Some(level), Some(origin)) = (self.rules.level(node), self.origins.get(node)) else {
            return;
        };
        // A descriptor of the holder key of the level above has a warning of its own.
        if origin.is_of_holder_key {
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

/// Why another level comes first, and what to do.
fn reason(shadowed: Shadowed, level: &Level, other: &Level) -> (&'static str, &'static str) {
    if let (Values::Prefixes(_), _) | (_, true) = (&*level.values, shadowed.with_others) {
        let help = "remove it, or make the others match less";
        return (
            "and other descriptors with precedence match its values",
            help,
        );
    }
    if let ShadowedPart::Item(_) = shadowed.part {
        let help = "remove it here, or remove the other descriptor";
        return ("matches it and has precedence", help);
    }
    if kind(level).is_some() && kind(level) == kind(other) {
        let help = "move it before the other descriptor, or remove it";
        return ("is written earlier and matches all its values", help);
    }
    let help = "remove it, or make the other descriptor match less";
    ("has precedence and matches all its values", help)
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
