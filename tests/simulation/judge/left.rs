//! What is left, added up: after the end it is the limit without what was admitted and what is to
//! be counted of what was refused.
//!
//! How: at the end of a run each bucket is read by a zero-hit request. The responses to callers say
//! which hits stand in it: those that passed, all of them; those whose request took all or nothing
//! and did not pass, none, unless their limit counts what others refuse; those refused, as their
//! limit says. It knows nothing of what goes back, or when.
//!
//! What it deliberately does not do: token buckets, where it matters when something came, or debts
//! that met their bound (the recount does both).

use std::collections::BTreeMap;

use tollgate_limiter::{CountRefused, Hits};

use super::{Caller, CheckSeen, Decided};
use crate::scenario::{Bucket, Terms};

type Seen<'c> = (&'c Caller, &'c CheckSeen, Decided);

/// How many buckets were added up, and each that has another number left than it should, in words.
pub(super) fn wrong(callers: &BTreeMap<usize, Caller>) -> (u64, Vec<String>) {
    let mut buckets: BTreeMap<Bucket, Vec<Seen<'_>>> = BTreeMap::new();
    for caller in callers.values() {
        for check in &caller.checks {
            if let Some(decided) = check.decided {
                let bucket = buckets.entry(check.wish.bucket(&check.terms)).or_default();
                bucket.push((caller, check, decided));
            }
        }
    }
    let mut added_up = 0;
    let mut wrong = Vec::new();
    for (bucket, mut checks) in buckets {
        checks.sort_by_key(|(.., decided)| decided.number);
        // Under rules that have gone nobody looked.
        let Some((_, look, looked)) = checks.last().filter(|(last, ..)| last.asks_at_rest) else {
            continue;
        };
        let terms = look.terms;
        let Some(counts) = counting(&terms, looked.now_us.into()) else {
            continue;
        };
        let mut scaled = 0;
        let mut unsure = false;
        for ((caller, check, decided), time) in checks.iter().zip(times(&checks)) {
            let weight = counts(time);
            let hits = stands(caller, check, decided);
            scaled += i128::from(hits) * weight;
            let Decided { outcome, .. } = decided;
            let most = 2 * u64::from(check.terms.burst);
            let is_debt = !outcome.allowed && !check.terms.debt_is_unbounded();
            unsure |= is_debt && weight > 0 && outcome.used_before + hits > most;
            // A slot that was renewed before it could go back stays until its time is over.
            unsure |= caller.takes_back(check) && time > i128::from(decided.now_us);
        }
        if unsure {
            continue;
        }
        added_up += 1;
        let window_us = i128::from(terms.window_us());
        let left = (i128::from(terms.requests) * window_us - scaled).max(0);
        let expected = u64::try_from(left.div_euclid(window_us)).unwrap();
        if looked.outcome.remaining != expected {
            let remaining = looked.outcome.remaining;
            wrong.push(format!(
                "{bucket:?} under {terms:?} has {remaining} left, and by what was admitted {expected}"
            ));
        }
    }
    (added_up, wrong)
}

/// Since when the hits of each check count: since they were decided, but for slots, which their
/// holder's looks renew.
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

/// How many hits of a check stand in its bucket, where no debt is too deep.
fn stands(caller: &Caller, check: &CheckSeen, decided: &Decided) -> u64 {
    let counts = if decided.outcome.allowed {
        !caller.takes_back(check)
    } else {
        check.terms.refused_count() != CountRefused::None
    };
    if counts {
        check.wish.hits.requested()
    } else {
        0
    }
}

/// What a hit of that time weighs now, in 1/window; none where that is not all there is to say.
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
