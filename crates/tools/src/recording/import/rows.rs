//! The lines of a log, and their fields by name: one JSON object on each line, as Envoy's
//! `json_format` writes it, or a CSV file whose first row names the columns.

use std::borrow::Cow;
use std::io::{self, BufRead, ErrorKind, Read};
use std::rc::Rc;

use csv::{ErrorKind as CsvError, StringRecord};
use serde_json::Value;

use super::mapping::Mapping;
use crate::recording::ReadError;

/// The longest line or row, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

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

/// Reads JSON objects.
pub(super) struct JsonLines<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
}

/// Reads a CSV file.
pub(super) struct CsvRows<R> {
    reader: csv::Reader<BoundedInput<R>>,
    columns: Rc<StringRecord>,
}

/// Fails when one row is too long: a quote that is not closed makes one row of the whole file.
struct BoundedInput<R> {
    input: R,
    /// How many bytes were read for the current row.
    read: usize,
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

// === impl JsonLines ===

impl<R: BufRead> JsonLines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            line: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads a line without its end. False at the end of the file. Only the beginning of a line
    /// that is too long is kept.
    fn read_line(&mut self) -> Result<bool, ReadError> {
        self.buffer.clear();
        let longest = LINE_BYTES_MAX as u64;
        let mut bounded = (&mut self.input).take(longest.saturating_add(1));
        if bounded.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(false);
        }
        self.line = self.line.saturating_add(1);
        if self.buffer.last() != Some(&b'\n') && self.buffer.len() > LINE_BYTES_MAX {
            self.input.skip_until(b'\n')?;
        }
        Ok(true)
    }
}

impl<R: BufRead> Rows for JsonLines<R> {
    fn next_row(&mut self) -> Result<Option<Row>, ReadError> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            let is_long = self.buffer.len() > LINE_BYTES_MAX;
            if !is_long && self.buffer.trim_ascii().is_empty() {
                continue;
            }
            let fields = match serde_json::from_slice(self.buffer.trim_ascii_end()) {
                _ if is_long => Err(format!("it is longer than {LINE_BYTES_MAX} bytes")),
                Ok(object @ Value::Object(_)) => Ok(RowFields::Json(object)),
                Ok(_) => Err("it is no JSON object".to_owned()),
                Err(error) => {
                    let (text, column) = (error.to_string(), error.column());
                    // The line of the place is always 1.
                    let reason = text.split_once(" at line ").map_or(&*text, |(it, _)| it);
                    Err(format!("it is no JSON: {reason} at column {column}"))
                }
            };
            let line = self.line;
            return Ok(Some(Row { line, fields }));
        }
    }
}

// === impl CsvRows ===

impl<R: Read> CsvRows<R> {
    /// Reads the names of the columns, and checks that those of the mapping exist.
    pub(super) fn new(input: R, mapping: &Mapping) -> Result<Self, ReadError> {
        let mut reader = csv::ReaderBuilder::new().from_reader(BoundedInput { input, read: 0 });
        let columns = reader.headers().cloned();
        let columns = columns.map_err(|error| read_error(1, error))?;
        for field in mapping.fields() {
            if !columns.iter().any(|column| column == field) {
                return Err(ReadError::NoColumn {
                    field: field.to_owned(),
                    columns: columns.iter().collect::<Vec<_>>().join(", "),
                });
            }
        }
        Ok(Self {
            reader,
            columns: Rc::new(columns),
        })
    }
}

impl<R: Read> Rows for CsvRows<R> {
    fn next_row(&mut self) -> Result<Option<Row>, ReadError> {
        self.reader.get_mut().read = 0;
        let mut row = StringRecord::new();
        let begins = self.reader.position().line();
        let fields = match self.reader.read_record(&mut row) {
            Ok(false) => return Ok(None),
            Ok(true) => Ok(()),
            Err(error) => match error.kind() {
                CsvError::UnequalLengths {
                    expected_len, len, ..
                } => Err(format!(
                    "it has {len} columns, and the first row has {expected_len}"
                )),
                CsvError::Utf8 { .. } => Err("it is not UTF-8 text".to_owned()),
                _ => return Err(read_error(begins, error)),
            },
        };
        let line = row.position().map_or(begins, csv::Position::line);
        let columns = Rc::clone(&self.columns);
        Ok(Some(Row {
            line,
            fields: fields.map(|()| RowFields::Csv(row, columns)),
        }))
    }
}

fn read_error(line: u64, error: csv::Error) -> ReadError {
    let why = error.to_string();
    match error.into_kind() {
        CsvError::Io(error) if error.kind() == ErrorKind::InvalidData => ReadError::Line {
            line,
            why: error.to_string(),
        },
        CsvError::Io(error) => ReadError::File(error),
        _ => ReadError::Line { line, why },
    }
}

// === impl BoundedInput ===

impl<R: Read> Read for BoundedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read > LINE_BYTES_MAX {
            let why = format!(
                "a row begins here that is longer than {LINE_BYTES_MAX} bytes; close its quotes"
            );
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        let read = self.input.read(buffer)?;
        self.read = self.read.saturating_add(read);
        Ok(read)
    }
}
