//! Mapping files: how the requests of a log become requests of a service.
//!
//! What it deliberately does not do: read logs (`rows`).

use std::path::Path;

use super::grammar::{DESCRIPTOR, ENTRY, FIELD, MAPPINGS, ROOT, TEXT_OR_FIELD, TIME, VERDICT};
use super::times::{FORMATS, TimeFormat};
use tollgate_rules::file::{
    Code, Diagnostic, FieldPath, Fields, Item, Reader, Report, kind, unfolding_budget,
};
use tollgate_rules::path::{ReadError, RulesPath, Source};
use tollgate_rules::yaml::{Content, Node};

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
    let fields = reader.fields(root, FieldPath::ROOT, &ROOT)?;
    let time = time(reader, &fields);
    let domain = value(reader, &fields, "domain");
    let items = reader.items(&fields, "descriptors", "- entries: […]");
    let descriptors = items
        .into_iter()
        .filter_map(|item| descriptor(reader, item));
    let descriptors = descriptors.collect();
    let hits = hits(reader, &fields);
    let verdict = verdict(reader, &fields);
    Some(Mapping {
        time: time?,
        domain: domain?,
        descriptors,
        hits,
        verdict,
        warnings: Vec::new(),
    })
}

fn time(reader: &mut Reader<'_>, above: &Fields<'_>) -> Option<Time> {
    let fields = reader.inner(above, "time", &TIME)?;
    let format = reader.text(&fields, "format");
    let parsed = TimeFormat::parse(format);
    if parsed.is_none() {
        reader.unknown_word(&fields, "format", format, &FORMATS);
    }
    Some(Time {
        field: reader.text(&fields, "field").to_owned(),
        format: parsed?,
    })
}

fn descriptor(reader: &mut Reader<'_>, item: Item<'_>) -> Option<Vec<Entry>> {
    let fields = reader.fields(item.node, item.path, &DESCRIPTOR)?;
    let items = reader.items(&fields, "entries", "- key: KEY");
    let entries = items.into_iter().filter_map(|item| entry(reader, item));
    Some(entries.collect())
}

fn entry(reader: &mut Reader<'_>, item: Item<'_>) -> Option<Entry> {
    let fields = reader.fields(item.node, item.path, &ENTRY)?;
    let key = reader.text(&fields, "key").to_owned();
    let value = match (fields.given("value"), fields.given("field")) {
        (Some(_), Some(_)) => {
            let message = "an entry has both `value` and `field`";
            let (at, help) = (fields.at_key("field"), "remove one of them");
            reader.error(Code::ConflictingKeys, at, message, help);
            None
        }
        (Some(_), None) => {
            let text = reader.text(&fields, "value");
            Some(Value::Constant(text.to_owned()))
        }
        (None, _) => {
            let help = "add `field: NAME`, or `value: TEXT` for one that is always the same";
            reader.require(&fields, "field", help);
            let text = reader.text(&fields, "field");
            Some(Value::Field(text.to_owned()))
        }
    };
    Some(Entry { key, value: value? })
}

fn hits(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Value> {
    fields.given("hits")?;
    reader.require(fields, "hits", TEXT_OR_FIELD);
    let hits = value(reader, fields, "hits")?;
    if let Value::Constant(text) = &hits
        && text.parse::<u32>().is_err()
    {
        let at = fields.at("hits");
        let message = format!("hits is not a whole number from 0 to {}", u32::MAX);
        let help = "write a number, or `{field: NAME}`";
        reader.error(Code::WrongType, at, message, help);
    }
    Some(hits)
}

fn verdict(reader: &mut Reader<'_>, above: &Fields<'_>) -> Option<Verdict> {
    let fields = reader.inner(above, "verdict", &VERDICT)?;
    let over_limit = match fields.given("over_limit").map(|node| &node.content) {
        Some(Content::Sequence(items)) => {
            let texts = items
                .iter()
                .map(|item| item.text().map(str::to_owned).ok_or(item.span));
            let texts: Result<Vec<_>, _> = texts.collect();
            match texts {
                Ok(texts) => texts,
                Err(at) => {
                    let (at, message) = (fields.path.at(at), "an item of over_limit is not text");
                    reader.error(Code::WrongType, at, message, "write one value");
                    return None;
                }
            }
        }
        _ => vec![reader.text(&fields, "over_limit").to_owned()],
    };
    Some(Verdict {
        field: reader.text(&fields, "field").to_owned(),
        over_limit,
    })
}

/// A text, or a mapping with the field that has it.
fn value(reader: &mut Reader<'_>, fields: &Fields<'_>, name: &'static str) -> Option<Value> {
    let node = fields.given(name)?;
    match &node.content {
        Content::Scalar { text, .. } => Some(Value::Constant(text.clone())),
        Content::Mapping(_) => {
            let fields = reader.inner(fields, name, &FIELD)?;
            let text = reader.text(&fields, "field");
            Some(Value::Field(text.to_owned()))
        }
        Content::Sequence(_) => {
            let message = format!("{name} is {}", kind(node));
            reader.error(Code::WrongType, fields.at(name), message, TEXT_OR_FIELD);
            None
        }
    }
}
