//! Memory of answers: bounds on one answer and on those that clients have not read, counted in
//! bytes; and the polls of a batch, between which other tasks run.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Waker};

use http::Request;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate::proto::tollgate::v1::{Answer as Tagged, BatchRequest, BatchResponse, Call};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::{check, client, commit, left};
use crate::service::flags;
use crate::service::grpc::hostile::{DATA, END_HEADERS, HEADERS, Hostile, RST_STREAM, SETTINGS};
use crate::service::grpc::hostile::{WINDOW_UPDATE, frame};
use crate::service::grpc::raw;

const BATCH: &str = "/tollgate.v1.RateLimits/Batch";
const STREAM: &str = "/tollgate.v1.RateLimits/Stream";

/// Rules with as many limits on a descriptor as there may be.
fn rules() -> String {
    let limits: Vec<String> = (1..=16)
        .map(|number| {
            format!("{{ unit: hour, unit_multiplier: {number}, requests_per_unit: 1000, name: limit-{number} }}")
        })
        .collect();
    let limits = limits.join(", ");
    format!("domain: d\ndescriptors:\n  - key: user\n    rate_limits: [{limits}]\n")
}

/// A batch of checks of one hit.
fn checks(count: u64) -> BatchRequest {
    let call = |tag| Call {
        tag,
        call: Some(Sent::Check(check("user", 1))),
    };
    BatchRequest {
        calls: (0..count).map(call).collect(),
    }
}

fn request() -> Request<()> {
    let request = Request::post(format!("http://test{BATCH}"));
    let request = request.header("content-type", "application/grpc");
    request.body(()).unwrap()
}

fn is_failure(one: &Tagged) -> bool {
    matches!(one.answer, Some(Answer::Failure(_)))
}

/// How many answers are of calls that were carried out.
fn carried_out(answers: &[Tagged]) -> usize {
    answers.iter().filter(|one| !is_failure(one)).count()
}

#[tokio::test]
async fn calls_whose_answers_do_not_fit_fail_and_take_nothing() {
    let service = Service::start(&rules(), &["--answer-size-max", "64KiB"]).await;
    let mut client = client(&service).await;
    let answer = client.batch(checks(100)).await.unwrap().into_inner();
    assert_eq!(answer.answers.len(), 100);
    let count = carried_out(&answer.answers);
    // Failures are part of it. The first answers are bounded by their true size, the next one by
    // the most that it could have.
    let bytes = answer.encoded_len();
    assert!((56 * 1024..=64 * 1024).contains(&bytes), "{bytes}");
    let failed = answer.answers.iter().find(|one| is_failure(one)).unwrap();
    let Some(Answer::Failure(failure)) = &failed.answer else {
        panic!("a failure");
    };
    assert_eq!(failure.code, 8);
    assert!(failure.message.contains("--answer-size-max"), "{failure:?}");
    assert_eq!(left(&service, "user").await, 1_000 - count as u64);
    let refused = "tollgate_answers_refused_total{bound=\"call\"}";
    assert_eq!(service.metric(refused), 100 - count as u64);
    // A call that comes alone has the same bound.
    let mut long = check("user", 1);
    long.descriptors = vec![long.descriptors[0].clone(); 20];
    let status = client.check(long).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert!(status.message().contains("--answer-size-max"), "{status}");
    // Nor is there space to say of each of so many that it fails.
    let status = client.batch(checks(257)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert!(status.message().contains("--answer-size-max"), "{status}");
    assert_eq!(left(&service, "user").await, 1_000 - count as u64);
    // Other failures do not exceed it either.
    let unknown = Call {
        call: Some(Sent::Commit(commit("user", &"r".repeat(256), 1))),
        ..Call::default()
    };
    let calls = vec![unknown; 256];
    let answer = client.batch(BatchRequest { calls }).await.unwrap();
    let answer = answer.into_inner();
    let codes = answer.answers.iter().map(|one| match &one.answer {
        Some(Answer::Failure(failure)) => failure.code,
        _ => panic!("a failure"),
    });
    let codes: BTreeSet<_> = codes.collect();
    assert_eq!(codes, [5, 8].into());
    assert!(answer.encoded_len() <= 64 * 1024);
}

#[tokio::test]
async fn a_call_takes_memory_for_the_limits_that_its_rules_have() {
    for (rules, bytes) in [
        (super::RULES.to_owned(), 512 * 256..512 * 512),
        (rules(), 16 * 512 * 256..16 * 512 * 512),
    ] {
        let service = Service::start(&rules, &["--answer-size-max", "16MiB"]).await;
        let message = long_call(512);
        let body = Full::new(raw::frame(&message.encode_to_vec()).into());
        let mut routes = service.routes.clone();
        let mut answered = pin!(routes.call(request().map(|()| Body::new(body))));
        // It gives way before it is planned.
        let mut cx = Context::from_waker(Waker::noop());
        assert!(answered.as_mut().poll(&mut cx).is_pending());
        let unsent = service.metric("tollgate_unsent_answers_bytes");
        assert!(bytes.contains(&unsent), "{unsent}");
    }
}

#[tokio::test]
async fn a_probe_of_health_is_answered_where_its_connection_may_hold_no_more() {
    let bounds = flags("--answer-size-max 32KiB --answer-memory-max 64KiB --body-wait 0");
    let service = Service::start(&rules(), &bounds).await;
    let window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let held = async |bytes: u64| {
        let held = async || {
            let unsent = service.metric("tollgate_unsent_answers_bytes");
            let is_held = (bytes..bytes + 8_000).contains(&unsent);
            is_held.then_some(()).ok_or(unsent)
        };
        until_async("answers hold memory", held).await;
    };
    let mut client = Hostile::connect(&service).await;
    client.write(&[window.clone(), batch(1, 22)].concat()).await;
    held(21_000).await;
    let mut others = Vec::new();
    for number in 1..=25 {
        let mut other = Hostile::connect(&service).await;
        other.write(&[window.clone(), batch(1, 1)].concat()).await;
        others.push(other);
        held(21_000 + number * 950).await;
    }
    // Less is free than the connection holds.
    let headers = frame(
        HEADERS,
        END_HEADERS,
        3,
        &block("/grpc.health.v1.Health/Check"),
    );
    let probe = frame(DATA, 1, 3, &raw::frame(&[]));
    let opened = frame(WINDOW_UPDATE, 0, 3, &1_000_u32.to_be_bytes());
    client.write(&[headers, probe, opened].concat()).await;
    let answer = loop {
        let (kind, _, payload) = client.frame().await.expect("an open connection");
        if [DATA, RST_STREAM].contains(&kind) {
            break payload;
        }
    };
    let serving = raw::frame(&[8, 1]);
    assert_eq!(answer, serving);
}

#[tokio::test]
async fn a_stream_that_is_not_read_does_not_stop_the_calls_of_its_connection() {
    let bounds = flags("--answer-size-max 32KiB --answer-memory-max 64KiB --body-wait 0");
    let service = Service::start(&rules(), &bounds).await;
    let mut client = Hostile::connect(&service).await;
    let window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client.write(&[window, batch(1, 22)].concat()).await;
    let held = async || {
        let unsent = service.metric("tollgate_unsent_answers_bytes");
        (21_000..26_000)
            .contains(&unsent)
            .then_some(())
            .ok_or(unsent)
    };
    until_async("a batch holds memory", held).await;
    // The answer to the first call has memory and is sent; the second call waits.
    let headers = frame(HEADERS, END_HEADERS, 3, &block(STREAM));
    let [first, second] = [1, 3].map(|descriptors| {
        let call = long_call(descriptors).calls.remove(0);
        frame(DATA, 0, 3, &raw::frame(&call.encode_to_vec()))
    });
    client.write(&[headers, first, second].concat()).await;
    let waited = async |count: u64| {
        let waits = async || {
            let waited = service.metric("tollgate_answers_waited_total");
            (waited == count).then_some(()).ok_or(waited)
        };
        until_async("a call waits", waits).await;
    };
    waited(1).await;
    // So does the next call of the connection, behind it.
    client.write(&batch(5, 1)).await;
    waited(2).await;
    assert_eq!(left(&service, "user").await, 1_000 - 23);
    // The batch is read, and the stream is not.
    let opened = 0x2000_0000_u32.to_be_bytes();
    client.write(&frame(WINDOW_UPDATE, 0, 1, &opened)).await;
    let carried_out = async || {
        let left = left(&service, "user").await;
        (left == 1_000 - 27).then_some(()).ok_or(left)
    };
    until_async("both are carried out", carried_out).await;
}

#[tokio::test]
async fn batches_wait_for_the_reader_and_stay_within_the_bound() {
    const BATCHES: u32 = 20;
    let bounds = flags("--answer-size-max 256KiB --answer-memory-max 800KiB --body-wait 0");
    let service = Service::start(&rules(), &bounds).await;
    let mut slow = Hostile::connect(&service).await;
    // Streams begin with an empty window.
    slow.write(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]))
        .await;
    let streams = || (0..BATCHES).map(|number| number * 2 + 1);
    for stream in streams() {
        slow.write(&batch(stream, 100)).await;
    }
    // Two answers and the most that a third can need are more than half of the memory, which is
    // all that one connection may have.
    let waiting = async || {
        let waited = service.metric("tollgate_answers_waited_total");
        let unsent = service.metric("tollgate_unsent_answers_bytes");
        let all_wait = waited == u64::from(BATCHES) - 1;
        let is_bounded = (150_000..240_000).contains(&unsent);
        (all_wait && is_bounded)
            .then_some(())
            .ok_or((waited, unsent))
    };
    until_async("the other batches wait", waiting).await;
    assert_eq!(left(&service, "user").await, 800, "two were carried out");
    // The client reads: every batch is carried out, and no answer is lost.
    let window = 0x2000_0000_u32.to_be_bytes();
    slow.write(&frame(WINDOW_UPDATE, 0, 0, &window)).await;
    let (mut bytes, mut ended) = (0, 0);
    for stream in streams() {
        slow.write(&frame(WINDOW_UPDATE, 0, stream, &window)).await;
    }
    while ended < BATCHES {
        let (kind, of, payload) = slow.frame().await.expect("an open connection");
        assert_ne!(kind, RST_STREAM);
        bytes += if kind == DATA { payload.len() } else { 0 };
        ended += u32::from(kind == HEADERS && of & 1 == 1);
    }
    assert!(bytes > 20 * 90_000, "{bytes}");
    assert_eq!(service.metric("tollgate_unsent_answers_bytes"), 0);
    for bound in ["call", "connection", "process"] {
        let refused = format!("tollgate_answers_refused_total{{bound=\"{bound}\"}}");
        assert_eq!(service.metric(&refused), 0, "{bound}");
    }
    slow.0.shutdown().await.unwrap();
}

/// The frames of a batch of so many checks.
fn batch(stream: u32, count: u64) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &block(BATCH));
    let message = raw::frame(&checks(count).encode_to_vec());
    [head, frame(DATA, 1, stream, &message)].concat()
}

/// A batch of one check with so many descriptors.
fn long_call(descriptors: usize) -> BatchRequest {
    let mut message = checks(1);
    let Some(Sent::Check(check)) = &mut message.calls[0].call else {
        panic!("a check");
    };
    check.descriptors = vec![check.descriptors[0].clone(); descriptors];
    message
}

/// A header block of a call of this method.
fn block(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", path), ("content-type", "application/grpc")] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

#[tokio::test]
async fn a_long_call_gives_way_between_its_steps() {
    let service = Service::start(&rules(), &["--partitions", "1"]).await;
    let (answers, polls) = polled(&service, &long_call(512)).await;
    assert_eq!(carried_out(&answers), 1);
    // Between its steps, and after each 256 of the limits that it writes.
    assert!(polls > 3 + 512 * 16 / 256, "{polls}");
    let (_, polls) = polled(&service, &long_call(16)).await;
    assert!(polls < 10, "{polls}");
}

/// The answers to a batch, and how often it was polled.
async fn polled(service: &Service, message: &BatchRequest) -> (Vec<Tagged>, usize) {
    let body = Full::new(raw::frame(&message.encode_to_vec()).into());
    let request = request().map(|()| Body::new(body));
    let mut routes = service.routes.clone();
    let mut answered = pin!(routes.call(request));
    let mut polls = 0;
    let response = std::future::poll_fn(|cx| {
        polls += 1;
        answered.as_mut().poll(cx)
    });
    let body = response.await.unwrap().into_body().collect().await.unwrap();
    let answers = BatchResponse::decode(&body.to_bytes()[5..])
        .unwrap()
        .answers;
    (answers, polls)
}
