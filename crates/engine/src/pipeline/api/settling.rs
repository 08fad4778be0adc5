//! Settles of one reservation: the first wins, in all of its limits.
//!
//! Why: limits are decided apart, by workers, servers and processes that know nothing of each
//! other. Two settles that run at once could each be the first in some of them.
//!
//! How: one limit is settled before the others, the same one for every settle of the id. What was
//! settled there is the amount of the reservation. A settle that is not the first there brings that
//! amount to the other limits, in place of its own. So it also ends what a settle left open whose
//! store failed half-way. Where costs below 1 or budgets hide the amount, it leaves the rest to the
//! settle that was the first, or to expiry.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::convert::Infallible;

use tollgate_limiter::reservation::COST_ONE;
use tollgate_limiter::{
    Cost, Hits, Holder, Operation, Otherwise, Plan, REGISTER_MAX, Request, ReservationOutcome,
    RuleSet, Step,
};

use super::answer::own_cost;
use crate::pipeline::api_call::Rounds;
use crate::pipeline::pending::PendingRequest;

/// How many limits are settled one after the other, until one knows the id. A limit need not: it is
/// in shadow mode, or younger than the reservation. Where so many do not know it, the rest is
/// settled at once, and two settles can each be the first in some.
const SETTLED_FIRST_MAX: usize = 4;

// === impl Rounds ===

impl Rounds {
    /// The rounds of a settle of this request, by its plan.
    pub(super) fn new(request: &Request<'_>, plan: &Plan<'_>) -> Self {
        Self {
            first: settled_first(request, plan),
            rest: (0..plan.checks().len()).collect(),
            ..Self::default()
        }
    }
}

// === impl PendingRequest ===

impl PendingRequest {
    /// The positions of the checks that are asked now; none where all are asked at once.
    pub(in crate::pipeline) fn round(&self) -> Option<&[usize]> {
        if self.is_told() {
            return Some(&[]);
        }
        self.rounds.as_ref().map(|rounds| &*rounds.now)
    }

    /// Goes on to the next round of checks; false if there is none. Where the limit that was
    /// settled alone was not decided, the others are not asked.
    pub(in crate::pipeline) fn next_round(&mut self) -> bool {
        let Some(rules) = self.rules() else {
            return false;
        };
        let Some(mut rounds) = self.rounds.take() else {
            return false;
        };
        let goes_on = self.go_on(&mut rounds, &rules.rules);
        self.rounds = Some(rounds);
        goes_on
    }

    fn go_on(&mut self, rounds: &mut Rounds, rules: &RuleSet) -> bool {
        rounds.now.clear();
        if let Some(asked) = rounds.alone.take() {
            let Some(outcome) = self.results.outcomes.get(asked).copied().flatten() else {
                return false;
            };
            match outcome.reservation {
                ReservationOutcome::Unknown | ReservationOutcome::Charged => {}
                ReservationOutcome::SettledBefore => {
                    rounds.was_settled = true;
                    rounds.first.clear();
                    let settled = outcome.settled().unwrap_or_default();
                    follow(rules, self, asked, settled.committed);
                }
                _ => rounds.first.clear(),
            }
        }
        rounds.alone = rounds.first.pop_front();
        if let Some(next) = rounds.alone {
            rounds.rest.retain(|position| *position != next);
            rounds.now.push(next);
        } else {
            std::mem::swap(&mut rounds.now, &mut rounds.rest);
        }
        !rounds.now.is_empty()
    }
}

/// The positions of the limits to settle first, in their order: those that surely know the id, then
/// those that say the amount best, then in the order of their descriptors' texts. Every process
/// finds the same.
fn settled_first(request: &Request<'_>, plan: &Plan<'_>) -> VecDeque<usize> {
    let descriptors = request.descriptors().map(|descriptor| {
        let entries = descriptor.entries.iter();
        entries.map(|entry| (entry.key, entry.value)).collect()
    });
    let texts: Vec<Vec<_>> = descriptors.collect();
    let mut order: Vec<_> = plan
        .descriptor_checks()
        .filter_map(|(descriptor, position)| {
            let planned = plan.planned_check(position)?;
            let cost = own_cost(planned.origin).map(Cost::as_millionths);
            let is_settle = matches!(planned.check.operation.hits, Hits::Reservation(_));
            let text = texts.get(descriptor)?;
            let shadow_mode = planned.origin.shadow_mode();
            is_settle.then_some((shadow_mode, Reverse(cost), text, position))
        })
        .collect();
    order.sort_unstable();
    order.truncate(SETTLED_FIRST_MAX);
    order.into_iter().map(|(.., position)| position).collect()
}

/// Makes the other limits follow the settle that was the first in the limit at `first`, where it
/// settled by `committed`.
fn follow(rules: &RuleSet, pending: &mut PendingRequest, first: usize, committed: u64) {
    let mut plan = pending.take_plan(rules);
    let other = other_settle(&plan, first, committed);
    if other != OtherSettle::Equal {
        let id = plan
            .planned_check(first)
            .and_then(|planned| planned.check.operation.holder);
        let Ok(()) = plan.replace_operations(false, |_, planned| {
            let hits = match other {
                OtherSettle::Hits(hits) => own_cost(planned.origin).map(|cost| cost.of(hits)),
                OtherSettle::Equal | OtherSettle::Unknown => None,
            };
            Ok::<_, Infallible>(commit_of(id, hits))
        });
    }
    pending.put_plan(plan);
}

/// What the settle that was the first committed in that limit, before cost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OtherSettle {
    /// What this plan commits.
    Equal,
    Hits(u64),
    /// The committed amount does not say it, because of the limit's cost.
    Unknown,
}

fn other_settle(plan: &Plan<'_>, first: usize, committed: u64) -> OtherSettle {
    let Some(first) = plan.planned_check(first) else {
        return OtherSettle::Equal;
    };
    if first.check.operation.hits.count().min(REGISTER_MAX) == committed {
        return OtherSettle::Equal;
    }
    own_cost(first.origin)
        .filter(|cost| cost.as_millionths() >= COST_ONE.as_millionths())
        .map_or(OtherSettle::Unknown, |cost| {
            OtherSettle::Hits(cost.hits_for(committed))
        })
}

/// The commit of this id by so many hits; without hits one that changes nothing, and leaves the
/// limit to the settle that was the first.
fn commit_of(id: Option<Holder>, hits: Option<u64>) -> Operation {
    Operation {
        hits: Hits::Reservation(Step::Commit {
            hits: hits.unwrap_or_default(),
            otherwise: Otherwise::Unknown,
        }),
        holder: id.filter(|_| hits.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::num::NonZeroU32;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use tollgate_limiter::{Check, Entry, Request, Timestamp};

    use super::*;
    use crate::decisions::Decisions;
    use crate::pipeline::api::{ApiAnswer, ApiError, ApiRequest};
    use crate::pipeline::api_call::ApiStep;
    use crate::pipeline::batcher::Batcher;
    use crate::pipeline::own_thread::NoStream;
    use crate::pipeline::threads::{LocalBatcher, set_local};
    use crate::pipeline::{Config, Generations, Parts, Pipeline};
    use crate::top_keys::TopKeys;
    use tollgate_rules::file::{Options, load};
    use tollgate_rules::path::Source;
    use tollgate_rules::reload::Rules;
    use tollgate_store::memory::DirectStore;
    use tollgate_store::{
        BatchClient, Deadline, PartialReply, Purpose, RequestsApart, Store, StoreError, StoreReply,
        TentativeTake, Ticket,
    };
    use tollgate_system::clock::{Clock, ManualClock};
    use tollgate_system::keyed_hash::KeyedHash;
    use tollgate_telemetry::metrics::Metrics;

    const KEYS: [&str; 3] = ["user", "team", "spend"];

    const RULES: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: team, rate_limit: {unit: hour, requests_per_unit: 1000, cost: 3}}
  - {key: spend, rate_limit: {unit: hour, requests_per_unit: 1000, cost: 0.5, algorithm: token_bucket}}
";

    /// Decides the checks of a request apart, one at each poll, in an order of the clock's choice.
    struct Apart {
        store: DirectStore,
        clock: Arc<ManualClock>,
    }

    impl Store for Apart {
        fn batch_client(&self) -> Box<dyn BatchClient> {
            Box::new(ApartClient {
                store: self.store.clone(),
                clock: Arc::clone(&self.clock),
                requests: RequestsApart::default(),
            })
        }
    }

    struct ApartClient {
        store: DirectStore,
        clock: Arc<ManualClock>,
        requests: RequestsApart,
    }

    impl BatchClient for ApartClient {
        fn add(
            &mut self,
            ticket: Ticket,
            checks: &[Check],
            deadline: Deadline,
            purpose: Purpose,
        ) -> Result<usize, StoreError> {
            self.clock.advance_us(1);
            let from = usize::try_from(self.clock.now().as_us()).unwrap() % checks.len();
            let (store, checks) = (self.store.clone(), checks.to_vec());
            let count = checks.len();
            let apart = async move {
                let mut reply = StoreReply::undecided(count, &StoreError::Stopped);
                for place in (from..count).chain(0..from) {
                    yield_once().await;
                    let one = vec![checks[place].clone()];
                    let mut decided = store.ask(one, deadline, purpose).await?;
                    reply.answers[place] = decided.answers.remove(0);
                    TentativeTake::merge(&mut reply.tentative, decided.tentative);
                }
                Ok(reply)
            };
            self.requests.push(ticket, count, Box::pin(apart));
            Ok(1)
        }

        fn send(&mut self) {}

        fn take_replies(
            &mut self,
            cx: &mut Context<'_>,
            take: &mut dyn FnMut(PartialReply<'_>),
        ) -> usize {
            self.requests.take_replies(cx, take)
        }
    }

    async fn yield_once() {
        let mut yielded = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut yielded, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Two threads that decide, by the same pipeline.
    struct Threads {
        pipeline: Arc<Pipeline>,
        batchers: [Rc<Batcher<NoStream>>; 2],
    }

    fn threads() -> Threads {
        let pipeline = Arc::new(pipeline());
        Threads {
            batchers: [(); 2].map(|()| Rc::new(Batcher::new(&pipeline))),
            pipeline,
        }
    }

    fn pipeline() -> Pipeline {
        let metrics = Arc::new(Metrics::new().unwrap());
        let manual = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_006_410)));
        let clock: Arc<dyn Clock> = manual.clone();
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        generations.take(Some(Ok(Rules {
            loaded: load(&[source], Options::default()).unwrap(),
            sources: 1,
            hash: 1,
        })));
        let store = Apart {
            store: DirectStore::new(64 << 20, Arc::clone(&clock)),
            clock: manual,
        };
        let parts = Parts {
            generations,
            store: Arc::new(store),
            decisions: Decisions::alone(&clock, 0).unwrap(),
            hash: KeyedHash::with_secret([7; 16]),
            traces: None,
            top_keys: TopKeys::of_one_thread(&clock, &metrics),
            metrics,
            clock,
        };
        Pipeline::new(parts, Config::default())
    }

    /// A call, and the thread that decides it.
    struct Called<'p> {
        call: Pin<Box<dyn Future<Output = Result<ApiAnswer, ApiError>> + 'p>>,
        batcher: &'p Rc<Batcher<NoStream>>,
    }

    /// The threads, one of them by its number, and the value of the buckets.
    type Of<'p> = (&'p Threads, usize, &'p str);

    fn call((threads, thread, value): Of<'_>, step: ApiStep, hits: u64) -> Called<'_> {
        let mut request = Request::new(b"d");
        for key in KEYS {
            let (key, value) = (key.as_bytes(), value.as_bytes());
            request.push_entry(Entry { key, value });
            request.finish_descriptor(Hits::Take(hits));
        }
        let call = ApiRequest {
            request,
            operation: step,
            id: if step == ApiStep::Peek { "" } else { "r" },
            deadline: Deadline::NEVER,
            parent: None,
        };
        let pipeline = &threads.pipeline;
        Called {
            call: Box::pin(pipeline.call_api_within(call, Some(usize::MAX))),
            batcher: &threads.batchers[thread],
        }
    }

    /// Polls once: the call, what decides it, and the call again.
    fn poll(called: &mut Called<'_>) -> Option<ApiAnswer> {
        let mut cx = Context::from_waker(Waker::noop());
        let local: Rc<dyn LocalBatcher> = called.batcher.clone();
        set_local(&local);
        assert!(called.call.as_mut().poll(&mut cx).is_pending());
        assert!(called.batcher.poll(&mut cx).is_pending());
        match called.call.as_mut().poll(&mut cx) {
            Poll::Ready(answer) => Some(answer.unwrap()),
            Poll::Pending => None,
        }
    }

    fn finish(mut call: Called<'_>) -> ApiAnswer {
        loop {
            if let Some(answer) = poll(&mut call) {
                return answer;
            }
        }
    }

    fn reserve(of: Of<'_>) {
        let step = ApiStep::Reserve {
            expires_ms: NonZeroU32::new(60_000),
            on_expiry: None,
            uses_rule_amount: false,
        };
        let answer = finish(call(of, step, 100));
        assert_eq!(answer.reservation, ReservationOutcome::Reserved);
    }

    /// What is left of the limits once the reservation is settled by so many hits.
    fn left_after(hits: u64) -> Vec<u64> {
        vec![1_000 - hits, 1_000 - 3 * hits, 1_000 - hits.div_ceil(2)]
    }

    fn left(of: Of<'_>) -> Vec<u64> {
        let answer = finish(call(of, ApiStep::Peek, 0));
        answer.limits.iter().map(|limit| limit.remaining).collect()
    }

    const fn commit(otherwise: Otherwise) -> ApiStep {
        ApiStep::Commit { otherwise }
    }

    const RELEASE: ApiStep = ApiStep::Release;

    /// Two settles of different amounts.
    const PAIRS: [[(ApiStep, u64); 2]; 3] = [
        [
            (commit(Otherwise::Unknown), 7),
            (commit(Otherwise::Unknown), 40),
        ],
        [(RELEASE, 0), (commit(Otherwise::Unknown), 40)],
        [(commit(Otherwise::ChargeOnce), 101), (RELEASE, 0)],
    ];

    #[test]
    fn of_two_settles_at_once_one_wins_in_every_limit() {
        // Each takes four polls.
        let (threads, polls) = (threads(), 8);
        for pair in PAIRS {
            for schedule in (0_u32..1 << polls).filter(|schedule| schedule.count_ones() == 4) {
                let value = format!("{pair:?} {schedule:b}");
                let of = |thread| (&threads, thread, &*value);
                reserve(of(0));
                let mut thread = 0..;
                let mut calls = pair.map(|(step, hits)| {
                    let of = of(thread.next().unwrap());
                    Some(call(of, step, hits))
                });
                let mut answers = [None, None];
                for turn in 0..polls {
                    let which = (schedule >> turn & 1) as usize;
                    if let Some(call) = &mut calls[which] {
                        answers[which] = poll(call);
                        calls[which].take_if(|_| answers[which].is_some());
                    }
                }
                for (call, answer) in calls.into_iter().zip(&mut answers) {
                    if let Some(call) = call {
                        *answer = Some(finish(call));
                    }
                }
                let answers = answers.map(Option::unwrap);
                let outcomes = answers.each_ref().map(|answer| answer.reservation);
                let first = outcomes
                    .iter()
                    .position(|one| *one == ReservationOutcome::Settled)
                    .unwrap();
                assert_eq!(outcomes[1 - first], ReservationOutcome::SettledBefore);
                let (_, hits) = pair[first];
                for answer in answers {
                    let settled = (answer.settled.reserved, answer.settled.committed);
                    assert_eq!(settled, (100, hits), "{value}");
                }
                assert_eq!(left(of(0)), left_after(hits), "{value}");
            }
        }
    }

    #[test]
    fn what_a_settle_left_open_is_settled_by_the_next_one_by_the_same_amount() {
        let threads = threads();
        for [(step, hits), (next, other)] in PAIRS {
            for polls in 0..4 {
                let value = format!("{step:?} {next:?} {polls}");
                // The thread of the first settle goes no further.
                let (first_thread, of) = ((&threads, 1, &*value), (&threads, 0, &*value));
                reserve(of);
                let mut left_off = call(first_thread, step, hits);
                for _ in 0..polls {
                    assert_eq!(poll(&mut left_off), None);
                }
                drop(left_off);
                let answer = finish(call(of, next, other));
                let is_first = answer.reservation == ReservationOutcome::Settled;
                assert_eq!(is_first, polls < 2, "{value}");
                let hits = if is_first { other } else { hits };
                assert_eq!(answer.settled.committed, hits);
                assert_eq!(left(of), left_after(hits), "{value}");
            }
        }
    }
}
