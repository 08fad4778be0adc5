//! Algorithms with one planted fault each, for smoke tests of whatever must find faults.
//!
//! How: a fault changes what comes before or after the real decision.
//!
//! What it deliberately does not do: cover the limiter. `make test-mutants` changes every line of
//! it; these few show that a test can fail at all.

use tollgate_limiter::algorithm::{Concurrency, FixedWindow, SlidingWindow, TokenBucket};
use tollgate_limiter::{Algorithm, Hits, Outcome};

use crate::Wrapped;

/// Admits hits of which only a part fits.
pub static STRADDLING_HITS_PASS: Wrapped = Wrapped {
    base: &FixedWindow,
    decide: |limit, state, ask, now| {
        let mut outcome = FixedWindow.decide(limit, state, ask, now);
        if !outcome.allowed && outcome.used_before < limit.requests() {
            outcome.allowed = true;
            outcome.retry_us = Some(0);
        }
        outcome
    },
};

/// Tells callers to retry a microsecond before their hits fit.
pub static RETRY_IS_EARLY: Wrapped = Wrapped {
    base: &SlidingWindow,
    decide: |limit, state, ask, now| {
        let outcome = SlidingWindow.decide(limit, state, ask, now);
        Outcome {
            retry_us: outcome.retry_us.map(|us| us.saturating_sub(1)),
            ..outcome
        }
    },
};

/// Forgets the part of a hit that is missing from the bucket, at each operation.
pub static PARTS_OF_HITS_ARE_LOST: Wrapped = Wrapped {
    base: &TokenBucket,
    decide: |limit, state, ask, now| {
        let outcome = TokenBucket.decide(limit, state, ask, now);
        state.registers[1] = 0;
        outcome
    },
};

/// Frees the oldest slot of a holder in place of the one that was taken.
pub static UNDO_FREES_THE_OLDEST_SLOT: Wrapped = Wrapped {
    base: &Concurrency,
    decide: |limit, state, mut ask, now| {
        if let Hits::Undo { hits, .. } = ask.hits {
            ask.hits = Hits::Refund(hits);
        }
        Concurrency.decide(limit, state, ask, now)
    },
};

/// All of them, with their names.
pub static FAULTS: [(&str, &Wrapped); 4] = [
    ("straddling hits pass", &STRADDLING_HITS_PASS),
    ("retry is early", &RETRY_IS_EARLY),
    ("parts of hits are lost", &PARTS_OF_HITS_ARE_LOST),
    ("undo frees the oldest slot", &UNDO_FREES_THE_OLDEST_SLOT),
];
