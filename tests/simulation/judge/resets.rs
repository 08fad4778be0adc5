//! Resets: which buckets were reset and when, and which refunds that makes void.

use std::collections::BTreeMap;

use tollgate::store::StoreError;
use tollgate_limiter::{Hits, Outcome};

use super::{Counted, Judge, Law, Now, Ticket, Waiting, find};
use crate::simulation::recount::Account;
use crate::simulation::scenario::{Bucket, Terms};

/// How long the time of a reset is remembered, in uptime.
const REMEMBERED_US: u64 = 600_000_000;

/// All resets of a run.
#[derive(Default)]
pub(super) struct Resets {
    all: Vec<Reset>,
    /// The time of the last reset of each bucket, and until when it is remembered.
    times: BTreeMap<Bucket, (u64, u64)>,
}

struct Reset {
    bucket: Bucket,
    terms: Terms,
    /// The number of the decision before which it was done, and whether hits counted.
    done: Option<(usize, bool)>,
}

// === impl Resets ===

impl Resets {
    pub(super) fn sent(&self) -> u64 {
        self.all.len() as u64
    }

    pub(super) fn done(&self) -> u64 {
        self.all.iter().filter(|reset| reset.done.is_some()).count() as u64
    }

    /// Whether a reset makes the refund of hits of that time void.
    pub(super) fn void(&self, bucket: Bucket, taken_at_us: u64, now: Now) -> bool {
        let time = self.times.get(&bucket);
        time.is_some_and(|(at_us, until_us)| taken_at_us <= *at_us && now.uptime_us < *until_us)
    }

    /// Whether hits of that time may have been taken before the last reset, by their time alone.
    pub(super) fn may_void(&self, bucket: Bucket, taken_at_us: u64) -> bool {
        let time = self.times.get(&bucket);
        time.is_some_and(|(at_us, _)| taken_at_us <= *at_us)
    }

    /// How many resets of a bucket were done before the decision of this number.
    pub(super) fn before(&self, bucket: Bucket, number: usize) -> usize {
        let before = |reset: &&Reset| {
            reset.bucket == bucket && reset.done.is_some_and(|(done, _)| done <= number)
        };
        self.all.iter().filter(before).count()
    }
}

// === impl Judge ===

impl Judge<'_> {
    /// A reset of the bucket of this check is sent. Returns its number.
    pub(crate) fn reset_sent(&mut self, of: Ticket) -> usize {
        let (_, check) = find(&mut self.callers, of).expect("a check that was sent");
        let reset = Reset {
            bucket: check.wish.bucket(&check.terms),
            terms: check.terms,
            done: None,
        };
        self.resets.all.push(reset);
        let number = self.resets.all.len() - 1;
        self.waiting.push(Waiting {
            first: Ticket::of_reset(number),
            count: 1,
            workers: vec![false; self.scenario.bounds.partitions],
        });
        number
    }

    /// A partition has looked at a bucket for the last time and removes it.
    pub(super) fn was_reset(&mut self, number: usize, outcome: Outcome, now: Now) {
        let decisions = self.decisions;
        let reset = &mut self.resets.all[number];
        let before = reset.done.replace((decisions, outcome.used_before > 0));
        let (bucket, terms) = (reset.bucket, reset.terms);
        self.event_counts.add("resets", 1);
        self.ensure(Law::DecidedOnce, before.is_none(), || {
            format!("reset {number} is done twice")
        });
        let counted = Counted::from(&outcome);
        let may_be_full = self.scenario.may_be_full();
        let account = self.accounts.entry(bucket);
        let account = account.or_insert_with(|| Account::new(terms.algorithm));
        let readings = &self.readings;
        let decided = account.decided(
            &terms.of_model(),
            Hits::Refund(0).into(),
            now.now_us,
            readings,
            counted,
            may_be_full,
        );
        account.reset(readings);
        if let Err(right) = decided {
            self.break_law(
                Law::Recount,
                format!("reset {number} of {bucket:?} under {terms:?}: got {counted:?}, the recount gives {right:?}"),
            );
        }
        let time = self.resets.times.entry(bucket).or_default();
        let earlier_us = time.0;
        let known =
            now.uptime_us < time.1 && earlier_us.saturating_sub(counted.at) <= REMEMBERED_US;
        let at_us = if known {
            counted.at.max(earlier_us)
        } else {
            counted.at
        };
        *time = (at_us, now.uptime_us + REMEMBERED_US);
    }

    /// A reset is answered.
    pub(crate) fn reset_answered(&mut self, number: usize, answer: &Result<Vec<bool>, StoreError>) {
        let done = self.resets.all[number].done.map(|(_, counted)| counted);
        if matches!(answer, Err(StoreError::Overloaded { .. })) {
            self.shed(Ticket::of_reset(number), 1);
        }
        let same = match (answer, done) {
            (Ok(answer), Some(counted)) => *answer == [counted],
            (Err(StoreError::Overloaded { .. }), None) => true,
            _ => false,
        };
        self.ensure(Law::FaithfulReplies, same, || {
            format!("reset {number} is answered {answer:?}; done: {done:?}")
        });
    }
}
