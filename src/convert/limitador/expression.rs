//! The conditions and variables of limitador: the part of CEL that matches entries of a descriptor.
//!
//! A condition becomes tests of single entries, all of which must hold. What compares something
//! else than an entry with texts has no equal.
//!
//! What it deliberately does not do: evaluate anything.

use super::tokens::Tokens;

/// How deep parentheses and `!` may nest.
const DEPTH_MAX: usize = 32;

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
    let mut parser = Parser::new(text)?;
    let condition = parser.alternatives(0)?;
    parser.end()?;
    Ok(condition)
}

/// Parses a variable. The error says why it has no equal.
pub(super) fn variable(text: &str) -> Result<EntryKey, String> {
    let mut parser = Parser::new(text)?;
    let (entry, method) = parser.entry()?;
    if let Some(method) = method {
        return Err(format!("`{method}` computes a value"));
    }
    parser.end()?;
    Ok(entry)
}

struct Parser {
    tokens: Tokens,
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
    fn new(text: &str) -> Result<Self, String> {
        Tokens::new(text).map(|tokens| Self { tokens })
    }

    fn end(&mut self) -> Result<(), String> {
        match self.tokens.next() {
            None => Ok(()),
            Some(token) => Err(format!("{token} has no equal here")),
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Condition, String> {
        let mut joined = self.conjunction(depth)?;
        while self.tokens.takes("||") {
            joined = joined.or(self.conjunction(depth)?)?;
        }
        Ok(joined)
    }

    fn conjunction(&mut self, depth: usize) -> Result<Condition, String> {
        let mut joined = self.relation(depth)?;
        while self.tokens.takes("&&") {
            joined = joined.and(self.relation(depth)?);
        }
        Ok(joined)
    }

    fn relation(&mut self, depth: usize) -> Result<Condition, String> {
        let left = self.operand(depth)?;
        let operator = ["==", "!=", "in"]
            .into_iter()
            .find(|operator| self.tokens.takes(operator));
        let Some(operator) = operator else {
            return match left {
                Operand::Condition(condition) => Ok(condition),
                Operand::Entry(_) | Operand::Texts(_) => Err(match self.tokens.next() {
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
        if self.tokens.takes("!") {
            let Operand::Condition(condition) = self.operand(deeper)? else {
                return Err("`!` negates a value".to_owned());
            };
            return Ok(Operand::Condition(condition.not()?));
        }
        if self.tokens.takes("(") {
            let condition = self.alternatives(deeper)?;
            self.tokens.expect(")")?;
            return Ok(Operand::Condition(condition));
        }
        if self.tokens.takes("[") {
            let mut texts = Vec::new();
            while !self.tokens.takes("]") {
                texts.push(self.tokens.text()?);
                if !self.tokens.takes(",") {
                    self.tokens.expect("]")?;
                    break;
                }
            }
            return Ok(Operand::Texts(texts));
        }
        if let Some(text) = self.tokens.take_text() {
            return Ok(Operand::Texts(vec![text]));
        }
        if self.tokens.takes("true") {
            return Ok(Operand::Condition(Condition::All(Vec::new())));
        }
        if self.tokens.takes("false") {
            return Ok(Operand::Condition(Condition::Never));
        }
        if self.tokens.takes("has") {
            self.tokens.expect("(")?;
            let (entry, method) = self.entry()?;
            self.tokens.expect(")")?;
            return match method {
                None => Ok(Operand::Condition(test(entry, vec![Comparison::Exists]))),
                Some(method) => Err(format!("`{method}` within `has`")),
            };
        }
        let (entry, method) = self.entry()?;
        let Some(method) = method else {
            return Ok(Operand::Entry(entry));
        };
        self.tokens.expect("(")?;
        let comparison = match method.as_str() {
            "startsWith" => Comparison::StartsWith(self.tokens.text()?),
            "endsWith" => Comparison::EndsWith(self.tokens.text()?),
            "contains" => Comparison::Contains(self.tokens.text()?),
            "matches" => Comparison::Regex(self.tokens.text()?),
            other => return Err(format!("`{other}()` has no equal")),
        };
        self.tokens.expect(")")?;
        Ok(Operand::Condition(test(entry, vec![comparison])))
    }

    /// An entry, and the method that is called on it: `descriptors[0].key`,
    /// `descriptors[0]['key']`, or a name alone as limitador took it before version 2.
    fn entry(&mut self) -> Result<(EntryKey, Option<String>), String> {
        let first = self.tokens.name()?;
        if first != "descriptors" || !self.tokens.takes("[") {
            if self.tokens.is_next("(") {
                return Err(format!("`{first}()` has no equal"));
            }
            return self.bare_entry(first);
        }
        let index = self.tokens.number()?;
        self.tokens.expect("]")?;
        let key = if self.tokens.takes("[") {
            let key = self.tokens.text()?;
            self.tokens.expect("]")?;
            key
        } else {
            self.tokens.expect(".")?;
            self.tokens.name()?
        };
        let entry = EntryKey {
            descriptor: index,
            key,
        };
        if !self.tokens.takes(".") {
            return Ok((entry, None));
        }
        let method = self.tokens.name()?;
        if self.tokens.is_next("(") {
            return Ok((entry, Some(method)));
        }
        Err(format!(
            "`.{method}` of a text does not exist; if it is part of the key, write descriptors[{index}]['{}.{method}']",
            entry.key
        ))
    }

    fn bare_entry(&mut self, first: String) -> Result<(EntryKey, Option<String>), String> {
        let mut parts = vec![first];
        while self.tokens.takes(".") {
            parts.push(self.tokens.name()?);
        }
        let method = (parts.len() > 1 && self.tokens.is_next("("))
            .then(|| parts.pop())
            .flatten();
        let entry = EntryKey {
            descriptor: 0,
            key: parts.join("."),
        };
        Ok((entry, method))
    }
}

fn test(entry: EntryKey, any_of: Vec<Comparison>) -> Condition {
    Condition::All(vec![Test {
        entry,
        any_of,
        is_negated: false,
    }])
}

fn equal(entry: EntryKey, texts: Vec<String>, is_negated: bool) -> Condition {
    // No value is in an empty list.
    if texts.is_empty() {
        return Condition::Never;
    }
    Condition::All(vec![Test {
        entry,
        any_of: texts.into_iter().map(Comparison::Equal).collect(),
        is_negated,
    }])
}
