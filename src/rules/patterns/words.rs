//! The words of a regular expression: texts in which [`ANY_TEXT`] stands for any text. Together
//! they match what the expression matches.
//!
//! Few expressions have few words (`free|trial`, `/v1/.*`), and these are the ones that repeat what
//! another level of the rules says already.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::rules::patterns::regex::{anything, parse};
use tollgate_limiter::ANY_TEXT;

/// How many words an expression may have.
const WORDS_MAX: usize = 64;

/// How long all words of an expression may be, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// The words of a regular expression; none when it has too many, or is no set of words.
pub fn regex_words(regex: &str) -> Option<Vec<Vec<u8>>> {
    let hir = parse(regex).ok()?;
    match hir.kind() {
        HirKind::Alternation(branches) => {
            let words = branches.iter().map(|branch| words(without_anchors(branch)));
            bounded(words.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => words(without_anchors(&hir)),
    }
}

/// The parts of an expression without the anchors of a whole value, which it has anyway.
fn without_anchors(hir: &Hir) -> &[Hir] {
    let parts = match hir.kind() {
        HirKind::Concat(parts) => parts.as_slice(),
        _ => std::slice::from_ref(hir),
    };
    let look = |part: &Hir, wanted| matches!(part.kind(), HirKind::Look(look) if *look == wanted);
    let parts = match parts {
        [first, rest @ ..] if look(first, Look::Start) => rest,
        parts => parts,
    };
    match parts {
        [rest @ .., last] if look(last, Look::End) => rest,
        parts => parts,
    }
}

/// The words of parts in a row.
fn words(parts: &[Hir]) -> Option<Vec<Vec<u8>>> {
    let mut words = vec![Vec::new()];
    for part in parts {
        let next = words_of_part(part)?;
        if words.len().saturating_mul(next.len()) > WORDS_MAX {
            return None;
        }
        let pairs = words.iter().flat_map(|word| {
            next.iter()
                .map(move |next| [word.as_slice(), next].concat())
        });
        words = bounded(pairs.collect())?;
    }
    Some(words)
}

fn words_of_part(part: &Hir) -> Option<Vec<Vec<u8>>> {
    match part.kind() {
        HirKind::Empty => Some(vec![Vec::new()]),
        HirKind::Literal(text) => (!text.0.contains(&ANY_TEXT)).then(|| vec![text.0.to_vec()]),
        HirKind::Class(Class::Bytes(class)) => {
            let ranges = class.ranges().iter();
            let bytes = ranges.flat_map(|range| range.start()..=range.end());
            let bytes: Vec<_> = bytes.take(WORDS_MAX.saturating_add(1)).collect();
            let is_known = bytes.len() <= WORDS_MAX && !bytes.contains(&ANY_TEXT);
            is_known.then(|| bytes.into_iter().map(|byte| vec![byte]).collect())
        }
        HirKind::Repetition(repeated) => match (repeated.min, repeated.max) {
            // Greedy or not is the same for a whole value.
            (0, None) if is_any_byte(&repeated.sub) => Some(vec![vec![ANY_TEXT]]),
            (0, Some(1)) => {
                let mut words = words_of_part(&repeated.sub)?;
                words.push(Vec::new());
                bounded(words)
            }
            _ => None,
        },
        HirKind::Capture(group) => words_of_part(&group.sub),
        HirKind::Concat(parts) => words(parts),
        HirKind::Alternation(branches) => {
            let words = branches.iter().map(words_of_part);
            bounded(words.collect::<Option<Vec<_>>>()?.concat())
        }
        HirKind::Look(_) | HirKind::Class(Class::Unicode(_)) => None,
    }
}

fn is_any_byte(hir: &Hir) -> bool {
    matches!(anything().kind(), HirKind::Repetition(any) if *any.sub == *hir)
}

/// The words, if they keep their bounds.
fn bounded(words: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let bytes = words
        .iter()
        .fold(0, |bytes: usize, word| bytes.saturating_add(word.len()));
    (words.len() <= WORDS_MAX && bytes <= BYTES_MAX).then_some(words)
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
            "(a|b|c|d|e|f|g|h|i)(a|b|c|d|e|f|g|h|i)",
        ] {
            assert_eq!(spelled(regex), None, "{regex}");
        }
    }
}
