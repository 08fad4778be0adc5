//! Mapping files: how the requests of a log become requests of a service.
//!
//! What it deliberately does not do: read logs (`rows`).

use std::path::Path;

use super::grammar::{DESCRIPTOR, ENTRY, FIELD, MAPPINGS, ROOT, TIME, VERDICT};
use super::times::{FORMATS, TimeFormat};
use crate::rules::file::{
    Code, Diagnostic, FieldPath, Fields, Reader, Report, kind, unfolding_budget,
};
use crate::rules::path::{ReadError, RulesPath, Source};
use crate::rules::yaml::{Content, Node};

/// How requests are in a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    pub(super) time: Time,
    pub(super) domain: Value,
    pub(super) descriptors: Vec<Vec<Entry>>,
    pub(super) hits: Option<Value>,
    pub(super) verdict: Option<Verdict>,
    /// Warnings of its file.
    pub warnings: Vec<Diagnostic>,
}

/// Where the time is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Time {
    pub(super) field: String,
    pub(super) format: TimeFormat,
}

/// A text, or the field that has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Constant(String),
    Field(String),
}

/// An entry of a descriptor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Value,
}

/// What the answer was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Verdict {
    pub(super) field: String,
    pub(super) over_limit: Vec<String>,
}

/// Why a mapping file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It has errors.
    #[error("{}", .0.render(false))]
    Invalid(Report),
}

// === impl Mapping ===

impl Mapping {
    /// Reads the mapping file at a path.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or has errors: all of them.
    pub fn load(path: &Path) -> Result<Self, MappingError> {
        let sources = RulesPath::Path(path.to_owned()).read()?;
        let [source] = sources.as_slice() else {
            return Err(MappingError::Read(ReadError::LimitExceeded {
                path: path.display().to_string(),
                what: "a directory, not a mapping file".to_owned(),
            }));
        };
        Self::parse(source).map_err(MappingError::Invalid)
    }

    /// Reads a mapping file.
    pub(super) fn parse(source: &Source) -> Result<Self, Report> {
        let mut reader = Reader::new(&MAPPINGS);
        reader.file(&source.name, &source.text, unfolding_budget(&source.text));
        let help = "add `time`, `domain` and `descriptors`";
        let root = reader.parse_root("the mapping file is empty", help);
        let mapping = root.and_then(|root| read_root(&mut reader, &root));
        let report = reader.into_report(std::slice::from_ref(&source));
        match mapping {
            Some(mapping) if report.errors.is_empty() => Ok(Self {
                warnings: report.warnings,
                ..mapping
            }),
            _ => Err(report),
        }
    }

    /// The fields that it names.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let entries = self.descriptors.iter().flatten().map(|entry| &entry.value);
        let values = entries.chain([&self.domain]).chain(&self.hits);
        let values = values.filter_map(|value| match value {
            Value::Field(field) => Some(field.as_str()),
            Value::Constant(_) => None,
        });
        let verdict = self.verdict.iter().map(|verdict| verdict.field.as_str());
        values.chain(verdict).chain([self.time.field.as_str()])
    }
}

fn read_root(reader: &mut Reader<'_>, root: &Node) -> Option<Mapping> {
    let path = FieldPath::ROOT;
    let fields = reader.fields(root, &path, &ROOT)?;
    let time = time(reader, &fields, &path);
    let domain = required_value(reader, &fields, &path, "domain");
    let help = "add `descriptors:`, a list of `- entries: [{key: KEY, field: FIELD}]`";
    require(reader, &fields, &path, "descriptors", help);
    let items = reader.items(&fields, &path, "descriptors", "- entries: […]");
    let mut descriptors = Vec::new();
    for (position, item) in items.iter().enumerate() {
        descriptors.extend(descriptor(
            reader,
            item,
            &path.item("descriptors", position),
        ));
    }
    let hits = hits(reader, &fields, &path);
    let verdict = verdict(reader, &fields, &path);
    Some(Mapping {
        time: time?,
        domain: domain?,
        descriptors,
        hits,
        verdict,
        warnings: Vec::new(),
    })
}

fn time(reader: &mut Reader<'_>, above: &Fields<'_>, path: &FieldPath<'_>) -> Option<Time> {
    let help = "name the field of the time: `time: {field: NAME, format: rfc3339}`";
    require(reader, above, path, "time", help);
    let path = path.field("time");
    let fields = reader.fields(above.given("time")?, &path, &TIME)?;
    require(reader, &fields, &path, "field", "add `field: NAME`");
    let format = reader.text(&fields, &path, "format");
    let parsed = TimeFormat::parse(format);
    if parsed.is_none() {
        let known = (format, &FORMATS[..]);
        reader.unknown_word(&fields, &path, "format", known);
    }
    Some(Time {
        field: reader.text(&fields, &path, "field").to_owned(),
        format: parsed?,
    })
}

fn descriptor(reader: &mut Reader<'_>, node: &Node, path: &FieldPath<'_>) -> Option<Vec<Entry>> {
    let fields = reader.fields(node, path, &DESCRIPTOR)?;
    let help = "add `entries:`, a list of `- {key: KEY, field: FIELD}`";
    require(reader, &fields, path, "entries", help);
    let items = reader.items(&fields, path, "entries", "- key: KEY");
    let mut entries = Vec::new();
    for (position, item) in items.iter().enumerate() {
        entries.extend(entry(reader, item, &path.item("entries", position)));
    }
    Some(entries)
}

fn entry(reader: &mut Reader<'_>, node: &Node, path: &FieldPath<'_>) -> Option<Entry> {
    let fields = reader.fields(node, path, &ENTRY)?;
    require(reader, &fields, path, "key", "add `key: KEY`");
    let key = reader.text(&fields, path, "key").to_owned();
    let value = match (fields.given("value"), fields.given("field")) {
        (Some(_), Some(_)) => {
            let message = "an entry has both `value` and `field`";
            let (at, help) = (fields.key_span("field"), "remove one of them");
            reader.error(Code::ConflictingKeys, at, path, message, help);
            None
        }
        (Some(_), None) => {
            let text = reader.text(&fields, path, "value");
            Some(Value::Constant(text.to_owned()))
        }
        (None, _) => {
            let help = "add `field: NAME`, or `value: TEXT` for one that is always the same";
            require(reader, &fields, path, "field", help);
            let text = reader.text(&fields, path, "field");
            Some(Value::Field(text.to_owned()))
        }
    };
    Some(Entry { key, value: value? })
}

fn hits(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Value> {
    fields.given("hits")?;
    let hits = required_value(reader, fields, path, "hits")?;
    if let Value::Constant(text) = &hits
        && text.parse::<u32>().is_err()
    {
        let at = fields.span_of("hits");
        let message = format!("hits is not a whole number from 0 to {}", u32::MAX);
        let help = "write a number, or `{field: NAME}`";
        reader.error(Code::WrongType, at, path, message, help);
    }
    Some(hits)
}

fn verdict(reader: &mut Reader<'_>, above: &Fields<'_>, path: &FieldPath<'_>) -> Option<Verdict> {
    let path = path.field("verdict");
    let fields = reader.fields(above.given("verdict")?, &path, &VERDICT)?;
    require(reader, &fields, &path, "field", "add `field: NAME`");
    require(
        reader,
        &fields,
        &path,
        "over_limit",
        "add `over_limit: [VALUE]`",
    );
    let over_limit = match fields.given("over_limit").map(|node| &node.content) {
        Some(Content::Sequence(items)) => {
            let texts = items
                .iter()
                .map(|item| item.text().map(str::to_owned).ok_or(item.span));
            let texts: Result<Vec<_>, _> = texts.collect();
            match texts {
                Ok(texts) => texts,
                Err(at) => {
                    let message = "an item of over_limit is not text";
                    reader.error(Code::WrongType, at, &path, message, "write one value");
                    return None;
                }
            }
        }
        _ => vec![reader.text(&fields, &path, "over_limit").to_owned()],
    };
    Some(Verdict {
        field: reader.text(&fields, &path, "field").to_owned(),
        over_limit,
    })
}

/// A text, or a mapping with the field that has it.
fn required_value(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    path: &FieldPath<'_>,
    name: &str,
) -> Option<Value> {
    require(
        reader,
        fields,
        path,
        name,
        "write a text, or `{field: NAME}`",
    );
    let node = fields.given(name)?;
    match &node.content {
        Content::Scalar { text, .. } => Some(Value::Constant(text.clone())),
        Content::Mapping(_) => {
            let path = path.field(name);
            let fields = reader.fields(node, &path, &FIELD)?;
            require(reader, &fields, &path, "field", "add `field: NAME`");
            let text = reader.text(&fields, &path, "field");
            Some(Value::Field(text.to_owned()))
        }
        Content::Sequence(_) => {
            let message = format!("{name} is {}", kind(node));
            let help = "write a text, or `{field: NAME}`";
            let at = node.span;
            reader.error(Code::WrongType, at, path, message, help);
            None
        }
    }
}

/// Reports a field that is absent or empty.
fn require(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    path: &FieldPath<'_>,
    name: &str,
    help: &str,
) {
    let is_empty = match fields.given(name).map(|node| &node.content) {
        None => true,
        Some(Content::Scalar { text, .. }) => text.is_empty(),
        Some(Content::Sequence(items)) => items.is_empty(),
        Some(Content::Mapping(_)) => false,
    };
    // One mistake, one error: a misspelt key has been reported.
    if is_empty && !fields.is_misspelt(name) {
        let message = format!("`{name}` is missing or empty");
        let at = fields.span_of(name);
        reader.error(Code::MissingKey, at, path, message, help);
    }
}
