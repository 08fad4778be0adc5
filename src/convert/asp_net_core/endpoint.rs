//! Endpoints: `*`, `verb:/path` with `*` and `?`, or a regular expression of the same form.
//!
//! The library compares `verb:path` in lower case, without slashes at the end of the path. tollgate
//! gets verb and path as two entries, as the client spelled them.

use crate::convert::rules_text::{Values, escaped};

/// What an endpoint matches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Endpoint {
    pub(super) method: Values,
    pub(super) path: Values,
    /// The path is one, however it is spelled, so its bucket is shared.
    pub(super) is_one_path: bool,
}

/// An endpoint that cannot be converted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum EndpointError {
    /// It matches no request.
    Never(&'static str),
    /// It has no equal.
    NoEqual(&'static str),
}

/// Regular expressions that any verb matches.
const ANY_VERB: [&str; 7] = [".*", ".+", "\\w+", "\\w*", "[a-z]+", "(.*)", "(.+)"];

/// Regular expressions that any path matches.
const ANY_PATH: [&str; 5] = [".*", ".+", "/.*", "(.*)", "(.+)"];

// === impl Endpoint ===

impl Endpoint {
    pub(super) const ALL: Self = Self {
        method: Values::Any,
        path: Values::Any,
        is_one_path: false,
    };

    pub(super) fn parse(text: &str, is_regex: bool) -> Result<Self, EndpointError> {
        if is_regex {
            return Self::of_regex(text);
        }
        if text == "*" {
            return Ok(Self::ALL);
        }
        let (verb, path) = match text.split_once(':') {
            Some(parts) => parts,
            None if text.starts_with("*/") => ("*", text),
            None => {
                let why = "it has no `:` between verb and path";
                return Err(EndpointError::NoEqual(why));
            }
        };
        let method = match verb {
            "*" => Values::Any,
            verb if is_word(verb) => Values::Text(verb.to_ascii_uppercase()),
            _ => return Err(EndpointError::NoEqual("its verb has wildcards")),
        };
        if matches!(path, "*" | "/*") {
            return Ok(Self {
                method,
                ..Self::ALL
            });
        }
        if !path.contains(['*', '?']) {
            return Self::of_path(method, path);
        }
        let regex = path_regex(path);
        Ok(Self {
            method,
            path: Values::Regex(regex),
            is_one_path: false,
        })
    }

    /// One path, in any spelling.
    fn of_path(method: Values, path: &str) -> Result<Self, EndpointError> {
        if !path.starts_with('/') {
            return Err(EndpointError::Never("a path begins with `/`"));
        }
        if path.len() > 1 && path.ends_with('/') {
            let why = "the library removes `/` from the end of a request's path";
            return Err(EndpointError::Never(why));
        }
        let path = if path == "/" {
            Values::Text(path.to_owned())
        } else {
            Values::Regex(format!("(?i){}/*", escaped(path)))
        };
        let is_one_path = path.match_many();
        Ok(Self {
            method,
            path,
            is_one_path,
        })
    }

    fn of_regex(text: &str) -> Result<Self, EndpointError> {
        let text = text.strip_prefix('^').unwrap_or(text);
        let text = text.strip_suffix('$').unwrap_or(text);
        if text.starts_with('*') {
            let why =
                "with EnableRegexRuleMatching it is no regular expression; the library throws";
            return Err(EndpointError::NoEqual(why));
        }
        if ANY_VERB.contains(&text) {
            return Ok(Self::ALL);
        }
        let Some((verb, path)) = split_regex(text) else {
            let why = "its verb and its path are not apart by one `:`";
            return Err(EndpointError::NoEqual(why));
        };
        let method = verb_values(verb);
        if ANY_PATH.contains(&path) {
            return Ok(Self {
                method,
                ..Self::ALL
            });
        }
        if !path.contains(|c| "\\.+*?()|[]{}^$".contains(c)) {
            return Self::of_path(method, path);
        }
        Ok(Self {
            method,
            path: Values::Regex(format!("(?i){path}/*")),
            is_one_path: false,
        })
    }
}

/// A path with wildcards as a regex of the paths that clients send. The library compares without
/// slashes at the end, so what a last wildcard matches ends with another character.
fn path_regex(path: &str) -> String {
    let body = path.trim_end_matches('*');
    let mut regex = "(?i)".to_owned();
    for c in body.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            c => regex.push_str(&escaped(c.encode_utf8(&mut [0; 4]))),
        }
    }
    if body.len() < path.len() {
        regex.push_str(if body.ends_with('/') {
            ".*[^/]"
        } else {
            "(?:.*[^/])?"
        });
    } else if body.ends_with('?') {
        regex.pop();
        regex.push_str("[^/]");
    }
    regex.push_str("/*");
    regex
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The verbs of a regular expression.
fn verb_values(verb: &str) -> Values {
    if ANY_VERB.contains(&verb) {
        return Values::Any;
    }
    let inner = verb.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    let words: Vec<_> = inner.unwrap_or(verb).split('|').collect();
    if words.iter().all(|word| is_word(word)) {
        let words: Vec<_> = words.iter().map(|it| it.to_ascii_uppercase()).collect();
        return Values::any_of(&words);
    }
    Values::Regex(format!("(?i){verb}"))
}

/// Splits at the only `:` outside of groups and classes. None if there is another one, or a choice
/// between whole expressions.
fn split_regex(text: &str) -> Option<(&str, &str)> {
    let mut depth: u32 = 0;
    let mut at = None;
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' | '[' => depth = depth.saturating_add(1),
            ')' | ']' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return None,
            ':' if depth == 0 && at.is_some() => return None,
            ':' if depth == 0 => at = Some(index),
            _ => {}
        }
    }
    let (verb, path) = text.split_at_checked(at?)?;
    Some((verb, path.strip_prefix(':')?))
}
