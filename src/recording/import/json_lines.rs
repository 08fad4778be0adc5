//! A log with one JSON object on each line, as Envoy's `json_format` writes it.

use std::io::{BufRead, Read as _};

use serde_json::Value;

use super::row::{LINE_BYTES_MAX, Row, RowFields, Rows};
use crate::recording::ReadError;

/// Reads lines.
pub(super) struct JsonLines<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
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
            self.skip_line()?;
        }
        Ok(true)
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> Result<(), ReadError> {
        loop {
            let bytes = self.input.fill_buf()?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(bytes.len(), |end| end.saturating_add(1));
            self.input.consume(length);
            if end.is_some() || length == 0 {
                return Ok(());
            }
        }
    }
}

impl<R: BufRead> Rows for JsonLines<R> {
    fn next_row(&mut self) -> Result<Option<Row>, ReadError> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Ok(Some(Row {
                    line: self.line,
                    fields: Err(format!("it is longer than {LINE_BYTES_MAX} bytes")),
                }));
            }
            if self.buffer.trim_ascii().is_empty() {
                continue;
            }
            let fields = match serde_json::from_slice(self.buffer.trim_ascii_end()) {
                Ok(object @ Value::Object(_)) => Ok(RowFields::Json(object)),
                Ok(_) => Err("it is no JSON object".to_owned()),
                Err(error) => Err(format!(
                    "it is no JSON: {} at column {}",
                    reason(&error),
                    error.column()
                )),
            };
            return Ok(Some(Row {
                line: self.line,
                fields,
            }));
        }
    }
}

/// The error without its place: its line is always 1.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}
