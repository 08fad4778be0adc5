//! The conditions and variables of limitador: the part of CEL that matches entries of a descriptor.
//!
//! A condition becomes tests of single entries, all of which must hold. What compares something
//! else than an entry with texts has no equal.
//!
//! What it deliberately does not do: evaluate anything.

use std::collections::VecDeque;
use std::fmt;

/// How deep parentheses and `!` may nest.
const DEPTH_MAX: usize = 32;

/// Operators, longest first.
const SIGNS: [&str; 23] = [
    "==", "!=", "&&", "||", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", "!", "<", ">", "+",
    "-", "*", "/", "%", "?",
];

/// An entry of a descriptor.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct EntryKey {
    /// The index of the descriptor.
    pub(super) descriptor: u32,
    pub(super) key: String,
}

/// How one text is compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Comparison {
    Equal(String),
    StartsWith(String),
    EndsWith(String),
    Contains(String),
    Regex(String),
    /// The entry exists.
    Exists,
}

/// A test of one entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Test {
    pub(super) entry: EntryKey,
    /// One of these holds.
    pub(super) any_of: Vec<Comparison>,
    /// None of them holds instead; the entry exists.
    pub(super) is_negated: bool,
}

/// What a condition says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Condition {
    /// All tests hold. Without tests, always.
    All(Vec<Test>),
    Never,
}

/// Parses a condition. The error says why it has no equal.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    let mut parser = Parser::of_text(text)?;
    let condition = parser.alternatives(0)?;
    parser.end()?;
    Ok(condition)
}

/// Parses a variable. The error says why it has no equal.
pub(super) fn variable(text: &str) -> Result<EntryKey, String> {
    let mut parser = Parser::of_text(text)?;
    let (entry, method) = parser.entry()?;
    if let Some(method) = method {
        return Err(format!("`{method}` computes a value"));
    }
    parser.end()?;
    Ok(entry)
}

/// The tokens that are left.
struct Parser(VecDeque<Token>);

/// One token.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Token {
    /// A quoted text, unescaped.
    Text(String),
    Number(String),
    Name(String),
    Sign(&'static str),
}

/// What stands on one side of an operator.
enum Operand {
    Entry(EntryKey),
    Texts(Vec<String>),
    Condition(Condition),
}

// === impl Condition ===

impl Condition {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All(mut tests), Self::All(others)) => {
                tests.extend(others);
                Self::All(tests)
            }
            _ => Self::Never,
        }
    }

    fn or(self, other: Self) -> Result<Self, String> {
        match (self, other) {
            (Self::Never, other) | (other, Self::Never) => Ok(other),
            (Self::All(tests), _) | (_, Self::All(tests)) if tests.is_empty() => {
                Ok(Self::All(Vec::new()))
            }
            (Self::All(mut tests), Self::All(mut others)) => {
                match (tests.as_mut_slice(), others.as_mut_slice()) {
                    ([one], [another]) if one.entry == another.entry => {
                        if one.is_negated || another.is_negated {
                            return Err("`||` joins a negation".to_owned());
                        }
                        one.any_of.append(&mut another.any_of);
                    }
                    _ => return Err("`||` joins tests of different entries".to_owned()),
                }
                Ok(Self::All(tests))
            }
        }
    }

    fn not(self) -> Result<Self, String> {
        match self {
            Self::Never => Ok(Self::All(Vec::new())),
            Self::All(mut tests) => match tests.as_mut_slice() {
                [] => Ok(Self::Never),
                [one] => {
                    one.is_negated = !one.is_negated;
                    Ok(Self::All(tests))
                }
                _ => Err("`!` negates several tests".to_owned()),
            },
        }
    }
}

// === impl Parser ===

impl Parser {
    fn of_text(text: &str) -> Result<Self, String> {
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
        Ok(Self(left))
    }

    fn end(&mut self) -> Result<(), String> {
        match self.0.pop_front() {
            None => Ok(()),
            Some(token) => Err(format!("{token} has no equal here")),
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Condition, String> {
        let mut joined = self.conjunction(depth)?;
        while self.takes("||") {
            joined = joined.or(self.conjunction(depth)?)?;
        }
        Ok(joined)
    }

    fn conjunction(&mut self, depth: usize) -> Result<Condition, String> {
        let mut joined = self.relation(depth)?;
        while self.takes("&&") {
            joined = joined.and(self.relation(depth)?);
        }
        Ok(joined)
    }

    fn relation(&mut self, depth: usize) -> Result<Condition, String> {
        let left = self.operand(depth)?;
        let operator = ["==", "!=", "in"]
            .into_iter()
            .find(|operator| self.takes(operator));
        let Some(operator) = operator else {
            return match left {
                Operand::Condition(condition) => Ok(condition),
                Operand::Entry(_) | Operand::Texts(_) => Err(match self.0.pop_front() {
                    Some(token) => format!("{token} has no equal"),
                    None => "it is no comparison".to_owned(),
                }),
            };
        };
        let right = self.operand(depth)?;
        match (left, right) {
            (Operand::Entry(entry), Operand::Texts(texts))
            | (Operand::Texts(texts), Operand::Entry(entry))
                if operator != "in" && texts.len() == 1 =>
            {
                Ok(equal(entry, texts, operator == "!="))
            }
            (Operand::Entry(entry), Operand::Texts(texts)) if operator == "in" => {
                Ok(equal(entry, texts, false))
            }
            (Operand::Entry(_), Operand::Entry(_)) => {
                Err("it compares two entries, or a word without quotes".to_owned())
            }
            _ => Err("it does not compare an entry with texts".to_owned()),
        }
    }

    fn operand(&mut self, depth: usize) -> Result<Operand, String> {
        if depth > DEPTH_MAX {
            return Err("it nests too deep".to_owned());
        }
        let deeper = depth.saturating_add(1);
        if self.takes("!") {
            let Operand::Condition(condition) = self.operand(deeper)? else {
                return Err("`!` negates a value".to_owned());
            };
            return Ok(Operand::Condition(condition.not()?));
        }
        if self.takes("(") {
            let condition = self.alternatives(deeper)?;
            self.expect(")")?;
            return Ok(Operand::Condition(condition));
        }
        if self.takes("[") {
            let mut texts = Vec::new();
            while !self.takes("]") {
                texts.push(self.text()?);
                if !self.takes(",") {
                    self.expect("]")?;
                    break;
                }
            }
            return Ok(Operand::Texts(texts));
        }
        if let Ok(text) = self.text() {
            return Ok(Operand::Texts(vec![text]));
        }
        if self.takes("true") {
            return Ok(Operand::Condition(Condition::All(Vec::new())));
        }
        if self.takes("false") {
            return Ok(Operand::Condition(Condition::Never));
        }
        if self.takes("has") {
            self.expect("(")?;
            let (entry, method) = self.entry()?;
            self.expect(")")?;
            return match method {
                None => {
                    let exists = vec![Comparison::Exists];
                    Ok(Operand::Condition(test(entry, exists, false)))
                }
                Some(method) => Err(format!("`{method}` within `has`")),
            };
        }
        let (entry, method) = self.entry()?;
        let Some(method) = method else {
            return Ok(Operand::Entry(entry));
        };
        self.expect("(")?;
        let comparison = match method.as_str() {
            "startsWith" => Comparison::StartsWith(self.text()?),
            "endsWith" => Comparison::EndsWith(self.text()?),
            "contains" => Comparison::Contains(self.text()?),
            "matches" => Comparison::Regex(self.text()?),
            other => return Err(format!("`{other}()` has no equal")),
        };
        self.expect(")")?;
        Ok(Operand::Condition(test(entry, vec![comparison], false)))
    }

    /// An entry, and the method that is called on it: `descriptors[0].key`,
    /// `descriptors[0]['key']`, or a name alone as limitador took it before version 2.
    fn entry(&mut self) -> Result<(EntryKey, Option<String>), String> {
        let first = self.name()?;
        if first != "descriptors" || !self.takes("[") {
            if self.is_next("(") {
                return Err(format!("`{first}()` has no equal"));
            }
            return self.bare_entry(first);
        }
        let index = self.number()?;
        self.expect("]")?;
        let key = if self.takes("[") {
            let key = self.text()?;
            self.expect("]")?;
            key
        } else {
            self.expect(".")?;
            self.name()?
        };
        let entry = EntryKey {
            descriptor: index,
            key,
        };
        if !self.takes(".") {
            return Ok((entry, None));
        }
        let method = self.name()?;
        if self.is_next("(") {
            return Ok((entry, Some(method)));
        }
        Err(format!(
            "`.{method}` of a text does not exist; if it is part of the key, write descriptors[{index}]['{}.{method}']",
            entry.key
        ))
    }

    fn bare_entry(&mut self, first: String) -> Result<(EntryKey, Option<String>), String> {
        let mut parts = vec![first];
        while self.takes(".") {
            parts.push(self.name()?);
        }
        let method = (parts.len() > 1 && self.is_next("("))
            .then(|| parts.pop())
            .flatten();
        let entry = EntryKey {
            descriptor: 0,
            key: parts.join("."),
        };
        Ok((entry, method))
    }

    /// Whether this sign or word comes next.
    fn is_next(&self, word: &str) -> bool {
        match self.0.front() {
            Some(Token::Sign(sign)) => *sign == word,
            Some(Token::Name(name)) => name == word,
            Some(Token::Text(_) | Token::Number(_)) | None => false,
        }
    }

    /// Takes this sign or word if it comes next.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.is_next(word);
        if is_next {
            self.0.pop_front();
        }
        is_next
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) {
            return Ok(());
        }
        Err(self.other(&format!("`{word}`")))
    }

    /// Takes the next token if `read` reads it.
    fn take<T>(&mut self, wanted: &str, read: fn(&Token) -> Option<T>) -> Result<T, String> {
        let Some(taken) = self.0.front().and_then(read) else {
            return Err(self.other(wanted));
        };
        self.0.pop_front();
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, String> {
        self.take("a quoted text", |token| match token {
            Token::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    fn name(&mut self) -> Result<String, String> {
        self.take("a name", |token| match token {
            Token::Name(name) => Some(name.clone()),
            _ => None,
        })
    }

    fn number(&mut self) -> Result<u32, String> {
        let Some(Token::Number(number)) = self.0.front() else {
            return Err(self.other("an index"));
        };
        let parsed = number.parse();
        let parsed = parsed.map_err(|_| format!("{number} is no index"))?;
        self.0.pop_front();
        Ok(parsed)
    }

    /// The error when something else comes next.
    fn other(&self, wanted: &str) -> String {
        match self.0.front() {
            Some(token) => format!("{token} stands in place of {wanted}"),
            None => format!("it ends before {wanted}"),
        }
    }
}

// === impl Token ===

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

fn test(entry: EntryKey, any_of: Vec<Comparison>, is_negated: bool) -> Condition {
    Condition::All(vec![Test {
        entry,
        any_of,
        is_negated,
    }])
}

fn equal(entry: EntryKey, texts: Vec<String>, is_negated: bool) -> Condition {
    // No value is in an empty list.
    if texts.is_empty() {
        return Condition::Never;
    }
    let any_of = texts.into_iter().map(Comparison::Equal).collect();
    test(entry, any_of, is_negated)
}
