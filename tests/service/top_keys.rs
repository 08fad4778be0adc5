//! Top keys of a running service: real checks, then what a reader gets.
//!
//! What it deliberately does not do: test the summaries
//! (`crates/engine/src/top_keys/tests.rs`), or the route (`admin`).

use tollgate::admin_api::{Entry, RankBy, Top, TopKey, ValueMode, Window};
use tollgate::top_keys::TopQuery;
use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor, hits, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;

use crate::service::override_of;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: quiet
    shadow_mode: true
    rate_limit: { name: few, unit: hour, requests_per_unit: 1 }
  - key: network
    ipv6_prefix: 64
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

fn by(by: RankBy) -> TopQuery {
    TopQuery {
        by,
        n: 20,
        ..TopQuery::default()
    }
}

fn user(name: &str) -> Descriptor {
    descriptor(&[("user", name)])
}

fn entry(key: &str, value: &str) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn counts(top: &Top) -> Vec<(&str, u64, u64)> {
    let keys = top.keys.iter();
    let count = |key: &TopKey| (key.asked, key.refused);
    keys.map(|key| {
        let (asked, refused) = count(key);
        (key.rule.as_str(), asked, refused)
    })
    .collect()
}

#[tokio::test]
async fn a_refused_key_is_found_by_who_knows_it_and_its_value_is_nowhere() {
    let mut service = Service::start(RULES, &["--cores", "2"]).await;
    for _ in 0..5 {
        service.clock.advance_us(1_000_000);
        service.status("shop", user("alice")).await;
    }
    // Another connection, on another thread, adds to the same key.
    let mut other = Service::connect(service.grpc).await;
    for name in ["bob", "alice", "alice"] {
        let request = request("shop", vec![user(name)]);
        other.should_rate_limit(request).await.unwrap();
    }
    let top = service.top(&by(RankBy::Refused)).await;
    assert_eq!(top.values, ValueMode::Hashed);
    assert_eq!((top.asked, top.refused, top.covered_seconds), (8, 5, 5));
    assert_eq!(counts(&top), [("shop.user", 7, 5)]);
    let key = &top.keys[0];
    assert_eq!((key.domain.as_str(), key.error), ("shop", 0));
    assert_eq!(
        key.refused_since.as_deref(),
        Some("2023-11-15T00:00:13.500Z")
    );
    assert_eq!(
        key.refused_last.as_deref(),
        Some("2023-11-15T00:00:15.500Z")
    );
    assert!(!format!("{top:?}").contains("alice"));
    let shown = key.descriptor[0].clone();
    assert_eq!((shown.key.as_str(), shown.value.len()), ("user", 17));
    // Is it this one?
    for (value, found) in [("alice", 1), (&shown.value, 1), ("bob", 0), ("carol", 0)] {
        let query = TopQuery {
            descriptor: vec![entry("user", value)],
            ..by(RankBy::Refused)
        };
        assert_eq!(service.top(&query).await.keys.len(), found, "{value}");
    }
    let asked = service.top(&by(RankBy::Asked)).await;
    assert_eq!(counts(&asked), [("shop.user", 7, 5), ("shop.user", 1, 0)]);
    // The minute passes without another request.
    service.clock.advance_us(70_000_000);
    assert!(service.top(&by(RankBy::Asked)).await.keys.is_empty());
    let hour = TopQuery {
        window: Window::Hour,
        ..by(RankBy::Asked)
    };
    assert_eq!(service.top(&hour).await.keys.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_in_and_every_kind_of_limit_is_counted() {
    let mut service = Service::start(RULES, &["--top-keys", "plain"]).await;
    // What shadow mode lets pass would be refused.
    for code in [Code::Ok, Code::Ok, Code::Ok] {
        let status = service.status("shop", descriptor(&[("quiet", "a")])).await;
        assert_eq!(status.code(), code);
    }
    // Two addresses of one network are one key.
    for address in ["2001:db8::1", "2001:DB8::2"] {
        let network = descriptor(&[("network", address)]);
        service.status("shop", network).await;
    }
    let brought = Descriptor {
        limit: override_of(1, 3),
        ..hits("plan", "b", 2)
    };
    service.status("shop", brought).await;
    // `/json` is not decided by a batcher.
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"json"}]}]}"#;
    assert_eq!(http(service.http, "POST", "/json", body).0, 200);
    // A look takes nothing.
    service.status("shop", hits("user", "nobody", 0)).await;
    let top = service.top(&by(RankBy::Asked)).await;
    let mut shown: Vec<_> = top
        .keys
        .iter()
        .map(|key| {
            let entry = &key.descriptor[0];
            let text = format!("{} {} {}={}", key.domain, key.rule, entry.key, entry.value);
            (text, key.asked, key.refused, key.would_refuse)
        })
        .collect();
    shown.sort();
    let shown: Vec<_> = shown
        .iter()
        .map(|(text, asked, refused, would)| (text.as_str(), *asked, *refused, *would))
        .collect();
    assert_eq!(
        shown,
        [
            ("shop (override) plan=b", 2, 2, 0),
            ("shop shop.network network=2001:db8::/64", 2, 1, 0),
            ("shop shop.quiet name=few quiet=a", 3, 0, 2),
            ("shop shop.user user=json", 1, 0, 0),
        ]
    );
    let filtered = |query: TopQuery| {
        let service = &service;
        async move { service.top(&query).await.keys.len() }
    };
    let domain = |domain: &str| TopQuery {
        domain: Some(domain.to_owned()),
        ..by(RankBy::Asked)
    };
    assert_eq!(filtered(domain("shop")).await, 4);
    assert_eq!(filtered(domain("other")).await, 0);
    for (rule, keys) in [("shop.user", 1), ("(override)", 1), ("shop.quiet", 0)] {
        let query = TopQuery {
            rule: Some(rule.to_owned()),
            ..by(RankBy::Asked)
        };
        assert_eq!(filtered(query).await, keys, "{rule}");
    }
    let address = TopQuery {
        descriptor: vec![entry("network", "2001:db8::77")],
        ..by(RankBy::Asked)
    };
    assert_eq!(filtered(address).await, 1);
    assert!(service.metric("tollgate_top_keys_memory_bytes") > 0);
}

#[tokio::test]
async fn off_counts_nothing() {
    let mut service = Service::start(RULES, &["--top-keys", "off"]).await;
    for _ in 0..3 {
        service.status("shop", user("alice")).await;
    }
    let top = service.top(&by(RankBy::Asked)).await;
    assert_eq!(
        (top.values, top.asked, top.keys.len()),
        (ValueMode::Off, 0, 0)
    );
    assert_eq!(service.metric("tollgate_top_keys_memory_bytes"), 0);
}

#[tokio::test]
async fn counts_outlive_reloads_as_long_as_their_rule_does() {
    let mut service = Service::start(RULES, &["--cores", "1"]).await;
    service.status("shop", user("alice")).await;
    service.status("shop", descriptor(&[("quiet", "a")])).await;
    assert_eq!(service.top(&by(RankBy::Asked)).await.keys.len(), 2);
    let without_quiet = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 7 }
";
    service.reload(without_quiet).await;
    let top = service.top(&by(RankBy::Asked)).await;
    assert_eq!(counts(&top), [("shop.user", 1, 0)]);
    // Rules that come and go leave nothing behind.
    let mut bytes = Vec::new();
    for round in 0..300 {
        let key = format!("key-{round}");
        let rules = format!(
            "domain: shop\ndescriptors:\n  - key: {key}\n    rate_limit: {{ unit: hour, requests_per_unit: 7 }}\n"
        );
        service.reload(&rules).await;
        service.status("shop", descriptor(&[(&key, "a")])).await;
        // The reader waits until the thread has seen the reload.
        assert_eq!(service.top(&by(RankBy::Asked)).await.keys.len(), 1);
        bytes.push(service.metric("tollgate_top_keys_memory_bytes"));
    }
    // Texts have no rule; they are bounded by bytes, and dropped where space is needed.
    let more = bytes[299].saturating_sub(bytes[20]);
    assert!(more < 300 * 512, "{more} bytes more");
}

#[tokio::test]
async fn hostile_requests_are_counted_within_the_bounds() {
    let arguments = ["--top-keys-memory-max", "1MiB", "--cores", "1"];
    let mut service = Service::start(RULES, &arguments).await;
    let long = "x".repeat(200_000);
    let binary: &[u8] = b"\xff\xfe\x00";
    service.status("shop", user(&long)).await;
    service
        .status("shop", descriptor(&[(b"user".as_slice(), binary)]))
        .await;
    let limit = override_of(1, 1);
    let deep: Vec<_> = (0..24)
        .map(|level| (format!("level-{level}-{}", "k".repeat(300)), "v"))
        .collect();
    let deep = Descriptor {
        limit,
        ..descriptor(&deep)
    };
    service.status("shop", deep).await;
    let top = service.top(&by(RankBy::Asked)).await;
    assert_eq!(top.keys.len(), 3);
    let longest = top.keys.iter().map(|key| key.descriptor.len()).max();
    assert_eq!(longest, Some(24));
    // A flood of new keys.
    for round in 0..100 {
        let descriptors = (0..100).map(|n| user(&format!("{round}-{n}"))).collect();
        service.ask(request("shop", descriptors)).await;
    }
    assert!(service.metric("tollgate_top_keys_memory_bytes") <= 1 << 20);
    let top = service.top(&by(RankBy::Asked)).await;
    assert_eq!(top.asked, 10_003);
}
