//! The promise: the sum of admitted hits never exceeds what each algorithm promises.
//!
//! What counts: hits that were allowed, and hits of callers that left after the decision; of an
//! all-or-nothing request, only if it passed. When rules change, the promise is that of the largest
//! limit so far. Rules in shadow mode promise nothing.
//!
//! What it deliberately does not do: check denials, or how much of a limit was wasted (the recount
//! does).

use std::collections::BTreeMap;

use tollgate_limiter::Hits;

use super::{Caller, CheckRecord, RequestOutcome, Resets};
use crate::scenario::{Bucket, Mode, RuleEntry, Rules, Terms};

/// Admitted hits and their time.
struct Passed {
    number: usize,
    time: i128,
    hits: i128,
}

/// The largest limit that any rules set for a bucket.
#[derive(Clone, Copy, Debug)]
struct Most {
    requests: i128,
    burst: i128,
    window_us: i128,
}

/// Descriptions of the buckets that admitted too much.
pub(super) fn exceeded(
    callers: &BTreeMap<usize, Caller>,
    generations: &[Rules],
    resets: &Resets,
) -> Vec<String> {
    // What passes after a reset is judged for itself.
    let mut buckets: BTreeMap<(Bucket, usize), (Terms, Most, Vec<Passed>)> = BTreeMap::new();
    for caller in callers.values() {
        for check in &caller.checks {
            let (Some(passed), false) = (passed(caller, check), check.terms.mode == Mode::Shadow)
            else {
                continue;
            };
            let bucket = check.wish.bucket(&check.terms);
            let most = || (check.terms, most(check, generations), Vec::new());
            let since = resets.before(bucket, passed.number);
            let entry = buckets.entry((bucket, since)).or_insert_with(most);
            entry.1.at_least(&check.terms);
            entry.2.push(passed);
        }
    }
    let kept = |terms: &Terms, most: &Most, passed: &[Passed]| match terms.algorithm {
        "fixed_window" => fixed_window(most, passed),
        "sliding_window" => sliding_window(most, passed),
        "sliding_window_segments" => segments(terms, most, passed),
        "sliding_log" | "concurrency" => sliding_log(most, passed),
        "token_bucket" | "leaky_bucket" => token_bucket(most, passed),
        "token_bucket_interval" => interval(most, passed),
        other => panic!("{other} has no promise here: add what it must never exceed"),
    };
    let mut exceeded = Vec::new();
    for (bucket, (terms, most, mut passed)) in buckets {
        passed.sort_by_key(|one| one.number);
        if !(1..=passed.len()).all(|count| kept(&terms, &most, &passed[..count])) {
            exceeded.push(format!("{bucket:?} admitted more than {most:?} allows"));
        }
    }
    exceeded
}

fn passed(caller: &Caller, check: &CheckRecord) -> Option<Passed> {
    let decided = check.decided?;
    let Hits::Take(hits) = check.wish.hits else {
        return None;
    };
    let allowed = match &check.reply {
        _ if caller.on_trial && caller.result != Some(RequestOutcome::Passed) => false,
        Some(Ok(reply)) => reply.allowed,
        Some(Err(_)) => false,
        None => caller.left && decided.outcome.allowed,
    };
    (allowed && hits > 0).then(|| Passed {
        number: decided.number,
        time: decided.now_us.into(),
        hits: hits.into(),
    })
}

fn most(check: &CheckRecord, generations: &[Rules]) -> Most {
    let bucket = check.wish.bucket(&check.terms);
    let same = generations
        .iter()
        .filter_map(|rules| match rules.say(&check.wish) {
            RuleEntry::Limited(terms) => terms
                .into_iter()
                .find(|terms| check.wish.bucket(terms) == bucket),
            RuleEntry::Nothing | RuleEntry::Unlimited => None,
        });
    let mut most = Most {
        requests: 0,
        burst: 0,
        window_us: check.terms.window_us().into(),
    };
    same.for_each(|terms| most.at_least(&terms));
    most
}

// === impl Most ===

impl Most {
    fn at_least(&mut self, terms: &Terms) {
        self.requests = self.requests.max(terms.requests.into());
        self.burst = self.burst.max(terms.burst.into());
    }
}

/// The hits admitted in the window of that number.
fn in_window(most: &Most, passed: &[Passed], number: i128) -> i128 {
    let inside = |one: &&Passed| one.time.div_euclid(most.window_us) == number;
    passed.iter().filter(inside).map(|one| one.hits).sum()
}

/// At most N in each aligned window. Only the last one can have changed.
fn fixed_window(most: &Most, passed: &[Passed]) -> bool {
    passed.last().is_none_or(|last| {
        in_window(most, passed, last.time.div_euclid(most.window_us)) <= most.requests
    })
}

/// The previous window's count, weighted by its remaining share, plus this one's, at most N.
fn sliding_window(most: &Most, passed: &[Passed]) -> bool {
    passed.last().is_none_or(|last| {
        let number = last.time.div_euclid(most.window_us);
        let left_us = most.window_us - last.time.rem_euclid(most.window_us);
        let previous = in_window(most, passed, number - 1);
        let present = in_window(most, passed, number);
        previous * left_us <= (most.requests - present) * most.window_us
    })
}

/// In any time t at most burst + N × t / window: checked for every interval that ends now and
/// begins at a hit.
fn token_bucket(most: &Most, passed: &[Passed]) -> bool {
    passed.last().is_none_or(|last| {
        let mut sum = 0;
        passed.iter().rev().all(|first| {
            sum += first.hits;
            let us = last.time - first.time;
            (sum - most.burst) * most.window_us <= most.requests * us
        })
    })
}

/// At each edge N are added, and at most `burst` are held: checked for every interval that ends
/// now.
fn interval(most: &Most, passed: &[Passed]) -> bool {
    passed.last().is_none_or(|last| {
        let number = |one: &Passed| one.time.div_euclid(most.window_us);
        let mut sum = 0;
        passed.iter().rev().all(|first| {
            sum += first.hits;
            sum <= most.burst + most.requests * (number(last) - number(first))
        })
    })
}

/// At most N in any window; and, where nothing is refunded, as many slots.
fn sliding_log(most: &Most, passed: &[Passed]) -> bool {
    passed.last().is_none_or(|last| {
        let inside = passed
            .iter()
            .filter(|one| last.time - one.time < most.window_us);
        inside.map(|one| one.hits).sum::<i128>() <= most.requests
    })
}

/// At most N in the present segment and the n - 1 before it.
fn segments(terms: &Terms, most: &Most, passed: &[Passed]) -> bool {
    passed.last().is_none_or(|last| {
        let start = |one: &Passed| terms.segment_start(one.time);
        let inside = passed
            .iter()
            .filter(|one| last.time - start(one) < most.window_us);
        inside.map(|one| one.hits).sum::<i128>() <= most.requests
    })
}
