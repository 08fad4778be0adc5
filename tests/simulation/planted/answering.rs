//! Bugs in replies to checks that were decided correctly.
//!
//! What it deliberately does not do: change a bucket.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate::pipeline::Pipeline;
use tollgate::store::StoreReply;
use tollgate_limiter::{Outcome, Timestamp};
use tollgate_test_support::grpc_client::{Code, RateLimitRequest};

use super::{Apply, Bug, BugContext, Call, Plant, Sending};
use crate::executor::BoxedFuture;
use crate::judge::Law;
use crate::run::{DecisionService, RequestResult};

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "replies_in_another_order",
        plant: Plant::Store(Apply(replies_in_another_order)),
        found_by: &[Law::FaithfulReplies],
    },
    Bug {
        name: "a_failed_share_fails_the_others",
        plant: Plant::Store(Apply(a_failed_share_fails_the_others)),
        found_by: &[Law::FaithfulReplies],
    },
    Bug {
        name: "passes_checks_without_memory",
        plant: Plant::Store(Apply(passes_checks_without_memory)),
        found_by: &[Law::FaithfulReplies],
    },
    Bug {
        name: "loses_the_wake_up",
        plant: Plant::Store(Apply(loses_the_wake_up)),
        found_by: &[Law::Answered],
    },
    Bug {
        name: "statuses_in_another_order",
        plant: Plant::DecisionService(|service| Box::new(ReversedStatuses(service))),
        found_by: &[Law::Statuses],
    },
    Bug {
        name: "sees_two_generations",
        plant: Plant::DecisionService(|service| Box::new(OneByOne(service))),
        found_by: &[Law::OneGeneration, Law::Statuses],
    },
    Bug {
        name: "enforces_shadow_mode",
        plant: Plant::Rules(|text| text.replace("    shadow_mode: true\n", "")),
        found_by: &[Law::Statuses],
    },
];

fn replies_in_another_order(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let mut applied = around.send(call).await?;
        applied.answers.reverse();
        Ok(applied)
    })
}

fn a_failed_share_fails_the_others(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let applied = around.send(call).await?;
        match applied
            .answers
            .iter()
            .find_map(|answer| answer.clone().err())
        {
            Some(error) => Err(error),
            None => Ok(applied),
        }
    })
}

fn passes_checks_without_memory(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let remaining: Vec<_> = call
            .checks
            .iter()
            .map(|check| check.limit.burst())
            .collect();
        let pass = |remaining| Outcome {
            reservation: tollgate_limiter::ReservationOutcome::None,
            allowed: true,
            used_before: 0,
            remaining,
            reset_us: 0,
            retry_us: Some(0),
            bucket_time: Timestamp::default(),
        };
        let sent = around.send(call).await;
        Ok(sent.unwrap_or_else(|_| StoreReply {
            answers: remaining.into_iter().map(pass).map(Ok).collect(),
            tentative: None,
            from_denial_cache: false,
            local: Vec::new(),
            stamps: Vec::new(),
        }))
    })
}

/// Polls the store with a waker that does nothing.
fn loses_the_wake_up(around: Arc<BugContext>, call: Call) -> Sending {
    let mut sending = around.send(call);
    let mut polled = false;
    Box::pin(std::future::poll_fn(move |context| {
        // The first poll is correct: a reply that is already there is not lost.
        let mut nobody = Context::from_waker(Waker::noop());
        let context = if polled { context } else { &mut nobody };
        polled = true;
        match sending.as_mut().poll(context) {
            Poll::Ready(answers) => Poll::Ready(answers),
            Poll::Pending => Poll::Pending,
        }
    }))
}

/// The real service with its statuses in reverse order.
struct ReversedStatuses(Arc<Pipeline>);

impl DecisionService for ReversedStatuses {
    fn ask(
        &self,
        request: RateLimitRequest,
        timeout_us: Option<u64>,
    ) -> BoxedFuture<RequestResult> {
        let answered = self.0.ask(request, timeout_us);
        Box::pin(async move {
            let mut answer = answered.await?;
            answer.statuses.reverse();
            Ok(answer)
        })
    }
}

/// The real service, called for one descriptor after the other.
struct OneByOne(Arc<Pipeline>);

impl DecisionService for OneByOne {
    fn ask(
        &self,
        request: RateLimitRequest,
        timeout_us: Option<u64>,
    ) -> BoxedFuture<RequestResult> {
        let service = Arc::clone(&self.0);
        Box::pin(async move {
            let mut descriptors = request.descriptors.into_iter();
            let part = |descriptor| RateLimitRequest {
                domain: request.domain.clone(),
                descriptors: vec![descriptor],
                hits_addend: request.hits_addend,
            };
            let first = part(descriptors.next().unwrap());
            let mut whole = service.ask(first, timeout_us).await?;
            for descriptor in descriptors {
                let next = service.ask(part(descriptor), timeout_us).await?;
                whole.statuses.extend(next.statuses);
                if next.overall_code == i32::from(Code::OverLimit) {
                    whole.overall_code = next.overall_code;
                }
            }
            Ok(whole)
        })
    }
}
