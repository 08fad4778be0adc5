//! The requests of a log in the order of their times.
//!
//! A proxy writes a line when a request has ended, with the time at which it began: lines are only
//! nearly in order. So requests are held, [`SORTED_BYTES_MAX`] bytes of them, and the earliest
//! comes first, of one time the one with the first line.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use super::mapping::{Mapping, Value, Verdict};
use super::rows::{RowFields, Rows};
use crate::recording::{Event, Events, ReadError, SORTED_BYTES_MAX, Summary, UnreadLine, VERSION};
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::tollgate::recording::v1::{Code, Header, Request};

/// How many of the lines that cannot be read are reported.
const UNREAD_SHOWN_MAX: usize = 10;

/// What an event costs beside its message, about.
const HELD_BYTES: usize = size_of::<Held>();

/// The requests of a log.
pub(super) struct Imported {
    rows: Box<dyn Rows>,
    mapping: Mapping,
    header: Header,
    summary: Summary,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    /// The time and the line of the last request that was passed on.
    passed: (u64, u64),
    order: u64,
    is_done: bool,
}

/// A request that waits for earlier ones.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Held {
    time_us: u64,
    line: u64,
    message: Vec<u8>,
    code: i32,
}

// === impl Imported ===

impl Imported {
    /// Reads the beginning of a log.
    pub(super) fn new(
        rows: Box<dyn Rows>,
        mapping: Mapping,
        origin: &str,
    ) -> Result<Self, ReadError> {
        let mut imported = Self {
            rows,
            mapping,
            header: Header {
                version: VERSION,
                tollgate: env!("CARGO_PKG_VERSION").to_owned(),
                imported_from: origin.to_owned(),
                ..Header::default()
            },
            summary: Summary::default(),
            held: BinaryHeap::new(),
            held_bytes: 0,
            passed: (0, 0),
            order: 0,
            is_done: false,
        };
        imported.fill()?;
        match imported.held.peek() {
            Some(Reverse(first)) => imported.header.began_us = first.time_us,
            None => return Err(imported.no_requests()),
        }
        Ok(imported)
    }

    /// Why there is not one request.
    fn no_requests(&self) -> ReadError {
        let summary = &self.summary;
        ReadError::NoRequests {
            unread: summary.unread,
            without: summary.skipped.without_entry,
            first: summary
                .first_unread
                .first()
                .map_or_else(String::new, |first| {
                    format!("; line {}: {}", first.line, first.why)
                }),
        }
    }

    /// Reads lines until as many requests are held as may be, or until the end.
    fn fill(&mut self) -> Result<(), ReadError> {
        while !self.is_done && self.held_bytes < SORTED_BYTES_MAX {
            let Some(row) = self.rows.next_row()? else {
                self.is_done = true;
                break;
            };
            let read = row.fields.and_then(|fields| self.mapping.request(&fields));
            match read {
                Ok(Some((time_us, message, code))) => {
                    let line = row.line;
                    if (time_us, line) < self.passed {
                        return Err(ReadError::Unsorted { line });
                    }
                    self.held_bytes = self.held_bytes.saturating_add(cost(&message));
                    self.held.push(Reverse(Held {
                        time_us,
                        line,
                        message,
                        code: code as i32,
                    }));
                }
                Ok(None) => {
                    let without = &mut self.summary.skipped.without_entry;
                    *without = without.saturating_add(1);
                }
                Err(why) => self.unread(row.line, why),
            }
        }
        Ok(())
    }

    fn unread(&mut self, line: u64, why: String) {
        let summary = &mut self.summary;
        summary.unread = summary.unread.saturating_add(1);
        if summary.first_unread.len() < UNREAD_SHOWN_MAX {
            summary.first_unread.push(UnreadLine { line, why });
        }
    }
}

impl Events for Imported {
    fn header(&self) -> &Header {
        &self.header
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        if let Err(error) = self.fill() {
            self.is_done = true;
            self.held.clear();
            return Err(error);
        }
        let Some(Reverse(first)) = self.held.pop() else {
            if self.summary.ended.is_none() {
                self.summary.ended = Some("end of the file".to_owned());
            }
            return Ok(None);
        };
        self.held_bytes = self.held_bytes.saturating_sub(cost(&first.message));
        self.passed = (first.time_us, first.line);
        self.order = self.order.saturating_add(1);
        Ok(Some(Event::Request(Arc::new(Request {
            order: self.order,
            time_us: first.time_us,
            request: first.message,
            code: first.code,
            ..Request::default()
        }))))
    }
}

/// What a held request costs, in bytes.
fn cost(message: &[u8]) -> usize {
    HELD_BYTES.saturating_add(message.len())
}

// === impl Mapping ===

impl Mapping {
    /// The time, the message and the verdict of a line; none if it has no descriptor. The error
    /// says why it cannot be read.
    fn request(&self, fields: &RowFields) -> Result<Option<(u64, Vec<u8>, Code)>, String> {
        let field = &self.time.field;
        let time = fields.get(field)?;
        let time = time.ok_or_else(|| format!("it has no `{field}`, which is its time"))?;
        let time_us = self.time.format.read(&time);
        let time_us = time_us.map_err(|why| format!("`{field}` {why}"))?;
        let Some(domain) = self.domain.of(fields)? else {
            return Err("it has no domain".to_owned());
        };
        let hits = match &self.hits {
            None => 0,
            Some(hits) => {
                let text = hits.of(fields)?;
                let number = text.map_or(Ok(0), |text| text.parse());
                number.map_err(|_| format!("its hits are no number from 0 to {}", u32::MAX))?
            }
        };
        let mut request = RateLimitRequest {
            domain: domain.into_bytes().into(),
            hits_addend: hits,
            ..RateLimitRequest::default()
        };
        for entries in &self.descriptors {
            let mut descriptor = RateLimitDescriptor::default();
            for entry in entries {
                let Some(value) = entry.value.of(fields)? else {
                    break;
                };
                descriptor.entries.push(Entry {
                    key: Bytes::from(entry.key.clone()),
                    value: value.into(),
                });
            }
            if descriptor.entries.len() == entries.len() {
                request.descriptors.push(descriptor);
            }
        }
        if request.descriptors.is_empty() {
            return Ok(None);
        }
        let code = match &self.verdict {
            None => Code::None,
            Some(verdict) => verdict.of(fields)?,
        };
        Ok(Some((time_us, request.encode_to_vec(), code)))
    }
}

// === impl Value ===

impl Value {
    /// Its text in this line.
    fn of(&self, fields: &RowFields) -> Result<Option<String>, String> {
        match self {
            Self::Constant(text) => Ok(Some(text.clone())),
            Self::Field(name) => Ok(fields.get(name)?.map(std::borrow::Cow::into_owned)),
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// The verdict of this line. Without the field it was admitted: Envoy writes no flag then.
    fn of(&self, fields: &RowFields) -> Result<Code, String> {
        let value = fields.get(&self.field)?;
        let mut flags = value.iter().flat_map(|value| {
            let flags = value.split(',').map(str::trim);
            flags.chain([value.as_ref()])
        });
        let is_refused = flags.any(|flag| self.over_limit.iter().any(|one| one == flag));
        Ok(if is_refused {
            Code::OverLimit
        } else {
            Code::Ok
        })
    }
}
