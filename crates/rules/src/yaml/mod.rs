//! A YAML document as a tree of nodes with positions.
//!
//! Why not serde: an error must name file, line and column, every error of a file must be reported
//! at once, and a scalar's type depends on the field (`value: yes` is the text "yes", `shadow_mode:
//! yes` is true: YAML 1.1, as the reference reads it). `saphyr-parser`'s events are folded into
//! [`Node`]s. An alias shares its anchor's node, so a document that unfolds exponentially costs
//! nothing until it is walked, and the walk is bounded (`file`).
//!
//! What it deliberately does not do: know rules, read more than the first document (it says where
//! the next one is), or nest deeper than 64 levels.

mod place;
mod scalar;

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

use self::place::ByteOffsets;
pub use self::place::{Position, Span};

/// How deep a document may nest. A level of descriptors takes two.
pub(crate) const DEPTH_MAX: usize = 64;

/// A node and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is written.
    pub span: Span,
    /// What it holds.
    pub content: Content,
    /// The depth of the nodes below, aliases followed.
    depth: usize,
}

/// The content of a node.
#[derive(Clone, Debug)]
pub enum Content {
    /// A scalar's source text, quotes removed.
    Scalar {
        /// The text.
        text: String,
        /// Written without quotes, so that it may be a number, a boolean or null.
        plain: bool,
    },
    /// A list.
    Sequence(Vec<Rc<Node>>),
    /// Keys and values, in the order of the file.
    Mapping(Vec<(Rc<Node>, Rc<Node>)>),
}

/// The first document of a text.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its root; none when it is empty.
    pub root: Option<Rc<Node>>,
    /// Where the text goes on after it, with what is not read.
    pub ignored: Option<Span>,
}

/// Why a text is not a YAML document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct YamlError {
    /// Where the parser stopped.
    pub span: Span,
    /// What is wrong there.
    pub message: String,
}

/// A sequence or mapping that is not closed yet.
struct Open {
    span: Span,
    anchor: usize,
    is_mapping: bool,
    /// In brackets.
    is_flow: bool,
    children: Vec<Rc<Node>>,
}

/// Parses the first document of `text`.
///
/// # Errors
///
/// When it is no YAML, or nests too deep.
pub fn parse(text: &str) -> Result<Document, YamlError> {
    read(text).or_else(|error| match without_separating_tabs(text) {
        Some(text) => read(&text),
        None => Err(error),
    })
}

/// `text` with spaces in place of the tabs between a `:` and a value; none when there are no such
/// tabs. The parser rejects such tabs before a plain scalar, and YAML allows them. Tabs within
/// scalars stay, and every position stays the same.
fn without_separating_tabs(text: &str) -> Option<String> {
    if !text.contains(":\t") {
        return None;
    }
    let mut chars: Vec<char> = text.chars().collect();
    let mut tabs = Vec::new();
    let mut separates = false;
    for (index, char) in chars.iter_mut().enumerate() {
        if separates && *char == '\t' {
            *char = ' ';
            tabs.push(index);
        } else {
            separates = *char == ':';
        }
    }
    // Only a parser can tell where scalars are.
    let spaced: String = chars.iter().collect();
    let mut tabs = tabs.into_iter().peekable();
    for (event, span) in Parser::new_from_str(&spaced).map_while(Result::ok) {
        let scalar = span.start.index()..span.end.index();
        while let (Event::Scalar(..), Some(tab)) = (&event, tabs.next_if(|tab| *tab < scalar.end)) {
            if scalar.contains(&tab)
                && let Some(char) = chars.get_mut(tab)
            {
                *char = '\t';
            }
        }
    }
    Some(chars.into_iter().collect())
}

fn read(text: &str) -> Result<Document, YamlError> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, Rc<Node>> = HashMap::new();
    let offsets = ByteOffsets::new(text);
    let mut events = Parser::new_from_str(text);
    while let Some(event) = events.next() {
        let (event, range) = event.map_err(|error| YamlError {
            span: offsets.span(error.marker(), error.marker()),
            message: error.info().to_owned(),
        })?;
        let span = offsets.span(&range.start, &range.end);
        let (node, anchor) = match event {
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if open.len() >= DEPTH_MAX {
                    return Err(YamlError::too_deep(span));
                }
                open.push(Open {
                    span,
                    anchor,
                    is_mapping: matches!(event, Event::MappingStart(..)),
                    // A block begins without a token of its own.
                    is_flow: span.end > span.start,
                    children: Vec::new(),
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(ended) => {
                    let anchor = ended.anchor;
                    (Rc::new(ended.node(span.end)?), anchor)
                }
                None => continue,
            },
            Event::Scalar(text, style, anchor, tag) => {
                // A standard tag overrides the quotes.
                let tag = tag.filter(|tag| tag.is_yaml_core_schema());
                let content = Content::Scalar {
                    text: text.into_owned(),
                    plain: tag.map_or(style == ScalarStyle::Plain, |tag| tag.suffix != "str"),
                };
                let depth = 1;
                (
                    Rc::new(Node {
                        span,
                        content,
                        depth,
                    }),
                    anchor,
                )
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    let message = "an alias stands before its anchor, or within it".to_owned();
                    return Err(YamlError { span, message });
                };
                (Rc::clone(node), 0)
            }
            Event::DocumentEnd | Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
        };
        if anchor != 0 {
            anchors.insert(anchor, Rc::clone(&node));
        }
        match open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => {
                return Ok(Document {
                    root: (!node.is_null()).then_some(node),
                    ignored: next_content(events, &offsets),
                });
            }
        }
    }
    Ok(Document {
        root: None,
        ignored: next_content(events, &offsets),
    })
}

/// Where the next content is, or the next error. Empty documents have none.
fn next_content(events: Parser<'_, StrInput<'_>>, offsets: &ByteOffsets<'_>) -> Option<Span> {
    for event in events {
        match event {
            Err(error) => return Some(offsets.span(error.marker(), error.marker())),
            Ok((Event::Scalar(text, ScalarStyle::Plain, ..), _)) if text.is_empty() => {}
            Ok((
                Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::MappingStart(..)
                | Event::Alias(_),
                range,
            )) => return Some(offsets.span(&range.start, &range.end)),
            Ok(_) => {}
        }
    }
    None
}

// === impl ByteOffsets ===

impl ByteOffsets<'_> {
    /// The range between two of the parser's markers.
    fn span(&self, start: &Marker, end: &Marker) -> Span {
        let first = self.byte(start.index());
        Span {
            at: Position {
                line: start.line(),
                column: start.col().saturating_add(1),
            },
            start: first,
            end: self.byte(end.index()).max(first),
        }
    }
}

// === impl Node ===

impl Node {
    /// A node that is not in a file.
    fn nowhere(content: Content) -> Self {
        let depth = match &content {
            Content::Scalar { .. } => 0,
            Content::Sequence(items) => items.iter().map(|item| item.depth).max().unwrap_or(0),
            Content::Mapping(pairs) => pairs
                .iter()
                .map(|(_, value)| value.depth)
                .max()
                .unwrap_or(0),
        };
        Self {
            span: Span::default(),
            content,
            depth: depth.saturating_add(1),
        }
    }

    /// A mapping that is not in a file. Fields without a value are left out.
    pub fn mapping<'f>(fields: impl IntoIterator<Item = (&'f str, Option<Self>)>) -> Self {
        let fields = fields.into_iter().filter_map(|(name, value)| {
            let value = Rc::new(value?);
            Some((Rc::new(Self::quoted(name)), value))
        });
        Self::nowhere(Content::Mapping(fields.collect()))
    }

    /// A list that is not in a file.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::nowhere(Content::Sequence(items.into_iter().map(Rc::new).collect()))
    }

    /// A scalar in quotes that is not in a file.
    pub fn quoted(text: &str) -> Self {
        Self::nowhere(Content::Scalar {
            text: text.to_owned(),
            plain: false,
        })
    }

    /// A scalar without quotes that is not in a file.
    pub fn plain(value: &(impl ToString + ?Sized)) -> Self {
        Self::nowhere(Content::Scalar {
            text: value.to_string(),
            plain: true,
        })
    }

    /// The text of a scalar, whatever its type without quotes.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            Content::Sequence(_) | Content::Mapping(_) => None,
        }
    }

    /// The value of a mapping's key.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Content::Mapping(pairs) = &self.content else {
            return None;
        };
        let mut pairs = pairs.iter();
        let pair = pairs.find(|(key, _)| key.text() == Some(name))?;
        Some(&pair.1)
    }

    /// Whether this is a scalar without quotes.
    pub fn is_plain(&self) -> bool {
        matches!(self.content, Content::Scalar { plain: true, .. })
    }

    /// Whether this is null: empty, `~` or `null` without quotes.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// What a node is, in words for messages.
pub fn kind(node: &Node) -> &'static str {
    match &node.content {
        _ if node.is_null() => "nothing",
        Content::Mapping(_) => "a mapping",
        Content::Sequence(_) => "a list",
        Content::Scalar { plain: false, .. } => "text in quotes",
        Content::Scalar { .. } if node.boolean().is_some() => "a boolean",
        Content::Scalar { .. } if node.number().is_some() => "a number",
        Content::Scalar { .. } => "text",
    }
}

// === impl Open ===

impl Open {
    /// The node, whose last token ends at `end`.
    fn node(self, end: usize) -> Result<Node, YamlError> {
        let deepest = self.children.iter().map(|child| child.depth).max();
        let depth = deepest.unwrap_or_default().saturating_add(1);
        // Aliases nest deeper than the text: walking or freeing a long chain of them would overflow
        // the stack.
        if depth > DEPTH_MAX {
            return Err(YamlError::too_deep(self.span));
        }
        // A block has no last token: the parser ends it where the next thing begins.
        let children = self.children.iter().map(|child| child.span.end);
        let end = if self.is_flow {
            end
        } else {
            children.max().unwrap_or_default()
        };
        let span = Span {
            end: end.max(self.span.end),
            ..self.span
        };
        let content = if self.is_mapping {
            let mut pairs = Vec::with_capacity(self.children.len() / 2);
            let mut children = self.children.into_iter();
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                pairs.push((key, value));
            }
            Content::Mapping(pairs)
        } else {
            Content::Sequence(self.children)
        };
        Ok(Node {
            span,
            content,
            depth,
        })
    }
}

// === impl YamlError ===

impl YamlError {
    fn too_deep(span: Span) -> Self {
        Self {
            span,
            message: format!("nested deeper than {DEPTH_MAX} levels"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn scalar(text: &str) -> Rc<Node> {
        parse(text).unwrap().root.unwrap()
    }

    #[test]
    fn scalars_follow_yaml_1_1_on_request() {
        assert_eq!(scalar("yes").boolean(), Some(true));
        assert_eq!(scalar("'yes'").boolean(), None);
        assert_eq!(scalar("1_000").integer(), Some(1_000));
        assert_eq!(scalar("0x1F").integer(), Some(31));
        assert_eq!(scalar("017").integer(), Some(15));
        assert_eq!(scalar("0").integer(), Some(0));
        assert_eq!(scalar("-3").integer(), Some(-3));
        assert_eq!(scalar("--3").integer(), None);
        assert_eq!(scalar("1.5").integer(), None);
        assert_eq!(scalar("\"5\"").integer(), None);
        assert!(parse("~").unwrap().root.is_none());
    }

    #[test]
    fn positions_count_from_one() {
        let root = scalar("a: 1\nb:\n  c: x\n");
        let Content::Mapping(pairs) = &root.content else {
            panic!("{root:?}")
        };
        assert_eq!(pairs[1].0.span.at, Position { line: 2, column: 1 });
    }

    /// Where a text goes on after its first document, as line and column.
    #[test]
    fn what_follows_the_first_document_is_found() {
        for (text, root, ignored) in [
            ("a: 1\n", true, None),
            ("---\na: 1\n---\n", true, None),
            ("a: 1\n...\n# end\n", true, None),
            ("a: 1\n---\nb: 2\n", true, Some((3, 1))),
            ("a: 1\n---\n---\n[x]\n", true, Some((4, 1))),
            ("---\n# none\n---\na: 1\n", false, Some((4, 1))),
            ("{a: 1} b", true, Some((1, 8))),
            ("a: 1\n---\n]", true, Some((3, 1))),
            ("# none\n", false, None),
        ] {
            let document = parse(text).unwrap();
            let at = document.ignored.map(|span| (span.at.line, span.at.column));
            assert_eq!((document.root.is_some(), at), (root, ignored), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_and_an_alias_bomb_costs_nothing() {
        let deep = "[".repeat(DEPTH_MAX + 1);
        assert!(parse(&deep).unwrap_err().message.contains("64"));
        let mut bomb = String::from("a0: &a0 x\n");
        for n in 1..60 {
            let before = format!("*a{}", n - 1);
            writeln!(bomb, "a{n}: &a{n} [{before}, {before}]").unwrap();
        }
        assert!(parse(&bomb).unwrap().root.is_some());
        assert!(parse("a: &a [*a]\n").is_err());
        let mut chain = String::from("a0: &a0 x\n");
        for n in 1..100_000 {
            writeln!(chain, "a{n}: &a{n} [*a{}]", n - 1).unwrap();
        }
        assert!(parse(&chain).unwrap_err().message.contains("64"));
    }
}
