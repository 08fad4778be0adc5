//! Single decisions: why each request was answered as it was, the last ones, and subscriptions.
//!
//! Each way in which a request ends is caused for real, and `GET /decisions` says which it was. The
//! denial cache needs a real Redis (`tests/redis`).

use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate::admin_api::{Entry, Verdict};
use tollgate::clock::{Clock, ManualClock};
use tollgate::decisions::{
    DecisionFilter, Decisions, FILTERS_MAX, RecentQuery, SUBSCRIPTIONS_MAX, SubscribeError,
};
use tollgate_test_support::grpc_client::{Descriptor, RateLimitRequest, descriptor, hits, request};
use tollgate_test_support::in_process::{START, Service};

use crate::service::admin::get;
use crate::service::ways_in::Way;
use crate::service::{flags, override_of};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
  - key: level
    descriptors:
      - key: below
        rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: tight
    rate_limit: { unit: hour, requests_per_unit: 1, name: tight, replaces: [ { name: wide } ] }
  - key: wide
    rate_limit: { unit: hour, requests_per_unit: 1, name: wide }
";

/// The last decision.
async fn last(service: &Service) -> Value {
    let decisions = get(service.admin, "/decisions?n=1").await.json();
    decisions["decisions"][0].clone()
}

/// Sends a request, which may fail, and returns its decision.
async fn decision(service: &mut Service, request: RateLimitRequest) -> Value {
    // Newest first by time: each request has a time of its own.
    service.clock.set(service.clock.now().plus_us(1_000));
    let _ = service.client.should_rate_limit(request).await;
    last(service).await
}

/// Verdict and reason of the whole, then the reason of each descriptor.
fn reasons(decision: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("null").to_owned();
    let mut words = vec![text(&decision["verdict"]), text(&decision["reason"])];
    let descriptors = decision["descriptors"].as_array().unwrap();
    words.extend(descriptors.iter().map(|one| text(&one["reason"])));
    words.join(" ")
}

async fn reason(service: &mut Service, domain: &'static str, each: Vec<Descriptor>) -> String {
    reasons(&decision(service, request(domain, each)).await)
}

#[tokio::test]
async fn each_request_says_which_rule_answered_and_why() {
    let mut service = Service::start(RULES, &["--top-keys", "plain"]).await;
    let one = |key| vec![descriptor(&[(key, "x")])];
    for (key, expected) in [
        ("user", "OK within_limit within_limit"),
        ("user", "OVER_LIMIT over_limit over_limit"),
        ("watched", "OK within_limit within_limit"),
        ("watched", "OK shadow_mode shadow_mode"),
        ("free", "OK unlimited unlimited"),
        ("level", "OK no_limit no_limit"),
        ("unknown", "OK no_rule no_rule"),
    ] {
        assert_eq!(reason(&mut service, "d", one(key)).await, expected, "{key}");
    }
    let elsewhere = reason(&mut service, "elsewhere", one("user")).await;
    assert_eq!(elsewhere, "OK unknown_domain unknown_domain");
    // A quota that is used up, beside another that is not.
    let quotas = vec![hits("quota", "a", 2), hits("quota", "b", 1)];
    let quota = reason(&mut service, "d", quotas).await;
    assert_eq!(quota, "OK quota quota within_limit");
    let all = reason(&mut service, "d", vec![hits("quota", "a", 2)]).await;
    assert_eq!(all, "OVER_LIMIT over_limit over_limit");
    let both = vec![descriptor(&[("wide", "x")]), descriptor(&[("tight", "x")])];
    let replaced = reason(&mut service, "d", both).await;
    assert_eq!(replaced, "OK within_limit replaced within_limit");
    let empty = reason(&mut service, "d", Vec::new()).await;
    assert_eq!(empty, "ERROR error");
}

#[tokio::test]
async fn a_decision_has_all_that_explains_it() {
    let mut service = Service::start(RULES, &["--top-keys", "plain"]).await;
    service.ask(request("d", vec![hits("user", "x", 1)])).await;
    let over = vec![hits("user", "x", 3), hits("user", "é", 1)];
    let decision = decision(&mut service, request("d", over)).await;
    let limit = json!({
        "requests_per_unit": 1, "unit": "hour", "unit_multiplier": 1,
        "algorithm": "fixed_window", "burst": 1, "text": "1 per hour",
    });
    assert_eq!(
        decision,
        json!({
            "at": "2023-11-15T00:00:10.501Z",
            "domain": "d",
            "verdict": "OVER_LIMIT",
            "reason": "over_limit",
            "error": null,
            "took_us": 0,
            "generation": 1,
            "descriptors": [
                {
                    "entries": [{"key": "user", "value": "x"}],
                    "verdict": "OVER_LIMIT",
                    "reason": "over_limit",
                    "rule": "d.user",
                    "limit": limit,
                    "hits": 3,
                    "remaining": 0,
                    "reset_seconds": 3590,
                },
                {
                    "entries": [{"key": "user", "value": "é"}],
                    "verdict": "OK",
                    "reason": "within_limit",
                    "rule": "d.user",
                    "limit": limit,
                    "hits": 1,
                    "remaining": 0,
                    "reset_seconds": 3590,
                },
            ],
            "descriptors_omitted": 0,
        })
    );
    let error = self::decision(&mut service, request("", vec![hits("user", "x", 1)])).await;
    assert_eq!(error["error"], "rate limit domain must not be empty");
    assert_eq!(error["descriptors"][0]["verdict"], Value::Null);
    let with_limit = Descriptor {
        limit: override_of(5, 2),
        ..descriptor(&[("user", "x")])
    };
    let brought = self::decision(&mut service, request("d", vec![with_limit])).await;
    assert_eq!(brought["descriptors"][0]["rule"], "(override)");
    assert_eq!(brought["descriptors"][0]["limit"]["text"], "5 per minute");
}

#[tokio::test]
async fn modes_and_policies_of_the_service_are_named() {
    let overload = "--partitions 1 --mailbox-checks-max 1 --on-overload";
    let excess = "--descriptors-max 1 --on-excess";
    let down = "--store redis://127.0.0.1:1 --on-store-failure";
    // Two descriptors, or one of two hits.
    for (line, answer, count, expected) in [
        ("--shadow-mode", "true", 1, "OK global_shadow_mode"),
        (overload, "allow", 2, "OK overload_allowed"),
        (overload, "deny", 2, "OVER_LIMIT overload_denied"),
        (overload, "error", 2, "ERROR error"),
        (excess, "allow", 2, "OK excess_allowed"),
        (excess, "deny", 2, "OVER_LIMIT excess_denied"),
        (excess, "error", 2, "ERROR error"),
        (down, "allow", 1, "OK store_failure_allowed"),
        (down, "deny", 1, "OVER_LIMIT store_failure_denied"),
        (down, "error", 1, "ERROR error"),
    ] {
        let arguments = [flags(line), vec![answer]].concat();
        let each = match count {
            1 => vec![hits("user", "x", 2)],
            _ => vec![hits("user", "x", 1), hits("watched", "x", 1)],
        };
        // Each descriptor has the reason of the whole.
        let (_, why) = expected.split_once(' ').unwrap();
        let expected = format!("{expected}{}", format!(" {why}").repeat(count));
        let mut service = Service::start(RULES, &arguments).await;
        let words = reason(&mut service, "d", each).await;
        assert_eq!(words, expected, "{arguments:?}");
    }
    let local = [flags(down), vec!["local"]].concat();
    let mut service = Service::start(RULES, &local).await;
    for expected in ["OK", "OVER_LIMIT"] {
        let words = reason(&mut service, "d", vec![hits("user", "x", 1)]).await;
        assert_eq!(
            words,
            format!("{expected} store_failure_local store_failure_local")
        );
    }
}

#[tokio::test]
async fn json_requests_are_kept_too() {
    let service = Service::start(RULES, &[]).await;
    let mut json = Way::open(&service, "json").await;
    json.ask(&request("d", vec![hits("user", "x", 1)]))
        .await
        .unwrap();
    assert_eq!(
        reasons(&last(&service).await),
        "OK within_limit within_limit"
    );
}

#[tokio::test]
async fn filters_choose_and_values_are_hashed_unless_the_setting_shows_them() {
    let mut service = Service::start(RULES, &[]).await;
    for (key, value) in [("user", "alice"), ("user", "bob"), ("watched", "alice")] {
        decision(&mut service, request("d", vec![hits(key, value, 2)])).await;
    }
    decision(
        &mut service,
        request("elsewhere", vec![hits("user", "bob", 1)]),
    )
    .await;
    let all = get(service.admin, "/decisions").await.json();
    assert_eq!((&all["kept"], &all["skipped"]), (&json!(4), &json!(0)));
    assert_eq!(all["values"], "hashed");
    assert!(!all.to_string().contains("alice"), "{all}");
    let shown = &all["decisions"][3]["descriptors"][0]["entries"][0]["value"];
    let hash = shown.as_str().unwrap().replace('#', "%23");
    for (query, count) in [
        ("domain=d", 3),
        ("domain=nowhere", 0),
        ("rule=d.user", 2),
        ("verdict=OVER_LIMIT", 2),
        ("reason=shadow_mode", 1),
        ("key=user=alice", 1),
        (&format!("key=user={hash}"), 1),
        ("key=watched=alice&rule=d.user", 0),
        ("domain=d&n=2", 2),
    ] {
        let found = get(service.admin, &format!("/decisions?{query}")).await;
        let found = found.json()["decisions"].as_array().unwrap().len();
        assert_eq!(found, count, "{query}");
    }
}

/// The name of the rule has them anyway.
#[tokio::test]
async fn values_that_the_rule_spells_itself_are_shown() {
    let rules = "domain: d\ndescriptors:\n  - key: plan\n    value: free\n    descriptors:\n      \
        - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let mut service = Service::start(rules, &[]).await;
    let asked = descriptor(&[("plan", "free"), ("user", "alice")]);
    service.ask(request("d", vec![asked])).await;
    let decisions = get(service.admin, "/decisions").await.json();
    let top = get(service.admin, "/top?by=asked").await.json();
    for entries in [
        &decisions["decisions"][0]["descriptors"][0]["entries"],
        &top["keys"][0]["descriptor"],
    ] {
        assert_eq!(entries[0], json!({"key": "plan", "value": "free"}));
        let user = entries[1]["value"].as_str().unwrap();
        assert!(user.starts_with('#'), "{user}");
    }
}

#[tokio::test]
async fn a_ring_of_many_decisions_counts_what_it_does_not_keep() {
    let mut service = Service::start(RULES, &["--decisions-kept-max", "80", "--cores", "1"]).await;
    // The clock stands still: only the burst is kept.
    for number in 0..200 {
        let free = descriptor(&[("free", &number.to_string())]);
        service.ask(request("d", vec![free])).await;
    }
    let page = get(service.admin, "/decisions").await.json();
    let (kept, skipped) = (&page["kept"], &page["skipped"]);
    assert_eq!((kept, skipped), (&json!(80), &json!(120)));
    let none = Service::start(RULES, &["--decisions-kept-max", "0"]).await;
    assert_eq!(last(&none).await, Value::Null);
}

#[tokio::test]
async fn a_subscription_has_what_matches_and_counts_what_it_skips() {
    let settings = ["--top-keys", "plain", "--cores", "1"];
    let mut service = Service::start(RULES, &settings).await;
    let decisions = service.decisions.clone();
    let filter = DecisionFilter {
        domain: Some("d".to_owned()),
        entries: vec![Entry {
            key: "user".to_owned(),
            value: "alice".to_owned(),
        }],
        verdict: Some(Verdict::OverLimit),
        ..DecisionFilter::default()
    };
    let by_rule = DecisionFilter {
        rule: Some("d.user".to_owned()),
        ..DecisionFilter::default()
    };
    let rate = |per_second| NonZeroU32::new(per_second).unwrap();
    let mut few = decisions.subscribe(filter.clone(), rate(2)).unwrap();
    let mut more = decisions.subscribe(filter, rate(3)).unwrap();
    let mut ruled = decisions.subscribe(by_rule, rate(4)).unwrap();
    // One passes, nine are over; others do not match.
    for _ in 0..10 {
        for (key, value) in [("user", "alice"), ("user", "bob"), ("free", "alice")] {
            service.ask(request("d", vec![hits(key, value, 1)])).await;
        }
    }
    for (subscription, passed, matched) in
        [(&mut few, 2, 9), (&mut more, 3, 9), (&mut ruled, 4, 20)]
    {
        for number in 0..passed {
            let record = subscription.next().await.unwrap();
            assert_eq!(record.descriptors[0].rule.as_deref(), Some("d.user"));
            if matched == 9 {
                assert_eq!(record.verdict, Verdict::OverLimit, "{number}");
                assert_eq!(record.descriptors[0].entries[0].value, "alice");
            }
        }
        let none = tokio::time::timeout(std::time::Duration::ZERO, subscription.next()).await;
        assert!(none.is_err());
        assert_eq!(subscription.take_skipped(), matched - passed);
        assert_eq!(subscription.take_skipped(), 0);
    }
    // The next second.
    service.clock.set(service.clock.now().plus_us(1_000_000));
    service
        .ask(request("d", vec![hits("user", "alice", 1)]))
        .await;
    assert!(few.next().await.is_some());
    assert!(more.next_json().await.unwrap().contains("alice"));
}

#[tokio::test]
async fn a_slow_subscription_loses_decisions_and_counts_them() {
    let mut service = Service::start(RULES, &["--cores", "1"]).await;
    let rate = NonZeroU32::new(1_000).unwrap();
    let all = DecisionFilter::default();
    let mut subscription = service.decisions.subscribe(all, rate).unwrap();
    for _ in 0..600 {
        service.ask(request("d", vec![hits("free", "x", 1)])).await;
    }
    let mut read = 0_u64;
    while tokio::time::timeout(std::time::Duration::ZERO, subscription.next_json())
        .await
        .is_ok()
    {
        read += 1;
    }
    let skipped = subscription.take_skipped();
    assert!(read > 0 && skipped > 0, "{read} {skipped}");
    assert_eq!(read + skipped, 600);
}

#[test]
fn the_number_of_subscriptions_and_filters_is_bounded() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(START));
    let decisions = Decisions::alone(&clock, 16).unwrap();
    let filter = |number: usize| DecisionFilter {
        domain: Some(number.to_string()),
        ..DecisionFilter::default()
    };
    let subscribe = |number| decisions.subscribe(filter(number), NonZeroU32::MIN);
    let mut open: Vec<_> = (0..FILTERS_MAX).map(|n| subscribe(n).unwrap()).collect();
    let refused = subscribe(FILTERS_MAX).unwrap_err();
    assert_eq!(refused, SubscribeError::TooManyFilters);
    // Those with a known filter share its sampling.
    open.extend((FILTERS_MAX..SUBSCRIPTIONS_MAX).map(|_| subscribe(0).unwrap()));
    let refused = subscribe(0).unwrap_err();
    assert_eq!(refused, SubscribeError::TooManySubscriptions);
    open.clear();
    assert!(subscribe(FILTERS_MAX).is_ok());
    assert!(
        decisions
            .recent(&RecentQuery::default())
            .decisions
            .is_empty()
    );
}
