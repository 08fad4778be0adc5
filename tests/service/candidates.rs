//! Candidates: rules that are decided for each request and never enforced.
//!
//! The tests wait for counters, which the candidate's tasks set after the answers.

use prost::Message as _;
use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{
    Code, RateLimitRequest, RateLimitResponse, descriptor, hits, request,
};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use super::admin::events::Events;
use super::grpc::raw::Raw;
use super::ways_in::Way;
use super::{flags, until_metric};

const LIVE: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: j
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Tighter for `k`, nothing for `j`.
const CANDIDATE: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: other
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// A service with a candidate, and the candidate's file.
async fn service(live: &str, candidate: &str, arguments: &[&str]) -> (Service, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("candidate.yaml");
    std::fs::write(&file, candidate).unwrap();
    let file = file.to_str().unwrap();
    let service = Service::start(live, &[&["--candidate", file], arguments].concat()).await;
    until_metric(&service, "tollgate_candidate_rules_accepted_total", 1).await;
    (service, folder)
}

pub(crate) fn of_domain(result: &str) -> String {
    format!("tollgate_candidate_requests_total{{domain=\"d\",result=\"{result}\"}}")
}

fn of_rule(rule: &str, result: &str) -> String {
    format!(
        "tollgate_candidate_decisions_total{{domain=\"d\",result=\"{result}\",rule=\"{rule}\"}}"
    )
}

fn asked() -> RateLimitRequest {
    request("d", vec![hits("k", "v", 1)])
}

/// What six requests for one key count: the candidate admits 2 and the rules 5.
async fn counted_six(service: &Service) {
    until_metric(service, &of_domain("admitted"), 2).await;
    until_metric(service, &of_domain("newly_refused"), 3).await;
    until_metric(service, &of_domain("refused"), 1).await;
    assert_eq!(service.metric(&of_domain("newly_admitted")), 0);
    assert_eq!(service.metric(&of_rule("d.k", "newly_refused")), 3);
    assert_eq!(service.metric(&of_rule("d.k", "admitted")), 2);
    assert_eq!(service.metric(&of_rule("d.k", "refused")), 1);
}

/// The bodies of six answers on the fast path.
async fn answers(service: &Service) -> Vec<Vec<u8>> {
    let mut raw = Raw::connect(service.grpc).await;
    let mut bodies = Vec::new();
    for _ in 0..6 {
        bodies.push(raw.ask(&asked()).await.body);
    }
    bodies
}

#[tokio::test]
async fn the_fast_path_counts_what_the_candidate_would_refuse_and_answers_alike() {
    let without = answers(&Service::start(LIVE, &[]).await).await;
    let (service, _folder) = service(LIVE, CANDIDATE, &[]).await;
    assert_eq!(answers(&service).await, without, "not a byte differs");
    let codes = without.iter().map(|body| {
        RateLimitResponse::decode(&body[5..])
            .unwrap()
            .overall_code()
    });
    assert_eq!(codes.filter(|code| *code == Code::Ok).count(), 5);
    counted_six(&service).await;
}

#[tokio::test]
async fn requests_by_other_ways_are_decided_by_the_candidate_too() {
    for name in ["routes", "json"] {
        let (service, _folder) = service(LIVE, CANDIDATE, &[]).await;
        let mut way = Way::open(&service, name).await;
        for number in 0..6 {
            let (code, _) = way.ask(&asked()).await.unwrap();
            assert_eq!(code == "OK", number < 5, "{name}");
        }
        counted_six(&service).await;
    }
}

#[tokio::test]
async fn the_candidate_of_one_rule_is_compared_with_that_rule_alone() {
    let live = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 5, candidate: { unit: hour, requests_per_unit: 2 } }
  - key: j
    rate_limit: { unit: hour, requests_per_unit: 1 }
";
    let mut service = Service::start(live, &[]).await;
    for _ in 0..6 {
        service.ask(asked()).await;
    }
    counted_six(&service).await;
    // No limit of this request has a candidate, so it says nothing about the candidate.
    service.status("d", hits("j", "v", 1)).await;
    // The rule without a candidate refuses: with another value of k, the candidate changes nothing.
    let both = |value: &str| {
        let entries = [descriptor(&[("k", value)]), descriptor(&[("j", "v")])];
        request("d", entries.to_vec())
    };
    let refused = service.ask(both("w")).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);
    until_metric(&service, &of_domain("refused"), 2).await;
    assert_eq!(service.metric(&of_domain("newly_admitted")), 0);
    assert_eq!(service.metric(&of_domain("admitted")), 2);
}

#[tokio::test]
async fn what_the_candidate_does_not_limit_is_newly_admitted() {
    let (mut service, _folder) = service(LIVE, CANDIDATE, &[]).await;
    for expected in [Code::Ok, Code::OverLimit, Code::OverLimit] {
        let status = service.status("d", hits("j", "v", 1)).await;
        assert_eq!(status.code(), expected);
    }
    until_metric(&service, &of_domain("newly_admitted"), 2).await;
    assert_eq!(service.metric(&of_domain("admitted")), 1);
    // A refund and a look are no requests for hits.
    service.ask(request("d", vec![hits("k", "v", 0)])).await;
    service.status("d", hits("other", "v", 1)).await;
    until_metric(&service, &of_rule("d.other", "admitted"), 1).await;
    assert_eq!(service.metric(&of_rule("d.k", "admitted")), 0);
}

#[tokio::test]
async fn a_candidate_without_memory_skips_and_evicts_no_live_bucket() {
    let endless = "
domain: d
descriptors:
  - key: k
    rate_limit: { algorithm: sliding_log, unit: day, requests_per_unit: 2 }
";
    let arguments = flags(
        "--candidate-memory-max=1MiB --partitions=1 --memory-max=64MiB --mailbox-checks-max=1000000",
    );
    let (mut service, _folder) = service(LIVE, endless, &arguments).await;
    let skipped = "tollgate_candidate_skipped_total{reason=\"memory_full\"}";
    let mut keys = 0;
    until_async("the candidate's memory is full", async || {
        for _ in 0..20 {
            let many: Vec<_> = (0..100)
                .map(|number| hits("k", &format!("{}", keys + number), 2))
                .collect();
            keys += 100;
            service.ask(request("d", many)).await;
        }
        service.metric(skipped) > 0
    })
    .await;
    assert_eq!(service.metric("tollgate_buckets_forgotten_total"), 0);
    // A partition updates the number after its answers.
    until_metric(&service, "tollgate_buckets{partition=\"0\"}", keys).await;
    let used = service.metric("tollgate_candidate_memory_bytes");
    assert!(used > 0 && used <= 1 << 20, "{used}");
    assert_eq!(
        service.metric("tollgate_candidate_memory_max_bytes"),
        1 << 20
    );
    // Hits of live buckets are still counted: 2 of 5 were taken.
    let status = service.status("d", hits("k", "0", 1)).await;
    assert_eq!(status.limit_remaining, 2);
}

#[tokio::test]
async fn a_full_queue_skips_the_candidate_and_not_the_answer() {
    let two = "
domain: d
descriptors:
  - key: k
    rate_limits:
      - { unit: hour, requests_per_unit: 2 }
      - { unit: day, requests_per_unit: 2 }
";
    let arguments = ["--mailbox-checks-max=1", "--partitions=1"];
    let (mut service, _folder) = service(LIVE, two, &arguments).await;
    for _ in 0..3 {
        assert_eq!(
            service.status("d", hits("k", "v", 1)).await.code(),
            Code::Ok
        );
    }
    until_metric(
        &service,
        "tollgate_candidate_skipped_total{reason=\"queue_full\"}",
        3,
    )
    .await;
    assert_eq!(
        service.metric("tollgate_shed_total{reason=\"mailbox_full\"}"),
        0
    );
    assert_eq!(service.metric(&of_domain("admitted")), 0);
}

#[tokio::test]
async fn candidate_files_are_reloaded_and_bad_ones_keep_the_last_good() {
    let (mut service, folder) = service(LIVE, CANDIDATE, &[]).await;
    let file = folder.path().join("candidate.yaml");
    for _ in 0..3 {
        service.ask(asked()).await;
    }
    until_metric(&service, &of_domain("newly_refused"), 1).await;
    std::fs::write(&file, "domain: d\nnonsense: 1\n").unwrap();
    until_metric(&service, "tollgate_candidate_rules_errors_total", 1).await;
    assert_eq!(service.metric("tollgate_candidate_rules_refused"), 1);
    let state = limits(&service).await["candidate"].clone();
    assert!(
        state["error"].as_str().unwrap().contains("nonsense"),
        "{state}"
    );
    assert_eq!(
        service.metric("tollgate_rules_refused"),
        0,
        "the rules are not concerned"
    );
    // The last good candidate still decides, in its old buckets.
    service.ask(asked()).await;
    until_metric(&service, &of_domain("newly_refused"), 2).await;
    // A reload of the live rules keeps it, and its counts.
    service
        .reload(&LIVE.replace("requests_per_unit: 1", "requests_per_unit: 3"))
        .await;
    service.ask(asked()).await;
    until_metric(&service, &of_domain("newly_refused"), 3).await;
    let state = limits(&service).await["candidate"].clone();
    assert_eq!(state["counts"]["newly_refused"], 3);
    // Other limits: their counts begin at 0, and what was taken stays taken.
    std::fs::write(
        &file,
        CANDIDATE.replace("requests_per_unit: 2", "requests_per_unit: 7"),
    )
    .unwrap();
    until_metric(&service, "tollgate_candidate_rules_accepted_total", 2).await;
    assert_eq!(service.metric("tollgate_candidate_rules_refused"), 0);
    let state = limits(&service).await["candidate"].clone();
    assert_eq!(
        (&state["error"], &state["counts"]["refused"]),
        (&Value::Null, &json!(0))
    );
    assert_eq!(
        service.metric(&of_domain("newly_refused")),
        3,
        "counters only grow"
    );
    let series = || service.metrics.render().unwrap().lines().count();
    let before = series();
    for number in 10..15 {
        let rules = CANDIDATE.replace(
            "requests_per_unit: 2",
            &format!("requests_per_unit: {number}"),
        );
        std::fs::write(&file, rules).unwrap();
        until_metric(
            &service,
            "tollgate_candidate_rules_accepted_total",
            number - 7,
        )
        .await;
    }
    assert_eq!(series(), before, "reloads add no series");
}

/// `GET /limits`.
pub(crate) async fn limits(service: &Service) -> Value {
    let address = service.admin;
    let answer = tokio::task::spawn_blocking(move || http(address, "GET", "/limits", "")).await;
    let (status, body) = answer.unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn limits_show_the_candidate_beside_each_rule() {
    let mut plain = Service::start(LIVE, &[]).await;
    plain.ask(asked()).await;
    let shown = limits(&plain).await;
    assert_eq!(shown["candidate"], Value::Null);
    assert_eq!(shown["limits"][0]["candidate"], Value::Null);
    let text = plain.metrics.render().unwrap();
    assert!(
        !text.contains("tollgate_candidate"),
        "nothing without a candidate"
    );
    let (service, _folder) = service(LIVE, CANDIDATE, &[]).await;
    answers(&service).await;
    counted_six(&service).await;
    let shown = limits(&service).await;
    let counts = json!({
        "admitted": 2, "refused": 4, "newly_refused": 3, "newly_admitted": 0,
        "refused_percent": 66.667, "live_refused_percent": 16.667,
    });
    let candidate = &shown["candidate"];
    assert_eq!(
        (&candidate["source"], &candidate["counts"]),
        (&json!("files"), &counts)
    );
    assert_eq!(candidate["new_rules"][0]["rule"], "d.other");
    assert_eq!(candidate["new_rules"].as_array().unwrap().len(), 1);
    let of_k = &shown["limits"][0]["candidate"];
    assert_eq!(
        (&of_k["limit"]["text"], &of_k["counts"]),
        (&json!("2 per hour"), &counts)
    );
    assert_eq!(shown["limits"][1]["candidate"], Value::Null);
}

/// The decisions of a stream while three requests are made: verdict, candidate, live verdict.
async fn tapped(query: &str, expected: usize) -> Vec<(String, bool, Value)> {
    let (mut service, _folder) = service(LIVE, CANDIDATE, &[]).await;
    let query = format!("?state=false&decisions_per_second_max=1000{query}");
    let mut events = Events::open(service.admin, &query).await;
    for _ in 0..3 {
        service.ask(asked()).await;
    }
    until_metric(&service, &of_domain("newly_refused"), 1).await;
    let mut seen = Vec::new();
    // Another subscription's decision would come with these.
    service.clock.advance_us(1);
    service.status("d", hits("j", "end", 1)).await;
    while seen.len() < expected {
        let (name, decision) = events.next().await.unwrap();
        if name == "decision" {
            let verdict = decision["verdict"].as_str().unwrap().to_owned();
            let is_candidate = decision.get("candidate") == Some(&json!(true));
            assert_eq!(is_candidate, decision.get("live_verdict").is_some());
            seen.push((verdict, is_candidate, decision["live_verdict"].clone()));
        }
    }
    seen
}

#[tokio::test]
async fn a_stream_has_the_candidate_s_decisions_that_differ_all_of_them_or_none() {
    let answer = || ("OK".to_owned(), false, Value::Null);
    let admitted = || ("OK".to_owned(), true, json!("OK"));
    let refused = ("OVER_LIMIT".to_owned(), true, json!("OK"));
    let sorted = |mut seen: Vec<(String, bool, Value)>| {
        seen.sort_by_key(|(verdict, is_candidate, _)| (*is_candidate, verdict.clone()));
        seen
    };
    let answers = || std::iter::repeat_with(answer).take(4);
    let differing: Vec<_> = answers().chain([refused.clone()]).collect();
    assert_eq!(sorted(tapped("", 5).await), differing);
    assert_eq!(sorted(tapped("&candidates=differing", 5).await), differing);
    let candidates = || {
        std::iter::repeat_with(admitted)
            .take(3)
            .chain([refused.clone()])
    };
    let all: Vec<_> = answers().chain(candidates()).collect();
    assert_eq!(sorted(tapped("&candidates=all", 8).await), all);
    assert_eq!(
        sorted(tapped("&candidates=only", 4).await),
        candidates().collect::<Vec<_>>()
    );
    assert_eq!(
        sorted(tapped("&candidates=none", 4).await),
        answers().collect::<Vec<_>>()
    );
}

/// Starts and ends are decided by the candidate's own `reserve`. A peek with an id starts nothing.
#[tokio::test]
async fn a_candidate_reserves_in_memory_of_its_own() {
    let rules = |amount: u32| {
        format!(
            "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: hour, requests_per_unit: 120, \
             reserve: {{ key: id, amount: {amount} }} }}\n"
        )
    };
    let (mut service, _folder) = service(&rules(1), &rules(60), &[]).await;
    let stream = |id: &str, hits| {
        let mut one = descriptor(&[("user", "ann"), ("id", id)]);
        one.hits_addend = Some(hits);
        request("d", vec![one])
    };
    assert_eq!(service.ask(stream("a", 0)).await.overall_code(), Code::Ok);
    let peek = json!({"domain": "d", "descriptors": [
        {"entries": [{"key": "user", "value": "ann"}, {"key": "id", "value": "p"}]},
    ]});
    let port = service.http;
    let asked = move || http(port, "POST", "/v1/peek", &peek.to_string());
    let (status, _) = tokio::task::spawn_blocking(asked).await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(service.ask(stream("b", 0)).await.overall_code(), Code::Ok);
    until_metric(&service, &of_domain("admitted"), 2).await;
    // Two reservations of 60 fill its limit; an end frees a part of one, which is too little.
    assert_eq!(service.ask(stream("a", 50)).await.overall_code(), Code::Ok);
    until_metric(&service, &of_domain("admitted"), 3).await;
    assert_eq!(service.metric(&of_domain("newly_refused")), 0);
    assert_eq!(service.ask(stream("c", 0)).await.overall_code(), Code::Ok);
    until_metric(&service, &of_domain("newly_refused"), 1).await;
    let left = service.status("d", hits("user", "ann", 0)).await;
    assert_eq!(
        left.limit_remaining,
        120 - 50 - 2,
        "the live limit is as it was"
    );
}
