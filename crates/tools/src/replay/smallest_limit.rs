//! The smallest number of requests with which a limit would have refused nothing.
//!
//! How: what the limit was asked is kept, in order, up to a bound. A number would have refused
//! nothing if the algorithm admits the same questions with it. More requests never refuse what
//! fewer admit, so a binary search finds the smallest number.
//!
//! The number is exact because the questions do not depend on it: every limit of a request is
//! asked, whatever the others answer. There is one exception. Under `all_or_nothing` hits go back
//! because another limit refused, or this one. So a limit that refused and whose hits went back has
//! no number.

use std::collections::HashMap;

use tollgate_limiter::{Key, Limit, Operation, State, Timestamp};

/// How many operations of one side are kept: some 250 MB.
const OPERATIONS_MAX: usize = 4_000_000;

/// A limit and its algorithm.
#[derive(Clone, Copy)]
pub(super) struct LimitOf {
    pub(super) limit: Limit,
    pub(super) algorithm: &'static dyn tollgate_limiter::Algorithm,
}

/// One question to a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// Its place among the questions.
    pub(super) order: u64,
    pub(super) at: Timestamp,
}

/// What the limits that refused nothing were asked.
#[derive(Debug, Default)]
pub(super) struct Operations {
    rules: HashMap<usize, Vec<Question>>,
    count: usize,
    /// Rules of which nothing is kept.
    dropped: HashMap<usize, Dropped>,
    was_reset: bool,
}

/// Why nothing is kept of a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dropped {
    /// There were too many questions.
    TooMany,
    /// It refused, and its hits went back with those of other limits.
    Joined,
}

const JOINED: &str = "all_or_nothing joins it with other limits, and it refused";

const TOO_LARGE: &str = "the largest number that its algorithm accepts would refuse, too";

// === impl Operations ===

impl Operations {
    /// Adds a question to the limit with this index.
    pub(super) fn add(&mut self, rule: usize, asked: Question) {
        if self.was_reset || self.dropped.contains_key(&rule) {
            return;
        }
        if self.count >= OPERATIONS_MAX {
            self.drop_rule(rule, Dropped::TooMany);
            return;
        }
        self.count = self.count.saturating_add(1);
        self.rules.entry(rule).or_default().push(asked);
    }

    /// Keeps no more of this limit.
    pub(super) fn drop_rule(&mut self, rule: usize, why: Dropped) {
        self.dropped.entry(rule).or_insert(why);
        if let Some(asked) = self.rules.remove(&rule) {
            self.count = self.count.saturating_sub(asked.len());
        }
    }

    /// Keeps no more of any limit, because buckets were reset.
    pub(super) fn drop_all(&mut self) {
        self.rules.clear();
        self.was_reset = true;
    }

    /// The smallest number of requests, or why it is not known. `over` is how often they were over
    /// the limit.
    pub(super) fn smallest(
        &mut self,
        rule: usize,
        limit: LimitOf,
        over: u64,
    ) -> Result<u64, String> {
        if self.was_reset {
            return Err("an operator reset buckets during the recording".to_owned());
        }
        let Some(mut asked) = self.rules.remove(&rule) else {
            return Err(match self.dropped.get(&rule) {
                Some(Dropped::Joined) => JOINED.to_owned(),
                _ => format!("the limits were asked more than {OPERATIONS_MAX} times together"),
            });
        };
        // Questions of one order stay as they were added.
        asked.sort_by_key(|asked| asked.order);
        let requests = limit.limit.requests();
        let mut too_small = 0;
        // A limit of 0 with a burst is none.
        let can_be_0 = limit.limit.burst() == limit.algorithm.facts().default_burst(requests);
        if can_be_0 && admits_all(&asked, limit, too_small) {
            return Ok(0);
        }
        let largest = limit.algorithm.facts().requests_max;
        let mut enough = requests.clamp(1, largest);
        if admits_all(&asked, limit, requests) != (over == 0) {
            return Err("requests changed its buckets in another way".to_owned());
        }
        while !admits_all(&asked, limit, enough) {
            if enough == largest {
                return Err(TOO_LARGE.to_owned());
            }
            too_small = enough;
            enough = enough.saturating_mul(2).min(largest);
        }
        while enough.saturating_sub(too_small) > 1 {
            let middle = too_small.midpoint(enough);
            if admits_all(&asked, limit, middle) {
                enough = middle;
            } else {
                too_small = middle;
            }
        }
        Ok(enough)
    }
}

// === impl LimitOf ===

impl LimitOf {
    /// The limit with another number of requests. A burst that is the default follows the number.
    pub(super) fn with_requests(self, requests: u64) -> Limit {
        let Self { limit, algorithm } = self;
        let default = algorithm.facts().default_burst(limit.requests());
        let burst = match limit.burst() {
            burst if burst == default => algorithm.facts().default_burst(requests),
            burst => burst,
        };
        limit.with_requests(requests, burst)
    }
}

/// Whether the algorithm admits everything with this number of requests.
fn admits_all(asked: &[Question], limit: LimitOf, requests: u64) -> bool {
    let (limit, algorithm) = (limit.with_requests(requests), limit.algorithm);
    let mut buckets: HashMap<u128, State> = HashMap::new();
    asked.iter().all(|asked| {
        let state = buckets.entry(asked.key.0).or_default();
        let outcome = state.apply(algorithm, &limit, asked.operation, asked.at);
        outcome.allowed
    })
}
