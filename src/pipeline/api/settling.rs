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
use std::convert::Infallible;

use tollgate_limiter::reservation::COST_ONE;
use tollgate_limiter::{
    Cost, Hits, Holder, Operation, Otherwise, Plan, REGISTER_MAX, ReservationOutcome, RuleSet, Step,
};

use super::answer::own_cost;
use super::call::Pending;
use super::{ApiRequest, ApiStep, checks_of};
use crate::pipeline::{Generation, Pipeline};

/// How many limits are settled one after the other, until one knows the id. A limit need not: it is
/// in shadow mode, or younger than the reservation. Where so many do not know it, the rest is
/// settled at once, and two settles can each be the first in some.
const SETTLED_FIRST_MAX: usize = 4;

impl Pipeline {
    /// Applies the checks of a settle. Returns whether the reservation was settled before; none
    /// where the first limit was not decided. The others are then not asked.
    pub(super) async fn apply_settle(
        &self,
        call: &ApiRequest<'_>,
        rules: &Generation,
        pending: &mut Pending,
    ) -> Option<bool> {
        let mut rest: Vec<usize> = (0..pending.checks().len()).collect();
        let mut was_settled = false;
        for first in settled_first(call, &rules.rules, pending) {
            self.apply_at(&[first], pending, call.deadline).await;
            rest.retain(|position| *position != first);
            let outcome = pending.outcomes().get(first).copied().flatten()?;
            match outcome.reservation {
                ReservationOutcome::Unknown | ReservationOutcome::Charged => continue,
                ReservationOutcome::SettledBefore => {
                    was_settled = true;
                    let settled = outcome.settled().unwrap_or_default();
                    follow(&rules.rules, pending, first, settled.committed);
                }
                _ => {}
            }
            break;
        }
        self.apply_at(&rest, pending, call.deadline).await;
        Some(was_settled)
    }
}

/// The positions of the limits to settle first, in their order: those that surely know the id, then
/// those that say the amount best, then in the order of their descriptors' texts. Every process
/// finds the same.
fn settled_first(call: &ApiRequest<'_>, rules: &RuleSet, pending: &mut Pending) -> Vec<usize> {
    let descriptors = call.request.descriptors().map(|descriptor| {
        let entries = descriptor.entries.iter();
        entries.map(|entry| (entry.key, entry.value)).collect()
    });
    let texts: Vec<Vec<_>> = descriptors.collect();
    let plan = pending.take_plan(rules);
    let mut order: Vec<_> = checks_of(&plan)
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
    let order = order.into_iter().map(|(.., position)| position).collect();
    pending.put_plan(plan);
    order
}

/// Makes the other limits follow the settle that was the first in the limit at `first`, where it
/// settled by `committed`.
fn follow(rules: &RuleSet, pending: &mut Pending, first: usize, committed: u64) {
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

// === impl ApiStep ===

impl ApiStep<'_> {
    /// Whether it settles a reservation that is settled once.
    pub(super) fn settles_once(self) -> bool {
        match self {
            Self::Commit { id, otherwise } => !id.is_empty() && otherwise != Otherwise::Charge,
            Self::Release { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::num::NonZeroU32;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use clap::Parser;
    use tollgate_limiter::{Check, Entry, Request, Timestamp};

    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::decisions::Decisions;
    use crate::keyed_hash::KeyedHash;
    use crate::metrics::Metrics;
    use crate::pipeline::{ApiAnswer, ApiError, Generations, Parts};
    use crate::rules::file::{Options, load};
    use crate::rules::path::Source;
    use crate::rules::reload::Rules;
    use crate::settings::Settings;
    use crate::store::memory::DirectStore;
    use crate::store::{
        ApplyFuture, CommitMode, Deadline, ResetFuture, Store, StoreError, StoreReply,
        TentativeTake,
    };
    use crate::top_keys::TopKeys;

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
        fn apply(
            &self,
            checks: Vec<Check>,
            deadline: Deadline,
            mode: CommitMode,
        ) -> ApplyFuture<'_> {
            self.clock.advance_us(1);
            let from = usize::try_from(self.clock.now().as_us()).unwrap() % checks.len();
            Box::pin(async move {
                let mut answers = vec![Err(StoreError::Stopped); checks.len()];
                let mut tentative = None;
                for place in (from..checks.len()).chain(0..from) {
                    yield_once().await;
                    let one = vec![checks[place].clone()];
                    let mut reply = self.store.apply(one, deadline, mode).await?;
                    answers[place] = reply.answers.remove(0);
                    TentativeTake::merge(&mut tentative, reply.tentative);
                }
                Ok(StoreReply {
                    answers,
                    tentative,
                    from_denial_cache: false,
                    local: Vec::new(),
                    stamps: Vec::new(),
                })
            })
        }

        fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_> {
            self.store.reset(checks)
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

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        settings: Settings,
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
        Pipeline::new(parts, &Arguments::parse_from(["tollgate"]).settings)
    }

    type Called<'p> = Pin<Box<dyn Future<Output = Result<ApiAnswer, ApiError>> + 'p>>;

    /// A call for the buckets of this value.
    fn call<'p>(
        (pipeline, value): (&'p Pipeline, &'p str),
        step: ApiStep<'static>,
        hits: u64,
    ) -> Called<'p> {
        let mut request = Request::new(b"d");
        for key in KEYS {
            let (key, value) = (key.as_bytes(), value.as_bytes());
            request.push_entry(Entry { key, value });
            request.finish_descriptor(Hits::Take(hits), None);
        }
        let call = ApiRequest {
            request,
            step,
            deadline: Deadline::NEVER,
            parent: None,
        };
        Box::pin(pipeline.call_api_within(call, Some(usize::MAX)))
    }

    /// Polls once.
    fn poll(call: &mut Called<'_>) -> Option<ApiAnswer> {
        let mut cx = Context::from_waker(Waker::noop());
        match call.as_mut().poll(&mut cx) {
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

    fn reserve(of: (&Pipeline, &str)) {
        let step = ApiStep::Reserve {
            id: b"r",
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

    fn left(of: (&Pipeline, &str)) -> Vec<u64> {
        let answer = finish(call(of, ApiStep::Peek, 0));
        answer.limits.iter().map(|limit| limit.remaining).collect()
    }

    const fn commit(otherwise: Otherwise) -> ApiStep<'static> {
        ApiStep::Commit {
            id: b"r",
            otherwise,
        }
    }

    const RELEASE: ApiStep<'static> = ApiStep::Release { id: b"r" };

    /// Two settles of different amounts.
    const PAIRS: [[(ApiStep<'static>, u64); 2]; 3] = [
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
        let (pipeline, polls) = (pipeline(), 8);
        for pair in PAIRS {
            for schedule in (0_u32..1 << polls).filter(|schedule| schedule.count_ones() == 4) {
                let value = format!("{pair:?} {schedule:b}");
                let of = (&pipeline, &*value);
                reserve(of);
                let mut calls = pair.map(|(step, hits)| Some(call(of, step, hits)));
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
                assert_eq!(left(of), left_after(hits), "{value}");
            }
        }
    }

    #[test]
    fn what_a_settle_left_open_is_settled_by_the_next_one_by_the_same_amount() {
        let pipeline = pipeline();
        for [(step, hits), (next, other)] in PAIRS {
            for polls in 0..4 {
                let value = format!("{step:?} {next:?} {polls}");
                let of = (&pipeline, &*value);
                reserve(of);
                let mut left_off = call(of, step, hits);
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
