//! Leases of callers as JSON: what is granted, what comes back, and what observers see of it.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{body, has, left, post};
use crate::service::admin;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, name: requests }
  - key: second
    rate_limit: { unit: second, requests_per_unit: 100 }
  - key: log
    rate_limit: { unit: hour, requests_per_unit: 10, algorithm: sliding_log }
  - key: all
    rate_limit: { unit: hour, requests_per_unit: 10, count_refused: all }
  - key: llm
    rate_limit: { unit: hour, requests_per_unit: 10, reserve: { key: id, amount: 5 } }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: direct
    rate_limit: { unit: hour, requests_per_unit: 10, lease: false }
  - key: free
    rate_limit: { unlimited: true }
";

fn user(more: Value) -> Value {
    body("user", "ann", more)
}

/// A lease of this many hits at most.
async fn lease(service: &Service, more: Value) -> Value {
    let (status, answer) = post(service.http, "lease", &user(more)).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn a_lease_takes_hits_and_a_return_gives_the_unused_back_once() {
    let service = Service::start(RULES, &[]).await;
    let answer = lease(&service, json!({"hits": 100})).await;
    has(
        &answer,
        json!({"verdict": "OK", "granted": 100, "expires": "2s", "remaining": 900, "not_leased": null}),
    );
    assert_eq!(answer["limits"][0]["name"], "requests");
    let id = answer["lease"].as_str().unwrap();
    assert!(id.starts_with("100.1700006412500."), "{id}");
    assert_eq!(left(&service, "user", "ann").await, 900);
    let back = user(json!({"lease": id, "unused": 5}));
    for _ in 0..2 {
        let (status, answer) = post(service.http, "return", &back).await;
        assert_eq!((status, answer), (200, json!({"returned": 5})));
        assert_eq!(left(&service, "user", "ann").await, 905);
    }
    // The first answer counts, whatever is said then.
    let other = user(json!({"lease": id, "unused": 50}));
    let (status, answer) = post(service.http, "return", &other).await;
    assert_eq!((status, answer), (200, json!({"returned": 5})));
    service.clock.advance_us(2_000_000);
    let (status, answer) = post(service.http, "return", &back).await;
    assert_eq!((status, answer), (200, json!({"returned": 0})));
    assert_eq!(left(&service, "user", "ann").await, 905);
}

#[tokio::test]
async fn what_an_expired_lease_held_stays_taken() {
    let service = Service::start(RULES, &[]).await;
    let answer = lease(&service, json!({"hits": 100})).await;
    service.clock.advance_us(2_000_000);
    let back = user(json!({"lease": answer["lease"], "unused": 100}));
    let (status, answer) = post(service.http, "return", &back).await;
    assert_eq!((status, answer), (200, json!({"returned": 0})));
    assert_eq!(left(&service, "user", "ann").await, 900);
}

#[tokio::test]
async fn a_lease_is_at_most_a_quarter_of_what_is_left_and_never_beyond_the_window() {
    let service = Service::start(RULES, &["--caller-lease-hits-max", "20"]).await;
    let second = |more| body("second", "", more);
    let mut granted = Vec::new();
    loop {
        let (status, answer) =
            post(service.http, "lease", &second(json!({"hits": 1_000_000}))).await;
        if status == 429 {
            has(
                &answer,
                json!({"verdict": "OVER_LIMIT", "granted": 0, "lease": null, "retry_after": "0.5s"}),
            );
            break;
        }
        // The window ends half a second after the start.
        has(&answer, json!({"verdict": "OK", "expires": "0.5s"}));
        granted.push(answer["granted"].as_u64().unwrap());
    }
    // A quarter of 100 is above the setting. Then each is one more caller, with its share.
    assert_eq!(granted[..3], [20, 80 / 4 / 2, 70 / 4 / 3]);
    assert_eq!(granted.iter().sum::<u64>(), 100);
    assert_eq!(granted.last(), Some(&1));
    service.clock.advance_us(500_000);
    assert_eq!(left(&service, "second", "").await, 100);
}

#[tokio::test]
async fn a_lease_grows_with_what_its_caller_used() {
    let service = Service::start(RULES, &[]).await;
    let first = lease(&service, json!({"hits": 100, "admitted": 0})).await;
    assert_eq!(first["granted"], 1);
    let second = json!({"hits": 100, "lease": first["lease"], "admitted": 1, "refused": 0});
    let second = lease(&service, second).await;
    assert_eq!(second["granted"], 4);
    // It is the same caller.
    let third = json!({"hits": 1000, "lease": second["lease"], "admitted": 4});
    assert_eq!(lease(&service, third).await["granted"], 16);
    assert_eq!(service.metric("tollgate_caller_lease_holders"), 1);
}

#[tokio::test]
async fn all_limits_of_a_call_give_hits_or_none() {
    let service = Service::start(RULES, &[]).await;
    let both = |more: Value| {
        let mut both = user(more);
        let second = json!({"entries": [{"key": "second", "value": ""}]});
        both["descriptors"].as_array_mut().unwrap().push(second);
        both
    };
    let (status, answer) = post(service.http, "lease", &both(json!({"hits": 100}))).await;
    assert_eq!((status, &answer["granted"]), (200, &json!(25)));
    assert_eq!(answer["expires"], "0.5s");
    assert_eq!(left(&service, "user", "ann").await, 975);
    assert_eq!(left(&service, "second", "").await, 75);
    let take = body("second", "", json!({"hits": 75}));
    assert_eq!(post(service.http, "check", &take).await.0, 200);
    let (status, answer) = post(service.http, "lease", &both(json!({"hits": 100}))).await;
    assert_eq!((status, &answer["granted"]), (429, &json!(0)));
    assert_eq!(left(&service, "user", "ann").await, 975);
}

#[tokio::test]
async fn limits_that_are_not_leased_say_why_and_nothing_is_taken() {
    let service = Service::start(RULES, &[]).await;
    for (key, reason) in [
        ("log", "algorithm"),
        ("all", "algorithm"),
        ("llm", "reservation"),
        ("direct", "lease_false"),
        ("shadow", "shadow"),
        ("quota", "quota_mode"),
        ("free", "unlimited"),
        ("none", "no_rule"),
    ] {
        let call = body(key, "", json!({"hits": 5}));
        let (status, answer) = post(service.http, "lease", &call).await;
        assert_eq!(status, 200, "{answer}");
        has(
            &answer,
            json!({"not_leased": reason, "granted": 0, "expires": "2s", "lease": null}),
        );
        if answer["remaining"] != Value::Null {
            assert_eq!(left(&service, key, "").await, 10, "{key}");
        }
    }
    let mut unknown = user(json!({"hits": 5}));
    unknown["domain"] = json!("unknown");
    let (status, answer) = post(service.http, "lease", &unknown).await;
    assert_eq!(
        (status, &answer["not_leased"]),
        (200, &json!("unknown_domain"))
    );
    let shadow = Service::start(RULES, &["--shadow-mode", "true"]).await;
    assert_eq!(
        lease(&shadow, json!({"hits": 5})).await["not_leased"],
        "shadow"
    );
}

#[tokio::test]
async fn one_limit_that_is_not_leased_excludes_the_whole_call() {
    let service = Service::start(RULES, &[]).await;
    let mut both = user(json!({"hits": 5}));
    let direct = json!({"entries": [{"key": "direct", "value": ""}]});
    both["descriptors"].as_array_mut().unwrap().push(direct);
    let (status, answer) = post(service.http, "lease", &both).await;
    assert_eq!(status, 200, "{answer}");
    has(
        &answer,
        json!({"not_leased": "lease_false", "granted": 0, "expires": "2s", "lease": null}),
    );
    assert_eq!(left(&service, "user", "ann").await, 1_000);
    assert_eq!(left(&service, "direct", "").await, 10);
}

#[tokio::test]
async fn bad_calls_are_refused_and_take_nothing() {
    let service = Service::start(RULES, &[]).await;
    let leased = lease(&service, json!({"hits": 10})).await;
    let id = leased["lease"].as_str().unwrap();
    let own_hits = json!([{"entries": [{"key": "user", "value": "ann"}], "hits": 3}]);
    let altered = id.replacen("10.", "99.", 1);
    let nobody = format!("5.1700006412500.{}", "0".repeat(32));
    for (call, more, status, why) in [
        ("lease", json!({"hits": 0}), 400, "hits is 0; send how many"),
        ("lease", json!({"hits": -1}), 400, "hits is negative"),
        ("lease", json!({"hits": "5"}), 400, "hits is a text"),
        (
            "lease",
            json!({"hits": 9_007_199_254_740_992_u64}),
            400,
            "hits is too large",
        ),
        (
            "lease",
            json!({"descriptors": own_hits}),
            400,
            "descriptors[0].hits is not of a lease",
        ),
        (
            "lease",
            json!({"lease": "x".repeat(257)}),
            400,
            "lease has 257 bytes",
        ),
        ("return", json!({}), 400, "lease is missing"),
        (
            "return",
            json!({"lease": id, "unused": 11}),
            400,
            "unused is more than the 10 hits of the lease",
        ),
        (
            "return",
            json!({"lease": "x".repeat(257)}),
            400,
            "lease has 257 bytes",
        ),
        (
            "return",
            json!({"lease": "mine"}),
            404,
            "no lease of this id",
        ),
        (
            "return",
            json!({"lease": altered, "unused": 90}),
            404,
            "no lease of this id",
        ),
        (
            "return",
            json!({"lease": nobody, "unused": 5}),
            404,
            "no lease of this id",
        ),
    ] {
        let (seen, answer) = post(service.http, call, &user(more)).await;
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(seen, status, "{answer}");
        assert!(text.starts_with(why), "{text}");
    }
    // Ids belong to the buckets of their descriptors.
    let foreign = body("user", "bob", json!({"lease": id, "unused": 5}));
    assert_eq!(post(service.http, "return", &foreign).await.0, 404);
    assert_eq!(left(&service, "user", "ann").await, 990);
}

#[tokio::test]
async fn what_callers_decided_is_counted_and_the_steps_of_a_lease_are_not() {
    let service = Service::start(RULES, &[]).await;
    let hits = |outcome: &str| {
        let labels =
            format!("domain=\"d\",limit=\"requests\",outcome=\"{outcome}\",rule=\"d.user\"");
        service.metric(&format!("tollgate_limit_hits_total{{{labels}}}"))
    };
    let first = lease(&service, json!({"hits": 100})).await;
    assert_eq!((hits("admitted"), hits("refused")), (0, 0));
    let more = json!({"hits": 100, "lease": first["lease"], "admitted": 60, "refused": 7});
    let second = lease(&service, more).await;
    assert_eq!((hits("admitted"), hits("refused")), (60, 7));
    let back = user(json!({"lease": second["lease"], "unused": 40, "admitted": 90}));
    for _ in 0..2 {
        post(service.http, "return", &back).await;
        assert_eq!((hits("admitted"), hits("refused")), (150, 7));
    }
    let count = |series: &str| service.metric(series);
    assert_eq!(count("tollgate_decisions_total{code=\"ok\"}"), 2);
    assert_eq!(count("tollgate_decisions_total{code=\"over_limit\"}"), 1);
    for (method, calls) in [
        ("Lease", 2),
        ("Return", 2),
        ("Peek", 0),
        ("Reserve", 0),
        ("Commit", 0),
    ] {
        let series = format!("ratelimit_service_total_requests{{grpc_method=\"{method}\"}}");
        assert_eq!(count(&series), calls, "{method}");
    }
    assert_eq!(count("tollgate_caller_leases_total{result=\"granted\"}"), 2);
    assert_eq!(
        count("tollgate_caller_lease_hits_total{hits=\"granted\"}"),
        200
    );
    assert_eq!(
        count("tollgate_caller_lease_hits_total{hits=\"returned\"}"),
        40
    );
    assert_eq!(
        count("tollgate_caller_lease_returns_total{result=\"returned\"}"),
        1
    );
    assert_eq!(
        count("tollgate_caller_lease_returns_total{result=\"repeated\"}"),
        1
    );
    // 60 + 90 admitted and 40 returned, of 200.
    assert_eq!(count("tollgate_caller_lease_excess_hits_total"), 0);
}

#[tokio::test]
async fn a_caller_that_reports_more_than_it_was_granted_is_counted() {
    let service = Service::start(RULES, &[]).await;
    let excess = || service.metric("tollgate_caller_lease_excess_hits_total");
    let first = lease(&service, json!({"hits": 10})).await;
    // 3 of 10 are left when the second lease comes.
    let second = json!({"hits": 10, "lease": first["lease"], "admitted": 7});
    let second = lease(&service, second).await;
    let third = json!({"hits": 10, "lease": second["lease"], "admitted": 13});
    let third = lease(&service, third).await;
    assert_eq!(excess(), 0);
    let fourth = json!({"hits": 10, "lease": third["lease"], "admitted": 15});
    let fourth = lease(&service, fourth).await;
    assert_eq!(excess(), 5);
    let back = user(json!({"lease": fourth["lease"], "unused": 10, "admitted": 2}));
    assert_eq!(post(service.http, "return", &back).await.0, 200);
    assert_eq!(excess(), 7);
    // Nothing is known of the leases of another replica.
    let other = format!("5.1700006412500.{}", "0".repeat(32));
    lease(&service, json!({"lease": other, "admitted": 1_000})).await;
    assert_eq!(excess(), 7);
    // Without a lease, a caller may be any that has one.
    lease(&service, json!({"admitted": 2_000})).await;
    assert!(excess() > 1_900, "{}", excess());
}

#[tokio::test]
async fn leases_are_calls_of_batches_too() {
    let service = Service::start(RULES, &[]).await;
    let calls = json!({"calls": [
        {"tag": 1, "lease": user(json!({"hits": 8}))},
        {"tag": 2, "return": user(json!({"lease": "mine", "unused": 1}))},
        {"tag": 3, "lease": body("free", "", json!({}))},
    ]});
    let (status, answer) = post(service.http, "batch", &calls).await;
    assert_eq!(status, 200);
    let answers = answer["answers"].as_array().unwrap();
    assert_eq!(
        (&answers[0]["status"], &answers[0]["lease"]["granted"]),
        (&json!(200), &json!(8))
    );
    assert_eq!(answers[1]["status"], 404);
    assert_eq!(answers[2]["lease"]["not_leased"], "unlimited");
    let id = &answers[0]["lease"]["lease"];
    let calls = json!({"calls": [{"return": user(json!({"lease": id, "unused": 8}))}]});
    let (_, answer) = post(service.http, "batch", &calls).await;
    assert_eq!(
        answer["answers"][0],
        json!({"tag": 0, "status": 200, "return": {"returned": 8}})
    );
    assert_eq!(left(&service, "user", "ann").await, 1_000);
}

#[tokio::test]
async fn a_reset_ends_leases() {
    let service = Service::start(RULES, &[]).await;
    let leased = lease(&service, json!({"hits": 10})).await;
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"ann"}]}"#;
    let reply = admin::post(service.admin, "/reset", reset).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let back = user(json!({"lease": leased["lease"], "unused": 10}));
    assert_eq!(post(service.http, "return", &back).await.0, 404);
    assert_eq!(left(&service, "user", "ann").await, 1_000);
}
