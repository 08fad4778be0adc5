//! A report as its bytes, whose usages are decoded when it is their turn.
//!
//! Why not the whole report at once: decoded it takes six times the memory, and with thousands of
//! streams many reports wait.
//!
//! What it deliberately does not do: take usages (`quota::registry`), or bound a report's size (the
//! setting `message-size-max`).

use bytes::Bytes;

use crate::quota::bucket::Usage;
use crate::quota::registry::ReportedUsage;
use tollgate_wire::fields::{Fields, Value};

/// The most pairs of an id that are looked at. More pairs than a rule can have fit none.
const PAIRS_MAX: usize = 64;

/// Numbers of fields in `RateLimitQuotaUsageReports`.
const DOMAIN: u64 = 1;
const USAGE: u64 = 2;

/// The bytes are not a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedReport;

/// What is left of a report.
pub struct WaitingReport {
    pub domain: Bytes,
    /// Fields that are read already are cut off.
    rest: Bytes,
}

/// The id and what was used; none when it is malformed. As protobuf merges them, a second id adds
/// pairs to the first.
fn read_usage(usage: &Bytes) -> Option<ReportedUsage> {
    let mut id = Vec::with_capacity(1);
    let (mut allowed, mut denied) = (0, 0);
    let mut fields = Fields(usage);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(message)) => read_id(usage, message, &mut id)?,
            (2, Value::Bytes(duration)) => read_duration(duration)?,
            (3, Value::Varint(number)) => allowed = number,
            (4, Value::Varint(number)) => denied = number,
            (1..=4, _) => return None,
            _ => {}
        }
    }
    Some(ReportedUsage {
        id,
        usage: Usage { allowed, denied },
    })
}

fn read_id(usage: &Bytes, message: &[u8], pairs: &mut Vec<(Bytes, Bytes)>) -> Option<()> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(entry)) => {
                let pair = read_pair(entry)?;
                if pairs.len() < PAIRS_MAX {
                    pairs.push((usage.slice_ref(pair.0), usage.slice_ref(pair.1)));
                }
            }
            (1, _) => return None,
            _ => {}
        }
    }
    Some(())
}

fn read_pair(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut pair: (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Fields(entry);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(key)) => pair.0 = key,
            (2, Value::Bytes(value)) => pair.1 = value,
            (1..=2, _) => return None,
            _ => {}
        }
    }
    Some(pair)
}

/// The time of a usage is not used; it only has to be valid.
fn read_duration(message: &[u8]) -> Option<()> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        if !matches!(field, (1 | 2, Value::Varint(_)) | (3.., _)) {
            return None;
        }
    }
    Some(())
}

// === impl WaitingReport ===

impl WaitingReport {
    /// Finds the domain, which may come after the usages.
    ///
    /// # Errors
    ///
    /// When the bytes are not a report. A usage is looked at later.
    pub fn read(message: Bytes) -> Result<Self, MalformedReport> {
        let mut domain = Bytes::new();
        let mut fields = Fields(&message);
        while let Some(field) = fields.next().ok_or(MalformedReport)? {
            match field {
                (DOMAIN, Value::Bytes(text)) => domain = message.slice_ref(text),
                (USAGE, Value::Bytes(_)) => {}
                (DOMAIN | USAGE, _) => return Err(MalformedReport),
                _ => {}
            }
        }
        Ok(Self {
            domain,
            rest: message,
        })
    }

    /// Decodes the next usages, at most this many. Those without an id are left out.
    ///
    /// # Errors
    ///
    /// When one of them is not a usage.
    pub fn next_usages(&mut self, count_max: usize) -> Result<Vec<ReportedUsage>, MalformedReport> {
        let message = self.rest.clone();
        let mut fields = Fields(&message);
        let mut usages = Vec::new();
        for _ in 0..count_max {
            let Some(field) = fields.next().ok_or(MalformedReport)? else {
                break;
            };
            if let (USAGE, Value::Bytes(usage)) = field {
                let usage = read_usage(&message.slice_ref(usage)).ok_or(MalformedReport)?;
                usages.extend(Some(usage).filter(|usage| !usage.id.is_empty()));
            }
        }
        self.rest = message.slice_ref(fields.0);
        Ok(usages)
    }

    /// Whether all of it is read.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests;
