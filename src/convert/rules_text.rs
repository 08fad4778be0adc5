//! A rules file as it is written: levels, limits and comments, in a fixed order.

use std::collections::HashMap;
use std::fmt;

use crate::convert::window::Window;
use crate::convert::yaml_text::{comment, list, scalar};
use tollgate_limiter::CountRefused;

/// A rules file.
#[derive(Clone, Debug)]
pub(super) struct RulesText {
    pub(super) comments: Vec<String>,
    pub(super) domain: String,
    pub(super) descriptors: Levels,
}

/// Sibling levels, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    levels: Vec<Level>,
    /// The positions of levels that [`Levels::add`] added.
    positions: HashMap<LevelIdentity, usize>,
}

/// What makes two levels match the same entries and count them alike: key, values, and whether
/// all values share one bucket.
type LevelIdentity = (String, Values, bool);

/// One descriptor of a rules file, and those below it.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) comments: Vec<String>,
    pub(super) key: String,
    pub(super) values: Values,
    /// All its values share one bucket.
    pub(super) is_shared: bool,
    pub(super) is_shadow: bool,
    pub(super) over_limit: Option<Response>,
    pub(super) limits: Vec<LimitText>,
    pub(super) below: Levels,
}

/// The values of a level.
#[derive(Clone, Debug, Eq, Hash)]
#[allow(clippy::derived_hash_with_manual_eq)] // it compares as a derived one would, and counts
pub(super) enum Values {
    Any,
    /// Exactly this text.
    Text(String),
    /// One of these texts.
    List(Vec<String>),
    /// A text with `*`.
    Pattern(String),
    Regex(String),
    Prefixes(Vec<String>),
}

/// A limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LimitText {
    pub(super) comment: String,
    pub(super) window: Window,
    pub(super) requests: u32,
    pub(super) name: String,
    /// What becomes of refused hits; none for the default.
    pub(super) count_refused: Option<CountRefused>,
    pub(super) replaces: Vec<String>,
}

/// The response on a refusal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Response {
    pub(super) body: String,
    pub(super) content_type: Option<String>,
}

// === impl Values ===

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        comparisons::COUNT.with(|count| count.set(count.get().saturating_add(1)));
        match (self, other) {
            (Self::Any, Self::Any) => true,
            (Self::Text(one), Self::Text(other))
            | (Self::Pattern(one), Self::Pattern(other))
            | (Self::Regex(one), Self::Regex(other)) => one == other,
            (Self::List(some), Self::List(others))
            | (Self::Prefixes(some), Self::Prefixes(others)) => some == others,
            _ => false,
        }
    }
}

impl Values {
    /// One text, also if it has a `*` or is empty.
    pub(super) fn exactly(text: &str) -> Self {
        if text.is_empty() {
            Self::Regex("^$".to_owned())
        } else if text.contains('*') {
            Self::Regex(escaped(text))
        } else {
            Self::Text(text.to_owned())
        }
    }

    /// Any of these texts.
    pub(super) fn any_of(texts: &[String]) -> Self {
        match texts {
            [one] => Self::exactly(one),
            several
                if several
                    .iter()
                    .any(|text| text.is_empty() || text.contains('*')) =>
            {
                let texts: Vec<_> = several.iter().map(|text| escaped(text)).collect();
                Self::Regex(texts.join("|"))
            }
            several => Self::List(several.to_vec()),
        }
    }

    /// Whether it matches several values, so that they may share a bucket.
    pub(super) fn match_many(&self) -> bool {
        !matches!(self, Self::Any | Self::Text(_))
    }
}

/// A text as a regular expression that matches it alone.
pub(super) fn escaped(text: &str) -> String {
    let mut regex = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

// === impl Levels ===

impl Levels {
    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter()
    }

    /// Appends a level that is never joined with another one.
    pub(super) fn push(&mut self, level: Level) {
        self.levels.push(level);
    }

    /// Adds a level. What it has in common with an added one is joined.
    pub(super) fn add(&mut self, level: Level) {
        let identity = level.identity();
        let position = self.positions.get(&identity);
        let Some(same) = position.and_then(|position| self.levels.get_mut(*position)) else {
            self.positions.insert(identity, self.levels.len());
            self.levels.push(level);
            return;
        };
        let mut comments = level.comments;
        comments.retain(|line| !same.comments.contains(line));
        same.comments.append(&mut comments);
        same.limits.extend(level.limits);
        same.below.join(level.below);
    }

    /// Adds levels.
    pub(super) fn join(&mut self, others: Self) {
        for level in others.levels {
            self.add(level);
        }
    }

    /// Appends levels that are never joined with others.
    pub(super) fn append(&mut self, mut others: Self) {
        self.levels.append(&mut others.levels);
    }
}

impl From<Vec<Level>> for Levels {
    /// Levels that are never joined with another one.
    fn from(levels: Vec<Level>) -> Self {
        Self {
            levels,
            positions: HashMap::new(),
        }
    }
}

impl FromIterator<Level> for Levels {
    fn from_iter<I: IntoIterator<Item = Level>>(levels: I) -> Self {
        let mut added = Self::default();
        levels.into_iter().for_each(|level| added.add(level));
        added
    }
}

// === impl Level ===

impl Level {
    pub(super) fn new(key: impl Into<String>, values: Values) -> Self {
        Self {
            comments: Vec::new(),
            key: key.into(),
            values,
            is_shared: false,
            is_shadow: false,
            over_limit: None,
            limits: Vec::new(),
            below: Levels::default(),
        }
    }

    fn identity(&self) -> LevelIdentity {
        (self.key.clone(), self.values.clone(), self.is_shared)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        for line in &self.comments {
            writeln!(f, "{:indent$}# {}", "", comment(line))?;
        }
        writeln!(f, "{:indent$}- key: {}", "", scalar(&self.key))?;
        let indent = indent.saturating_add(2);
        match &self.values {
            Values::Any => {}
            Values::Text(text) | Values::Pattern(text) => {
                writeln!(f, "{:indent$}value: {}", "", scalar(text))?;
            }
            Values::List(texts) => writeln!(f, "{:indent$}values: {}", "", list(texts))?,
            Values::Regex(regex) => writeln!(f, "{:indent$}regex: {}", "", scalar(regex))?,
            Values::Prefixes(prefixes) => writeln!(f, "{:indent$}cidr: {}", "", list(prefixes))?,
        }
        if self.is_shared {
            writeln!(f, "{:indent$}share_threshold: true", "")?;
        }
        if self.is_shadow {
            writeln!(f, "{:indent$}shadow_mode: true", "")?;
        }
        match self.limits.as_slice() {
            [] => {}
            [one] if one.comment.is_empty() => writeln!(f, "{:indent$}rate_limit: {one}", "")?,
            several => {
                writeln!(f, "{:indent$}rate_limits:", "")?;
                for limit in several {
                    if !limit.comment.is_empty() {
                        writeln!(f, "{:indent$}  # {}", "", comment(&limit.comment))?;
                    }
                    writeln!(f, "{:indent$}  - {limit}", "")?;
                }
            }
        }
        if let Some(response) = &self.over_limit {
            writeln!(f, "{:indent$}over_limit:", "")?;
            writeln!(f, "{:indent$}  body: {}", "", scalar(&response.body))?;
            if let Some(content_type) = &response.content_type {
                let content_type = scalar(content_type);
                writeln!(
                    f,
                    "{:indent$}  headers: {{ content-type: {content_type} }}",
                    ""
                )?;
            }
        }
        if !self.below.is_empty() {
            writeln!(f, "{:indent$}descriptors:", "")?;
        }
        for level in self.below.iter() {
            level.write(f, indent.saturating_add(2))?;
        }
        Ok(())
    }
}

impl fmt::Display for LimitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, multiplier) = self.window.unit();
        write!(f, "{{ unit: {unit}")?;
        if multiplier != 1 {
            write!(f, ", unit_multiplier: {multiplier}")?;
        }
        write!(f, ", requests_per_unit: {}", self.requests)?;
        if !self.name.is_empty() {
            write!(f, ", name: {}", scalar(&self.name))?;
        }
        if let Some(choice) = self.count_refused {
            let (field, value) = choice.field();
            write!(f, ", {field}: {value}")?;
        }
        if !self.replaces.is_empty() {
            let names = self.replaces.iter();
            let names: Vec<_> = names
                .map(|name| format!("{{ name: {} }}", scalar(name)))
                .collect();
            write!(f, ", replaces: [{}]", names.join(", "))?;
        }
        f.write_str(" }")
    }
}

impl fmt::Display for RulesText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.comments {
            writeln!(f, "{}", format!("# {}", comment(line)).trim_end())?;
        }
        writeln!(f, "domain: {}", scalar(&self.domain))?;
        writeln!(f, "all_or_nothing: true")?;
        if self.descriptors.is_empty() {
            return writeln!(f, "descriptors: []");
        }
        writeln!(f, "descriptors:")?;
        for level in self.descriptors.iter() {
            level.write(f, 2)?;
        }
        Ok(())
    }
}

/// How often values were compared on this thread.
#[cfg(test)]
pub(super) mod comparisons {
    use std::cell::Cell;

    thread_local! {
        pub(in crate::convert) static COUNT: Cell<usize> = const { Cell::new(0) };
    }
}
