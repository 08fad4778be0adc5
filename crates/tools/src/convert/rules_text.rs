//! A rules file as it is written: levels, limits and comments, in a fixed order.
//!
//! A text is plain only if every reader of YAML takes it for that text: `yes`, `1e3` and `*` are
//! quoted.

use std::fmt::{self, Write as _};
use std::num::NonZeroU64;

use tollgate_limiter::{CountRefused, Unit};
use tollgate_rules::excerpt::{excerpt, printable};

/// Words that YAML 1.1 reads as a boolean or null.
const WORDS: [&str; 10] = [
    "y", "yes", "n", "no", "on", "off", "true", "false", "null", "~",
];

/// A rules file.
#[derive(Clone, Debug)]
pub(super) struct RulesText {
    pub(super) comments: Vec<String>,
    pub(super) domain: String,
    pub(super) descriptors: Vec<Level>,
}

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
    /// The name of the plan that its limits are.
    pub(super) plan: Option<String>,
    pub(super) limits: Vec<LimitText>,
    pub(super) below: Vec<Level>,
}

/// The values of a level.
#[derive(Clone, Debug, Eq, Hash)]
#[cfg_attr(not(test), derive(PartialEq))] // tests count how often values are compared
#[cfg_attr(test, allow(clippy::derived_hash_with_manual_eq))]
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
    /// The length of its window, in seconds.
    pub(super) seconds: NonZeroU64,
    pub(super) requests: u64,
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

    /// The exact values; none if it matches others.
    pub(super) fn exact(&self) -> Option<&[String]> {
        match self {
            Self::Text(text) => Some(std::slice::from_ref(text)),
            Self::List(texts) => Some(texts),
            Self::Any | Self::Pattern(_) | Self::Regex(_) | Self::Prefixes(_) => None,
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
            plan: None,
            limits: Vec::new(),
            below: Vec::new(),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        let pad = " ".repeat(indent);
        for line in &self.comments {
            writeln!(f, "{pad}# {}", comment(line))?;
        }
        writeln!(f, "{pad}- key: {}", scalar(&self.key))?;
        let indent = indent.saturating_add(2);
        let pad = " ".repeat(indent);
        match &self.values {
            Values::Any => {}
            Values::Text(text) | Values::Pattern(text) => {
                writeln!(f, "{pad}value: {}", scalar(text))?;
            }
            Values::List(texts) => writeln!(f, "{pad}values: {}", list(texts))?,
            Values::Regex(regex) => writeln!(f, "{pad}regex: {}", scalar(regex))?,
            Values::Prefixes(prefixes) => writeln!(f, "{pad}cidr: {}", list(prefixes))?,
        }
        if self.is_shared {
            writeln!(f, "{pad}share_threshold: true")?;
        }
        if self.is_shadow {
            writeln!(f, "{pad}shadow_mode: true")?;
        }
        match (&self.plan, self.limits.as_slice()) {
            (Some(plan), _) => writeln!(f, "{pad}plan: {}", scalar(plan))?,
            (None, []) => {}
            (None, [one]) if one.comment.is_empty() => writeln!(f, "{pad}rate_limit: {one}")?,
            (None, several) => {
                writeln!(f, "{pad}rate_limits:")?;
                write_limits(f, several, &pad)?;
            }
        }
        if let Some(response) = &self.over_limit {
            writeln!(f, "{pad}over_limit:")?;
            writeln!(f, "{pad}  body: {}", scalar(&response.body))?;
            if let Some(content_type) = &response.content_type {
                let content_type = scalar(content_type);
                writeln!(f, "{pad}  headers: {{ content-type: {content_type} }}")?;
            }
        }
        if !self.below.is_empty() {
            writeln!(f, "{pad}descriptors:")?;
        }
        for level in &self.below {
            level.write(f, indent.saturating_add(2))?;
        }
        Ok(())
    }

    /// Notes the plans of this level and of those below it, each name once.
    fn note_plans<'l>(&'l self, plans: &mut Vec<(&'l str, &'l [LimitText])>) {
        if let Some(plan) = &self.plan
            && !plans.iter().any(|(known, _)| known == plan)
        {
            plans.push((plan, &self.limits));
        }
        self.below.iter().for_each(|level| level.note_plans(plans));
    }
}

fn write_limits(f: &mut fmt::Formatter<'_>, limits: &[LimitText], pad: &str) -> fmt::Result {
    for limit in limits {
        if !limit.comment.is_empty() {
            writeln!(f, "{pad}  # {}", comment(&limit.comment))?;
        }
        writeln!(f, "{pad}  - {limit}")?;
    }
    Ok(())
}

// === impl LimitText ===

impl LimitText {
    /// A limit of so many requests a second, without a name.
    pub(super) fn per_second(requests: u64) -> Self {
        Self {
            comment: String::new(),
            seconds: NonZeroU64::MIN,
            requests,
            name: String::new(),
            count_refused: None,
            replaces: Vec::new(),
        }
    }
}

/// The longest unit that divides a window, and how many of them it has.
fn unit_of(seconds: u64) -> (&'static str, u64) {
    let mut units = [Unit::Day, Unit::Hour, Unit::Minute].into_iter();
    let longest = units.find(|unit| seconds.is_multiple_of(unit.seconds()));
    let unit = longest.unwrap_or(Unit::Second);
    (unit.name(), seconds / unit.seconds())
}

impl fmt::Display for LimitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, multiplier) = unit_of(self.seconds.get());
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
        let mut plans = Vec::new();
        let levels = self.descriptors.iter();
        levels.for_each(|level| level.note_plans(&mut plans));
        if !plans.is_empty() {
            writeln!(f, "plans:")?;
        }
        for (name, limits) in plans {
            writeln!(f, "  {}:", scalar(name))?;
            write_limits(f, limits, "  ")?;
        }
        if self.descriptors.is_empty() {
            return writeln!(f, "descriptors: []");
        }
        writeln!(f, "descriptors:")?;
        for level in &self.descriptors {
            level.write(f, 2)?;
        }
        Ok(())
    }
}

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

/// How often values were compared on this thread.
#[cfg(test)]
pub(super) mod comparisons {
    use std::cell::Cell;

    use super::Values;

    thread_local! {
        pub(in crate::convert) static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    impl PartialEq for Values {
        fn eq(&self, other: &Self) -> bool {
            COUNT.with(|count| count.set(count.get().saturating_add(1)));
            format!("{self:?}") == format!("{other:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_rules::yaml;

    #[test]
    fn the_unit_is_the_longest_that_divides_the_window() {
        assert_eq!(unit_of(1), ("second", 1));
        assert_eq!(unit_of(90), ("second", 90));
        assert_eq!(unit_of(5_400), ("minute", 90));
        assert_eq!(unit_of(604_800), ("day", 7));
    }

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
