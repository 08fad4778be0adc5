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
use tollgate_test_model::promises::{Admitted, is_promise_kept};

use super::{Caller, CheckRecord, RequestOutcome, Resets};
use crate::simulation::scenario::{Bucket, Mode, RuleEntry, Rules, Terms};

/// The largest terms of a bucket, and what it admitted in which check.
type Taken = (Terms, Vec<(usize, Admitted)>);

/// Descriptions of the buckets that admitted too much.
pub(super) fn exceeded(
    callers: &BTreeMap<usize, Caller>,
    generations: &[Rules],
    resets: &Resets,
) -> Vec<String> {
    // What passes after a reset is judged for itself.
    let mut buckets: BTreeMap<(Bucket, usize), Taken> = BTreeMap::new();
    for caller in callers.values() {
        for check in &caller.checks {
            let (Some((number, passed)), false) =
                (passed(caller, check), check.terms.mode == Mode::Shadow)
            else {
                continue;
            };
            let bucket = check.wish.bucket(&check.terms);
            let since = resets.before(bucket, number);
            let (most, admitted) = buckets
                .entry((bucket, since))
                .or_insert_with(|| (most(check, generations), Vec::new()));
            enlarge(most, &check.terms);
            admitted.push((number, passed));
        }
    }
    let mut exceeded = Vec::new();
    for ((bucket, _), (most, mut admitted)) in buckets {
        admitted.sort_by_key(|(number, _)| *number);
        let admitted: Vec<_> = admitted.into_iter().map(|(_, one)| one).collect();
        // Where nothing is refunded, slots are a log.
        let name = match most.algorithm {
            "concurrency" => "sliding_log",
            name => name,
        };
        let terms = most.of_model();
        if !(1..=admitted.len()).all(|count| is_promise_kept(name, &terms, &admitted[..count])) {
            exceeded.push(format!("{bucket:?} admitted more than {most:?} allows"));
        }
    }
    exceeded
}

/// The hits that passed, and the number of their decision.
fn passed(caller: &Caller, check: &CheckRecord) -> Option<(usize, Admitted)> {
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
    (allowed && hits > 0).then(|| {
        let admitted = Admitted {
            time: decided.now_us.into(),
            hits: hits.into(),
            holder: None,
        };
        (decided.number, admitted)
    })
}

/// The largest limit that any rules set for the bucket of this check.
fn most(check: &CheckRecord, generations: &[Rules]) -> Terms {
    let bucket = check.wish.bucket(&check.terms);
    let mut most = check.terms;
    for rules in generations {
        if let RuleEntry::Limited(terms) = rules.say(&check.wish) {
            let same = terms
                .iter()
                .find(|terms| check.wish.bucket(terms) == bucket);
            if let Some(terms) = same {
                enlarge(&mut most, terms);
            }
        }
    }
    most
}

fn enlarge(most: &mut Terms, terms: &Terms) {
    most.requests = most.requests.max(terms.requests);
    most.burst = most.burst.max(terms.burst);
}
