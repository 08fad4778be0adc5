//! The smallest number of requests with which a limit that refused nothing would not have refused
//! either.
//!
//! How: what the limit was asked is kept, in order, up to a bound. A number would have refused
//! nothing if the algorithm admits the same questions with it. More requests never refuse what
//! fewer admit, so a binary search finds the smallest number. As the limit refuses nothing with it,
//! no request is refused that was not, and the questions stay the same: the number is exact.

use std::collections::{HashMap, HashSet};

use tollgate_limiter::{Key, Operation, State, Timestamp};

use super::tally::LimitOf;

/// How many operations of one side are kept: some 250 MB.
const OPERATIONS_MAX: usize = 4_000_000;

/// One question to a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// Its place among the questions.
    pub(super) order: u64,
    pub(super) at: Timestamp,
}

/// What the limits that refused nothing were asked.
#[derive(Debug, Default)]
pub(super) struct Operations {
    rules: HashMap<usize, Vec<Asked>>,
    count: usize,
    /// Rules that refused, or that were asked too often.
    dropped: HashSet<usize>,
    is_full: bool,
}

// === impl Operations ===

impl Operations {
    /// Adds a question to the limit with this index.
    pub(super) fn add(&mut self, rule: usize, asked: Asked) {
        if self.dropped.contains(&rule) {
            return;
        }
        if self.count >= OPERATIONS_MAX {
            self.is_full = true;
            self.drop_rule(rule);
            return;
        }
        self.count = self.count.saturating_add(1);
        self.rules.entry(rule).or_default().push(asked);
    }

    /// Keeps no more of this limit.
    pub(super) fn drop_rule(&mut self, rule: usize) {
        self.dropped.insert(rule);
        if let Some(asked) = self.rules.remove(&rule) {
            self.count = self.count.saturating_sub(asked.len());
        }
    }

    /// The smallest number of requests, or why it is not known.
    pub(super) fn smallest(&mut self, rule: usize, limit: LimitOf) -> Result<u64, String> {
        let Some(mut asked) = self.rules.remove(&rule) else {
            return Err(format!(
                "its limits were asked more than {OPERATIONS_MAX} times together"
            ));
        };
        // Questions of one order stay as they were added.
        asked.sort_by_key(|asked| asked.order);
        let mut admits = u32::try_from(limit.limit.requests()).unwrap_or(u32::MAX);
        if !admits_all(&asked, limit, admits) {
            return Err("requests changed its buckets in another way".to_owned());
        }
        let mut refuses = 0;
        // A limit of 0 with a burst is none.
        let can_be_0 = limit.limit.burst() == limit.limit.requests();
        if can_be_0 && admits_all(&asked, limit, refuses) {
            return Ok(0);
        }
        while admits.saturating_sub(refuses) > 1 {
            let middle = refuses.midpoint(admits);
            if admits_all(&asked, limit, middle) {
                admits = middle;
            } else {
                refuses = middle;
            }
        }
        Ok(u64::from(admits))
    }
}

/// Whether the algorithm admits everything with this number of requests.
fn admits_all(asked: &[Asked], limit: LimitOf, requests: u32) -> bool {
    let LimitOf { limit, algorithm } = limit;
    let limit = limit.with_requests(requests);
    let mut buckets: HashMap<u128, State> = HashMap::new();
    asked.iter().all(|asked| {
        let state = buckets.entry(asked.key.0).or_default();
        let outcome = state.apply(algorithm, &limit, asked.operation, asked.at);
        outcome.allowed
    })
}
