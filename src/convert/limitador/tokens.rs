//! The tokens of a CEL expression.

use std::collections::VecDeque;
use std::fmt;

/// Operators, longest first.
const SIGNS: [&str; 23] = [
    "==", "!=", "&&", "||", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", "!", "<", ">", "+",
    "-", "*", "/", "%", "?",
];

/// One token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Token {
    /// A quoted text, unescaped.
    Text(String),
    Number(String),
    Name(String),
    Sign(&'static str),
}

/// The tokens that are left.
pub(super) struct Tokens {
    left: VecDeque<Token>,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "the text '{text}'"),
            Self::Number(text) => write!(f, "the number {text}"),
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut left = VecDeque::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let (token, after) = if let Some(quoted) = quoted(rest)? {
                quoted
            } else if first.is_alphabetic() || first == '_' {
                let (name, after) = split(rest, |c| c.is_alphanumeric() || c == '_');
                (Token::Name(name.to_owned()), after)
            } else if first.is_ascii_digit() {
                let (number, after) = split(rest, |c| c.is_ascii_alphanumeric());
                (Token::Number(number.to_owned()), after)
            } else {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| format!("`{first}` is no sign of CEL"))?;
                (
                    Token::Sign(sign),
                    rest.get(sign.len()..).unwrap_or_default(),
                )
            };
            left.push_back(token);
            rest = after.trim_start();
        }
        Ok(Self { left })
    }

    pub(super) fn next(&mut self) -> Option<Token> {
        self.left.pop_front()
    }

    /// Whether this sign or word comes next.
    pub(super) fn is_next(&self, word: &str) -> bool {
        match self.left.front() {
            Some(Token::Sign(sign)) => *sign == word,
            Some(Token::Name(name)) => name == word,
            Some(Token::Text(_) | Token::Number(_)) | None => false,
        }
    }

    /// Takes this sign or word if it comes next.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let is_next = self.is_next(word);
        if is_next {
            self.left.pop_front();
        }
        is_next
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) {
            return Ok(());
        }
        Err(self.other(&format!("`{word}`")))
    }

    pub(super) fn take_text(&mut self) -> Option<String> {
        match self.left.front() {
            Some(Token::Text(text)) => {
                let text = text.clone();
                self.left.pop_front();
                Some(text)
            }
            _ => None,
        }
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        self.take_text().ok_or_else(|| self.other("a quoted text"))
    }

    pub(super) fn name(&mut self) -> Result<String, String> {
        match self.left.front() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.left.pop_front();
                Ok(name)
            }
            _ => Err(self.other("a name")),
        }
    }

    pub(super) fn number(&mut self) -> Result<u32, String> {
        match self.left.front() {
            Some(Token::Number(number)) => {
                let parsed = number.parse();
                let parsed = parsed.map_err(|_| format!("{number} is no index"))?;
                self.left.pop_front();
                Ok(parsed)
            }
            _ => Err(self.other("an index")),
        }
    }

    /// The error when something else comes next.
    fn other(&self, wanted: &str) -> String {
        match self.left.front() {
            Some(token) => format!("{token} stands in place of {wanted}"),
            None => format!("it ends before {wanted}"),
        }
    }
}

/// Splits off the characters at the beginning for which `belongs` holds.
fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// A quoted text at the beginning, and what follows it.
fn quoted(text: &str) -> Result<Option<(Token, &str)>, String> {
    let (is_raw, rest) = match text.strip_prefix(['r', 'R']) {
        Some(rest) if rest.starts_with(['\'', '"']) => (true, rest),
        _ => (false, text),
    };
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        return Ok(None);
    };
    let body = rest.get(1..).unwrap_or_default();
    let mut read = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            let after = body.get(at.saturating_add(1)..).unwrap_or_default();
            return Ok(Some((Token::Text(read), after)));
        }
        if c != '\\' || is_raw {
            read.push(c);
            continue;
        }
        let escaped = chars.next().map(|(_, c)| c);
        read.push(match escaped {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(c @ ('\\' | '\'' | '"' | '`' | '?')) => c,
            Some(c) => return Err(format!("the escape `\\{c}` is not supported")),
            None => break,
        });
    }
    Err("a text without its closing quote".to_owned())
}
