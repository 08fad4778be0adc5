//! Text that is shown to people: without hidden characters, and without secrets.
//!
//! Keys and values that clients chose may hold control characters, which could move the cursor or
//! set the terminal's title, and characters of invisible format, which could reorder a line. Both
//! are shown escaped. An address that the operator wrote may hold a login, which is masked.

use std::borrow::Cow;
use std::fmt;

/// The text with every control and format character escaped.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The beginning of a text, at most so many bytes of whole characters.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// The text with `***` in place of everything before its last `@`: a login, and whatever a mistake
/// has made of one. The scheme of a URL stays.
pub fn masked(text: &str) -> Cow<'_, str> {
    let Some((login, place)) = text.rsplit_once('@') else {
        return Cow::Borrowed(text);
    };
    let is_scheme = |text: &&str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
        text.len() <= SCHEME_BYTES_MAX && text.bytes().all(known)
    };
    let scheme = login.split_once("://").map(|(scheme, _)| scheme);
    Cow::Owned(match scheme.filter(is_scheme) {
        Some(scheme) => format!("{scheme}://***@{place}"),
        None => format!("***@{place}"),
    })
}

/// The longest scheme of a URL that is shown: `rediss+sentinel`.
const SCHEME_BYTES_MAX: usize = 15;

/// A setting that may hold a secret. A debug print does not show it.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Hidden(pub String);

// === impl Hidden ===

impl From<&str> for Hidden {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// Whether a character has no shape of its own, or changes the place of others.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_an_at_sign_is_masked() {
        for (text, shown) in [
            ("cache:6379", "cache:6379"),
            (":hunter2@cache:6379", "***@cache:6379"),
            ("me:hun@ter,2@cache", "***@cache"),
            ("redis://:hunter2@cache:6379", "redis://***@cache:6379"),
            (
                "redis+cluster://a,redis://:hunter2@b",
                "redis+cluster://***@b",
            ),
            ("hunter2 of me://x@cache", "***@cache"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }

    #[test]
    fn control_and_format_characters_are_escaped() {
        for (text, shown) in [
            ("plain=値, é", "plain=値, é"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{202e}gnp", "\\u{202e}gnp"),
            ("\u{200b}\u{feff}\u{9b}31m", "\\u{200b}\\u{feff}\\u{9b}31m"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }
}
