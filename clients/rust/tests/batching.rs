//! Batching with a scripted server.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod support;

use std::time::Duration;

use support::{Reply, ScriptedServer, tollgate, until};
use tokio::task::JoinSet;
use tollgate_limits::{
    BreakerOptions, Client, ClientBuilder, Code, Decision, Descriptor, Error, OnError, Protocol,
    Source,
};

fn builder(address: impl Into<String>) -> ClientBuilder {
    Client::builder("edge")
        .address(address)
        .deadline(Duration::from_secs(20))
        .on_error(OnError::Deny)
        .batching(true)
}

async fn check(client: Client) -> Decision {
    let descriptor = Descriptor::new([("many", "ann")]);
    client.check(descriptor).await.expect("a decision")
}

fn pass() -> Reply {
    Reply::Check(tollgate::CheckResponse {
        verdict: tollgate::Verdict::Ok.into(),
        ..tollgate::CheckResponse::default()
    })
}

async fn wait_for_calls(server: &ScriptedServer, calls: usize) {
    until("the calls arrive", async || server.calls() >= calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_progress_and_the_queue_are_bounded() {
    let server = ScriptedServer::start().await;
    server.always(Some(Reply::Hang));
    let one_failure = BreakerOptions {
        failures: 1,
        ..BreakerOptions::default()
    };
    let client = builder(server.address.to_string())
        .breaker(one_failure)
        .build()
        .expect("a client");
    let mut first = JoinSet::new();
    for _ in 0..64 {
        first.spawn(check(client.clone()));
    }
    wait_for_calls(&server, 64).await;
    let mut others = JoinSet::new();
    for _ in 0..1_024 + 112 {
        others.spawn(check(client.clone()));
    }
    for _ in 0..112 {
        let decision = others.join_next().await.expect("one").expect("no panic");
        let queue_full = Error::Status {
            code: Code::Unavailable,
            message: "queue full".to_owned(),
        };
        assert_eq!(decision.error, Some(queue_full));
        assert_eq!(decision.source, Source::Deny);
    }
    assert_eq!(server.calls(), 64);

    // Callers that give up make place for those that wait. The breaker is still closed.
    server.always(Some(pass()));
    first.shutdown().await;
    for decision in others.join_all().await {
        assert_eq!((decision.source, decision.error), (Source::Server, None));
    }
    assert_eq!(server.calls(), 1_024);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_in_the_queue_end_by_their_deadline() {
    let server = ScriptedServer::start().await;
    server.always(Some(Reply::Hang));
    let deadline = Duration::from_millis(300);
    let client = builder(server.address.to_string())
        .deadline(deadline)
        .breaker(BreakerOptions {
            failures: 1_000,
            ..BreakerOptions::default()
        })
        .build()
        .expect("a client");
    let mut checks = JoinSet::new();
    for _ in 0..100 {
        checks.spawn(check(client.clone()));
    }
    for decision in checks.join_all().await {
        let code = decision.error.and_then(|error| error.code());
        assert_eq!(code, Some(Code::DeadlineExceeded));
        assert!(decision.elapsed >= deadline);
    }
    server.always(Some(pass()));
    assert_eq!(check(client.clone()).await.source, Source::Server);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_stream_fails_its_calls_and_is_opened_again() {
    let server = ScriptedServer::start().await;
    let client = builder(server.address.to_string())
        .build()
        .expect("a client");
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        server.always(Some(Reply::Hang));
        let mut checks = JoinSet::new();
        for _ in 0..3 {
            checks.spawn(check(client.clone()));
        }
        wait_for_calls(&server, 3).await;
        server.script.lock().unwrap().next = [Reply::EndStream(code)].into();
        checks.spawn(check(client.clone()));
        for decision in checks.join_all().await {
            assert_eq!(decision.error.and_then(|error| error.code()), Some(code));
        }
        assert_eq!(server.calls(), 4, "no check is sent again");
        server.always(Some(pass()));
        assert_eq!(check(client.clone()).await.source, Source::Server);
    }
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn close_ends_calls_in_progress_and_in_the_queue() {
    let server = ScriptedServer::start().await;
    server.always(Some(Reply::Hang));
    let client = builder(server.address.to_string())
        .build()
        .expect("a client");
    let mut checks = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        checks.spawn(async move { client.check(Descriptor::new([("many", "ann")])).await });
    }
    wait_for_calls(&server, 64).await;
    client.close().await;
    for result in checks.join_all().await {
        assert_eq!(result, Err(Error::Closed));
    }
}

#[tokio::test]
async fn the_protocol_envoy_has_no_batching() {
    let built = builder("localhost:1").protocol(Protocol::Envoy).build();
    assert!(matches!(built, Err(Error::Argument(_))));
}
