//! Bugs in the limits of queues and memory, and in shedding.
//!
//! What it deliberately does not do: decide or answer admitted checks wrongly (`deciding`,
//! `answering`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate::store::memory::MemoryLimits;
use tollgate::store::{StoreError, StoreReply, TentativeTake};

use super::{Apply, Bug, BugContext, Call, Plant, Sending, poll_once};
use crate::judge::Law;

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "a_shed_request_is_sent_in_part",
        plant: Plant::Store(Apply(a_shed_request_is_sent_in_part)),
        found_by: &[Law::FaithfulReplies],
    },
    Bug {
        name: "queue_slots_are_not_released",
        plant: Plant::Store(Apply(queue_slots_are_not_released)),
        found_by: &[Law::Capacity],
    },
    Bug {
        name: "the_queue_holds_one_more",
        plant: Plant::Limits(|bounds| MemoryLimits {
            queue_checks_max: bounds.queue_checks_max + 1,
            ..bounds
        }),
        found_by: &[Law::Capacity],
    },
    Bug {
        name: "the_queue_holds_one_less",
        plant: Plant::Limits(|bounds| MemoryLimits {
            queue_checks_max: bounds.queue_checks_max - 1,
            ..bounds
        }),
        found_by: &[Law::Capacity],
    },
    Bug {
        name: "evicts_below_the_memory_limit",
        plant: Plant::Limits(|bounds| MemoryLimits {
            memory_max: 300 * bounds.partitions,
            ..bounds
        }),
        found_by: &[Law::Recount, Law::Capacity, Law::Promise],
    },
    Bug {
        name: "loses_a_check",
        plant: Plant::Store(Apply(loses_a_check)),
        found_by: &[Law::Accounted],
    },
];

/// SendingSink each check separately: when one is shed, the others have been sent.
fn a_shed_request_is_sent_in_part(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let mut under_way = Vec::new();
        for check in call.checks {
            let mut sending = around.send(Call {
                checks: vec![check],
                ..call
            });
            match poll_once(&mut sending).await {
                Some(Err(error)) => {
                    for sent in under_way {
                        around.keep(sent);
                    }
                    return Err(error);
                }
                Some(Ok(_)) => return Err(StoreError::Stopped),
                None => under_way.push(sending),
            }
        }
        let mut whole = StoreReply {
            answers: Vec::new(),
            tentative: None,
            from_denial_cache: false,
            local: Vec::new(),
            stamps: Vec::new(),
        };
        for sending in under_way {
            let one = sending.await?;
            whole.answers.extend(one.answers);
            TentativeTake::merge(&mut whole.tentative, one.tentative);
        }
        Ok(whole)
    })
}

/// Counts waiting checks separately: adds when a call begins and subtracts when it is answered.
fn queue_slots_are_not_released(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let count = call.checks.len();
        let waiting_max = around.bounds.queue_checks_max * around.bounds.partitions;
        let waiting = around.count.fetch_add(count, Ordering::Relaxed) + count;
        let answers = if waiting > waiting_max {
            Err(StoreError::Overloaded { waiting_max })
        } else {
            around.send(call).await
        };
        around.count.fetch_sub(count, Ordering::Relaxed);
        answers
    })
}

/// Does not send the last of several checks, and answers as if the worker had stopped.
fn loses_a_check(around: Arc<BugContext>, mut call: Call) -> Sending {
    Box::pin(async move {
        if call.checks.len() < 3 {
            return around.send(call).await;
        }
        call.checks.pop();
        let mut applied = around.send(call).await?;
        applied.answers.push(Err(StoreError::DeadlineExceeded));
        Ok(applied)
    })
}
