//! Many calls on one stream: every answer by its tag, bounds, ends.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::proto::tollgate::v1::Call;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate_test_support::in_process::Service;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use super::{RULES, SECOND, check, client, left, reserve};
use crate::service::until_metric;

fn call(tag: u64, call: Sent) -> Call {
    Call {
        tag,
        call: Some(call),
    }
}

#[tokio::test]
async fn ten_thousand_calls_have_an_answer_each_and_bad_ones_fail_alone() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let calls = (0..10_000_u64).map(|tag| match tag % 10 {
        0 => Call { tag, call: None },
        _ => call(tag, Sent::Check(check("user", 1))),
    });
    let answers = client.stream(tokio_stream::iter(calls)).await.unwrap();
    let mut answers = answers.into_inner();
    let (mut tags, mut passed) = (BTreeSet::new(), 0);
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        assert!(tags.insert(answer.tag), "{} twice", answer.tag);
        match answer.answer.unwrap() {
            Answer::Failure(failure) => assert_eq!((failure.code, answer.tag % 10), (3, 0)),
            Answer::Check(check) => passed += u64::from(check.verdict == 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tags.len(), 10_000);
    assert_eq!(passed, 1_000);
    assert_eq!(service.metric("tollgate_streaming_calls"), 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_send_without_end() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let (sender, calls) = mpsc::channel(1);
    let answers = client.stream(ReceiverStream::new(calls)).await.unwrap();
    // Calls of 4 KB and answers of more than 1 KB: the client's window of 2 MiB holds a part of the
    // answers.
    let mut long = check("user", 0);
    long.descriptors[0].entries[0].value = "x".repeat(200);
    long.descriptors = vec![long.descriptors[0].clone(); 20];
    let sent = call(1, Sent::Check(long));
    let mut count = 0_u64;
    while count < 10_000 {
        let sending = sender.send(sent.clone());
        // A full window never opens. If the machine stalls for this long, fewer calls are sent and
        // all of what follows holds as well.
        if tokio::time::timeout(Duration::from_secs(2), sending)
            .await
            .is_err()
        {
            break;
        }
        count += 1;
    }
    assert!(count < 10_000, "all calls were taken");
    drop(sender);
    // Every call that was sent has its answer as soon as the client reads.
    let received = answers.into_inner().fold(0, |sum, answer| {
        assert_eq!(answer.unwrap().tag, 1);
        sum + 1
    });
    assert_eq!(received.await, count);
}

#[tokio::test]
async fn a_stream_that_is_cancelled_leaves_its_reservations_to_their_expiry() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let (sender, calls) = mpsc::channel(1);
    let answers = client.stream(ReceiverStream::new(calls)).await.unwrap();
    let mut answers = answers.into_inner();
    let mut sent = reserve("user", "r", 600);
    sent.on_expiry = 2;
    sender.send(call(1, Sent::Reserve(sent))).await.unwrap();
    let answer = answers.next().await.unwrap().unwrap();
    assert!(matches!(answer.answer, Some(Answer::Reserve(_))));
    drop((answers, sender));
    until_metric(&service, "tollgate_streaming_calls", 0).await;
    assert_eq!(left(&service, "user").await, 400);
    service.clock.advance_us(61 * SECOND);
    assert_eq!(left(&service, "user").await, 1_000);
}

#[tokio::test]
async fn a_stream_ends_with_its_deadline() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let (_sender, calls) = mpsc::channel(1);
    let mut late = Request::new(ReceiverStream::new(calls));
    late.metadata_mut()
        .insert("grpc-timeout", "5S".parse().unwrap());
    let mut answers = client.stream(late).await.unwrap().into_inner();
    let status = answers.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "DEADLINE_EXCEEDED");
}
