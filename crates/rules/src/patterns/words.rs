//! The words of a regular expression: texts in which [`ANY_TEXT`] stands for any text. Together
//! they match what the expression matches.
//!
//! Few expressions have few words (`free|trial`, `/v1/.*`), and these are the ones that repeat what
//! another level of the rules says already.

use regex_syntax::hir::{Class, ClassBytesRange, Hir, HirKind, Look};

use crate::patterns::regex::parse;
use tollgate_limiter::ANY_TEXT;

/// How many words an expression may have.
const WORDS_MAX: usize = 16;

/// How long an expression with words may be, in bytes.
const REGEX_BYTES_MAX: usize = 4 << 10;

/// The words of a parsed expression; none when it has too many, or is no set of words.
pub(crate) fn words(regex: &str, hir: &Hir) -> Option<Vec<Vec<u8>>> {
    if regex.len() > REGEX_BYTES_MAX {
        return None;
    }
    let mut words = vec![Vec::new()];
    match hir.kind() {
        HirKind::Alternation(branches) => fork(&mut words, branches.len(), |words, index| {
            append_all(words, without_anchors(branches.get(index)?))
        })?,
        _ => append_all(&mut words, without_anchors(hir))?,
    }
    Some(words)
}

/// The words of a regular expression.
pub fn regex_words(regex: &str) -> Option<Vec<Vec<u8>>> {
    words(regex, &parse(regex).ok()?)
}

/// The parts of an expression without the anchors of a whole value, which it has anyway.
fn without_anchors(hir: &Hir) -> &[Hir] {
    let parts = match hir.kind() {
        HirKind::Concat(parts) => parts.as_slice(),
        _ => std::slice::from_ref(hir),
    };
    let is_look =
        |part: &Hir, wanted| matches!(part.kind(), HirKind::Look(look) if *look == wanted);
    let parts = match parts {
        [first, rest @ ..] if is_look(first, Look::Start) => rest,
        parts => parts,
    };
    match parts {
        [rest @ .., last] if is_look(last, Look::End) => rest,
        parts => parts,
    }
}

/// Appends parts in a row to each word.
fn append_all(words: &mut Vec<Vec<u8>>, parts: &[Hir]) -> Option<()> {
    parts.iter().try_for_each(|part| append(words, part))
}

/// Appends a part to each word.
fn append(words: &mut Vec<Vec<u8>>, part: &Hir) -> Option<()> {
    match part.kind() {
        HirKind::Empty => Some(()),
        HirKind::Literal(text) => append_text(words, &text.0),
        HirKind::Class(Class::Bytes(class)) => {
            let ranges = class.ranges().iter();
            let bytes = ranges.flat_map(|range| range.start()..=range.end());
            let bytes: Vec<_> = bytes.take(WORDS_MAX.saturating_add(1)).collect();
            fork(words, bytes.len(), |words, index| {
                append_text(words, bytes.get(index..=index)?)
            })
        }
        HirKind::Repetition(repeated) => match (repeated.min, repeated.max) {
            // Greedy or not is the same for a whole value.
            (0, None) if is_any_byte(&repeated.sub) => {
                for word in words.iter_mut() {
                    word.push(ANY_TEXT);
                }
                Some(())
            }
            (0, Some(1)) => fork(words, 2, |words, index| match index {
                0 => append(words, &repeated.sub),
                _ => Some(()),
            }),
            _ => None,
        },
        HirKind::Capture(group) => append(words, &group.sub),
        HirKind::Concat(parts) => append_all(words, parts),
        HirKind::Alternation(branches) => fork(words, branches.len(), |words, index| {
            append(words, branches.get(index)?)
        }),
        HirKind::Look(_) | HirKind::Class(Class::Unicode(_)) => None,
    }
}

fn append_text(words: &mut [Vec<u8>], text: &[u8]) -> Option<()> {
    if text.contains(&ANY_TEXT) {
        return None;
    }
    for word in words {
        word.extend_from_slice(text);
    }
    Some(())
}

/// Continues the words in several ways.
fn fork(
    words: &mut Vec<Vec<u8>>,
    ways: usize,
    append: impl Fn(&mut Vec<Vec<u8>>, usize) -> Option<()>,
) -> Option<()> {
    if words.len().saturating_mul(ways) > WORDS_MAX {
        return None;
    }
    let before = std::mem::take(words);
    for way in 0..ways {
        let mut continued = before.clone();
        append(&mut continued, way)?;
        words.append(&mut continued);
    }
    (words.len() <= WORDS_MAX).then_some(())
}

fn is_any_byte(hir: &Hir) -> bool {
    matches!(hir.kind(), HirKind::Class(Class::Bytes(class))
        if class.ranges() == [ClassBytesRange::new(0, u8::MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words as text, sorted, with `*` for any text.
    fn spelled(regex: &str) -> Option<Vec<String>> {
        let mut words: Vec<_> = regex_words(regex)?
            .into_iter()
            .map(|word| {
                let bytes = word.into_iter();
                let bytes = bytes.map(|byte| if byte == ANY_TEXT { b'*' } else { byte });
                String::from_utf8(bytes.collect()).unwrap()
            })
            .collect();
        words.sort_unstable();
        Some(words)
    }

    #[test]
    fn expressions_with_few_words_have_exactly_these() {
        for (regex, words) in [
            ("free", &["free"][..]),
            ("^free$", &["free"]),
            ("^free|trial$", &["free", "trial"]),
            ("(free|trial)s?", &["free", "frees", "trial", "trials"]),
            ("/v[12]/.*", &["/v1/*", "/v2/*"]),
            ("a.*?b", &["a*b"]),
            (".*", &["*"]),
            ("(?i)ab", &["AB", "Ab", "aB", "ab"]),
            ("", &[""]),
            // It matches no value.
            (r"[^\x00-\xff]", &[]),
            (r"\*", &["*"]),
        ] {
            assert_eq!(
                spelled(regex),
                Some(words.iter().map(|&word| word.to_owned()).collect()),
                "{regex}"
            );
        }
    }

    #[test]
    fn other_expressions_have_no_words() {
        for regex in [
            "a+",
            "a{2,3}",
            ".",
            ".+",
            "[a-z]*",
            "[^a]",
            r"\d\d",
            r"\xff",
            r"a\b.*",
            "a$b",
            "(?m)^a$",
            "(?-s).*",
            "[a-e][a-e]",
        ] {
            assert_eq!(spelled(regex), None, "{regex}");
        }
    }
}
