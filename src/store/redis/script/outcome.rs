//! Reads the script's reply: 40 bytes per check, little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | 1 allowed, 2 never passes (no retry), 4 times what became of a reservation, 128 the bucket could not be read |
//! | 7, 7, 7 | `at`, `used_before`, `remaining` |
//! | 7, 7 | `reset_us`, `retry_us`: the lower 53 bits |
//! | 2, 2 | their upper 11 bits |
//!
//! The last four bytes exist because a Lua number has 53 bits and an outcome's times have 64.
//!
//! A reply of the wrong length makes every check of the call an [`InvalidBucket`].

use tollgate_limiter::{Outcome, ReservationOutcome, Timestamp};

/// The value under a bucket's key is not a bucket of this version. Nothing was taken or changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the value under this key is not a bucket of this version; delete it, or set a key prefix")]
pub struct InvalidBucket;

/// The result of one check.
pub type ScriptResult = Result<Outcome, InvalidBucket>;

/// Length of an outcome in bytes.
const OUTCOME_LEN: usize = 40;

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

/// How many bits of a time the first seven bytes hold.
const LOWER_BITS: u32 = 53;

/// Reads the reply to `asked` checks and appends one result per check, in order.
pub fn outcomes(reply: &[u8], asked: usize, into: &mut Vec<ScriptResult>) {
    let (records, beside) = reply.as_chunks::<OUTCOME_LEN>();
    if records.len() == asked && beside.is_empty() {
        into.extend(records.iter().map(outcome));
    } else {
        into.extend((0..asked).map(|_| Err(InvalidBucket)));
    }
}

fn outcome(record: &[u8; OUTCOME_LEN]) -> ScriptResult {
    let mut bytes = record.as_slice();
    let flags = number(&mut bytes, 1);
    let [at, used_before, remaining, reset, retry] = [7; 5].map(|len| number(&mut bytes, len));
    let [reset_above, retry_above] = [2; 2].map(|len| number(&mut bytes, len));
    let reservation = RESERVATIONS.get(usize::try_from(flags >> 2).unwrap_or(usize::MAX));
    let Some(reservation) = reservation else {
        return Err(InvalidBucket);
    };
    Ok(Outcome {
        reservation: *reservation,
        bucket_time: Timestamp::from_us(at),
        allowed: flags & 1 != 0,
        used_before,
        remaining,
        reset_us: reset | reset_above << LOWER_BITS,
        retry_us: (flags & 2 == 0).then_some(retry | retry_above << LOWER_BITS),
    })
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
