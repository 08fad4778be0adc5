//! Limits in a CSV file (RFC 4180), with a header that names the columns.
//!
//! Values are bytes; the other cells are UTF-8. An empty cell is absent. A line is numbered by
//! where it begins, also after quoted line breaks.

use csv::{ByteRecord, ErrorKind as CsvError, Reader, ReaderBuilder};

use crate::rules::excerpt::excerpt;
use crate::rules::file::limits_from::lines::{Cell, Cells, LINE_FIELDS, LineSink, names};
use crate::rules::file::nearest::nearest;

/// What a column is.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Value,
    /// A field of [`LINE_FIELDS`], by its index.
    Field(usize),
}

/// Counts lines to a byte. Positions are asked for in ascending order.
struct LineCounter<'b> {
    bytes: &'b [u8],
    at: usize,
    line: usize,
}

/// Reads the lines of a CSV file.
pub(super) fn read(bytes: &[u8], sink: &mut impl LineSink) {
    let mut lines = LineCounter {
        bytes,
        at: 0,
        line: 1,
    };
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    let mut record = ByteRecord::new();
    let header = read_record(&mut reader, &mut record);
    let line = lines.begin_of(&record);
    let is_there = match header {
        Ok(is_there) => is_there,
        Err(message) => {
            sink.bad(line, message, "save the file as CSV");
            return;
        }
    };
    let help = "write a header, such as `value,unit,requests_per_unit`";
    if !is_there {
        sink.bad(1, "the file is empty".to_owned(), help);
        return;
    }
    let columns = match columns(&record) {
        Ok(columns) => columns,
        Err((message, meant)) => {
            let meant = meant.map(|meant| format!("did you mean `{meant}`?"));
            let known = || format!("{help}; the columns are {}", names());
            sink.bad(line, message, &meant.unwrap_or_else(known));
            return;
        }
    };
    loop {
        let is_there = read_record(&mut reader, &mut record);
        match is_there {
            Ok(true) => {}
            Ok(false) => return,
            Err(message) => {
                sink.bad(lines.line, message, "save the file as CSV");
                return;
            }
        }
        let line = lines.begin_of(&record);
        if record.len() != columns.len() {
            let message = format!(
                "it has {} columns, and the header has {}",
                record.len(),
                columns.len()
            );
            if !sink.bad(line, message, "quote values that hold a comma or a quote") {
                return;
            }
            continue;
        }
        let go_on = match cells(&record, &columns) {
            Ok((value, cells)) => sink.line(line, value, &cells),
            Err(column) => {
                let message = format!("column {} is not UTF-8 text", column.saturating_add(1));
                sink.bad(line, message, "only `value` may have other bytes")
            }
        };
        if !go_on {
            return;
        }
    }
}

fn read_record(reader: &mut Reader<&[u8]>, record: &mut ByteRecord) -> Result<bool, String> {
    reader
        .read_byte_record(record)
        .map_err(|error| match error.kind() {
            CsvError::Io(error) => error.to_string(),
            _ => error.to_string(),
        })
}

/// What each column is; or what is wrong with the header, and the name that is meant.
fn columns(header: &ByteRecord) -> Result<Vec<Column>, (String, Option<&'static str>)> {
    let mut columns = Vec::with_capacity(header.len());
    for name in header {
        let name = String::from_utf8_lossy(name);
        let field = LINE_FIELDS.iter().position(|field| *field == name);
        let column = match (field, &*name) {
            (Some(field), _) => Column::Field(field),
            (None, "value") => Column::Value,
            (None, name) => {
                let known = LINE_FIELDS.into_iter().chain(["value"]);
                return Err((
                    format!("unknown column '{}'", excerpt(name)),
                    nearest(name, known),
                ));
            }
        };
        if columns.contains(&column) {
            return Err((format!("the column '{name}' occurs twice"), None));
        }
        columns.push(column);
    }
    if columns.contains(&Column::Value) {
        Ok(columns)
    } else {
        Err(("the header has no column 'value'".to_owned(), None))
    }
}

/// The value and the cells of a record; or the index of the first column that is not text.
fn cells<'r>(record: &'r ByteRecord, columns: &[Column]) -> Result<(&'r [u8], Cells<'r>), usize> {
    let mut cells = Cells::default();
    let mut value: &[u8] = b"";
    for (index, (bytes, column)) in record.iter().zip(columns).enumerate() {
        match column {
            Column::Value => value = bytes,
            Column::Field(_) if bytes.is_empty() => {}
            Column::Field(field) => {
                let text = std::str::from_utf8(bytes).map_err(|_| index)?;
                if let Some(cell) = cells.get_mut(*field) {
                    *cell = Cell::Plain(text);
                }
            }
        }
    }
    Ok((value, cells))
}

// === impl LineCounter ===

impl LineCounter<'_> {
    /// The line in which a record begins. The parser's own number is that of the end of the record
    /// before, so empty lines and the second half of a CRLF are counted here.
    fn begin_of(&mut self, record: &ByteRecord) -> usize {
        let byte = record.position().map_or(0, csv::Position::byte);
        let until = usize::try_from(byte).unwrap_or(usize::MAX).max(self.at);
        let rest = self.bytes.get(until..).unwrap_or_default();
        let breaks = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        let until = until.saturating_add(breaks.count());
        let passed = self.bytes.get(self.at..until).unwrap_or_default();
        let count = memchr::memchr_iter(b'\n', passed).count();
        self.line = self.line.saturating_add(count);
        self.at = until;
        self.line
    }
}
