//! Algorithms with one planted fault each, for smoke tests of whatever must find faults.
//!
//! How: a fault changes what comes before or after the real decision.
//!
//! What it deliberately does not do: cover the limiter. `make test-mutants` changes every line of
//! it; these few show that a test can fail at all.

use tollgate_limiter::algorithm::{Concurrency, FixedWindow, SlidingWindow, TokenBucket};
use tollgate_limiter::{
    Algorithm, AlgorithmOption, CountRefused, Hits, Limit, Operation, Outcome, State, Timestamp,
};

/// An algorithm with a fault.
pub struct Faulty {
    /// What the fault does.
    pub fault: &'static str,
    base: &'static dyn Algorithm,
    decide: fn(&Limit, &mut State, Operation, Timestamp) -> Outcome,
}

/// Admits hits of which only a part fits.
pub static STRADDLING_HITS_PASS: Faulty = Faulty {
    fault: "straddling hits pass",
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
pub static RETRY_IS_EARLY: Faulty = Faulty {
    fault: "retry is early",
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
pub static PARTS_OF_HITS_ARE_LOST: Faulty = Faulty {
    fault: "parts of hits are lost",
    base: &TokenBucket,
    decide: |limit, state, ask, now| {
        let outcome = TokenBucket.decide(limit, state, ask, now);
        state.registers[1] = 0;
        outcome
    },
};

/// Frees the oldest slot of a holder in place of the one that was taken.
pub static UNDO_FREES_THE_OLDEST_SLOT: Faulty = Faulty {
    fault: "undo frees the oldest slot",
    base: &Concurrency,
    decide: |limit, state, mut ask, now| {
        if let Hits::Undo { hits, .. } = ask.hits {
            ask.hits = Hits::Refund(hits);
        }
        Concurrency.decide(limit, state, ask, now)
    },
};

/// All of them.
pub static FAULTS: [&Faulty; 4] = [
    &STRADDLING_HITS_PASS,
    &RETRY_IS_EARLY,
    &PARTS_OF_HITS_ARE_LOST,
    &UNDO_FREES_THE_OLDEST_SLOT,
];

impl Algorithm for Faulty {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn promise(&self) -> &'static str {
        self.base.promise()
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        self.base.options()
    }

    fn requests_max(&self) -> u32 {
        self.base.requests_max()
    }

    fn has_marks(&self) -> bool {
        self.base.has_marks()
    }

    fn window_max_us(&self) -> u64 {
        self.base.window_max_us()
    }

    fn default_burst(&self, requests_per_unit: u32) -> u32 {
        self.base.default_burst(requests_per_unit)
    }

    fn default_count_refused(&self) -> CountRefused {
        self.base.default_count_refused()
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        (self.decide)(limit, state, ask, now)
    }

    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        self.base.changed(limit, was, state, ask, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        self.base.ttl_us(limit)
    }
}
