//! The configuration of a .NET program: JSON with comments, from several files. And the sections of
//! the library's two middlewares in it.
//!
//! As in .NET, names are compared without case, every scalar is text, and a later file overrides an
//! earlier one name by name, in lists index by index. The JSON is read as YAML, which it is once
//! comments are blanks, so that every value has its place.

use std::rc::Rc;

use crate::convert::{ConvertError, Finding, document};
use tollgate_rules::path::Source;
use tollgate_rules::yaml::{Content, Node, Span};

/// How many values a file may have, aliases of YAML unfolded.
const VALUES_MAX: usize = 1_000_000;

/// What a middleware counts by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Ip,
    Client,
}

/// Both.
pub(super) const KINDS: [Kind; 2] = [Kind::Ip, Kind::Client];

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) file: Rc<str>,
    pub(super) span: Span,
    content: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Null,
    Text(String),
    List(Vec<Setting>),
    Map(Vec<(String, Setting)>),
}

/// Reads files, each over those before it. None if all are empty.
pub(super) fn read(sources: &[Source]) -> Result<Option<Setting>, ConvertError> {
    let mut merged: Option<Setting> = None;
    for source in sources {
        let file = Rc::from(source.name.as_str());
        let Some(root) = document(&source.name, &without_comments(&source.text))? else {
            continue;
        };
        let mut left = VALUES_MAX;
        let setting = Setting::of_node(&file, &root, &mut left);
        if left == 0 {
            let message = format!("more than {VALUES_MAX} values");
            let finding = Finding::gap(&source.name, root.span, message, "use a smaller file");
            return Err(ConvertError::Input(finding));
        }
        if !matches!(setting.content, Value::Map(_)) {
            let message = "this is not a settings file of a .NET program";
            let help = "give a JSON file with a section IpRateLimiting or ClientRateLimiting";
            let finding = Finding::gap(&source.name, root.span, message, help);
            return Err(ConvertError::Input(finding));
        }
        match &mut merged {
            Some(merged) => merged.override_by(setting),
            None => merged = Some(setting),
        }
    }
    Ok(merged)
}

/// JSON with blanks in place of comments, tabs between values, a byte order mark, and commas
/// before a closing bracket. Lines and columns stay.
fn without_comments(text: &str) -> String {
    let mut written: Vec<char> = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut comma = None;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => {
                comma = None;
                written.push(c);
                while let Some(c) = chars.next() {
                    written.push(c);
                    match c {
                        '\\' => written.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            ('/', Some('/')) => {
                written.push(' ');
                while let Some(c) = chars.next_if(|c| *c != '\n') {
                    written.push(if c == '\r' { c } else { ' ' });
                }
            }
            ('/', Some('*')) => {
                let mut last = ' ';
                written.push(' ');
                for c in chars.by_ref() {
                    written.push(if c == '\n' { c } else { ' ' });
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            ('\t' | '\u{feff}', _) => written.push(' '),
            (',', _) => {
                comma = Some(written.len());
                written.push(c);
            }
            (']' | '}', _) => {
                if let Some(comma) = comma.take().and_then(|at: usize| written.get_mut(at)) {
                    *comma = ' ';
                }
                written.push(c);
            }
            (c, _) => {
                if !c.is_whitespace() {
                    comma = None;
                }
                written.push(c);
            }
        }
    }
    written.into_iter().collect()
}

// === impl Kind ===

impl Kind {
    /// Whether a name is that of a section of this middleware.
    pub(super) fn has_section(self, name: &str) -> bool {
        let sections = [self.section(), self.policies().0];
        sections
            .iter()
            .any(|section| section.eq_ignore_ascii_case(name))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Client => "client",
        }
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Ip => "remote_address",
            Self::Client => "client_id",
        }
    }

    pub(super) fn section(self) -> &'static str {
        match self {
            Self::Ip => "IpRateLimiting",
            Self::Client => "ClientRateLimiting",
        }
    }

    /// The section of the policies, its list, and the member that says whose they are.
    pub(super) fn policies(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ip => ("IpRateLimitPolicies", "IpRules", "Ip"),
            Self::Client => ("ClientRateLimitPolicies", "ClientRules", "ClientId"),
        }
    }
}

// === impl Setting ===

impl Setting {
    /// Reads a node and those below it, as long as `left` is not 0.
    fn of_node(file: &Rc<str>, node: &Node, left: &mut usize) -> Self {
        *left = left.saturating_sub(1);
        let content = match &node.content {
            _ if *left == 0 => Value::Null,
            Content::Scalar { .. } if node.is_null() => Value::Null,
            Content::Scalar { text, .. } => Value::Text(text.clone()),
            Content::Sequence(items) => Value::List(
                items
                    .iter()
                    .map(|item| Self::of_node(file, item, left))
                    .collect(),
            ),
            Content::Mapping(pairs) => {
                let mut map = Vec::new();
                for (key, value) in pairs {
                    let name = key.text().unwrap_or_default().to_owned();
                    map.push((name, Self::of_node(file, value, left)));
                }
                Value::Map(map)
            }
        };
        Self {
            file: Rc::clone(file),
            span: node.span,
            content,
        }
    }

    fn override_by(&mut self, other: Self) {
        match (&mut self.content, other.content) {
            (Value::Map(map), Value::Map(others)) => {
                for (name, value) in others {
                    let mut known = map.iter_mut();
                    match known.find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                        Some((_, known)) => known.override_by(value),
                        None => map.push((name, value)),
                    }
                }
            }
            (Value::List(list), Value::List(others)) => {
                for (index, value) in others.into_iter().enumerate() {
                    match list.get_mut(index) {
                        Some(known) => known.override_by(value),
                        None => list.push(value),
                    }
                }
            }
            (content, other_content) => {
                *content = other_content;
                self.file = other.file;
                self.span = other.span;
            }
        }
    }

    /// A mapping at the same place without members.
    pub(super) fn without_members(&self) -> Self {
        Self {
            content: Value::Map(Vec::new()),
            file: Rc::clone(&self.file),
            span: self.span,
        }
    }

    /// A finding if this, the member `name`, should be a list and is something else.
    pub(super) fn is_no_list(&self, name: &str) -> Option<Finding> {
        let message = || format!("`{name}` is left out: it is no list");
        match &self.content {
            Value::List(_) | Value::Null => None,
            Value::Text(_) | Value::Map(_) => Some(self.gap(message(), "write it as a list: […]")),
        }
    }

    /// A member that is not null.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let mut members = self.members();
        let found = members.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found
            .map(|(_, value)| value)
            .filter(|value| !matches!(value.content, Value::Null))
    }

    /// The members of a mapping.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = match &self.content {
            Value::Map(map) => map.as_slice(),
            Value::Null | Value::Text(_) | Value::List(_) => &[],
        };
        members.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The items of a list.
    pub(super) fn items(&self) -> &[Self] {
        match &self.content {
            Value::List(items) => items,
            Value::Null | Value::Text(_) | Value::Map(_) => &[],
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Value::Text(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The text of a member.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Self::text)
    }

    /// Whether a member is true.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.text_of(name)
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// The texts of a member that is a list, with their places.
    pub(super) fn texts_of(&self, name: &str) -> Vec<(&str, &Self)> {
        let items = self.get(name).map_or(&[][..], Self::items);
        let texts = items.iter();
        texts
            .filter_map(|item| Some((item.text()?, item)))
            .collect()
    }

    pub(super) fn gap(&self, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding::gap(&self.file, self.span, message, help)
    }

    pub(super) fn note(&self, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding::note(&self.file, self.span, message, help)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn source(text: &str) -> Source {
        Source {
            name: "appsettings.json".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn comments_are_blanks_and_places_stay() {
        let text = "\u{feff}// one\n{ /* a\n b */ \"A\": \"// no /* comment */, ]\",\t\"b\" : [1, 2, ], }\n";
        let root = read(&[source(text)]).unwrap().unwrap();
        assert_eq!(root.text_of("a"), Some("// no /* comment */, ]"));
        let list = root.get("B").unwrap();
        assert_eq!(list.items().len(), 2);
        assert_eq!((list.span.at.line, list.span.at.column), (3, 44));
    }

    #[test]
    fn a_later_file_overrides_name_by_name_and_index_by_index() {
        let first =
            r#"{ "S": { "Keep": 1, "Change": "a", "List": [ {"x": 1, "y": 2}, {"x": 3} ] } }"#;
        let second = r#"{ "s": { "change": "b", "list": [ {"X": 9} ] } }"#;
        let root = read(&[source(first), source(second)]).unwrap().unwrap();
        let section = root.get("S").unwrap();
        assert_eq!(section.text_of("Keep"), Some("1"));
        assert_eq!(section.text_of("Change"), Some("b"));
        let items = section.get("List").unwrap().items();
        assert_eq!(
            (items[0].text_of("x"), items[0].text_of("y")),
            (Some("9"), Some("2"))
        );
        assert_eq!(items.len(), 2);
    }

    #[test]
    fn aliases_do_not_unfold_without_end() {
        let mut text = "{ \"a0\": &a0 [1, 2]".to_owned();
        for level in 1..40 {
            let below = level - 1;
            write!(text, ", \"a{level}\": &a{level} [*a{below}, *a{below}]").unwrap();
        }
        let error = read(&[source(&(text + " }"))]).unwrap_err();
        assert!(
            error.to_string().contains("more than 1000000 values"),
            "{error}"
        );
    }

    #[test]
    fn a_list_at_the_root_is_refused_with_its_place() {
        let error = read(&[source("[1]")]).unwrap_err();
        assert!(
            error.to_string().starts_with("appsettings.json:1:1: "),
            "{error}"
        );
    }
}
