//! Scalars and comments as YAML text.
//!
//! A text is plain only if every reader of YAML takes it for that text: `yes`, `1e3` and `*` are
//! quoted.

use std::fmt::Write as _;

use crate::rules::excerpt::{excerpt, printable};

/// Words that YAML 1.1 reads as a boolean or null.
const WORDS: [&str; 10] = [
    "y", "yes", "n", "no", "on", "off", "true", "false", "null", "~",
];

/// A text as a scalar that may stand anywhere, also within brackets.
pub(super) fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let is_printable = text.chars().all(|c| matches!(c, ' '..='~'));
    if is_printable && text.contains(['\\', '"']) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c => {
                // Writing to a String does not fail.
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// A list of texts in brackets.
pub(super) fn list(texts: &[String]) -> String {
    let texts: Vec<_> = texts.iter().map(|text| scalar(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A text that may stand in a comment: one line, bounded, without control characters.
pub(super) fn comment(text: &str) -> String {
    printable(&excerpt(text)).into_owned()
}

fn is_plain(text: &str) -> bool {
    // An IPv4 address or prefix is no number.
    let of_address = |c: char| c.is_ascii_digit() || c == '.' || c == '/';
    if text.chars().all(of_address) && text.matches('.').count() == 3 && !text.starts_with('.') {
        return true;
    }
    let mut chars = text.chars();
    let first = chars.next();
    let begins = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let goes_on = chars.all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c));
    begins && goes_on && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::yaml;

    #[test]
    fn every_scalar_is_read_as_the_text_it_was() {
        for text in [
            "",
            "a",
            "/api/v1",
            "yes",
            "NO",
            "~",
            "1s",
            "0x10",
            "1e3",
            "*",
            "a: b",
            "a #b",
            "-",
            "- a",
            "a'b",
            "a\"b",
            "\\d+",
            "(?i)/a/*",
            "[x]",
            "{x}",
            "tab\there",
            "line\nbreak",
            "é",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            " a ",
            "!tag",
            "&anchor",
            "%",
            "@",
            "`",
            "a,b",
            "null",
            "..",
            "---",
            "10.0.0.1",
            "10.0.0.0/8",
            "1.2",
            "1...2",
            "\u{7f}",
            "=",
        ] {
            let line = format!(
                "key: {{ value: {}, list: {} }}\n",
                scalar(text),
                list(&[text.to_owned()])
            );
            let root = yaml::parse(&line).unwrap().root.unwrap();
            let field = root.field("key").unwrap().field("value").unwrap();
            assert_eq!(field.text(), Some(text), "{line}");
            assert!(!field.is_null(), "{line}");
            assert_eq!(field.boolean(), None, "{line}");
        }
    }
}
