//! An algorithm that decides in another way, or notes what it decides.

use tollgate_limiter::algorithm::Facts;
use tollgate_limiter::{Algorithm, Limit, Operation, Outcome, State, Timestamp};

/// An algorithm with another [`Algorithm::decide`]. What belongs to the rules is the same.
pub struct Wrapped<F = fn(&Limit, &mut State, Operation, Timestamp) -> Outcome> {
    pub base: &'static dyn Algorithm,
    pub decide: F,
}

impl<F> Algorithm for Wrapped<F>
where
    F: Fn(&Limit, &mut State, Operation, Timestamp) -> Outcome + Send + Sync,
{
    fn facts(&self) -> &Facts {
        self.base.facts()
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
