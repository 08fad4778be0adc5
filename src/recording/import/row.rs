//! One line of a log, and its fields by name.

use std::borrow::Cow;
use std::rc::Rc;

use csv::StringRecord;
use serde_json::Value;

use crate::recording::ReadError;

/// The longest line or row, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// How many of the lines that cannot be read are reported.
pub(super) const UNREAD_SHOWN_MAX: usize = 10;

/// The lines of a log.
pub(super) trait Rows {
    /// The next line; none at the end.
    fn next_row(&mut self) -> Result<Option<Row>, ReadError>;
}

/// A line that was read.
pub(super) struct Row {
    /// The number of its first line, from 1.
    pub(super) line: u64,
    /// Its fields, or why there are none.
    pub(super) fields: Result<RowFields, String>,
}

/// The fields of a line.
pub(super) enum RowFields {
    /// A JSON object.
    Json(Value),
    /// A row of a CSV file, with the names of its columns.
    Csv(StringRecord, Rc<StringRecord>),
}

// === impl RowFields ===

impl RowFields {
    /// The value of a field; none if it is absent, null, empty or `-`, which is how Envoy writes
    /// what is absent. The error says why it cannot be used.
    pub(super) fn get(&self, name: &str) -> Result<Option<Cow<'_, str>>, String> {
        let value = match self {
            Self::Json(object) => json_text(object, name)?,
            Self::Csv(row, columns) => {
                let column = columns.iter().position(|column| column == name);
                column.and_then(|column| row.get(column)).map(Cow::Borrowed)
            }
        };
        Ok(value.filter(|value| !value.is_empty() && value != "-"))
    }
}

/// The text of a field of this name, or at this path of names with dots.
fn json_text<'v>(object: &'v Value, name: &str) -> Result<Option<Cow<'v, str>>, String> {
    let found = object.get(name).or_else(|| {
        let mut names = name.split('.');
        names.try_fold(object, |object, name| object.get(name))
    });
    match found {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(Cow::Borrowed(text))),
        Some(Value::Number(number)) => Ok(Some(Cow::Owned(number.to_string()))),
        Some(Value::Bool(value)) => Ok(Some(Cow::Owned(value.to_string()))),
        Some(Value::Array(_)) => Err(format!("`{name}` is a list")),
        Some(Value::Object(_)) => Err(format!("`{name}` is an object; name a field of it")),
    }
}
