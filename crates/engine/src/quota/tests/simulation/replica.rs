//! One process of the service, with one bucket, and its requests to the store.

use tollgate_limiter::Key;

use super::scenario::{Fault, Random, Scenario};
use crate::quota::bucket::{Action, Bucket, QuotaTimes, Scratch, ShareId, Usage};
use crate::quota::lease::{EXCHANGE_MS, EraWatch, LeaseAsk};
use crate::quota::share::{MicroRate, Strategy};
use tollgate_store::shared::{RateLease, RateLeaseRequest};
use tollgate_test_support::rate_lease_table::RateLeaseTable;

/// Until then a request is answered, or fails.
const ANSWERED_MS_MAX: u64 = 500;

/// What happens to a request to the store.
#[derive(Debug)]
struct Request {
    ask: LeaseAsk,
    sent: RateLeaseRequest,
    /// When the store carries it out; never if it is lost.
    executes_ms: Option<u64>,
    /// When the replica has the answer; never if it is lost, or too late.
    answers_ms: Option<u64>,
    answer: Option<RateLease>,
}

/// A process.
pub(super) struct Replica {
    number: u64,
    /// How far its clock is ahead.
    ahead_ms: u64,
    pub(super) paused_until_ms: u64,
    /// When a request was carried out whose answer arrived.
    pub(super) answered_ms: u64,
    bucket: Bucket,
    limit: MicroRate,
    times: QuotaTimes,
    /// The times by which it judges the leases of others.
    lease_times: QuotaTimes,
    fault: Fault,
    shared: bool,
    era: EraWatch,
    version: u64,
    next_exchange_ms: u64,
    requests: Vec<Request>,
    scratch: Scratch,
    actions: Vec<(ShareId, Action)>,
}

// === impl Replica ===

impl Replica {
    /// A process that starts, and knows nothing.
    pub(super) fn start(
        number: u64,
        now_ms: u64,
        scenario: &Scenario,
        random: &mut Random,
    ) -> Self {
        let fault = scenario.fault;
        let ahead_ms = random.below(1 << 40);
        let mut times = scenario.times;
        match fault {
            Fault::RaisesBeforeItLowers => {
                (times.ttl_seconds, times.delivery_ms_max) = (0, 0);
            }
            Fault::CountsFromSending => times.delivery_ms_max = 0,
            _ => {}
        }
        let mut lease_times = times;
        if fault == Fault::EndsLeasesEarly {
            lease_times.ttl_seconds = 1;
        }
        // The first processes start long after those before them.
        let first = number <= scenario.replicas;
        let learning_ms = if first || fault == Fault::AssignsAllAfterTakeover {
            0
        } else {
            scenario.times.lives_ms()
        };
        let bucket = if scenario.shared && fault != Fault::AssignsWithoutLease {
            Bucket::leased(scenario.limit)
        } else {
            Bucket::new(scenario.limit, now_ms + ahead_ms + learning_ms)
        };
        Self {
            number,
            ahead_ms,
            paused_until_ms: 0,
            answered_ms: 0,
            bucket,
            limit: scenario.limit,
            times,
            lease_times,
            fault,
            shared: scenario.shared,
            era: EraWatch::default(),
            version: 0,
            next_exchange_ms: now_ms,
            requests: Vec::new(),
            scratch: Scratch::default(),
            actions: Vec::new(),
        }
    }

    pub(super) fn report(
        &mut self,
        stream: ShareId,
        usage: Usage,
        now_ms: u64,
    ) -> Option<Strategy> {
        let now_ms = now_ms + self.ahead_ms;
        self.bucket.report(stream, 1, usage, now_ms, &self.times)
    }

    pub(super) fn close(&mut self, stream: ShareId) {
        self.bucket.close(stream);
        if self.fault == Fault::ForgetsEndedStreams {
            self.bucket.forget(stream);
        }
    }

    /// What it sends now.
    pub(super) fn plan(&mut self, now_ms: u64) -> &[(ShareId, Action)] {
        self.actions.clear();
        let now_ms = now_ms + self.ahead_ms;
        self.bucket
            .plan(now_ms, &self.times, &mut self.scratch, &mut self.actions);
        &self.actions
    }

    /// What it says may be in force.
    pub(super) fn in_force(&mut self, now_ms: u64) -> MicroRate {
        self.bucket.figures(now_ms + self.ahead_ms).in_force
    }

    /// Sends a request to the store once a second, and takes answers. A request may be lost, late,
    /// or carried out without an answer.
    pub(super) fn exchange(&mut self, now_ms: u64, calm: bool, random: &mut Random) {
        if !self.shared {
            return;
        }
        let own_ms = now_ms + self.ahead_ms;
        for at in (0..self.requests.len()).rev() {
            let answered = self.requests[at].answers_ms.is_some_and(|at| at <= now_ms);
            if answered && self.requests[at].answer.is_some() {
                let request = self.requests.remove(at);
                self.take(&request, own_ms);
            }
        }
        if now_ms < self.next_exchange_ms {
            return;
        }
        self.next_exchange_ms = now_ms + EXCHANGE_MS;
        self.version += 1;
        let asked = self.bucket.ask(
            self.version,
            &self.era,
            own_ms,
            &self.lease_times,
            &mut self.scratch,
        );
        let Some(ask) = asked else { return };
        let executes_ms = match random.below(20) {
            _ if calm => Some(now_ms),
            0 => None,
            // Long after the replica has given up.
            1 => Some(now_ms + random.below(20_000)),
            _ => Some(now_ms + random.below(ANSWERED_MS_MAX / 2)),
        };
        let answers_ms = executes_ms.map(|at| at + random.below(ANSWERED_MS_MAX / 2));
        let answers_ms =
            answers_ms.filter(|at| *at < now_ms + ANSWERED_MS_MAX && (calm || !random.once_in(20)));
        self.requests.push(Request {
            sent: self.request(&ask, own_ms, random),
            ask,
            executes_ms,
            answers_ms,
            answer: None,
        });
    }

    fn request(&self, ask: &LeaseAsk, own_ms: u64, random: &mut Random) -> RateLeaseRequest {
        RateLeaseRequest {
            bucket: Key(1),
            replica: self.number,
            version: ask.version,
            keeps: ask.keeps,
            wants: ask.wants,
            limit: self.limit,
            demand: ask.demand(),
            ended: ask.ended.clone(),
            new_era: random.next().max(1),
            settled_era: self.era.settles(own_ms, &self.lease_times),
        }
    }

    fn take(&mut self, request: &Request, own_ms: u64) {
        let Some(mut answer) = request.answer.clone() else {
            return;
        };
        match self.fault {
            Fault::TrustsNewEras => answer.era.settled = true,
            Fault::TrustsOlderData => answer.previous = u64::MAX,
            _ => {}
        }
        self.answered_ms = self.answered_ms.max(request.executes_ms.unwrap_or(0));
        self.era.see(answer.era, own_ms);
        self.bucket
            .answer(&request.ask, &answer, &self.era, own_ms, &self.lease_times);
    }

    /// The store carries out what has arrived; what this process sent may outlive it.
    pub(super) fn execute(&mut self, table: &mut RateLeaseTable, now_ms: u64) {
        for sent in &mut self.requests {
            if sent.executes_ms.is_some_and(|at| at <= now_ms) && sent.answer.is_none() {
                sent.answer = Some(table.exchange(&sent.sent));
            }
        }
        self.requests.retain(|sent| {
            let waits = sent.answer.is_none() && sent.executes_ms.is_some();
            waits || sent.answer.is_some() && sent.answers_ms.is_some()
        });
    }

    /// Whether requests of this process, which has ended, are on their way.
    pub(super) fn haunts(&self) -> bool {
        self.requests.iter().any(|sent| sent.answer.is_none())
    }
}
