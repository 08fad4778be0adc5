//! Planted faults: a smoke test that the laws of the simulation can fail.
//!
//! Why: thousands of seeds that break no law do not show that a fault would be found. Whether the
//! suite finds the faults of every line, `make test-mutants` shows.
//!
//! How: a fault wraps the real store, below the journal's tap. Everything else is the real code.
//! The default seeds must find it, by every law listed for it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tollgate::store::memory::MemoryStore;
use tollgate::store::{BatchClient, Deadline, Purpose, Store, StoreError, StoreReply};
use tollgate_limiter::{Check, Hits, Step};
use tollgate_test_support::asking_store::asking_client;

use crate::simulation::judge::Law;
use crate::simulation::run::{Trace, run};
use crate::simulation::{DEFAULT_SEEDS, reservations};

/// How a fault changes [`Store::ask`].
pub(crate) type Fault = fn(Arc<MemoryStore>, Call) -> Reply;

/// The arguments of [`Store::ask`].
#[derive(Clone)]
pub(crate) struct Call {
    checks: Vec<Check>,
    deadline: Deadline,
    mode: Purpose,
}

/// The future reply to a call, which owns what it needs.
type Reply = Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send>>;

/// The store, wrapped by a fault.
struct Faulty {
    store: Arc<MemoryStore>,
    fault: Fault,
}

/// The store with this fault, if any.
pub(crate) fn store(store: MemoryStore, fault: Option<Fault>) -> Arc<dyn Store> {
    match fault {
        Some(fault) => Arc::new(Faulty {
            store: Arc::new(store),
            fault,
        }),
        None => Arc::new(store),
    }
}

impl Store for Faulty {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        let (store, fault) = (Arc::clone(&self.store), self.fault);
        asking_client(move |checks, deadline, mode| {
            let call = Call {
                checks,
                deadline,
                mode,
            };
            if mode == Purpose::Reset {
                return send(Arc::clone(&store), call);
            }
            fault(Arc::clone(&store), call)
        })
    }
}

/// Calls the real store.
fn send(store: Arc<MemoryStore>, call: Call) -> Reply {
    Box::pin(async move { store.ask(call.checks, call.deadline, call.mode).await })
}

/// Checks the limit and takes the hits in two steps, between which another request may run.
fn checks_first_and_takes_later(store: Arc<MemoryStore>, call: Call) -> Reply {
    Box::pin(async move {
        let mut looks = Call {
            mode: Purpose::Decide,
            ..call.clone()
        };
        for look in &mut looks.checks {
            if let Hits::Take(_) = look.operation.hits {
                look.operation.hits = Hits::PEEK;
            }
        }
        let mut reply = send(Arc::clone(&store), looks).await?;
        let mut takes = Vec::new();
        for (check, answer) in call.checks.iter().zip(&mut reply.answers) {
            if let (Hits::Take(hits), Ok(outcome)) = (check.operation.hits, answer) {
                outcome.allowed = hits <= outcome.remaining;
                if outcome.allowed {
                    outcome.remaining -= hits;
                    takes.push(check.clone());
                }
            }
        }
        if !takes.is_empty() {
            let call = Call {
                checks: takes,
                ..call
            };
            reply.tentative = send(store, call).await?.tentative;
        }
        Ok(reply)
    })
}

/// The number of requests is part of the bucket's key, so a reload resets the bucket.
fn keys_hold_the_limit(store: Arc<MemoryStore>, mut call: Call) -> Reply {
    for check in &mut call.checks {
        check.key.0 ^= u128::from(check.limit.requests()) << 32;
    }
    send(store, call)
}

fn refunds_what_passed(store: Arc<MemoryStore>, call: Call) -> Reply {
    Box::pin(async move {
        let reply = send(store, call).await?;
        Ok(StoreReply {
            tentative: None,
            ..reply
        })
    })
}

/// Loses replies that do not come at once, as if the wake-up for them were lost.
fn loses_late_replies(store: Arc<MemoryStore>, call: Call) -> Reply {
    let mut reply = send(store, call);
    let mut polled = false;
    Box::pin(std::future::poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Pending;
        }
        reply.as_mut().poll(context)
    }))
}

/// Replies in another order than that of the checks.
fn replies_in_reverse(store: Arc<MemoryStore>, call: Call) -> Reply {
    Box::pin(async move {
        let mut reply = send(store, call).await?;
        reply.answers.reverse();
        Ok(reply)
    })
}

#[test]
fn the_default_seeds_find_faults_of_a_store() {
    let faults: [(Fault, &[Law]); 5] = [
        (
            checks_first_and_takes_later,
            &[Law::DecidedOnce, Law::FaithfulReplies, Law::Promise],
        ),
        (keys_hold_the_limit, &[Law::Recount, Law::Promise]),
        (
            refunds_what_passed,
            &[Law::AllOrNothing, Law::Remaining, Law::Promise],
        ),
        (loses_late_replies, &[Law::Answered]),
        (replies_in_reverse, &[Law::FaithfulReplies]),
    ];
    for (place, (fault, by)) in faults.into_iter().enumerate() {
        let mut first: BTreeMap<Law, u64> = BTreeMap::new();
        let found = DEFAULT_SEEDS.into_iter().any(|seed| {
            for broken in run(seed, Some(fault), Trace::None).broken {
                first.entry(broken.law).or_insert(seed);
            }
            by.iter().all(|law| first.contains_key(law))
        });
        assert!(found, "fault {place} is found by {first:?} only");
    }
}

/// An expiry is an hour late.
fn expires_late(store: Arc<MemoryStore>, mut call: Call) -> Reply {
    for check in &mut call.checks {
        if let Hits::Reservation(Step::Reserve { expiry, .. }) = &mut check.operation.hits {
            expiry.after_ms = expiry.after_ms.saturating_add(3_600_000);
        }
    }
    send(store, call)
}

/// An end charges in full, whatever was reserved.
fn ends_always_charge(store: Arc<MemoryStore>, mut call: Call) -> Reply {
    for check in &mut call.checks {
        if let Hits::Reservation(Step::Commit { hits, .. }) = check.operation.hits {
            check.operation.hits = Hits::Charge(hits);
        }
    }
    send(store, call)
}

#[test]
fn the_first_seeds_find_faults_of_reservations() {
    for (place, fault) in [expires_late, ends_always_charge].into_iter().enumerate() {
        let found = (1..=300).any(|seed| {
            let judge = reservations::run(seed, Some(fault), false);
            !judge.broken.is_empty()
        });
        assert!(found, "fault {place} is not found");
    }
}
