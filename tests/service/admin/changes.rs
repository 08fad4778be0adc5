//! `POST /reset` and `POST /shadow`.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use super::events::Events;
use super::{RULES, get, post, send};
use crate::service::until_metric;

/// Whether one hit passes.
async fn passes(service: &mut Service, key: &str, value: &str) -> bool {
    let asked = request("d", vec![descriptor(&[(key, value)])]);
    service.ask(asked).await.overall_code == Code::Ok as i32
}

async fn exhaust(service: &mut Service, key: &str, value: &str) {
    // No limit here is higher.
    for _ in 0..40 {
        if !passes(service, key, value).await {
            return;
        }
    }
    panic!("{key} {value} is not exhausted");
}

fn changes(service: &Service, change: &str, result: &str) -> u64 {
    service.metric(&format!(
        "tollgate_admin_changes_total{{change=\"{change}\",result=\"{result}\"}}"
    ))
}

#[tokio::test]
async fn a_reset_forgets_the_buckets_of_one_descriptor_and_of_no_other() {
    let mut service = Service::start(RULES, &[]).await;
    for (key, value) in [("user", "a"), ("user", "b"), ("plan", "gold")] {
        exhaust(&mut service, key, value).await;
    }
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"a"}]}"#;
    let reply = post(service.admin, "/reset", reset).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    assert_eq!(
        answer["reset"],
        json!([{"rule": "d.user", "existed": true}])
    );
    assert_eq!(answer["at"], "2023-11-15T00:00:10.500Z");
    assert!(!passes(&mut service, "user", "b").await);
    assert!(!passes(&mut service, "plan", "gold").await);
    assert!(passes(&mut service, "user", "a").await);
    assert!(passes(&mut service, "user", "a").await);
    assert!(
        !passes(&mut service, "user", "a").await,
        "its limit counts again"
    );
    // Every limit of the descriptor.
    let reset = r#"{"domain":"d","descriptor":[{"key":"plan","value":"gold"}]}"#;
    let answer = post(service.admin, "/reset", reset).await.json();
    let both = json!([
        {"rule": "d.plan_gold name=hourly", "existed": true},
        {"rule": "d.plan_gold name=daily", "existed": true},
    ]);
    assert_eq!(answer["reset"], both);
    assert!(passes(&mut service, "plan", "gold").await);
    // A bucket that does not exist.
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"nobody"}]}"#;
    let answer = post(service.admin, "/reset", reset).await.json();
    assert_eq!(
        answer["reset"],
        json!([{"rule": "d.user", "existed": false}])
    );
    assert_eq!(changes(&service, "reset", "done"), 3);
}

/// Changes that are refused: the status, a part of the reason, and the body.
fn bad(table: &'static str) -> impl Iterator<Item = (u16, &'static str, &'static str)> {
    table.lines().skip(1).map(|line| {
        let (expected, body) = line.split_once(" <- ").expect(line);
        let (status, why) = expected.split_once(' ').expect(line);
        (status.parse().expect(line), why, body)
    })
}

const BAD_RESETS: &str = r#"
404 domain "e" <- {"domain":"e","descriptor":[{"key":"user","value":"a"}]}
404 no rule with a limit <- {"domain":"d","descriptor":[{"key":"no","value":"a"}]}
404 no rule with a limit <- {"domain":"d","descriptor":[{"key":"free","value":"a"}]}
404 no rule has the domain <- {"domain":"d\u0000","descriptor":[{"key":"user","value":"a"}]}
400 is empty <- {"domain":"d","descriptor":[]}
400 is empty <- {"domain":"","descriptor":[{"key":"user","value":"a"}]}
400 missing field `descriptor` <- {"domain":"d"}
400 missing field `value` <- {"domain":"d","descriptor":[{"key":"user"}]}
400 unknown field `x` <- {"domain":"d","descriptor":[{"key":"user","value":"a"}],"x":1}
400 unknown field `x` <- {"domain":"d","descriptor":[{"key":"user","value":"a","x":1}]}
400 duplicate field <- {"domain":"d","domain":"d","descriptor":[{"key":"user","value":"a"}]}
400 expected a string <- {"domain":"d","descriptor":[{"key":"user","value":1}]}
400 trailing characters <- {"domain":"d","descriptor":[{"key":"user","value":"a"}]} x
400 the body is invalid <- [{"domain":"d"}]
400 EOF <- "#;

#[tokio::test]
async fn a_reset_without_a_rule_is_404_and_an_invalid_one_400() {
    let mut service = Service::start(RULES, &["--entries-max", "3"]).await;
    exhaust(&mut service, "user", "a").await;
    for (status, why, body) in bad(BAD_RESETS).chain([(400, "the body is invalid", "\0")]) {
        let reply = post(service.admin, "/reset", body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        assert!(reply.error().contains(why), "{body}: {}", reply.body);
    }
    let entry = r#"{"key":"user","value":"a"}"#;
    let many = format!(
        r#"{{"domain":"d","descriptor":[{}]}}"#,
        [entry; 4].join(",")
    );
    let reply = post(service.admin, "/reset", &many).await;
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("--entries-max"), "{}", reply.body);
    let large = format!(
        r#"{{"domain":"d","descriptor":[{{"key":"user","value":"{}"}}]}}"#,
        "a".repeat(65_536)
    );
    let reply = post(service.admin, "/reset", &large).await;
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("65536 bytes"), "{}", reply.body);
    assert!(
        !passes(&mut service, "user", "a").await,
        "nothing was forgotten"
    );
    assert_eq!(changes(&service, "reset", "not_found"), 4);
    assert_eq!(changes(&service, "reset", "done"), 0);
    assert!(changes(&service, "reset", "invalid") > 10);
    for method in ["GET", "PUT", "DELETE"] {
        let headers = "host: localhost\r\ncontent-type: application/json\r\n";
        let reply = super::request(service.admin, method, "/reset", headers, "{}").await;
        assert_eq!(reply.status, 405, "{method}");
    }
}

#[tokio::test]
async fn a_reset_fails_with_503_where_the_store_does() {
    let store = ["--store", "redis://127.0.0.1:1"];
    let service = Service::start(RULES, &store).await;
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"a"}]}"#;
    let reply = post(service.admin, "/reset", reset).await;
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(
        reply
            .error()
            .contains("the reset failed, or its result is unknown"),
        "{}",
        reply.body
    );
    assert_eq!(changes(&service, "reset", "failed"), 1);
    let answer = get(service.admin, "/partitions").await.json();
    assert_eq!(answer["store"]["kind"], "redis");
    assert_eq!(answer["store"]["mode"], "exact");
    assert_eq!(answer["store"]["healthy"], false);
    assert_eq!(answer["store"]["nodes"][0]["healthy"], false);
    assert_eq!(answer["store"]["nodes"][0]["address"], "127.0.0.1:1");
    assert_eq!(answer["partitions"], json!([]));
}

const SHADOW: &str = r#"{"domain":"d","rule":"d.user","for_seconds":600}"#;

#[tokio::test]
async fn a_shadowed_rule_refuses_nothing_until_its_time_and_is_shown_everywhere() {
    let mut service = Service::start(RULES, &[]).await;
    exhaust(&mut service, "user", "a").await;
    exhaust(&mut service, "plan", "gold").await;
    let reply = post(service.admin, "/shadow", SHADOW).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let until = "2023-11-15T00:10:10.500Z";
    let list = json!([{"domain": "d", "rule": "d.user", "until": until}]);
    assert_eq!(reply.json()["shadowed"], list);
    assert!(passes(&mut service, "user", "a").await, "at once");
    assert!(!passes(&mut service, "plan", "gold").await, "no other rule");
    // Shown everywhere.
    let limit = get(service.admin, "/limits?rule=d.user").await.json()["limits"][0].clone();
    assert_eq!(
        (&limit["shadow_mode"], &limit["shadow_until"]),
        (&json!(true), &json!(until))
    );
    assert_eq!(limit["hits"]["would_refuse"], 1);
    assert_eq!(limit["hits"]["total"], 4, "the counts are kept");
    let rlconfig = get(service.admin, "/rlconfig").await.body;
    let line = rlconfig
        .lines()
        .find(|line| line.starts_with("d.user"))
        .unwrap();
    assert!(line.contains("shadow_mode: true"), "{line}");
    assert!(line.contains(until), "{line}");
    let ready = get(service.admin, "/readyz?verbose").await.body;
    assert!(
        ready.contains(&format!("shadow mode: d.user until {until}")),
        "{ready}"
    );
    assert_eq!(service.metric("tollgate_shadowed_rules"), 1);
    assert_eq!(service.metric("tollgate_rules_generation"), 1);
    let mut events = Events::open(service.admin, "").await;
    let state = events.state_with(|_| true).await;
    assert_eq!(state["shadowed"], list);
    assert_eq!(state["rules"]["generation"], 1);
    // It ends by itself.
    service.clock.advance_us(599_000_000);
    assert!(passes(&mut service, "user", "a").await);
    service.clock.advance_us(1_000_000);
    until_metric(&service, "tollgate_shadowed_rules", 0).await;
    assert!(!passes(&mut service, "user", "a").await);
    let limit = get(service.admin, "/limits?rule=d.user").await.json()["limits"][0].clone();
    assert_eq!(
        (&limit["shadow_mode"], &limit["shadow_until"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(changes(&service, "shadow", "done"), 1);
    assert_eq!(changes(&service, "shadow", "ended"), 1);
    assert_eq!(service.metric("tollgate_rules_generation"), 1);
}

#[tokio::test]
async fn a_shadow_mode_outlives_reloads_while_its_rule_exists() {
    let mut service = Service::start(RULES, &[]).await;
    exhaust(&mut service, "user", "a").await;
    assert_eq!(post(service.admin, "/shadow", SHADOW).await.status, 200);
    service
        .reload(&RULES.replace("requests_per_unit: 30,", "requests_per_unit: 40,"))
        .await;
    assert!(passes(&mut service, "user", "a").await);
    service.reload("domain: [").await;
    assert!(passes(&mut service, "user", "a").await);
    assert_eq!(service.metric("tollgate_rules_generation"), 2);
    // Without its rule it ends, and does not come back with it.
    service
        .reload(&RULES.replace("key: user", "key: other"))
        .await;
    assert_eq!(service.metric("tollgate_shadowed_rules"), 0);
    assert_eq!(changes(&service, "shadow", "ended"), 1);
    service.reload(RULES).await;
    assert!(!passes(&mut service, "user", "a").await);
    // A rule that its file puts in shadow mode stays there.
    let own = RULES.replace(
        "requests_per_unit: 2 }",
        "requests_per_unit: 2 }\n    shadow_mode: true",
    );
    service.reload(&own).await;
    assert_eq!(post(service.admin, "/shadow", SHADOW).await.status, 200);
    let end = SHADOW.replace("600", "0");
    assert_eq!(
        post(service.admin, "/shadow", &end).await.json()["shadowed"],
        json!([])
    );
    assert!(passes(&mut service, "user", "a").await);
}

#[tokio::test]
async fn a_shadow_mode_is_changed_ended_and_named_by_a_time() {
    let mut service = Service::start(RULES, &[]).await;
    exhaust(&mut service, "plan", "gold").await;
    let named = |body: &str| format!(r#"{{"domain":"d","rule":"d.plan_gold name=hourly",{body}}}"#);
    let until = named(r#""until":"2023-11-16T00:00:00Z""#);
    let list = post(service.admin, "/shadow", &until).await.json()["shadowed"].clone();
    assert_eq!(list[0]["until"], "2023-11-16T00:00:00.000Z");
    assert!(passes(&mut service, "plan", "gold").await);
    let longest = named(r#""for_seconds":604800"#);
    let list = post(service.admin, "/shadow", &longest).await.json()["shadowed"].clone();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["until"], "2023-11-22T00:00:10.500Z");
    let end = named(r#""for_seconds":0"#);
    for _ in 0..2 {
        let reply = post(service.admin, "/shadow", &end).await;
        assert_eq!((reply.status, &reply.json()["shadowed"]), (200, &json!([])));
        assert!(!passes(&mut service, "plan", "gold").await);
    }
}

const BAD_SHADOWS: &str = r#"
404 GET /limits <- {"domain":"d","rule":"d.no","for_seconds":1}
404 GET /limits <- {"domain":"e","rule":"d.user","for_seconds":1}
404 GET /limits <- {"domain":"d","rule":"d.no","for_seconds":0}
404 GET /limits <- {"domain":"d","rule":"d.plan_gold","for_seconds":1}
400 exactly one <- {"domain":"d","rule":"d.user"}
400 exactly one <- {"domain":"d","rule":"d.user","for_seconds":1,"until":"2023-11-16T00:00:00Z"}
400 the end is more than 7 days from now <- {"domain":"d","rule":"d.user","for_seconds":604801}
400 7 days <- {"domain":"d","rule":"d.user","for_seconds":18446744073709551615}
400 invalid value <- {"domain":"d","rule":"d.user","for_seconds":-1}
400 invalid type <- {"domain":"d","rule":"d.user","for_seconds":1.5}
400 7 days <- {"domain":"d","rule":"d.user","until":"2023-11-23T00:00:00Z"}
400 not in the future <- {"domain":"d","rule":"d.user","until":"2023-11-14T00:00:00Z"}
400 RFC 3339 <- {"domain":"d","rule":"d.user","until":"tomorrow"}
400 is empty <- {"domain":"d","rule":"","for_seconds":1}
400 unknown field <- {"domain":"d","rule":"d.user","for_seconds":1,"forever":true}
400 the body is invalid <- null"#;

#[tokio::test]
async fn an_invalid_shadow_mode_changes_nothing() {
    let mut service = Service::start(RULES, &[]).await;
    exhaust(&mut service, "user", "a").await;
    for (status, why, body) in bad(BAD_SHADOWS) {
        let reply = post(service.admin, "/shadow", body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        assert!(reply.error().contains(why), "{body}: {}", reply.body);
    }
    assert!(!passes(&mut service, "user", "a").await);
    assert_eq!(service.metric("tollgate_shadowed_rules"), 0);
    assert_eq!(changes(&service, "shadow", "not_found"), 4);
    assert_eq!(changes(&service, "shadow", "invalid"), 12);
}

#[tokio::test]
async fn a_hundred_rules_can_be_in_shadow_mode_and_no_more() {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for number in 0..101 {
        let rule =
            format!("  - key: k{number}\n    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n");
        rules.push_str(&rule);
    }
    let service = Service::start(&rules, &[]).await;
    for number in 0..101 {
        let body = format!(r#"{{"domain":"d","rule":"d.k{number}","for_seconds":60}}"#);
        let reply = post(service.admin, "/shadow", &body).await;
        let expected = if number < 100 { 200 } else { 400 };
        assert_eq!(reply.status, expected, "{}", reply.body);
    }
    assert_eq!(service.metric("tollgate_shadowed_rules"), 100);
    service.clock.advance_us(60_000_000);
    until_metric(&service, "tollgate_shadowed_rules", 0).await;
    assert_eq!(changes(&service, "shadow", "ended"), 100);
}

#[tokio::test]
async fn half_open_and_slow_requests_do_not_stop_others() {
    let mut service = Service::start(RULES, &[]).await;
    let mut open = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(service.admin).await.unwrap();
        let head = "POST /reset HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
    }
    // At most some bodies are read at a time; reading other paths is not affected.
    let refused = async || {
        let reply = post(service.admin, "/reset", "{}").await;
        let why = "too many requests";
        (reply.status == 503 && reply.error().contains(why))
            .then_some(())
            .ok_or(reply)
    };
    until_async("a body is refused", refused).await;
    assert_eq!(get(service.admin, "/limits").await.status, 200);
    assert!(passes(&mut service, "user", "a").await);
    drop(open);
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"a"}]}"#;
    let read = async || {
        let reply = post(service.admin, "/reset", reset).await;
        (reply.status == 200).then_some(()).ok_or(reply)
    };
    until_async("bodies are read again", read).await;
    for garbage in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET /limits\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let answer = send(service.admin, garbage.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 400") || answer.is_empty(),
            "{answer}"
        );
    }
    assert_eq!(get(service.admin, "/limits").await.status, 200);
}
