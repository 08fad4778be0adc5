//! The types of scalars, by YAML 1.1 as the reference reads it.

use std::borrow::Cow;

use crate::yaml::{Content, Node};

// === impl Node ===

impl Node {
    /// A boolean in YAML 1.1's spellings.
    pub fn boolean(&self) -> Option<bool> {
        let Content::Scalar { text, plain: true } = &self.content else {
            return None;
        };
        match text.as_str() {
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Some(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => Some(false),
            _ => None,
        }
    }

    /// A whole number in YAML 1.1's spellings: decimal, `0x`, `0b`, `0o` or a leading 0 for octal,
    /// `_` between digits.
    pub fn integer(&self) -> Option<i128> {
        let text = self.number_text()?;
        let text = without_separators(text).to_ascii_lowercase();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(&text)),
        };
        let prefixed = |prefix| digits.strip_prefix(prefix);
        let mut is_prefixed = true;
        let (digits, radix) = if let Some(digits) = prefixed("0x") {
            (digits, 16)
        } else if let Some(digits) = prefixed("0b") {
            (digits, 2)
        } else if let Some(digits) = prefixed("0o") {
            (digits, 8)
        } else {
            is_prefixed = false;
            let is_octal = digits.len() > 1 && digits.starts_with('0');
            (digits, if is_octal { 8 } else { 10 })
        };
        if !digits.starts_with(|first: char| first.is_digit(radix)) {
            return None;
        }
        let number = i128::from_str_radix(digits, radix).ok()?;
        let number = if negative {
            number.wrapping_neg()
        } else {
            number
        };
        // With a prefix, a number beyond 64 bits is text; without one it is a float. Unsigned 64
        // bits are allowed only without a sign.
        let fits = i64::try_from(number).is_ok()
            || u64::try_from(number).is_ok() && !text.starts_with('+');
        (fits || !is_prefixed).then_some(number)
    }
}

impl Node {
    /// A float in YAML 1.1's spellings: with a fraction or an exponent, infinite or not a number.
    pub(crate) fn float(&self) -> Option<f64> {
        let text = self.number_text()?;
        if text.starts_with('.') && !separates_digits(text) {
            return None;
        }
        if matches!(text, ".nan" | ".NaN" | ".NAN") {
            return Some(f64::NAN);
        }
        let plain = without_separators(text);
        let unsigned = plain.strip_prefix(['-', '+']).unwrap_or(&plain);
        if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
            return Some(f64::INFINITY);
        }
        let numeric = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
            && unsigned.contains(|c: char| c.is_ascii_digit())
            && unsigned
                .chars()
                .all(|c| c.is_ascii_digit() || ".eE+-".contains(c));
        let parsed = plain.parse::<f64>().ok();
        // A number too large for a float is text.
        parsed.filter(|parsed| numeric && parsed.is_finite() && self.integer().is_none())
    }

    /// The text, if it may be a number. Most scalars are words, which need no more than this look.
    fn number_text(&self) -> Option<&str> {
        let Content::Scalar { text, plain: true } = &self.content else {
            return None;
        };
        matches!(text.as_bytes(), [b'0'..=b'9' | b'+' | b'-' | b'.', ..]).then_some(text)
    }

    /// Any number, as a protobuf Struct holds it.
    pub(crate) fn number(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)] // that is what a Struct does to it
        let whole = self.integer().map(|number| number as f64);
        whole.or_else(|| self.float())
    }

    /// Whether this scalar is text, and not a number, a boolean or null.
    pub(crate) fn is_text(&self) -> bool {
        self.text().is_some()
            && !self.is_null()
            && self.boolean().is_none()
            && self.number().is_none()
    }
}

/// A number without the `_` between its digits.
fn without_separators(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&b'_') {
        text.replace('_', "").into()
    } else {
        text.into()
    }
}

/// Whether each `_` of a text is between two digits.
fn separates_digits(text: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit();
    text.split('_').skip(1).all(|rest| rest.starts_with(digit))
        && text.rsplit('_').skip(1).all(|rest| rest.ends_with(digit))
}
