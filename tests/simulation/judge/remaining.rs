//! Checks the remaining hits at the end of a run: the limit minus admitted hits and minus denied
//! hits that count.
//!
//! How: at the end of a run each bucket is read by a zero-hit request. The responses to callers
//! determine which hits count: all hits that passed; no hits of an all-or-nothing request that did
//! not pass, unless the limit counts what other limits deny; denied hits as the limit sets it. This
//! check does not use refunds or their times.
//!
//! What it deliberately does not do: token buckets, where the time of a hit matters, debts that
//! reached their bound, or fixed windows whose limit was raised (the recount covers all three).

use std::collections::BTreeMap;

use tollgate_limiter::{CountRefused, Hits};

use super::{Caller, CheckRecord, Decided, Resets};
use crate::simulation::scenario::{Bucket, Terms};

type Seen<'c> = (&'c Caller, &'c CheckRecord, Decided);

/// Returns how many buckets were checked, and a description of each with a wrong remaining count.
pub(super) fn mismatches(callers: &BTreeMap<usize, Caller>, resets: &Resets) -> (u64, Vec<String>) {
    let mut buckets: BTreeMap<Bucket, Vec<Seen<'_>>> = BTreeMap::new();
    for caller in callers.values() {
        for check in &caller.checks {
            let bucket = check.wish.bucket(&check.terms);
            // A reset forgets what was decided before it.
            if let Some(decided) = check.decided
                && resets.before(bucket, decided.number) == resets.before(bucket, usize::MAX)
            {
                let bucket = buckets.entry(bucket).or_default();
                bucket.push((caller, check, decided));
            }
        }
    }
    let mut remaining_compared = 0;
    let mut mismatches = Vec::new();
    for (bucket, mut checks) in buckets {
        checks.sort_by_key(|(.., decided)| decided.number);
        // No final read applies to buckets of rules that were replaced.
        let Some((_, look, looked)) = checks.last().filter(|(last, ..)| last.reads_at_end) else {
            continue;
        };
        let terms = look.terms;
        let Some(counts) = counting(&terms, looked.now_us.into()) else {
            continue;
        };
        let limits = checks.iter().map(|(_, check, _)| check.terms.requests);
        let is_raised = !limits.is_sorted_by(|earlier, later| earlier >= later);
        let refunded = checks
            .iter()
            .filter(|(_, check, _)| check.refunded_takes > 0);
        let refunded_limit = refunded.map(|(_, check, _)| check.terms.requests).max();
        let mut scaled = 0;
        let mut unsure = false;
        for ((caller, check, decided), time) in checks.iter().zip(times(&checks)) {
            let weight = counts(time);
            let hits = counted_hits(caller, check, decided);
            scaled += i128::from(hits) * weight;
            let Decided { outcome, .. } = decided;
            let most = 2 * u64::from(check.terms.burst);
            let is_debt = !outcome.allowed && !check.terms.debt_is_unbounded();
            unsure |= is_debt && weight > 0 && outcome.used_before + hits > most;
            // A raised limit forgets what only the lower one refused. A refund has the limit under
            // which its hits were taken.
            let is_raised = is_raised || refunded_limit > Some(check.terms.requests);
            unsure |= !outcome.allowed && check.terms.debt_is_unbounded() && is_raised;
            // What is taken in the instant of a reset may stay taken.
            unsure |=
                caller.must_refund(check) && resets.may_void(bucket, outcome.bucket_time.as_us());
            // A slot that was renewed before its refund stays until it expires.
            unsure |= caller.must_refund(check) && time > i128::from(decided.now_us);
        }
        if unsure {
            continue;
        }
        remaining_compared += 1;
        let window_us = i128::from(terms.window_us());
        let left = (i128::from(terms.requests) * window_us - scaled).max(0);
        let expected = u64::try_from(left.div_euclid(window_us)).unwrap();
        if looked.outcome.remaining != expected {
            let remaining = looked.outcome.remaining;
            mismatches.push(format!(
                "{bucket:?} under {terms:?} has {remaining} remaining; the admitted hits imply {expected}"
            ));
        }
    }
    (remaining_compared, mismatches)
}

/// The time from which the hits of each check count: the time of the decision, or for slots the
/// last peek of their holder.
fn times(checks: &[Seen<'_>]) -> Vec<i128> {
    let mut times: Vec<i128> = Vec::new();
    for (_, check, decided) in checks {
        let (now, wish) = (i128::from(decided.now_us), &check.wish);
        if check.terms.algorithm == "concurrency"
            && wish.hits == Hits::PEEK
            && wish.holder.is_some()
        {
            for ((_, held, _), time) in checks.iter().zip(&mut times) {
                if held.wish.holder == wish.holder && now - *time < check.terms.window_us().into() {
                    *time = now;
                }
            }
        }
        times.push(now);
    }
    times
}

/// How many hits of a check count in its bucket, if no debt exceeds its bound.
fn counted_hits(caller: &Caller, check: &CheckRecord, decided: &Decided) -> u64 {
    let counts = if decided.outcome.allowed {
        !caller.must_refund(check)
    } else {
        check.terms.refused_count() != CountRefused::None
    };
    if counts {
        check.wish.hits.requested()
    } else {
        0
    }
}

/// The present weight of a hit of that time, in 1/window; none for algorithms that this check does
/// not cover.
fn counting(terms: &Terms, now: i128) -> Option<Box<dyn Fn(i128) -> i128 + '_>> {
    let window_us = i128::from(terms.window_us());
    let number = move |time: i128| time.div_euclid(window_us);
    let whole = move |counts: bool| if counts { window_us } else { 0 };
    Some(match terms.algorithm {
        "fixed_window" => Box::new(move |time| whole(number(time) == number(now))),
        "sliding_window" => Box::new(move |time| match number(now) - number(time) {
            0 => window_us,
            1 => window_us - now.rem_euclid(window_us),
            _ => 0,
        }),
        "sliding_window_segments" => {
            Box::new(move |time| whole(now - terms.segment_start(time) < window_us))
        }
        "sliding_log" | "concurrency" => Box::new(move |time| whole(now - time < window_us)),
        _ => return None,
    })
}
