//! Limits in a CSV file (RFC 4180), with a header that names the columns.
//!
//! A record is one line, and quotes are where RFC 4180 has them. A parser that accepts more takes a
//! stray quote for the beginning of a value, and drops all lines up to the next quote. Values with
//! line breaks are for JSON lines. An empty cell is absent.

use std::borrow::Cow;

use crate::excerpt::excerpt;
use crate::file::corrections::nearest;
use crate::file::limits_from::reader::{Cell, Cells, LINE_FIELDS, TableReader, names};

/// What a column is.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Value,
    /// A field of [`LINE_FIELDS`], by its index.
    Field(usize),
}

/// The lines that are not empty, with their numbers. A line ends with LF, CRLF or CR.
struct Lines<'b> {
    rest: &'b [u8],
    number: usize,
}

/// What is wrong with a line, and what to do.
type Mistake = (String, &'static str);

const QUOTES: &str = "quote a value that holds a comma or a quote, and write its quotes twice";

/// Reads the lines of a CSV file.
pub(super) fn read(bytes: &[u8], table: &mut TableReader) {
    let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = Lines { rest, number: 0 };
    let help = "write a header, such as `value,unit,requests_per_unit`";
    let Some((header, line)) = lines.next() else {
        table.bad(1, "the file is empty".to_owned(), help);
        return;
    };
    let mut record = Vec::new();
    if std::str::from_utf8(line).is_err() {
        let (message, help) = not_utf8();
        table.bad(header, message, help);
        return;
    }
    // The path may name any file, of which no line is shown.
    if split(line, &mut record).is_err() || !record.iter().any(|name| is_column(name)) {
        let known = format!("{help}; the columns are {}", names());
        table.bad(
            header,
            "it is no header of a file of limits".to_owned(),
            &known,
        );
        return;
    }
    let columns = match columns(&record) {
        Ok(columns) => columns,
        Err((message, meant)) => {
            let meant = meant.map(|meant| format!("did you mean `{meant}`?"));
            let known = || format!("{help}; the columns are {}", names());
            table.bad(header, message, &meant.unwrap_or_else(known));
            return;
        }
    };
    let mut is_empty = true;
    for (number, line) in lines {
        is_empty = false;
        let go_on = match split(line, &mut record) {
            Err((message, help)) => table.bad(number, message, help),
            Ok(()) if record.len() != columns.len() => {
                let message = format!(
                    "it has {} columns, and the header has {}",
                    record.len(),
                    columns.len()
                );
                table.bad(number, message, QUOTES)
            }
            Ok(()) => {
                let (value, cells) = cells(&record, &columns);
                table.line(number, value.as_bytes(), &cells)
            }
        };
        if !go_on {
            return;
        }
    }
    if is_empty {
        // It would take the limits of all values away.
        let message = "the file has a header and no values".to_owned();
        let help = "write a line for each value, or remove `limits_from` from the rule";
        table.bad(header, message, help);
    }
}

fn not_utf8() -> Mistake {
    let help = "save the file as UTF-8; Excel calls it \"CSV UTF-8\"";
    ("it is not UTF-8 text".to_owned(), help)
}

fn is_column(name: &str) -> bool {
    name == "value" || LINE_FIELDS.contains(&name)
}

/// Splits a line into its cells.
fn split<'b>(line: &'b [u8], record: &mut Vec<Cow<'b, str>>) -> Result<(), Mistake> {
    record.clear();
    let line = std::str::from_utf8(line).map_err(|_| not_utf8())?;
    if !line.contains('"') {
        record.extend(line.split(',').map(Cow::Borrowed));
        return Ok(());
    }
    let mut rest = line;
    loop {
        let after = if let Some(quoted) = rest.strip_prefix('"') {
            let Some((cell, after)) = until_closing_quote(quoted) else {
                let help = "close the quote in the same line; \
                            for values with line breaks, use a .jsonl file";
                return Err(("a quote is opened and not closed".to_owned(), help));
            };
            record.push(cell);
            after
        } else {
            let (cell, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            if cell.contains('"') {
                let message = format!("a quote within the value '{}'", excerpt(cell));
                return Err((message, QUOTES));
            }
            record.push(Cow::Borrowed(cell));
            after
        };
        if after.is_empty() {
            return Ok(());
        }
        let Some(next) = after.strip_prefix(',') else {
            let message = format!("text after a closing quote: '{}'", excerpt(after));
            return Err((message, QUOTES));
        };
        rest = next;
    }
}

/// A quoted cell, and what follows its closing quote; none without a closing quote.
fn until_closing_quote(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let (cell, after) = text.split_once('"')?;
    let Some(mut rest) = after.strip_prefix('"') else {
        return Some((Cow::Borrowed(cell), after));
    };
    let mut whole = format!("{cell}\"");
    loop {
        let (part, after) = rest.split_once('"')?;
        whole.push_str(part);
        match after.strip_prefix('"') {
            None => return Some((Cow::Owned(whole), after)),
            Some(next) => {
                whole.push('"');
                rest = next;
            }
        }
    }
}

/// What each column is; or what is wrong with the header, and the name that is meant.
fn columns(header: &[Cow<'_, str>]) -> Result<Vec<Column>, (String, Option<&'static str>)> {
    let mut columns = Vec::with_capacity(header.len());
    for name in header {
        let field = LINE_FIELDS.iter().position(|field| field == name);
        let column = match (field, &**name) {
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

/// The value and the cells of a record.
fn cells<'r>(record: &'r [Cow<'_, str>], columns: &[Column]) -> (&'r str, Cells<'r>) {
    let mut cells = Cells::default();
    let mut value = "";
    for (text, column) in record.iter().zip(columns) {
        match column {
            Column::Value => value = text,
            Column::Field(_) if text.is_empty() => {}
            Column::Field(field) => {
                if let Some(cell) = cells.get_mut(*field) {
                    *cell = Cell::Plain(text);
                }
            }
        }
    }
    (value, cells)
}

// === impl Lines ===

impl<'b> Iterator for Lines<'b> {
    type Item = (usize, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            self.number = self.number.saturating_add(1);
            let end = memchr::memchr2(b'\n', b'\r', self.rest);
            let (line, after) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            let after = after.strip_prefix(b"\r").unwrap_or(after);
            self.rest = after.strip_prefix(b"\n").unwrap_or(after);
            if !line.is_empty() {
                return Some((self.number, line));
            }
        }
        None
    }
}
