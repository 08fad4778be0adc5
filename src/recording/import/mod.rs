//! Access logs and CSV files, read like recordings.
//!
//! A mapping file says which fields of a line make a request. A line that cannot be read is
//! counted, and the first ones are reported with their numbers. A descriptor of which a value is
//! absent is not part of the request, as in Envoy; a line without a descriptor is no request.
//!
//! | file | what |
//! | --- | --- |
//! | `grammar`, `mapping` | mapping files |
//! | `times` | times, by their format |
//! | `json_lines`, `csv_rows` | the two kinds of logs |
//! | `row` | one line, and its fields by name |
//! | `imported` | requests in the order of their times |
//!
//! Memory: [`SORTED_BYTES_MAX`](super::SORTED_BYTES_MAX) of requests that are sorted, and one line.
//! A request that is earlier than one that was replayed already ends the replay with an error.
//!
//! What it deliberately does not do: read compressed logs.

mod csv_rows;
mod grammar;
mod imported;
mod json_lines;
mod mapping;
mod row;
mod times;

use std::io::{BufRead, BufReader, Read};

use self::csv_rows::CsvRows;
use self::imported::Imported;
use self::json_lines::JsonLines;
pub use self::mapping::{Mapping, MappingError};
use self::row::Rows;
use super::{Events, ReadError};

/// Reads a log by a mapping. A log whose first line begins with `{` has JSON objects, another one
/// is a CSV file.
///
/// # Errors
///
/// When the log cannot be read, or has no request.
pub fn open(log: impl Read + 'static, mapping: Mapping) -> Result<Box<dyn Events>, ReadError> {
    let mut log = BufReader::new(log);
    let begins = log.fill_buf()?.trim_ascii_start().first();
    let (rows, origin): (Box<dyn Rows>, _) = if begins == Some(&b'{') {
        (Box::new(JsonLines::new(log)), "access log")
    } else {
        (Box::new(CsvRows::new(log, &mapping)?), "csv")
    };
    Ok(Box::new(Imported::new(rows, mapping, origin)?))
}

#[cfg(test)]
mod tests;
