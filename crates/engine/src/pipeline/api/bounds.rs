//! What every call must keep, the ids of reservations whose callers give none, and the turns of
//! long calls: between its steps, a call lets other tasks of its thread run.

use std::fmt::Write as _;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::yield_now;
use tollgate_limiter::{EXPIRY_MS_MAX, Otherwise, REGISTER_MAX};

use super::ApiRequest;
use crate::pipeline::api_call::ApiStep;

/// The largest number of hits in a call: what a number of JSON holds exactly in every language.
pub const API_HITS_MAX: u64 = REGISTER_MAX;

/// Most calls of a batch.
pub const API_CALLS_MAX: usize = 1_000;

/// The most bytes of the failure of a call whose answer would be too large.
const TOO_LARGE_BYTES_MAX: usize = 256;

/// A batch lets other tasks run after answers of this many bytes, which are those of some 256
/// checks.
const TURN_BYTES_MAX: usize = 16 << 10;

/// A batch lets other tasks run after this many calls.
const TURN_CALLS_MAX: usize = 16;

/// A task's request of more checks takes turns.
pub(in crate::pipeline) const SHORT_REQUEST_CHECKS_MAX: usize = 256;

thread_local! {
    /// Held by the call whose step is the next one.
    static NEXT: Arc<Mutex<()>> = Arc::default();
}

/// Waits until the other tasks of this thread have run and new I/O has been polled. Where several
/// calls wait, one goes on after each poll: their steps do not add up.
pub async fn give_way() {
    let next = NEXT.with(Arc::clone);
    let _next = next.lock_owned().await;
    yield_now().await;
}

/// The space and the turns of a batch, whose calls are carried out one after the other.
#[derive(Debug)]
pub struct BatchProgress {
    bytes_max: usize,
    waiting_calls: usize,
    turn_calls: usize,
    turn_bytes: usize,
}

/// The longest id of a reservation, in bytes.
pub const RESERVATION_ID_BYTES_MAX: usize = 256;

/// An id of 128 random bits, which nobody can guess.
///
/// # Errors
///
/// When the system provides no randomness.
pub fn new_reservation_id() -> Result<String, String> {
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).map_err(|error| format!("no random id can be made: {error}"))?;
    let mut id = String::with_capacity(bits.len().saturating_mul(2));
    for byte in bits {
        // A string grows as needed.
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

/// Checks a call against the bounds. Messages begin with the field's name.
pub(super) fn validate(call: &ApiRequest<'_>) -> Result<(), String> {
    let mut descriptors = call.request.descriptors();
    if descriptors.any(|descriptor| descriptor.hits.count() > API_HITS_MAX) {
        return Err(format!(
            "hits is more than {API_HITS_MAX}; send less at once"
        ));
    }
    let needs_id = match call.operation {
        ApiStep::Check | ApiStep::Peek | ApiStep::Report | ApiStep::Told { .. } => return Ok(()),
        ApiStep::Commit { otherwise } => otherwise == Otherwise::Unknown,
        ApiStep::Reserve { .. } | ApiStep::Extend { .. } | ApiStep::Release => true,
    };
    if call.id.is_empty() && needs_id {
        return Err("reservation is missing; send the id of the reservation".to_owned());
    }
    validate_id("reservation", call.id)?;
    if call
        .operation
        .expires_ms()
        .is_some_and(|ms| ms > EXPIRY_MS_MAX)
    {
        return Err("expires is longer than a day; extend the reservation later".to_owned());
    }
    Ok(())
}

/// Checks the length of an id.
pub(super) fn validate_id(field: &str, id: &str) -> Result<(), String> {
    if id.len() <= RESERVATION_ID_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "{field} has {} bytes; an id has at most {RESERVATION_ID_BYTES_MAX}",
        id.len()
    ))
}

// === impl BatchProgress ===

impl BatchProgress {
    /// A batch of so many calls, whose answers may have so many bytes; none where there is no space
    /// to say of each call that its answer does not fit.
    pub(super) fn new(calls: usize, bytes_max: usize) -> Option<Self> {
        let is_enough = calls.saturating_mul(TOO_LARGE_BYTES_MAX) <= bytes_max;
        is_enough.then_some(Self {
            bytes_max,
            waiting_calls: calls,
            turn_calls: 0,
            turn_bytes: 0,
        })
    }

    /// The bytes that the answer to the next call may have, after answers of so many.
    pub fn next_bytes_max(&mut self, bytes: usize) -> usize {
        self.waiting_calls = self.waiting_calls.saturating_sub(1);
        let kept = self.waiting_calls.saturating_mul(TOO_LARGE_BYTES_MAX);
        self.bytes_max.saturating_sub(bytes).saturating_sub(kept)
    }

    /// Lets other tasks run, where enough was done since the last time.
    pub async fn give_way(&mut self, bytes: usize) {
        self.turn_calls = self.turn_calls.saturating_add(1);
        let turn_bytes = bytes.saturating_sub(self.turn_bytes);
        if self.turn_calls >= TURN_CALLS_MAX || turn_bytes >= TURN_BYTES_MAX {
            (self.turn_calls, self.turn_bytes) = (0, bytes);
            give_way().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn made_ids_are_text_of_128_bits_and_differ() {
        let ids: Vec<_> = (0..100).map(|_| new_reservation_id().unwrap()).collect();
        for id in &ids {
            assert_eq!(id.len(), 32);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn a_batch_gives_way_after_16_calls_or_16_kib_of_answers() {
        let gave_way = |bytes: usize| -> Vec<usize> {
            let mut progress = BatchProgress::new(40, usize::MAX).unwrap();
            let mut cx = Context::from_waker(Waker::noop());
            let is_pending = |call: &usize| {
                let given = pin!(progress.give_way(call * bytes));
                given.poll(&mut cx).is_pending()
            };
            (1..=40).filter(is_pending).collect()
        };
        assert_eq!(gave_way(10), [16, 32]);
        assert_eq!(gave_way(4 << 10), (4..=40).step_by(4).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn one_step_of_all_long_calls_falls_into_a_turn() {
        const CALLS: usize = 3;
        const STEPS: usize = 10;
        let turn = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turn);
        let turns = tokio::spawn(async move {
            loop {
                yield_now().await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let steps = Arc::new(Mutex::new(Vec::new()));
        let call = |_| {
            let (steps, turn) = (Arc::clone(&steps), Arc::clone(&turn));
            tokio::spawn(async move {
                for _ in 0..STEPS {
                    give_way().await;
                    steps.lock().unwrap().push(turn.load(Ordering::Relaxed));
                }
            })
        };
        let calls: Vec<_> = (0..CALLS).map(call).collect();
        for call in calls {
            call.await.unwrap();
        }
        turns.abort();
        let mut steps = std::mem::take(&mut *steps.lock().unwrap());
        steps.dedup();
        assert_eq!(steps.len(), CALLS * STEPS, "{steps:?}");
    }
}
