//! Leases with a scripted server: what the vectors do not have.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod support;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use prost::Message as _;
use support::{ManualClock, Reply, Script, ScriptedServer, tollgate, until};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tollgate_limits::{Check, Client, ClientBuilder, Decision, Descriptor, Source};

fn builder(server: &ScriptedServer, clock: &ManualClock) -> ClientBuilder {
    Client::builder("edge")
        .address(server.address.to_string())
        .deadline(Duration::from_secs(30))
        .clock(clock.clone())
        .leases(true)
}

fn user() -> Check {
    Check::from(Descriptor::new([("user", "ann")]))
}

fn check_reply(verdict: tollgate::Verdict) -> Reply {
    Reply::Check(tollgate::CheckResponse {
        verdict: verdict.into(),
        ..Default::default()
    })
}

fn lease_reply(granted: u64) -> Reply {
    let verdict = tollgate::Verdict::Ok.into();
    let limit = tollgate::LimitStatus {
        name: "minute".to_owned(),
        rule: "edge.user".to_owned(),
        window: "1 minute".to_owned(),
        verdict,
        ..Default::default()
    };
    Reply::Lease(tollgate::LeaseResponse {
        verdict,
        lease: "lease".to_owned(),
        granted,
        expires: Some(prost_types::Duration {
            seconds: 2,
            nanos: 0,
        }),
        remaining: Some(84),
        limits: vec![limit],
        ..Default::default()
    })
}

fn returns_reply() -> Reply {
    Reply::Batch(Box::new(Reply::Hang))
}

/// The unused hits of the returns that the server got.
fn returned(server: &ScriptedServer) -> u64 {
    let script = server.script.lock().unwrap();
    let batches = script.received.iter().filter(|it| it.method == "Batch");
    let unused = |call: tollgate::Call| match call.call {
        Some(tollgate::call::Call::GiveBack(request)) => request.unused,
        other => panic!("no return: {other:?}"),
    };
    batches
        .flat_map(|it| {
            let batch = tollgate::BatchRequest::decode(it.message.clone());
            batch.expect("a batch").calls.into_iter().map(unused)
        })
        .sum()
}

/// Waits for a call.
async fn arrived(server: &ScriptedServer) {
    until("a call arrives", async || server.calls() > 0).await;
}

async fn checked(client: &Client) -> Decision {
    client.check(user()).await.expect("a decision")
}

/// A client whose key has a lease of so many hits, one of them taken.
async fn leased(server: &ScriptedServer, builder: ClientBuilder, granted: u64) -> Client {
    let client = builder.build().expect("a client");
    server.then(vec![
        check_reply(tollgate::Verdict::Ok),
        lease_reply(granted),
    ]);
    assert_eq!(checked(&client).await.source, Source::Server);
    assert_eq!(checked(&client).await.source, Source::Lease);
    server.always(Some(returns_reply()));
    client
}

#[test]
fn a_check_that_takes_leased_hits_allocates_nothing() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _guard = runtime.enter();
    let server = runtime.block_on(ScriptedServer::start());
    let clock = ManualClock::default();
    let client = runtime.block_on(leased(&server, builder(&server, &clock), 1_000));
    let poll = |check: Check| {
        let check = pin!(client.check(check));
        match check.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => decision.expect("a decision"),
            Poll::Pending => panic!("it waits"),
        }
    };
    poll(user()); // the memory of this thread's keys
    let checks: Vec<Check> = (0..100).map(|_| user()).collect();
    let mut last = Decision::default();
    let cost = allocation_counter::measure(|| {
        for check in checks {
            last = poll(check);
        }
    });
    // The span of a check allocates three times.
    let spans = if cfg!(feature = "otel") { 300 } else { 0 };
    assert_eq!(cost.count_total, spans, "{cost:?}");
    assert_eq!(last.source, Source::Lease);
    assert_eq!(last.remaining, Some(84 + 1_000 - 102));
    assert_eq!(last.limits.len(), 1);
}

#[tokio::test]
async fn checks_of_a_key_wait_for_one_call() {
    let server = ScriptedServer::start().await;
    let client = builder(&server, &ManualClock::default());
    let client = client.build().expect("a client");
    let release = Arc::new(Notify::new());
    let held = Reply::Held(Arc::clone(&release), Box::new(lease_reply(16)));
    *server.script.lock().unwrap() = Script {
        next: [check_reply(tollgate::Verdict::Ok), held].into(),
        then: Some(check_reply(tollgate::Verdict::OverLimit)),
        ..Script::default()
    };
    assert_eq!(checked(&client).await.source, Source::Server);
    let mut waiting = Vec::new();
    for _ in 0..21 {
        let mut check = Box::pin(client.check(user()));
        assert!(is_pending(&mut check));
        waiting.push(check);
    }
    drop(waiting.remove(0)); // its lease goes on
    release.notify_one();
    let mut leased = 0;
    for check in waiting {
        let decision = check.await.expect("a decision");
        assert_eq!(decision.allowed, decision.source == Source::Lease);
        leased += u64::from(decision.allowed);
    }
    assert_eq!(leased, 16);
    assert_eq!(
        methods(&server),
        ["Check", "Lease", "Check", "Check", "Check", "Check"]
    );
}

async fn of_many_tasks_the_limit_is_admitted(batching: bool) {
    let left = Arc::new(AtomicU64::new(1_000));
    let server = ScriptedServer::start().await;
    server.always(Some(Reply::Limit(Arc::clone(&left))));
    let builder = builder(&server, &ManualClock::default());
    let client = builder.batching(batching).build().expect("a client");
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        tasks.spawn(async move {
            let mut allowed = 0;
            for _ in 0..500 {
                allowed += u64::from(checked(&client).await.allowed);
            }
            allowed
        });
    }
    let allowed: u64 = tasks.join_all().await.into_iter().sum();
    client.close().await;
    assert_eq!(allowed + left.load(Ordering::SeqCst), 1_000);
    assert!(server.calls() < 1_000, "{} calls", server.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_tasks_the_limit_is_admitted_by_unary_calls() {
    of_many_tasks_the_limit_is_admitted(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_tasks_the_limit_is_admitted_with_batching() {
    of_many_tasks_the_limit_is_admitted(true).await;
}

#[tokio::test]
async fn the_timer_gives_back_the_hits_of_an_idle_key() {
    let server = ScriptedServer::start().await;
    let clock = ManualClock::default();
    let _client = leased(&server, builder(&server, &clock), 16).await;
    clock.advance(1_000);
    arrived(&server).await;
    assert_eq!(returned(&server), 15);
}

#[tokio::test]
async fn close_waits_for_a_lease_in_flight() {
    let server = ScriptedServer::start().await;
    let client = builder(&server, &ManualClock::default());
    let client = client.build().expect("a client");
    let release = Arc::new(Notify::new());
    let held = Reply::Held(Arc::clone(&release), Box::new(lease_reply(16)));
    server.then(vec![
        check_reply(tollgate::Verdict::Ok),
        held,
        returns_reply(),
    ]);
    assert_eq!(checked(&client).await.source, Source::Server);
    let mut waiting = Box::pin(client.check(user()));
    assert!(is_pending(&mut waiting));
    let mut closing = Box::pin(client.close());
    assert!(is_pending(&mut closing));
    release.notify_one();
    let (decision, ()) = tokio::join!(waiting, closing);
    assert_eq!(decision.expect("a decision").source, Source::Lease);
    assert_eq!(returned(&server), 15);
}

#[tokio::test]
async fn a_check_does_not_wait_for_a_round() {
    let server = ScriptedServer::start().await;
    let clock = ManualClock::default();
    let builder = builder(&server, &clock).without_lease_rounds();
    let client = leased(&server, builder, 5).await;
    for _ in 0..2 {
        clock.advance(800);
        assert_eq!(checked(&client).await.source, Source::Lease);
    }
    let release = Arc::new(Notify::new());
    let held = Reply::Held(Arc::clone(&release), Box::new(returns_reply()));
    server.then(vec![held, check_reply(tollgate::Verdict::Ok)]);
    let mut round = Box::pin(client.run_lease_round());
    assert!(is_pending(&mut round));
    arrived(&server).await;
    for source in [Source::Lease, Source::Lease, Source::Server] {
        assert_eq!(checked(&client).await.source, source);
    }
    assert_eq!(methods(&server), ["Batch", "Check"]);
}

#[test]
fn a_client_leases_again_after_the_end_of_its_runtime() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(ScriptedServer::start());
    let clock = ManualClock::default();
    let client = builder(&server, &clock).build().expect("a client");
    server.then(vec![check_reply(tollgate::Verdict::Ok), Reply::Hang]);
    {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            assert_eq!(checked(&client).await.source, Source::Server);
            assert!(is_pending(&mut Box::pin(client.check(user()))));
            until("the lease arrives", async || server.calls() == 2).await;
        });
    }
    clock.advance(250);
    server.then(vec![lease_reply(16)]);
    assert_eq!(runtime.block_on(checked(&client)).source, Source::Lease);
}

fn is_pending<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context).is_pending()
}

fn methods(server: &ScriptedServer) -> Vec<String> {
    let script = server.script.lock().unwrap();
    script.received.iter().map(|it| it.method.clone()).collect()
}
