//! What was probably meant: names for `did you mean`, and edits where exactly one is possible.

use strsim::damerau_levenshtein;

use crate::file::{Diagnostic, Span};
use crate::yaml::{Content, Node};

/// Longer texts are no misspelt names. The bound keeps the comparison cheap.
const NAME_CHARS_MAX: usize = 64;

/// The shortest text that is taken for the beginning of a name.
const PREFIX_BYTES_MIN: usize = 3;

/// The candidate that `text` is a misspelling or a beginning of, if there is exactly one.
pub fn nearest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if text.is_empty() || text.chars().count() > NAME_CHARS_MAX {
        return None;
    }
    let words = snake_case(text);
    let candidates: Vec<_> = candidates.into_iter().collect();
    let mut measured: Vec<_> = candidates
        .iter()
        .map(|name| {
            let known = name.to_ascii_lowercase();
            let distance = damerau_levenshtein(&words, &known);
            // The first letter is seldom wrong.
            let is_other = known.as_bytes().first() != words.as_bytes().first();
            ((distance, is_other), *name)
        })
        .filter(|((distance, _), name)| *distance <= name.chars().count().max(3) / 3)
        .collect();
    measured.sort_by_key(|(rank, _)| *rank);
    match measured.as_slice() {
        [(best, _), (second, _), ..] if best == second => None,
        [(_, name), ..] => Some(name),
        [] if words.len() >= PREFIX_BYTES_MIN => {
            let mut begin = candidates.iter().filter(|name| name.starts_with(&words));
            let name = begin.next()?;
            begin.next().is_none().then_some(name)
        }
        [] => None,
    }
}

/// `requestsPerUnit` and `requests-per-unit` as `requests_per_unit`.
fn snake_case(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut after_lowercase = false;
    for c in text.chars() {
        if c.is_ascii_uppercase() && after_lowercase {
            words.push('_');
        }
        after_lowercase = c.is_ascii_lowercase();
        words.push(match c {
            '-' | ' ' | '.' => '_',
            c => c.to_ascii_lowercase(),
        });
    }
    words
}

/// The boolean that a text was meant to be.
pub(super) fn meant_boolean(text: &str) -> Option<&'static str> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "on" => Some("true"),
        "0" | "n" | "no" | "off" => Some("false"),
        other => nearest(other, ["true", "false"]),
    }
}

/// The number that a text was meant to be: digits in quotes or with separators.
pub(super) fn meant_integer(text: &str) -> Option<String> {
    let mut groups = text.trim().split([',', '_', ' ', '\'']);
    let first = groups.next()?.to_owned();
    let digits = groups.try_fold(first, |digits, group| {
        (group.len() == 3).then(|| digits + group)
    })?;
    let number: u32 = digits.parse().ok()?;
    // It may be octal or decimal.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_plain && (digits == "0" || !digits.starts_with('0'))).then(|| number.to_string())
}

/// Adds the known word that was probably meant, or all of them.
pub(crate) fn did_you_mean(error: Diagnostic, word: &str, known: &[&str]) -> Diagnostic {
    let (span, all) = (error.span, known.join(", "));
    match nearest(word, known.iter().copied()) {
        Some(meant) => error
            .help(format!("did you mean `{meant}`? Possible values: {all}"))
            .edit(span, meant),
        None => error.help(format!("use one of {all}")),
    }
}

/// Adds the edits that make a list of one item, where the item may stand in brackets as it is.
pub(super) fn in_brackets(text: &str, node: &Node, name: &str, error: Diagnostic) -> Diagnostic {
    let written = text.get(node.span.start..node.span.end);
    let (before, after) = match (&node.content, written) {
        (Content::Scalar { .. }, Some(text)) if text.contains(['\n', ',', '[', ']', '{', '}']) => {
            return error;
        }
        (Content::Scalar { .. }, _) if name == "replaces" => ("[{name: ", "}]"),
        (Content::Scalar { .. }, _) if name == "values" => ("[", "]"),
        (Content::Mapping(_), Some(text)) if text.starts_with('{') => ("[", "]"),
        _ => return error,
    };
    let at = |offset| Span {
        start: offset,
        end: offset,
        ..node.span
    };
    error
        .edit(at(node.span.start), before)
        .edit(at(node.span.end), after)
}

/// Adds the edit that removes a field or an item, where it can be removed by itself: as a line of a
/// block that is not the first of its item, or from between brackets.
pub(super) fn without(text: &str, span: Span, error: Diagnostic) -> Diagnostic {
    match removal(text, span.start, span.end) {
        Some((start, end)) => error.edit(Span { start, end, ..span }, ""),
        None => error,
    }
}

/// The bytes to remove for a field of a mapping to go.
fn removal(text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
    let (before, after) = (text.get(..start)?, text.get(end..)?);
    let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    if before.get(line_start..)?.trim().is_empty() {
        let rest = after.split('\n').next()?;
        let comment_or_nothing = rest.trim().is_empty() || rest.trim_start().starts_with('#');
        let line_end = end.saturating_add(rest.len()).saturating_add(1);
        return comment_or_nothing.then_some((line_start, line_end.min(text.len())));
    }
    let spaces = |part: &str| part.len().saturating_sub(part.trim_end_matches(' ').len());
    let begin = start.saturating_sub(spaces(before));
    if before.trim_end_matches(' ').ends_with(',') {
        return Some((begin.saturating_sub(1), end));
    }
    let rest = after.trim_start_matches(' ').strip_prefix(',')?;
    let rest = rest.trim_start_matches(' ');
    Some((start, text.len().saturating_sub(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_one_nearest_name() {
        let names = ["second", "minute", "hour", "day", "month"];
        for (text, name) in [
            ("secnod", Some("second")),
            ("seconds", Some("second")),
            ("SECOND", Some("second")),
            ("min", Some("minute")),
            ("hr", None),
            ("fortnight", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, names), name, "{text}");
        }
        let names = ["requests_per_unit", "unit", "rate_limit", "rate_limits"];
        for (text, name) in [
            ("requestsPerUnit", Some("requests_per_unit")),
            ("requests-per-units", Some("requests_per_unit")),
            ("ratelimit", Some("rate_limit")),
            ("rate_limitz", None),
        ] {
            assert_eq!(nearest(text, names), name, "{text}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }
}
