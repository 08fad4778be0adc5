//! Memory of answers: bounds on one answer and on those that clients have not read, counted in
//! bytes; and the polls of a batch, between which other tasks run.

use std::pin::pin;

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

use super::{check, client, left};
use crate::service::flags;
use crate::service::grpc::hostile::{DATA, END_HEADERS, HEADERS, Hostile, RST_STREAM, SETTINGS};
use crate::service::grpc::hostile::{WINDOW_UPDATE, frame};
use crate::service::grpc::raw;

const BATCH: &str = "/tollgate.v1.RateLimits/Batch";

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

/// How many answers are of calls that were carried out. They come first.
fn carried_out(answers: &[Tagged]) -> usize {
    let is_failure = |one: &Tagged| matches!(one.answer, Some(Answer::Failure(_)));
    let failed = answers.iter().position(is_failure);
    let count = failed.unwrap_or(answers.len());
    assert!(answers[count..].iter().all(is_failure));
    count
}

#[tokio::test]
async fn calls_whose_answers_do_not_fit_fail_and_take_nothing() {
    let service = Service::start(&rules(), &["--answer-size-max", "64KiB"]).await;
    let mut client = client(&service).await;
    let answer = client.batch(checks(100)).await.unwrap().into_inner();
    assert_eq!(answer.answers.len(), 100);
    let count = carried_out(&answer.answers);
    // The first ones are bounded by their true size, the next one by the most that it could have.
    let bytes: usize = answer.answers[..count]
        .iter()
        .map(prost::Message::encoded_len)
        .sum();
    assert!((1..64 * 1024).contains(&bytes), "{bytes}");
    assert!(bytes > 64 * 1024 - 6 * 1024, "{bytes}");
    let Some(Answer::Failure(failure)) = &answer.answers[count].answer else {
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
    assert_eq!(left(&service, "user").await, 1_000 - count as u64);
}

#[tokio::test]
async fn batches_wait_for_the_reader_and_stay_within_the_bound() {
    const BATCHES: u32 = 20;
    let bounds = flags("--answer-size-max 256KiB --answer-memory-max 512KiB --body-wait 0");
    let service = Service::start(&rules(), &bounds).await;
    let mut slow = Hostile::connect(&service).await;
    // Streams begin with an empty window.
    slow.write(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]))
        .await;
    let message = raw::frame(&checks(100).encode_to_vec());
    let streams = || (0..BATCHES).map(|number| number * 2 + 1);
    for stream in streams() {
        let head = frame(HEADERS, END_HEADERS, stream, &block(BATCH));
        slow.write(&[head, frame(DATA, 1, stream, &message)].concat())
            .await;
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
async fn a_batch_gives_way_after_each_call() {
    let service = Service::start(&rules(), &[]).await;
    // No limit applies, so no call waits for the store.
    let mut message = checks(100);
    for call in &mut message.calls {
        let Some(Sent::Check(check)) = &mut call.call else {
            panic!("a check");
        };
        check.descriptors[0].entries[0].key = "none".to_owned();
    }
    let (answers, polls) = polled(&service, &message).await;
    assert_eq!(carried_out(&answers), 100);
    assert!(polls > 100, "{polls}");
}

#[tokio::test]
async fn a_long_call_gives_way_between_its_steps() {
    let service = Service::start(&rules(), &["--partitions", "1"]).await;
    let polls_of = async |descriptors: usize| {
        let mut message = checks(1);
        let Some(Sent::Check(check)) = &mut message.calls[0].call else {
            panic!("a check");
        };
        check.descriptors = vec![check.descriptors[0].clone(); descriptors];
        polled(&service, &message).await.1
    };
    // 256 checks, and 272. The store may take a poll or none.
    let (short, long) = (polls_of(16).await, polls_of(17).await);
    assert!(long >= short + 2, "{short}, {long}");
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
