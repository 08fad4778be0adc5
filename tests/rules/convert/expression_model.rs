//! Conditions of limitador, evaluated on the entries of a request.
//!
//! It splits the text at operators instead of parsing it, which is enough for the test's files. A
//! test of an entry that does not exist is an error, and a limit with an error does not apply.

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

/// Whether a condition holds; none if it reads an entry that does not exist.
pub(crate) fn holds(text: &str, entry: &dyn Fn(&str) -> Option<String>) -> Option<bool> {
    let text = text.trim();
    if let Some((left, right)) = split(text, "||") {
        return match (holds(left, entry), holds(right, entry)) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
    }
    if let Some((left, right)) = split(text, "&&") {
        return match (holds(left, entry), holds(right, entry)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
    }
    if let Some(inner) = text.strip_prefix('!') {
        return holds(inner, entry).map(|it| !it);
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
        return holds(inner, entry);
    }
    if let Some(inner) = text
        .strip_prefix("has(")
        .and_then(|it| it.strip_suffix(')'))
    {
        return Some(entry(inner).is_some());
    }
    if let Some((left, right)) = split(text, "==") {
        return Some(value(left, entry)? == value(right, entry)?);
    }
    if let Some((left, right)) = split(text, "!=") {
        return Some(value(left, entry)? != value(right, entry)?);
    }
    if let Some((left, right)) = split(text, " in ") {
        let list = right.trim().trim_start_matches('[').trim_end_matches(']');
        let left = value(left, entry)?;
        return Some(
            list.split(',')
                .any(|item| literal(item) == Some(left.clone())),
        );
    }
    match text {
        "true" => return Some(true),
        "false" => return Some(false),
        _ => {}
    }
    let methods = ["startsWith", "endsWith", "contains", "matches"].into_iter();
    let mut calls = methods.filter_map(|method| {
        let (target, argument) = text.split_once(&format!(".{method}("))?;
        Some((method, target, literal(argument.strip_suffix(')')?)?))
    });
    let (method, target, argument) = calls.next().unwrap_or_else(|| panic!("{text}"));
    let value = value(target, entry)?;
    Some(match method {
        "startsWith" => value.starts_with(&argument),
        "endsWith" => value.ends_with(&argument),
        "contains" => value.contains(&argument),
        _ => is_match(&argument, &value),
    })
}

/// Whether a part of the value matches.
pub(crate) fn is_match(regex: &str, value: &str) -> bool {
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let regex = Regex::builder()
        .syntax(syntax)
        .build(regex)
        .expect("a regex");
    regex.is_match(value)
}

fn value(text: &str, entry: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    literal(text).or_else(|| entry(text.trim()))
}

fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text[1..].strip_suffix(quote)?;
    Some(inner.replace("\\'", "'").replace("\\\\", "\\"))
}

/// Splits at the first such operator outside of quotes and brackets.
fn split<'t>(text: &'t str, operator: &str) -> Option<(&'t str, &'t str)> {
    let mut quote = None;
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) => {
                if c == open && before != '\\' {
                    quote = None;
                }
            }
            None if depth == 0 && text[at..].starts_with(operator) => {
                return Some((&text[..at], &text[at + operator.len()..]));
            }
            None => match c {
                '\'' | '"' => quote = Some(c),
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            },
        }
        before = c;
    }
    None
}
