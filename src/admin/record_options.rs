//! What a `POST /record` asks for (`record` lists the parameters).

use std::num::NonZeroU32;
use std::time::Duration;

use super::AdminState;
use super::failure::ApiFailure;
use super::query::Query;
use crate::capture::{RecordingOptions, Sampling};
use crate::settings::RecordingValues;
use crate::value_hash::ShownValues;

const SECONDS_MAX: u64 = 86_400;
const SECONDS_DEFAULT: u64 = 60;

const PARAMETERS: &[&str] = &[
    "for_seconds",
    "count_max",
    "bytes_max",
    "requests_per_second_max",
    "sample_by",
    "sample",
    "hash",
    "hash_refuse_compared",
];

/// What a request asks for.
pub(super) struct RecordQuery {
    pub(super) lasts: Duration,
    pub(super) count_max: u64,
    pub(super) bytes_max: u64,
    pub(super) options: RecordingOptions,
    pub(super) is_hashed: bool,
    pub(super) refuses_compared: bool,
}

// === impl RecordQuery ===

impl RecordQuery {
    pub(super) fn parse(query: Option<&str>, state: &AdminState) -> Result<Self, ApiFailure> {
        let query = &Query::parse(query, PARAMETERS)?;
        let flag = |name| query.choice(name, &[("true", true), ("false", false)]);
        let seconds = query.number("for_seconds", SECONDS_MAX)?;
        let seconds = seconds.unwrap_or(SECONDS_DEFAULT);
        if seconds == 0 {
            return Err(ApiFailure::invalid(
                "for_seconds=0 is invalid; use a whole number from 1 to 86400",
            ));
        }
        let rate = query.number("requests_per_second_max", u64::from(u32::MAX))?;
        let rate = rate.and_then(|rate| u32::try_from(rate).ok());
        let refuses_compared = flag("hash_refuse_compared")?.unwrap_or(false);
        let must_hash = state.api.recordings.values == RecordingValues::Hashed;
        Ok(Self {
            lasts: Duration::from_secs(seconds),
            count_max: query.number("count_max", u64::MAX)?.unwrap_or(u64::MAX),
            bytes_max: query.number("bytes_max", u64::MAX)?.unwrap_or(u64::MAX),
            options: RecordingOptions {
                sampling: sampling(query, state.api.values)?,
                per_second_max: rate.and_then(NonZeroU32::new),
            },
            is_hashed: must_hash || refuses_compared || flag("hash")?.unwrap_or(false),
            refuses_compared,
        })
    }

    /// What was asked for, for the audit.
    pub(super) fn words(&self) -> String {
        let values = if self.is_hashed { "hashed" } else { "plain" };
        let seconds = self.lasts.as_secs();
        format!("a recording of at most {seconds} s has begun, values are {values}")
    }
}

fn sampling(query: &Query, values: ShownValues) -> Result<Option<Sampling>, ApiFailure> {
    let one_in = query.number("sample", u64::from(u32::MAX))?;
    let one_in = one_in.and_then(|one_in| NonZeroU32::new(u32::try_from(one_in).ok()?));
    match (query.text("sample_by"), one_in) {
        (None, None) => Ok(None),
        (Some(key), one_in) => Ok(Some(Sampling {
            key: key.as_bytes().to_vec(),
            one_in: one_in.unwrap_or(NonZeroU32::MIN),
            values,
        })),
        (None, Some(_)) => Err(ApiFailure::invalid(
            "sample needs sample_by; say the key of the entry whose values are sampled",
        )),
    }
}
