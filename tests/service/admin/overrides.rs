//! `/overrides`: limits of single descriptors for a time.

use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{Code, descriptor};
use tollgate_test_support::in_process::{START, Service};

use super::{Reply, get, request};
use crate::service::until_metric;

const RULES: &str = "
plans:
  pro: { unit: hour, requests_per_unit: 5 }
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2 }
    over_limit: { body: slow down }
  - key: dark
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: free
    rate_limit: { unlimited: true }
  - key: slot
    rate_limit: { algorithm: concurrency, requests_per_unit: 2, slot_seconds: 60, holder_key: id }
";

const JSON: &str = "host: localhost\r\ncontent-type: application/json\r\n";

async fn put(service: &Service, body: &str) -> Reply {
    request(service.admin, "PUT", "/overrides", JSON, body).await
}

async fn delete(service: &Service, key: &str, value: &str) -> Reply {
    let body = json!({"domain": "d", "descriptor": [{"key": key, "value": value}]});
    request(
        service.admin,
        "DELETE",
        "/overrides",
        JSON,
        &body.to_string(),
    )
    .await
}

/// An override of an hour.
fn of(key: &str, value: &str, what: &Value) -> String {
    let mut body = json!({
        "domain": "d", "descriptor": [{"key": key, "value": value}],
        "for_seconds": 3600, "reason": "ticket 7", "who": "ada",
    });
    for (name, value) in what.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

/// How many of ten hits pass.
async fn admitted(service: &mut Service, key: &str, value: &str) -> usize {
    let mut admitted = 0;
    for _ in 0..10 {
        let status = service.status("d", descriptor(&[(key, value)])).await;
        admitted += usize::from(status.code() == Code::Ok);
    }
    admitted
}

async fn listed(service: &Service) -> Vec<Value> {
    let list = get(service.admin, "/overrides").await.json();
    list["overrides"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_override_is_in_force_at_once_for_its_descriptor_until_its_time() {
    let mut service = Service::start(RULES, &[]).await;
    assert_eq!(admitted(&mut service, "user", "a").await, 2);
    for (value, what) in [
        (
            "a",
            json!({"limit": {"unit": "hour", "requests_per_unit": 5}}),
        ),
        ("plan", json!({"plan": "pro"})),
        ("free", json!({"unlimited": true})),
        ("blocked", json!({"blocked": true})),
        (
            "two",
            json!({"limit": [
                {"unit": "hour", "requests_per_unit": 9},
                {"unit": "day", "requests_per_unit": 4},
            ]}),
        ),
    ] {
        let reply = put(&service, &of("user", value, &what)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let set = reply.json()["override"].clone();
        assert_eq!(set["until"], "2023-11-15T01:00:10.500Z");
        assert_eq!(set["effect"], "in_force");
        assert_eq!(set["rules"], json!(["d.user"]));
        assert_eq!(
            (&set["reason"], &set["who"]),
            (&json!("ticket 7"), &json!("ada"))
        );
    }
    // The bucket is the same: what only the lower limit refused does not count.
    assert_eq!(admitted(&mut service, "user", "a").await, 3);
    assert_eq!(admitted(&mut service, "user", "plan").await, 5);
    assert_eq!(admitted(&mut service, "user", "free").await, 10);
    assert_eq!(admitted(&mut service, "user", "two").await, 4);
    assert_eq!(admitted(&mut service, "user", "b").await, 2);
    assert_eq!(admitted(&mut service, "user", "blocked").await, 0);
    let asked =
        tollgate_test_support::grpc_client::request("d", vec![descriptor(&[("user", "blocked")])]);
    let answer = service.ask(asked).await;
    assert_eq!(
        &answer.raw_body[..],
        b"slow down",
        "the response of the rule"
    );
    let reset = answer.statuses[0].duration_until_reset.unwrap();
    assert_eq!(reset.seconds, 3_600, "until its time");
    // Seen.
    for value in ["plan", "free", "blocked", "two", "b"] {
        let path = format!("/decisions?n=1&key=user={value}");
        let decisions = get(service.admin, &path).await.json();
        let part = &decisions["decisions"][0]["descriptors"][0];
        let overridden = (value != "b").then_some(&Value::Bool(true));
        assert_eq!(part.get("overridden"), overridden, "{value}: {part}");
    }
    assert_eq!(service.metric("tollgate_overrides"), 5);
    let limit = get(service.admin, "/limits?rule=d.user").await.json()["limits"][0].clone();
    assert_eq!(limit["overrides"], 5);
    let list = listed(&service).await;
    let values = list.iter().map(|one| &one["descriptor"][0]["value"]);
    let values: Vec<&Value> = values.collect();
    assert_eq!(
        json!(values),
        json!(["a", "blocked", "free", "plan", "two"])
    );
    assert_eq!(
        list[0]["limit"],
        json!({"unit": "hour", "requests_per_unit": 5})
    );
    assert_eq!(list[0]["set_at"], "2023-11-15T00:00:10.500Z");
    let other = get(service.admin, "/overrides?domain=e").await.json();
    assert_eq!(other["overrides"], json!([]));
    assert_eq!(other["overrides_max"], 1_000);
    // Deleted.
    assert_eq!(delete(&service, "user", "free").await.status, 200);
    assert_eq!(delete(&service, "user", "free").await.status, 404);
    assert_eq!(admitted(&mut service, "user", "free").await, 2);
    // Without a request, by the clock.
    service.clock.advance_us(3_599_000_000);
    assert_eq!(service.metric("tollgate_overrides"), 4);
    service.clock.advance_us(1_000_000);
    until_metric(&service, "tollgate_overrides", 0).await;
    assert_eq!(listed(&service).await, [] as [Value; 0]);
    assert_eq!(admitted(&mut service, "user", "blocked").await, 2);
    let changes = |result: &str| {
        service.metric(&format!(
            "tollgate_admin_changes_total{{change=\"override\",result=\"{result}\"}}"
        ))
    };
    assert_eq!((changes("done"), changes("ended")), (6, 4));
}

#[tokio::test]
async fn rules_keep_their_shadow_mode_and_slots_under_an_override() {
    let mut service = Service::start(RULES, &[]).await;
    for (key, what) in [
        ("dark", json!({"blocked": true})),
        ("free", json!({"blocked": true})),
        (
            "slot",
            json!({"limit": {"algorithm": "concurrency", "requests_per_unit": 3, "slot_seconds": 60}}),
        ),
    ] {
        let reply = put(&service, &of(key, "a", &what)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    assert_eq!(admitted(&mut service, "dark", "a").await, 10);
    assert_eq!(admitted(&mut service, "free", "a").await, 0);
    assert_eq!(admitted(&mut service, "free", "b").await, 10);
    assert_eq!(admitted(&mut service, "slot", "a").await, 3);
    assert_eq!(admitted(&mut service, "slot", "b").await, 2);
}

#[tokio::test]
async fn an_override_outlives_reloads_and_says_when_its_rule_or_plan_has_gone() {
    let mut service = Service::start(RULES, &[]).await;
    assert_eq!(
        put(&service, &of("user", "a", &json!({"plan": "pro"})))
            .await
            .status,
        200
    );
    let raised = RULES.replace("requests_per_unit: 5", "requests_per_unit: 7");
    service.reload(&raised).await;
    assert_eq!(admitted(&mut service, "user", "a").await, 7);
    let without_rule = RULES.replace("key: user", "key: other");
    let without_plan = RULES.replace("pro:", "team:");
    for (rules, why) in [
        (without_rule, "no rule with a limit"),
        (without_plan, "no plan"),
    ] {
        service.reload(&rules).await;
        let one = listed(&service).await[0].clone();
        assert_eq!(one["effect"], "none");
        assert!(one["why"].as_str().unwrap().contains(why), "{one}");
        assert_eq!(one["rules"], json!([]));
        assert_eq!(service.metric("tollgate_overrides"), 1);
    }
    assert_eq!(admitted(&mut service, "user", "b").await, 2);
    service.reload(&raised).await;
    assert_eq!(listed(&service).await[0]["effect"], "in_force");
    assert_eq!(
        admitted(&mut service, "user", "b").await,
        0,
        "one bucket each"
    );
    // A shadow mode of the rule is one of the override.
    let shadow = r#"{"domain":"d","rule":"d.user","for_seconds":600}"#;
    assert_eq!(
        super::post(service.admin, "/shadow", shadow).await.status,
        200
    );
    assert_eq!(admitted(&mut service, "user", "a").await, 10);
}

const BAD: &str = r#"
404 GET /limits <- {"domain":"e","descriptor":[{"key":"user","value":"a"}],"blocked":true,"for_seconds":1}
404 no rule with a limit <- {"domain":"d","descriptor":[{"key":"no","value":"a"}],"blocked":true,"for_seconds":1}
400 exactly one of plan <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"for_seconds":1}
400 exactly one of plan <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"blocked":true,"unlimited":true,"for_seconds":1}
400 exactly one of until <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"blocked":true}
400 not in the future <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"blocked":true,"for_seconds":0}
400 366 days <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"blocked":true,"for_seconds":31622401}
400 no plan "gold" <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"plan":"gold","for_seconds":1}
400 limit: invalid rate limit unit <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"limit":{"unit":"fortnight","requests_per_unit":1},"for_seconds":1}
400 limit <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"limit":{"requests":1},"for_seconds":1}
400 limit <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"limit":[],"for_seconds":1}
400 limit <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"limit":"pro","for_seconds":1}
400 limit.rlqs <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"limit":{"unit":"hour","requests_per_unit":1,"algorithm":"token_bucket","rlqs":true},"for_seconds":1}
400 names the holder <- {"domain":"d","descriptor":[{"key":"slot","value":"a"},{"key":"id","value":"1"}],"blocked":true,"for_seconds":1}
400 is empty <- {"domain":"d","descriptor":[],"blocked":true,"for_seconds":1}
400 unknown field `forever` <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"blocked":true,"for_seconds":1,"forever":true}
400 the body is invalid <- null"#;

#[tokio::test]
async fn an_invalid_override_changes_nothing_and_says_what_is_wrong() {
    let service = Service::start(RULES, &[]).await;
    for line in BAD.lines().skip(1) {
        let (expected, body) = line.split_once(" <- ").expect(line);
        let (status, why) = expected.split_once(' ').expect(line);
        let reply = put(&service, body).await;
        assert_eq!(reply.status.to_string(), status, "{body}: {}", reply.body);
        assert!(reply.error().contains(why), "{body}: {}", reply.body);
    }
    let reply = put(
        &service,
        &of("user", &"a".repeat(4_096), &json!({"blocked": true})),
    )
    .await;
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("may have 4096"), "{}", reply.body);
    assert_eq!(listed(&service).await, [] as [Value; 0]);
    assert_eq!(service.metric("tollgate_overrides"), 0);
}

#[tokio::test]
async fn a_flood_of_overrides_is_bounded_and_refused_clearly() {
    let mut service = Service::start(RULES, &["--overrides-max", "20"]).await;
    for number in 0..40 {
        let body = of("user", &number.to_string(), &json!({"unlimited": true}));
        let reply = put(&service, &body).await;
        let expected = if number < 20 { 200 } else { 409 };
        assert_eq!(reply.status, expected, "{}", reply.body);
        if expected == 409 {
            assert!(reply.error().contains("--overrides-max"), "{}", reply.body);
        }
    }
    assert_eq!(service.metric("tollgate_overrides"), 20);
    assert_eq!(service.metric("tollgate_overrides_refused_total"), 20);
    // One of those that exist can be changed.
    assert_eq!(
        put(&service, &of("user", "7", &json!({"blocked": true})))
            .await
            .status,
        200
    );
    assert_eq!(admitted(&mut service, "user", "7").await, 0);
    assert_eq!(admitted(&mut service, "user", "8").await, 10);
    assert_eq!(admitted(&mut service, "user", "30").await, 2);
}

#[tokio::test]
async fn overrides_survive_a_restart_with_a_snapshot_until_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join("buckets.snapshot");
    let flags = ["--snapshot", snapshot.to_str().unwrap()];
    let mut service = Service::start(RULES, &flags).await;
    for (value, what) in [
        ("a", json!({"plan": "pro"})),
        ("b", json!({"unlimited": true, "for_seconds": 60})),
    ] {
        let reply = put(&service, &of("user", value, &what)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    assert_eq!(admitted(&mut service, "user", "a").await, 5);
    let before = listed(&service).await;
    service.stop().await.unwrap();
    let mut service = Service::start(RULES, &flags).await;
    assert_eq!(listed(&service).await, before);
    assert_eq!(admitted(&mut service, "user", "b").await, 10);
    assert_eq!(admitted(&mut service, "user", "a").await, 0);
    service.stop().await.unwrap();
    // The time of one has come while no process ran.
    let later = START.plus_us(60_000_000);
    let service = Service::start_at(RULES, &flags, later).await;
    until_metric(&service, "tollgate_overrides", 1).await;
    assert_eq!(listed(&service).await, before[..1]);
}
