//! An algorithm that decides in another way, or notes what it decides.

use tollgate_limiter::{
    Algorithm, AlgorithmOption, CountRefused, Limit, Operation, Outcome, State, Timestamp,
};

/// An algorithm with another [`Algorithm::decide`]. What belongs to the rules is the same.
pub struct Wrapped<F = fn(&Limit, &mut State, Operation, Timestamp) -> Outcome> {
    pub base: &'static dyn Algorithm,
    pub decide: F,
}

impl<F> Algorithm for Wrapped<F>
where
    F: Fn(&Limit, &mut State, Operation, Timestamp) -> Outcome + Send + Sync,
{
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn promise(&self) -> &'static str {
        self.base.promise()
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        self.base.options()
    }

    fn requests_max(&self) -> u64 {
        self.base.requests_max()
    }

    fn has_marks(&self) -> bool {
        self.base.has_marks()
    }

    fn can_reserve(&self) -> bool {
        self.base.can_reserve()
    }

    fn refills(&self) -> bool {
        self.base.refills()
    }

    fn window_max_us(&self) -> u64 {
        self.base.window_max_us()
    }

    fn default_burst(&self, requests_per_unit: u64) -> u64 {
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
