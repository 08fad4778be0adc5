//! Outcomes as the script gives them: 40 bytes a check, little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | 1 allowed, 2 never passes (no retry), 128 the bucket could not be read |
//! | 7, 7, 7 | `at`, `used_before`, `remaining` |
//! | 7, 7 | `reset_us`, `retry_us`: the lower 53 bits |
//! | 2, 2 | what of those two lies above them |
//!
//! Why the last four: a double holds 53 bits exactly, and an answer has 64.
//!
//! What it deliberately does not do: fail as a whole. What is missing or too long is garbled check by check.

use tollgate_limiter::{Outcome, Timestamp};

/// What lies in Redis under a bucket's key is no bucket, or not of this version. Nothing was taken, nor changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "what Redis holds under this key is not a bucket of this version; delete it, or give this service a key prefix of its own"
)]
pub struct InvalidBucket;

/// What became of one check.
pub type ScriptResult = Result<Outcome, InvalidBucket>;

/// Length of an outcome in bytes.
const OUTCOME_LEN: usize = 40;

/// How many bits of a time the first seven bytes hold.
const LOWER_BITS: u32 = 53;

/// Reads a reply to so many checks and appends as many answers, in the order asked.
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
    if flags >= 4 {
        return Err(InvalidBucket);
    }
    Ok(Outcome {
        bucket_time: Timestamp::from_us(at),
        allowed: flags & 1 != 0,
        used_before,
        remaining,
        reset_us: reset | reset_above << LOWER_BITS,
        retry_us: (flags & 2 == 0).then_some(retry | retry_above << LOWER_BITS),
    })
}

/// The next number, of so many bytes.
fn number(rest: &mut &[u8], len: usize) -> u64 {
    let (bytes, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
    *rest = after;
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
