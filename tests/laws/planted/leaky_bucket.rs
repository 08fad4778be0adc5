//! Bugs in leaky buckets. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the bugs of a token bucket, whose arithmetic it shares.

use tollgate_limiter::algorithm::{LeakyBucket, TokenBucketInterval};
use tollgate_limiter::{Algorithm, Limit, Operation, Outcome, State, Timestamp};

use super::{Planted, undoing_as_refund};
use crate::properties::{Candidate, Property};

fn leaks_whole_hits_only(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let rate = limit.rate();
    let elapsed_us = u128::from(now.since_us(state.updated_at));
    let leaked = elapsed_us * u128::from(rate.hits) / u128::from(rate.per_us);
    let leaked = u64::try_from(leaked).unwrap_or(u64::MAX);
    state.registers[0] = state.registers[0].saturating_sub(leaked);
    state.updated_at = now;
    LeakyBucket.decide(limit, state, ask, now)
}

fn leaks_at_the_edges(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    TokenBucketInterval.decide(limit, state, ask, now)
}

fn undoes_what_has_leaked_already(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    LeakyBucket.decide(limit, state, undoing_as_refund(ask), now)
}

/// Every outcome is right for the burst it was built with, but the burst is not the promised one.
#[test]
fn holds_n_unless_told_otherwise() {
    static PLANTED: Planted = Planted {
        base: &LeakyBucket,
        decide: |limit, state, ask, now| LeakyBucket.decide(limit, state, ask, now),
        life_us: None,
        usual_burst: Some(|requests| requests),
    };
    let by = [Property::Agreement, Property::Promise];
    super::must_be_found(&Candidate::honest(&PLANTED), &by);
}

pub(super) mod found {
    use super::LeakyBucket;

    crate::planted::planted_in! {
        LeakyBucket;
        leaks_whole_hits_only by Agreement Laws;
        leaks_at_the_edges by Agreement Promise;
        undoes_what_has_leaked_already by Agreement Undo;
    }
}
