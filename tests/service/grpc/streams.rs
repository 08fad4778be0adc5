//! Many calls at once on one connection: late bodies, resets, bursts, and callers that exceed
//! limits.
//!
//! What it deliberately does not do: test the answers to broken calls (`cases`), end connections
//! (`endings`).

use h2::Reason;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_test_support::grpc_client::{RateLimitServiceClient, channel, hits, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::metrics_text::series_sum;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::raw::{Open, Raw, call, frame, question};
use super::{left, one, service};

/// More calls than a connection keeps in its own buffers.
const CROWD: usize = 100;

/// Calls with these bodies, of each of which `sent` bytes were sent.
async fn half_sent(raw: &mut Raw, bodies: &[Vec<u8>], sent: usize) -> Vec<Open> {
    let mut open = Vec::new();
    for body in bodies {
        let mut call = raw.open(call().body(()).unwrap()).await;
        if sent > 0 {
            call.more(&body[..sent]);
        }
        open.push(call);
    }
    open
}

#[tokio::test]
async fn a_late_body_delays_no_other_call() {
    let service = service(&[]).await;
    // From few enough to wait in the connection's buffers to more; the middle bodies end last.
    for (count, sent) in [(3, 0), (5, 7), (CROWD, 0), (CROWD, 7)] {
        let mut raw = Raw::connect(service.grpc).await;
        let key = |number: usize| format!("{count} {sent} {number}");
        let bodies: Vec<_> = (0..count)
            .map(|number| question(&one(&key(number), number as u64)))
            .collect();
        let mut open: Vec<Option<Open>> = half_sent(&mut raw, &bodies, sent)
            .await
            .into_iter()
            .map(Some)
            .collect();
        assert_eq!(raw.ask(&one("meanwhile", 0)).await.left(), 1_000_000);
        let (front, back) = (0..count).partition::<Vec<_>, _>(|number| number % 2 == 0);
        for number in front.into_iter().chain(back.into_iter().rev()) {
            let seen = open[number]
                .take()
                .unwrap()
                .end(&bodies[number][sent..])
                .await;
            assert_eq!(seen.left() as usize, 1_000_000 - number);
            assert_eq!(raw.ask(&one("meanwhile", 0)).await.left(), 1_000_000);
        }
    }
}

#[tokio::test]
async fn half_sent_messages_that_fill_the_connection_window_are_read() {
    let service = service(&[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    // One full DATA frame for each: more than the connection's window in total.
    let bodies: Vec<_> = (0..CROWD)
        .map(|number| question(&one(&format!("{number:020000}"), 1)))
        .collect();
    let open = half_sent(&mut raw, &bodies, 16_384).await;
    let mut answers = JoinSet::new();
    for (call, body) in open.into_iter().zip(bodies) {
        answers.spawn(async move { call.end(&body[16_384..]).await });
    }
    for seen in answers.join_all().await {
        assert_eq!(seen.left(), 999_999);
    }
}

#[tokio::test]
async fn a_call_cancelled_before_its_body_takes_nothing() {
    let mut service = service(&[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let body = question(&one("x", 1));
    for sent in [0, 1, 5, body.len() - 1] {
        for call in half_sent(&mut raw, &vec![body.clone(); CROWD], sent).await {
            call.reset();
        }
    }
    assert_eq!(raw.ask(&one("other", 0)).await.left(), 1_000_000);
    assert_eq!(left(&mut service, "x").await, 1_000_000);
}

#[tokio::test]
async fn a_call_cancelled_after_its_body_disturbs_no_other() {
    let mut service = service(&[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    for round in 0..20 {
        let mut gone = Vec::new();
        for _ in 0..50 {
            let mut call = raw.open(call().body(()).unwrap()).await;
            let body = question(&one("gone", 1)).into();
            call.body.send_data(body, true).unwrap();
            gone.push(call);
        }
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        for call in gone {
            call.reset();
        }
        let seen = raw.ask(&one("stayed", 1)).await;
        assert_eq!(seen.left(), 999_999 - round);
    }
    // Each was decided at most once.
    assert!(left(&mut service, "gone").await >= 1_000_000 - 20 * 50);
    assert_eq!(waiting(&service), 0);
}

/// Number of checks that wait in all mailboxes.
fn waiting(service: &Service) -> u64 {
    series_sum(
        &service.metrics.render().unwrap(),
        "tollgate_mailbox_checks{",
    )
}

#[tokio::test]
async fn a_thousand_calls_at_once_each_get_their_own_answer() {
    let service = service(&[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let mut answers = JoinSet::new();
    for number in 0..1_000_u32 {
        let call = raw.open(call().body(()).unwrap()).await;
        answers.spawn(async move {
            let message = one(&format!("key {number}"), u64::from(number));
            (number, call.end(&question(&message)).await)
        });
    }
    for (number, seen) in answers.join_all().await {
        assert_eq!(seen.left(), 1_000_000 - number);
    }
}

#[tokio::test]
async fn streams_beyond_the_bound_are_refused_and_the_others_answered() {
    let service = service(&["--streams-max", "10"]).await;
    let stream = tokio::net::TcpStream::connect(service.grpc).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let builder = builder.initial_max_send_streams(50);
    let (mut send, connection) = builder.handshake(stream).await.unwrap();
    // Nothing is read yet, so the client does not know the bound.
    let mut open = Vec::new();
    for _ in 0..50 {
        send = send.ready().await.unwrap();
        let (answer, body) = send.send_request(call().body(()).unwrap(), false).unwrap();
        open.push(Open::of(body, answer));
    }
    let connection = tokio::spawn(connection);
    let mut answers = JoinSet::new();
    for (number, mut call) in open.into_iter().enumerate() {
        answers.spawn(async move {
            let refused = call.refused().await;
            (number, refused, call)
        });
    }
    let mut kept = Vec::new();
    let mut refused = 0;
    while refused < 40 {
        let (_, reason, call) = answers.join_next().await.unwrap().unwrap();
        assert_eq!(reason, Reason::REFUSED_STREAM);
        refused += 1;
        drop(call);
    }
    // The remaining calls wait for a body and are not refused.
    answers.abort_all();
    while answers.join_next().await.is_some() {}
    let mut raw = Raw { send, connection };
    for number in 0..10 {
        kept.push(raw.ask(&one("x", 1)).await.left());
        assert_eq!(kept[number] as usize, 999_999 - number);
    }
}

#[tokio::test]
async fn health_and_reflection_answer_between_checks_on_the_same_connection() {
    let mut service = service(&[]).await;
    let channel = channel(service.grpc).await;
    let mut checks = RateLimitServiceClient::new(channel.clone());
    let mut health = HealthClient::new(channel.clone());
    let mut reflection = ServerReflectionClient::new(channel);
    let asked = || HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    // Two streams that stay open: one reports changes, one waits for requests.
    let mut watching = health.watch(asked()).await.unwrap().into_inner();
    let first = watching.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    let (questions, asking) = tokio::sync::mpsc::channel(1);
    let stream = ReceiverStream::new(asking);
    let mut reflecting = reflection
        .server_reflection_info(stream)
        .await
        .unwrap()
        .into_inner();
    for round in 1..=20_u32 {
        let asked_check = request("d", vec![hits("many", "between", 1)]);
        let answer = checks
            .should_rate_limit(asked_check)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.statuses[0].limit_remaining, 1_000_000 - round);
        let status = health.check(asked()).await.unwrap().into_inner();
        assert_eq!(status.status(), ServingStatus::Serving);
        let services = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        questions.send(services).await.unwrap();
        let listed = reflecting.message().await.unwrap().unwrap();
        assert!(listed.message_response.is_some());
    }
    assert_eq!(
        service.metric("tollgate_connections_accepted_total{port=\"grpc\"}"),
        2
    );
    // A file of descriptors is longer than a DATA frame.
    let file = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "envoy.service.ratelimit.v3.RateLimitService".to_owned(),
        )),
    };
    questions.send(file).await.unwrap();
    assert!(reflecting.message().await.unwrap().is_some());
    assert_eq!(left(&mut service, "between").await, 1_000_000 - 20);
    let stopping = tokio::spawn(service.stop());
    let last = watching.message().await.unwrap().unwrap();
    assert_eq!(last.status(), ServingStatus::NotServing);
    drop((watching, questions, reflecting, checks, health, reflection));
    stopping.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_busy_connection_does_not_delay_the_others() {
    let service = service(&["--cores", "1"]).await;
    let mut busy = Raw::connect(service.grpc).await;
    let mut other = Raw::connect(service.grpc).await;
    assert_eq!(other.ask(&one("other", 0)).await.left(), 1_000_000);
    let body = question(&one("busy", 1));
    let mut answers = JoinSet::new();
    for _ in 0..1_500 {
        let call = busy.open(call().body(()).unwrap()).await;
        let body = body.clone();
        answers.spawn(async move { call.end(&body).await });
    }
    assert_eq!(other.ask(&one("other", 1)).await.left(), 999_999);
    assert_eq!(answers.join_all().await.len(), 1_500);
}

#[tokio::test]
async fn a_response_before_the_end_of_the_body_ends_the_call() {
    let service = service(&["--message-size-max", "2000"]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let mut call = raw.open(call().body(()).unwrap()).await;
    // Its gRPC frame header declares the length.
    call.more(&[&[0], &100_000_u32.to_be_bytes()[..], b"x"].concat());
    call.more(b"more");
    let seen = call.seen().await;
    assert_eq!(seen.grpc_status(), Some("0"));
    assert_eq!(raw.ask(&one("x", 1)).await.left(), 999_999);
    let mut no_message = raw.open(super::raw::call().body(()).unwrap()).await;
    no_message.more(&frame(b"\xff\xff")[..6]);
    assert_eq!(no_message.end(b"\xff").await.grpc_status(), Some("13"));
}
