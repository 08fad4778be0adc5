//! Warnings of descriptors that can never apply: levels whose values other levels take, and levels
//! that change nothing.
//!
//! What it deliberately does not do: decide which level takes a value (`limiter::reachability`).

use crate::excerpt::excerpt;
use crate::file::loader::Loader;
use crate::file::{Code, Diagnostic};
use tollgate_limiter::{Level, MatchKind, Shadowed, ShadowedPart, StepBudget, Values};

/// How many steps of matching the search for shadowed levels may take.
const STEPS_MAX: u64 = 20_000_000;

/// Warns of the descriptors that no request reaches, and of those that change nothing.
pub(super) fn warn_unreachable_nodes(loader: &mut Loader<'_>) {
    let words = |regex: &str| loader.valid_regexes.get(regex)?.as_deref();
    let steps = StepBudget::new(STEPS_MAX);
    let shadowed = loader.rules.shadowed(&words, &steps);
    warn_of_each(loader, &shadowed, |loader, one| warn_shadowed(loader, *one));
    let idle = loader.rules.nodes_without_effect();
    warn_of_each(loader, &idle, |loader, node| {
        warn_without_effect(loader, *node);
    });
}

/// Warns of each until the warnings are full. The rest is counted.
fn warn_of_each<T>(
    loader: &mut Loader<'_>,
    found: &[T],
    mut warn: impl FnMut(&mut Loader<'_>, &T),
) {
    for (index, one) in found.iter().enumerate() {
        if loader.reader.warnings_are_full() {
            let rest = found.len().saturating_sub(index);
            return loader.reader.omit_warnings(rest);
        }
        warn(loader, one);
    }
}

fn warn_shadowed(loader: &mut Loader<'_>, shadowed: Shadowed) {
    let Shadowed { node, part, by, .. } = shadowed;
    let (Some(origin), Some(other)) = (loader.nodes.get(node), loader.nodes.get(by)) else {
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
                loader.item_span(node, index).unwrap_or(span),
                format!("'{}' of '{name}' is never reached", excerpt(&item)),
            )
        }
    };
    let (why, help) = reason(shadowed, level, &other.level);
    let warning = Diagnostic::warning(Code::Unreachable, span, format!("{what}: {why}"));
    let other = Some((other.place, "matches first"));
    loader.report_node(node, warning.help(help), other);
}

fn warn_without_effect(loader: &mut Loader<'_>, node: usize) {
    let Some(origin) = loader.nodes.get(node) else {
        return;
    };
    // Another warning of this descriptor says why it has no limit, or that it never applies.
    let path = loader.node_path(node);
    if loader.reader.has_warning(origin.place.file, &path) {
        return;
    }
    let message = format!(
        "'{}' has no limit and no descriptors, so it changes nothing",
        excerpt(&origin.level.label())
    );
    let warning = Diagnostic::warning(Code::NoLimit, origin.place.span, message)
        .help("add a `rate_limit`, or remove the descriptor");
    loader.report_node(node, warning, None);
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
