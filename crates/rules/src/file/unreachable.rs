//! Warnings of descriptors that can never apply: levels whose values other levels take, and levels
//! that change nothing.
//!
//! What it deliberately does not do: decide which level takes a value (`limiter::reachability`).

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::loader::Loader;
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
        for (index, one) in shadowed.iter().enumerate() {
            if self.warnings_are_full() {
                self.omit_warnings(shadowed.len().saturating_sub(index));
                break;
            }
            self.warn_shadowed(*one);
        }
        let idle = self.rules.nodes_without_effect();
        for (index, node) in idle.iter().enumerate() {
            if self.warnings_are_full() {
                self.omit_warnings(idle.len().saturating_sub(index));
                break;
            }
            self.warn_without_effect(*node);
        }
    }

    fn warn_shadowed(&mut self, shadowed: Shadowed) {
        let Shadowed { node, part, by, .. } = shadowed;
        let (Some(origin), Some(other)) = (self.nodes.get(node), self.nodes.get(by)) else {
            return;
        };
        let (level, span) = (&*origin.level, origin.place.span);
        let label = level.label();
        let name = excerpt(&label);
        let (span, what) = match part {
            ShadowedPart::Level => (span, format!("'{name}' is never reached")),
            ShadowedPart::AllButOwnText => (
                span,
                format!("'{name}' is reached only by its own text, never as a pattern"),
            ),
            ShadowedPart::Item(index) => {
                let item = item(level, index);
                (
                    self.item_span(node, index).unwrap_or(span),
                    format!("'{}' of '{name}' is never reached", excerpt(&item)),
                )
            }
        };
        let (why, help) = reason(shadowed, level, &other.level);
        let warning = Diagnostic::warning(Code::Unreachable, span, format!("{what}: {why}"));
        let warning = self.cite_node(warning, (node, by), "matches first");
        self.report_node(node, warning.help(help));
    }

    fn warn_without_effect(&mut self, node: usize) {
        let Some(origin) = self.nodes.get(node) else {
            return;
        };
        // Another warning of this descriptor says why it has no limit, or that it never applies.
        if self.has_warning(origin.place.file, &self.node_path(node)) {
            return;
        }
        let message = format!(
            "'{}' has no limit and no descriptors, so it changes nothing",
            excerpt(&origin.level.label())
        );
        let warning = Diagnostic::warning(Code::NoLimit, origin.place.span, message)
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
