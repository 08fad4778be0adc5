//! A CSV file whose first row names the columns.

use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

use csv::{ErrorKind as CsvError, StringRecord};

use super::mapping::Mapping;
use super::row::{LINE_BYTES_MAX, Row, RowFields, Rows};
use crate::recording::ReadError;

/// Reads rows.
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

// === impl CsvRows ===

impl<R: Read> CsvRows<R> {
    /// Reads the names of the columns, and checks that those of the mapping exist.
    pub(super) fn new(input: R, mapping: &Mapping) -> Result<Self, ReadError> {
        let mut reader = csv::ReaderBuilder::new().from_reader(BoundedInput { input, read: 0 });
        let columns = reader
            .headers()
            .map_err(|error| read_error(1, error))?
            .clone();
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
