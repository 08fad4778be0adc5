//! Reads the script's reply: one record per check, little-endian. Its first byte tells which.
//!
//! | first byte | what follows |
//! | --- | --- |
//! | 1 | the rest of the bucket as it is now. Its check was a take from a fixed window and passed |
//! | 64 and more | the rest of 40 bytes: see below |
//! | 128 | nothing: the bucket could not be read |
//! | 129 | nothing: the bucket is not on this node of a cluster, or the call lacks keys of it |
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | 64, and 1 allowed, 2 never passes (no retry), 4 times what became of a reservation, 11 more when blocked |
//! | 7, 7, 7 | `at`, `used_before`, `remaining` |
//! | 7, 7 | `reset_us`, `retry_us`: the lower 53 bits |
//! | 2, 2 | their upper 11 bits |
//!
//! The last four bytes exist because a Lua number has 53 bits and an outcome's times have 64. The
//! short record saves Redis a third of its work for most checks: it is the string that is written.
//!
//! A reply that does not fit the checks makes every check of the call an invalid bucket.

use super::{HEAD_LEN, VERSION};
use tollgate_limiter::{Check, Hits, Outcome, ReservationOutcome, Timestamp};
use tollgate_store::StoreFault;

/// The result of one check. [`StoreFault::InvalidBucket`]: the value under its key is not a bucket
/// of this version, and nothing was taken or changed.
pub type ScriptResult = Result<Outcome, StoreFault>;

/// Length of a full record in bytes.
const OUTCOME_LEN: usize = 40;

/// The first byte of a full record, without its flags.
pub(super) const FULL: u8 = 64;

/// The record of an unreadable bucket.
const UNREADABLE: u8 = 128;

/// The record of a check that was left to another call. Nothing was taken.
const ELSEWHERE: u8 = 129;

/// What the outcome of a passed take needs of its check.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CheckTerms {
    hits: u64,
    requests: u64,
    window_us: u64,
}

/// What can become of a step of a reservation, by its number in the script.
pub(super) const RESERVATIONS: [ReservationOutcome; 11] = [
    ReservationOutcome::None,
    ReservationOutcome::Reserved,
    ReservationOutcome::Refused,
    ReservationOutcome::TooMany,
    ReservationOutcome::Settled,
    ReservationOutcome::SettledBefore,
    ReservationOutcome::Charged,
    ReservationOutcome::Ignored,
    ReservationOutcome::Extended,
    ReservationOutcome::Unknown,
    ReservationOutcome::Withdrawn,
];

/// What is added to the number of what became of a reservation when a penalty refuses.
pub(super) const BLOCKED: u8 = 11;

/// How many bits of a time the first seven bytes hold.
const LOWER_BITS: u32 = 53;

/// Reads the reply to these checks and appends one result per check, in order: none for a check
/// that was left to another call.
pub fn outcomes(
    reply: &[u8],
    asked: impl ExactSizeIterator<Item = CheckTerms>,
    into: &mut Vec<Option<ScriptResult>>,
) {
    let (before, count) = (into.len(), asked.len());
    let mut rest = reply;
    for terms in asked {
        let Ok(result) = next_result(&mut rest, terms) else {
            break;
        };
        into.push(result);
    }
    if !rest.is_empty() || into.len() != before.saturating_add(count) {
        into.truncate(before);
        into.extend((0..count).map(|_| Some(Err(StoreFault::InvalidBucket))));
    }
}

/// Whether a reply is the record of one check, whatever its outcome.
pub fn is_one_record(reply: &[u8]) -> bool {
    let mut rest = reply;
    next_result(&mut rest, CheckTerms::default()).is_ok() && rest.is_empty()
}

/// The result of the next record, none for a check that was left to another call; an error when it
/// is no record.
fn next_result(rest: &mut &[u8], terms: CheckTerms) -> Result<Option<ScriptResult>, StoreFault> {
    let first = *rest.first().ok_or(StoreFault::InvalidBucket)?;
    let len = match first {
        UNREADABLE | ELSEWHERE => 1,
        _ if u64::from(first) == VERSION => {
            usize::try_from(HEAD_LEN).map_err(|_| StoreFault::InvalidBucket)?
        }
        _ if first & FULL != 0 => OUTCOME_LEN,
        _ => return Err(StoreFault::InvalidBucket),
    };
    let (record, after) = rest
        .split_at_checked(len)
        .ok_or(StoreFault::InvalidBucket)?;
    *rest = after;
    Ok(match first {
        UNREADABLE => Some(Err(StoreFault::InvalidBucket)),
        ELSEWHERE => None,
        _ if first & FULL != 0 => Some(outcome(record)),
        _ => Some(terms.passed(record)),
    })
}

fn outcome(record: &[u8]) -> ScriptResult {
    let mut bytes = record;
    let flags = number(&mut bytes, 1) ^ u64::from(FULL);
    let [at, used_before, remaining, reset, retry] = [7; 5].map(|len| number(&mut bytes, len));
    let [reset_above, retry_above] = [2; 2].map(|len| number(&mut bytes, len));
    let result = flags >> 2;
    let blocked = result >= u64::from(BLOCKED);
    let result = if blocked {
        result - u64::from(BLOCKED)
    } else {
        result
    };
    let reservation = RESERVATIONS.get(usize::try_from(result).unwrap_or(usize::MAX));
    let Some(reservation) = reservation else {
        return Err(StoreFault::InvalidBucket);
    };
    Ok(Outcome {
        blocked,
        reservation: *reservation,
        bucket_time: Timestamp::from_us(at),
        allowed: flags & 1 != 0,
        used_before,
        remaining,
        reset_us: reset | reset_above << LOWER_BITS,
        retry_us: (flags & 2 == 0).then_some(retry | retry_above << LOWER_BITS),
    })
}

// === impl CheckTerms ===

impl CheckTerms {
    /// Those of a check.
    pub fn of(check: &Check) -> Self {
        let Hits::Take(hits) = check.operation.hits else {
            return Self::default();
        };
        Self {
            hits,
            requests: check.limit.requests(),
            window_us: check.limit.window().as_us(),
        }
    }

    /// The outcome of a take that a fixed window let pass, from the bucket after it.
    fn passed(self, bucket: &[u8]) -> ScriptResult {
        let mut bytes = bucket;
        let _version = number(&mut bytes, 1);
        let [_kept_until, at, count] = [7; 3].map(|len| number(&mut bytes, len));
        let used_before = count.checked_sub(self.hits);
        let elapsed = at.checked_rem(self.window_us);
        let (Some(used_before), Some(elapsed)) = (used_before, elapsed) else {
            return Err(StoreFault::InvalidBucket);
        };
        Ok(Outcome {
            reservation: ReservationOutcome::None,
            blocked: false,
            bucket_time: Timestamp::from_us(at),
            allowed: true,
            used_before,
            remaining: self.requests.saturating_sub(count),
            reset_us: self.window_us.saturating_sub(elapsed),
            retry_us: Some(0),
        })
    }
}

/// The next number, of `len` bytes.
fn number(rest: &mut &[u8], len: usize) -> u64 {
    let (bytes, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
    *rest = after;
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
