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
//! | `rows` | the two kinds of logs: lines, and their fields by name |
//! | `imported` | requests in the order of their times |
//!
//! Memory: [`SORTED_BYTES_MAX`](super::SORTED_BYTES_MAX) of requests that are sorted, and one line.
//! A request that is earlier than one that was replayed already ends the replay with an error.
//!
//! A log that gzip compressed is decompressed as it is read, so these bounds hold for it too. It
//! may have several members.
//!
//! What it deliberately does not do: decompress other formats. It names them.

#[rustfmt::skip] // A field has a line.
mod grammar;
mod imported;
mod mapping;
mod rows;
mod times;

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use self::imported::Imported;
pub use self::mapping::{Mapping, MappingError};
use self::rows::{CsvRows, JsonLines, Rows};
use super::{Events, ReadError};

/// How much of a log shows what it is, in bytes.
const HEAD_BYTES: u64 = 4_096;

/// The first bytes of files that are not read, and what these are.
const FOREIGN: [(&[u8], &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
];

const GZIP: &[u8] = b"\x1f\x8b";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a log by a mapping. A log whose first line begins with `{` has JSON objects, another one
/// is a CSV file.
///
/// # Errors
///
/// When the log cannot be read, or has no request.
pub fn open(log: impl Read + 'static, mapping: Mapping) -> Result<Box<dyn Events>, ReadError> {
    let (head, log) = peek(log)?;
    if head.starts_with(GZIP) {
        let (head, log) = peek(MultiGzDecoder::new(log))?;
        return open_text(&head, log, mapping);
    }
    open_text(&head, log, mapping)
}

/// The first bytes of a log, and the whole log.
fn peek(mut log: impl Read) -> io::Result<(Vec<u8>, impl BufRead)> {
    let mut head = Vec::new();
    log.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    let log = BufReader::new(Cursor::new(head.clone()).chain(log));
    Ok((head, log))
}

fn open_text(
    head: &[u8],
    mut log: impl BufRead + 'static,
    mapping: Mapping,
) -> Result<Box<dyn Events>, ReadError> {
    if let Some((_, what)) = FOREIGN.iter().find(|(begin, _)| head.starts_with(begin)) {
        return Err(ReadError::ForeignLog(what));
    }
    if head.starts_with(BYTE_ORDER_MARK) {
        log.read_exact(&mut [0; BYTE_ORDER_MARK.len()])?;
    }
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
