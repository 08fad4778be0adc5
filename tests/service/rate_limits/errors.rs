//! Bad calls: the status, its details as a client decodes them, and that nothing was taken.

use std::time::Duration;

use prost::Message as _;
use serde_json::{Value, json};
use tollgate::proto::kuadrant::service::ratelimit::v1 as kuadrant;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::{
    BatchRequest, Call, CheckRequest, CommitRequest, ExtendRequest, ReleaseRequest, ReserveRequest,
    call as tagged,
};
use tollgate_test_support::grpc_client::descriptor as envoy_descriptor;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::redis_server::RedisServer;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::{RULES, check, client, commit, descriptor, left, reserve};
use crate::service::api::{body, post};
use crate::service::grpc::raw::{Raw, frame};

/// Code, reason and field of an error. Its domain is `tollgate`.
fn error<T>(answered: Result<T, Status>) -> (Code, String, String) {
    let status = answered.err().expect("an error");
    let details = status.get_error_details();
    let info = details.error_info();
    let info = info.unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "tollgate");
    let field = details.bad_request().map(|bad| {
        assert_eq!(bad.field_violations.len(), 1);
        let violation = &bad.field_violations[0];
        assert!(
            status.message().ends_with(&violation.description),
            "{status}"
        );
        violation.field.clone()
    });
    (
        status.code(),
        info.reason.clone(),
        field.unwrap_or_default(),
    )
}

fn field(name: &str) -> (Code, String, String) {
    (
        Code::InvalidArgument,
        "INVALID_FIELD".to_owned(),
        name.to_owned(),
    )
}

fn expires(seconds: i64, nanos: i32) -> ReserveRequest {
    ReserveRequest {
        expires: Some(prost_types::Duration { seconds, nanos }),
        ..reserve("user", "r", 1)
    }
}

#[tokio::test]
async fn a_field_that_is_invalid_is_named() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let no_domain = CheckRequest {
        domain: String::new(),
        ..check("user", 1)
    };
    assert_eq!(error(client.check(no_domain).await), field("domain"));
    let mut empty = check("user", 1);
    empty.descriptors.clear();
    assert_eq!(error(client.check(empty).await), field("descriptors"));
    let mut empty = check("user", 1);
    empty.descriptors[0].entries.clear();
    let named = field("descriptors[0].entries");
    assert_eq!(error(client.peek(empty).await), named);
    let named = field("descriptors[0].entries[0].key");
    assert_eq!(error(client.check(check("", 1)).await), named);
    assert_eq!(
        error(client.check(check("user", u64::MAX)).await),
        field("hits")
    );
    let unsaid = ReserveRequest {
        hits: None,
        ..reserve("user", "r", 0)
    };
    assert_eq!(error(client.reserve(unsaid).await), field("hits"));
    let long = "x".repeat(100_000);
    let huge = reserve("user", &long, 1);
    assert_eq!(error(client.reserve(huge).await), field("reservation"));
    assert_eq!(
        error(client.commit(commit("user", &long, 1)).await),
        field("reservation")
    );
    assert_eq!(
        error(client.commit(commit("user", "", 1)).await),
        field("reservation")
    );
    let forever = (315_360_000_000, 0);
    for (seconds, nanos) in [
        (-1, 0),
        (0, -1),
        (0, 0),
        (86_401, 0),
        forever,
        (i64::MIN, 0),
    ] {
        let answered = client.reserve(expires(seconds, nanos)).await;
        assert_eq!(error(answered), field("expires"), "{seconds} {nanos}");
    }
    let unknown = ReserveRequest {
        on_expiry: 9,
        ..reserve("user", "r", 1)
    };
    assert_eq!(error(client.reserve(unknown).await), field("on_expiry"));
    let extend = ExtendRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("user", "ann")],
        reservation: "r".to_owned(),
        expires: None,
    };
    assert_eq!(error(client.extend(extend).await), field("expires"));
    let calls = vec![Call::default(); 1_001];
    assert_eq!(
        error(client.batch(BatchRequest { calls }).await),
        field("calls")
    );
    assert_eq!(left(&service, "user").await, 1_000);
}

/// A call as a message, from its JSON.
fn message(call: &str, body: &Value) -> tagged::Call {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let domain = text("domain");
    let descriptors = body["descriptors"].as_array().into_iter().flatten();
    let descriptors = descriptors.map(|_| {
        let key = body["descriptors"][0]["entries"][0]["key"].as_str();
        descriptor(key.unwrap_or_default(), "ann")
    });
    let descriptors = descriptors.collect();
    let (reservation, hits) = (text("reservation"), body["hits"].as_u64());
    let expires = body["expires"].as_str();
    let expires = expires.map(|text| prost_types::Duration {
        seconds: text.trim_end_matches('s').parse().unwrap(),
        nanos: 0,
    });
    match call {
        "reserve" => tagged::Call::Reserve(ReserveRequest {
            domain,
            descriptors,
            hits,
            reservation,
            expires,
            on_expiry: 0,
        }),
        "extend" => tagged::Call::Extend(ExtendRequest {
            domain,
            descriptors,
            reservation,
            expires,
        }),
        "commit" => tagged::Call::Commit(CommitRequest {
            domain,
            descriptors,
            reservation,
            hits,
        }),
        _ => tagged::Call::Release(ReleaseRequest {
            domain,
            descriptors,
            reservation,
        }),
    }
}

#[tokio::test]
async fn of_two_faults_both_protocols_name_the_same_one() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let no_key = json!([{"entries": [{"key": "", "value": "ann"}]}]);
    let faults = [
        ("domain", json!("")),
        ("descriptors", json!([])),
        ("descriptors", no_key),
        ("hits", json!(1_u64 << 60)),
        ("hits", Value::Null),
        ("reservation", json!("")),
        ("reservation", json!("r".repeat(300))),
        ("expires", Value::Null),
        ("expires", json!("0s")),
        ("expires", json!("-1s")),
        ("expires", json!("86401s")),
    ];
    let mut refused = 0;
    for (call, fields) in [
        ("reserve", &["hits", "reservation", "expires"][..]),
        ("extend", &["reservation", "expires"]),
        ("commit", &["hits", "reservation"]),
        ("release", &["reservation"]),
    ] {
        let has = |name: &str| ["domain", "descriptors"].contains(&name) || fields.contains(&name);
        let own: Vec<_> = faults.iter().filter(|(name, _)| has(name)).collect();
        for (first, second) in own
            .iter()
            .flat_map(|one| own.iter().map(move |two| (one, two)))
        {
            let mut body = body("user", "ann", json!({}));
            for (name, value) in [
                ("hits", json!(1)),
                ("reservation", json!("r")),
                ("expires", json!("60s")),
            ] {
                if has(name) {
                    body[name] = value;
                }
            }
            for (name, value) in [first, second] {
                body[*name] = value.clone();
            }
            let calls = vec![Call {
                tag: 0,
                call: Some(message(call, &body)),
            }];
            let answered = client.batch(BatchRequest { calls }).await.unwrap();
            let by_grpc = match answered.into_inner().answers.remove(0).answer.unwrap() {
                Answer::Failure(failure) => failure.message,
                _ => String::new(),
            };
            let (_, answer) = post(service.http, call, &body).await;
            let by_json = answer["error"]["message"].as_str().unwrap_or_default();
            let field = |message: &str| message.split(' ').next().unwrap().to_owned();
            assert_eq!(
                field(&by_grpc),
                field(by_json),
                "{call} {body}: {by_grpc}; {by_json}"
            );
            refused += usize::from(!by_grpc.is_empty());
        }
    }
    assert!(refused > 150, "{refused}");
}

#[tokio::test]
async fn other_errors_have_their_reason() {
    let service = Service::start(RULES, &["--on-excess", "error"]).await;
    let mut client = client(&service).await;
    let status = client.commit(commit("user", "never", 1)).await.unwrap_err();
    let resource = status.get_details_resource_info().unwrap();
    assert_eq!(resource.resource_type, "tollgate.v1.Reservation");
    assert_eq!(resource.resource_name, "never");
    let named = (
        Code::NotFound,
        "UNKNOWN_RESERVATION".to_owned(),
        String::new(),
    );
    assert_eq!(error(Err::<(), _>(status)), named);
    for key in ["log", "segments", "slots"] {
        let cannot = client.reserve(reserve(key, "r", 1)).await;
        let rule = format!("d.{key}");
        assert!(cannot.as_ref().unwrap_err().message().contains(&rule));
        let named = (
            Code::InvalidArgument,
            "INVALID_CALL".to_owned(),
            String::new(),
        );
        assert_eq!(error(cannot), named, "{key}");
    }
    let many = CheckRequest {
        descriptors: vec![descriptor("user", "ann"); 10_000],
        ..check("user", 1)
    };
    let named = "TOO_MANY_DESCRIPTORS".to_owned();
    let named = (Code::ResourceExhausted, named, String::new());
    assert_eq!(error(client.check(many).await), named);
    assert_eq!(left(&service, "user").await, 1_000);
}

/// The status that these headers and trailers say.
fn status_of<'s>(trailers: impl Iterator<Item = &'s (String, String)>) -> Status {
    let parsed = trailers.map(|(name, value)| {
        let name: http::HeaderName = name.parse().unwrap();
        (name, http::HeaderValue::from_str(value).unwrap())
    });
    Status::from_header_map(&parsed.collect()).expect("a status")
}

#[tokio::test]
async fn a_deadline_that_has_passed_takes_nothing() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    // A stock client does not wait for an answer beyond its deadline, so this one is by hand.
    let mut raw = Raw::connect(service.grpc).await;
    for (method, message) in [
        ("Check", check("user", 1).encode_to_vec()),
        ("Reserve", reserve("user", "late", 1).encode_to_vec()),
    ] {
        let late = http::Request::post(format!("http://test/tollgate.v1.RateLimits/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "0n");
        let seen = raw.make(late.body(()).unwrap(), &[frame(&message)]).await;
        let trailers = seen.headers.iter().chain(&seen.trailers);
        let status = status_of(trailers);
        let named = (
            Code::DeadlineExceeded,
            "DEADLINE_EXCEEDED".to_owned(),
            String::new(),
        );
        assert_eq!(error(Err::<(), _>(status)), named, "{method}");
    }
    let unknown = client.commit(commit("user", "late", 1)).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    assert_eq!(left(&service, "user").await, 1_000);
    let mut early = Request::new(check("user", 1));
    early.set_timeout(Duration::from_secs(60));
    client.check(early).await.unwrap();
    assert_eq!(left(&service, "user").await, 999);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_unavailable_and_says_when_to_retry() {
    let store = format!("redis://127.0.0.1:{}", reserved_port());
    let settings = ["--store", store.as_str()];
    let service = Service::start(RULES, &settings).await;
    let mut client = client(&service).await;
    let status = client.reserve(reserve("user", "r", 1)).await.unwrap_err();
    let retry = status.get_details_retry_info().expect("RetryInfo");
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(1)));
    let named = (
        Code::Unavailable,
        "STORE_UNAVAILABLE".to_owned(),
        String::new(),
    );
    assert_eq!(error(Err::<(), _>(status)), named);
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_store_ends_the_call_and_withdraws_the_reservation() {
    let redis = RedisServer::start(&[]);
    let settings = ["--store", &redis.url(), "--store-deadline-ms", "20000"];
    // Redis has a clock of its own.
    let rules = RULES.replace("unit: hour", "unit: year");
    let service = Service::start(&rules, &settings).await;
    let mut client = client(&service).await;
    let reserved = async || {
        // When a failed probe is sent again is a matter of this clock.
        service.clock.advance_us(10_000);
        client.reserve(reserve("user", "first", 1)).await
    };
    until_async("the store answers", reserved).await;
    let mut raw = Raw::connect(service.grpc).await;
    redis.signal("STOP");
    for (path, message) in [
        (
            "tollgate.v1.RateLimits/Reserve",
            reserve("user", "late", 600).encode_to_vec(),
        ),
        (
            "kuadrant.service.ratelimit.v1.RateLimitService/Reserve",
            kuadrant::ReserveRequest {
                domain: "d".into(),
                descriptors: vec![envoy_descriptor(&[("user", "ann")])],
                amount: 300,
                ttl: None,
            }
            .encode_to_vec(),
        ),
    ] {
        let call = http::Request::post(format!("http://test/{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "100m");
        let seen = raw.make(call.body(()).unwrap(), &[frame(&message)]).await;
        let status = status_of(seen.headers.iter().chain(&seen.trailers));
        let named = "DEADLINE_EXCEEDED".to_owned();
        let named = (Code::DeadlineExceeded, named, String::new());
        assert_eq!(error(Err::<(), _>(status)), named, "{path}");
    }
    redis.signal("CONT");
    // Redis carries both out, and then what gives them back.
    let given_back = async || {
        let left = left(&service, "user").await;
        (left == 999).then_some(()).ok_or(left)
    };
    until_async("both are withdrawn", given_back).await;
    let unknown = client.commit(commit("user", "late", 1)).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    assert_eq!(left(&service, "user").await, 999);
}
