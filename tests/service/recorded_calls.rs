//! Recordings of reservations: calls of the API, starts and ends, and what a replay makes of them.
//!
//! What it deliberately does not do: test recordings as such (`recording`), or the report
//! (`crates/tools/src/replay/tests.rs`).

use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate::proto::kuadrant::service::ratelimit::v1 as kuadrant;
use tollgate::proto::kuadrant::service::ratelimit::v1::rate_limit_service_client::RateLimitServiceClient as KuadrantClient;
use tollgate::proto::tollgate::recording::v1::ApiCall;
use tollgate::proto::tollgate::recording::v1::api_call::{OnExpiry, Operation};
use tollgate::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate::proto::tollgate::v1 as proto;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::recording::{Events as _, Reader};
use tollgate::replay::report::ReplayReport;
use tollgate::replay::{Options, Side, replay};
use tollgate::settings::Settings;
use tollgate_test_support::grpc_client::{Code, Descriptor, channel, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::seeded_rng::SeededRng;

use crate::service::api::post;
use crate::service::recording::{Stream, items, rules_of};

const RULES: &str = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000, reserve: {key: id, amount: 100, expires: 30s}}
  - key: team
    rate_limits:
      - {unit: minute, requests_per_unit: 700, algorithm: token_bucket, cost: 1.5, reserve: {key: id, amount: p95, floor: 50, ceiling: 400, expires: 20s, on_expiry: release}}
      - {unit: hour, requests_per_unit: 3000, algorithm: sliding_window, reserve: {key: id, amount: 80}}
";

fn side(text: &str) -> Side {
    Side {
        path: PathBuf::from("rules.yaml"),
        rules: rules_of(text),
    }
}

/// Replays what a service sent.
fn replayed(bytes: &[u8], rules: &str, against: Option<&str>) -> ReplayReport {
    let file = zstd::encode_all(bytes, 3).unwrap();
    let mut reader = Reader::new(&*file).unwrap();
    let options = Options {
        file: PathBuf::from("a.tgrec"),
        config: (&Settings::from_flags(&reader.header().settings).unwrap()).into(),
        memory_max: 1 << 26,
        rows_max: 5,
    };
    let against = against.map(side);
    replay(&mut reader, side(rules), against, &options, &mut |_| {}).unwrap()
}

/// The calls of a recording, in the order of their checks.
fn calls(bytes: &[u8]) -> Vec<ApiCall> {
    let mut calls: Vec<_> = items(bytes)
        .into_iter()
        .filter_map(|item| match item {
            Kind::Call(one) => Some((one.order, one.call.unwrap())),
            _ => None,
        })
        .collect();
    calls.sort_by_key(|(order, _)| *order);
    calls.into_iter().map(|(_, call)| call).collect()
}

async fn call(service: &Service, path: &str, mut body: Value, entries: &[(&str, &str)]) -> u16 {
    let entries = entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}));
    body["domain"] = json!("d");
    body["descriptors"] = json!([{"entries": entries.collect::<Vec<_>>()}]);
    post(service.http, path, &body).await.0
}

/// Starts (0) or ends a stream of two limits. Whether it passes.
async fn stream(service: &mut Service, id: &str, hits: u64) -> bool {
    stream_of(service, &["user", "team"], id, hits).await
}

/// The same of these limits.
async fn stream_of(service: &mut Service, keys: &[&str], id: &str, hits: u64) -> bool {
    let of = |key: &&str| Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(*key, "v"), ("id", id)])
    };
    let sent = request("d", keys.iter().map(of).collect());
    service.ask(sent).await.overall_code() == Code::Ok
}

#[tokio::test]
async fn calls_are_recorded_with_their_operation() {
    let service = Service::start(RULES, &[]).await;
    let recording = Stream::open(service.admin, "").await;
    let user = [("user", "v")];
    for (path, more, status) in [
        (
            "reserve",
            json!({"hits": 800, "reservation": "a", "expires": "45s", "on_expiry": "release"}),
            200,
        ),
        ("extend", json!({"reservation": "a", "expires": "9s"}), 200),
        ("peek", json!({"hits": 300}), 200),
        ("reserve", json!({"reservation": "b"}), 200),
        ("check", json!({"hits": 300}), 429),
        ("commit", json!({"reservation": "a", "hits": 20}), 200),
        ("release", json!({"reservation": "b"}), 200),
        ("release", json!({"reservation": "never"}), 404),
    ] {
        let more_text = more.to_string();
        assert_eq!(
            call(&service, path, more, &user).await,
            status,
            "{path} {more_text}"
        );
    }
    service.stop().await.unwrap();
    let bytes = recording.rest().await;
    let calls = calls(&bytes);
    let operations: Vec<_> = calls
        .iter()
        .map(|call| call.operation().as_str_name())
        .collect();
    let expected = "RESERVE EXTEND PEEK RESERVE CHECK COMMIT RELEASE RELEASE";
    assert_eq!(operations.join(" "), expected);
    let ids: Vec<_> = calls.iter().map(|call| &*call.reservation).collect();
    let expected: [&[u8]; 8] = [b"a", b"a", b"", b"b", b"", b"a", b"b", b"never"];
    assert_eq!(ids, expected);
    let first = &calls[0];
    assert_eq!(
        (first.expires_ms, first.on_expiry(), first.uses_rule_amount),
        (45_000, OnExpiry::Released, false)
    );
    assert_eq!(
        (calls[1].expires_ms, &*calls[2].peeked_hits),
        (9_000, &[300][..])
    );
    assert!(calls[3].uses_rule_amount);
    let report = replayed(&bytes, RULES, None);
    let recorded = report.recorded.unwrap();
    assert_eq!(
        (recorded.same, recorded.different),
        (8, 0),
        "{:?}",
        recorded.first_differences
    );
}

#[tokio::test]
async fn ids_in_a_hashed_recording_are_hashes_and_still_meet_their_starts() {
    let mut service = Service::start(RULES, &["--recordings", "hashed"]).await;
    let recording = Stream::open(service.admin, "").await;
    assert!(stream(&mut service, "secret-id", 0).await);
    let commit = json!({"reservation": "secret-id", "hits": 0});
    assert_eq!(
        call(&service, "commit", commit, &[("user", "v")]).await,
        200
    );
    // All of it went back.
    let all = json!({"hits": 1000});
    assert_eq!(call(&service, "check", all, &[("user", "v")]).await, 200);
    let shown = service.decisions.values().hashed(b"secret-id");
    service.stop().await.unwrap();
    let bytes = recording.rest().await;
    assert!(!bytes.windows(9).any(|nine| nine == b"secret-id"));
    assert_eq!(calls(&bytes)[0].reservation, shown.as_bytes());
    let recorded = replayed(&bytes, RULES, None).recorded.unwrap();
    assert_eq!(
        (recorded.same, recorded.different),
        (3, 0),
        "{:?}",
        recorded.first_differences
    );
}

/// Calls over gRPC are recorded as those over HTTP are: tollgate's own, and Kuadrant's.
#[tokio::test]
async fn calls_over_grpc_are_recorded_with_their_operation() {
    let service = Service::start(RULES, &[]).await;
    let recording = Stream::open(service.admin, "").await;
    let channel = channel(service.grpc).await;
    let mut own = RateLimitsClient::new(channel.clone());
    let descriptors = vec![proto::Descriptor {
        entries: vec![proto::Entry {
            key: "user".to_owned(),
            value: "v".to_owned(),
        }],
        hits: None,
    }];
    let reserve = proto::ReserveRequest {
        domain: "d".to_owned(),
        descriptors: descriptors.clone(),
        hits: Some(400),
        reservation: "a".to_owned(),
        ..proto::ReserveRequest::default()
    };
    own.reserve(reserve).await.unwrap();
    let commit = proto::CommitRequest {
        domain: "d".to_owned(),
        descriptors,
        reservation: "a".to_owned(),
        hits: Some(30),
    };
    own.commit(commit).await.unwrap();
    let mut theirs = KuadrantClient::new(channel);
    let asked = request("d", vec![descriptor(&[("user", "v")])]);
    theirs.check_rate_limit(asked.clone()).await.unwrap();
    theirs.report(asked).await.unwrap();
    let reserve = kuadrant::ReserveRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[("user", "v")])],
        amount: 50,
        ttl: None,
    };
    let reserved = theirs.reserve(reserve).await.unwrap().into_inner();
    let commit = kuadrant::CommitRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[("user", "v")])],
        reservation_id: reserved.reservation_id.clone(),
        actual_amount: 60,
    };
    theirs.commit(commit).await.unwrap();
    service.stop().await.unwrap();
    let bytes = recording.rest().await;
    let calls = calls(&bytes);
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.operation(), &*call.reservation))
        .collect();
    let id = reserved.reservation_id.as_bytes();
    let expected: [(Operation, &[u8]); 6] = [
        (Operation::Reserve, b"a"),
        (Operation::Commit, b"a"),
        (Operation::Peek, b""),
        (Operation::Report, b""),
        (Operation::Reserve, id),
        (Operation::Commit, id),
    ];
    assert_eq!(seen, expected);
    let recorded = replayed(&bytes, RULES, None).recorded.unwrap();
    assert_eq!((recorded.same, recorded.different), (6, 0));
}

/// Random starts, ends and calls on two limits, while the clock moves on.
async fn random_load(service: &mut Service, rng: &mut SeededRng) {
    for _ in 0..600 {
        service.clock.advance_us(rng.below(4_000_000));
        let id = format!("r{}", rng.below(6));
        let entries: &[(&str, &str)] = match rng.below(2) {
            0 => &[("user", "v")],
            _ => &[("team", "v")],
        };
        let hits = rng.below(400);
        let (path, body) = match rng.below(9) {
            0 => {
                stream_of(service, &["user"], &id, 0).await;
                continue;
            }
            1 => {
                stream_of(service, &["user"], &id, hits.max(1)).await;
                continue;
            }
            2 => ("check", json!({"hits": hits})),
            3 => ("peek", json!({"hits": hits})),
            4 => (
                "reserve",
                json!({"hits": hits.max(1), "reservation": id, "expires": "15s"}),
            ),
            5 => ("reserve", json!({"reservation": id})),
            6 => ("extend", json!({"reservation": id, "expires": "25s"})),
            7 => ("commit", json!({"reservation": id, "hits": hits})),
            _ => ("release", json!({"reservation": id})),
        };
        let status = call(service, path, body, entries).await;
        assert!([200, 404, 429].contains(&status), "{path}: {status}");
    }
}

#[tokio::test]
async fn a_replay_of_reservations_gives_every_verdict_again() {
    let mut rng = SeededRng::of_seed(1);
    // What is learnt, and when a refused request's other limits get their hits back, depends on
    // which of two threads is first. So amounts are fixed, and each request has one limit.
    let rules = RULES.replace("amount: p95, floor: 50, ceiling: 400", "amount: 120");
    let one_limit = |line: &&str| !line.contains("algorithm: sliding_window");
    let rules: Vec<_> = rules.lines().filter(one_limit).collect();
    let rules = rules.join("\n");
    let mut service = Service::start(&rules, &[]).await;
    let recording = Stream::open(service.admin, "").await;
    random_load(&mut service, &mut rng).await;
    service.stop().await.unwrap();
    let bytes = recording.rest().await;
    assert!(calls(&bytes).len() > 300);
    let report = replayed(&bytes, &rules, None);
    assert!(report.base.refused > 20, "{}", report.base.refused);
    let recorded = report.recorded.unwrap();
    assert_eq!(
        (recorded.same, recorded.different, recorded.not_compared),
        (600, 0, 0),
        "{:?}",
        recorded.first_differences
    );
}

/// What an operator tries: rules that reserve one hit, nearly as checks with 0 hits do, against
/// rules that reserve an estimate.
#[tokio::test]
async fn a_replay_shows_what_reserving_would_refuse() {
    let of = |amount: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {{unit: day, \
             requests_per_unit: 1000, reserve: {{key: id, amount: {amount}, expires: 3s}}}}\n"
        )
    };
    let (checks, reserves) = (of("1"), of("300"));
    let mut service = Service::start(&checks, &[]).await;
    let recording = Stream::open(service.admin, "").await;
    let sent = |id: &str, hits| Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "v"), ("id", id)])
    };
    // Five streams at once, of 250 each; the fourth runs longer than its reservation lasts.
    for (ids, hits, after_us) in [
        ("abcde", 0, 0),
        ("abc", 250, 1_000_000),
        ("de", 250, 3_500_000),
    ] {
        service.clock.advance_us(after_us);
        for id in ids.chars() {
            let answer = service
                .ask(request("d", vec![sent(&id.to_string(), hits)]))
                .await;
            assert_eq!(answer.overall_code(), Code::Ok, "{id} {hits}");
        }
    }
    service.stop().await.unwrap();
    let report = replayed(&recording.rest().await, &checks, Some(&reserves));
    let recorded = report.recorded.unwrap();
    assert_eq!((recorded.same, recorded.different), (10, 0));
    let changes = report.changes.unwrap();
    assert_eq!(changes.newly_refused, 2);
    let before = report.base.by_rule[0].reservations.clone().unwrap();
    assert_eq!((before.reserved, before.settled), (5, 3));
    assert_eq!((before.charged, before.hits_excess), (2, 3 * 249));
    let after = changes.against.by_rule[0].reservations.clone().unwrap();
    assert_eq!((after.reserved, after.refused, after.settled), (3, 2, 3));
    assert_eq!((after.hits_returned, after.hits_excess), (150, 0));
}
