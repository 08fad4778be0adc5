//! Rules from an xDS server: accepted, rejected with reasons, kept when the server is lost, and the
//! same as from files.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, ListValue, Struct, Value};
use tollgate::xds::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
};
use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::child_process::run_to_end;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ratelimit_process::RatelimitProcess;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::gateway::ads::{Ads, TYPE_URL};
use crate::gateway::overlay::readiness;
use crate::gateway::wait_for_log;

/// A descriptor with a limit of `requests` per `unit` for a key.
pub(crate) fn limited(key: &str, unit: RateLimitUnit, requests: u32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        key: key.to_owned(),
        rate_limit: Some(policy(unit, requests)),
        ..RateLimitDescriptor::default()
    }
}

fn policy(unit: RateLimitUnit, requests: u32) -> RateLimitPolicy {
    RateLimitPolicy {
        unit: unit.into(),
        requests_per_unit: requests,
        ..RateLimitPolicy::default()
    }
}

pub(crate) fn domain(name: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig {
        name: format!("{name}.resource"),
        domain: name.to_owned(),
        descriptors,
    }
}

fn url(ads: &Ads) -> String {
    format!("localhost:{}", ads.address.port())
}

/// Short waits, for fast tests.
const QUICK: [(&str, &str); 4] = [
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "50ms"),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "50ms"),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "200ms"),
];

fn start(ads: &Ads, more: &[(&str, &str)]) -> RatelimitProcess {
    let url = url(ads);
    let server = [("CONFIG_GRPC_XDS_SERVER_URL", url.as_str())];
    RatelimitProcess::start(&[&QUICK[..], &server, more].concat())
}

/// Rules with every field of a resource.
fn everything() -> Vec<RateLimitConfig> {
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let list = Value {
        kind: Some(Kind::ListValue(ListValue {
            values: vec![Value::from(1.5), Value::from(true), Value { kind: None }],
        })),
    };
    let metadata = Struct {
        fields: BTreeMap::from([
            ("yes".to_owned(), text("no")),
            ("list".to_owned(), list),
            ("big".to_owned(), Value::from(1e20)),
        ]),
    };
    let named = |name: &str, policy: RateLimitPolicy| RateLimitPolicy {
        name: name.to_owned(),
        ..policy
    };
    let first = domain(
        "first",
        vec![
            RateLimitDescriptor {
                value: "yes".to_owned(),
                shadow_mode: true,
                quota_mode: true,
                detailed_metric: true,
                metadata: Some(metadata),
                descriptors: vec![limited("below", RateLimitUnit::Week, 0)],
                ..limited("0x10", RateLimitUnit::Day, u32::MAX)
            },
            RateLimitDescriptor {
                key: "free".to_owned(),
                value: "a/*".to_owned(),
                rate_limit: Some(RateLimitPolicy {
                    unlimited: true,
                    replaces: vec![RateLimitReplace {
                        name: "slow".to_owned(),
                    }],
                    ..RateLimitPolicy::default()
                }),
                ..RateLimitDescriptor::default()
            },
            RateLimitDescriptor {
                key: "slow".to_owned(),
                rate_limit: Some(named("slow", policy(RateLimitUnit::Year, 7))),
                ..RateLimitDescriptor::default()
            },
        ],
    );
    let units = [
        (RateLimitUnit::Second, 1),
        (RateLimitUnit::Minute, 2),
        (RateLimitUnit::Hour, 3),
        (RateLimitUnit::Month, 4),
    ];
    let units = units.map(|(unit, number)| limited(unit.as_str_name(), unit, number));
    vec![first, domain("second", units.to_vec())]
}

/// The same rules as YAML files.
const EVERYTHING: [&str; 2] = [
    r#"
domain: first # window: nothing is counted
descriptors:
- key: "0x10"
  value: "yes"
  shadow_mode: true
  quota_mode: true
  detailed_metric: true
  rate_limit: { unit: day, requests_per_unit: 4294967295 }
  metadata: { "yes": "no", list: [1.5, true, null], big: 100000000000000000000 }
  descriptors:
  - key: below
    rate_limit: { unit: week, requests_per_unit: 0 }
- key: free
  value: a/*
  rate_limit: { unlimited: true, replaces: [{ name: slow }] }
- key: slow
  rate_limit: { unit: year, requests_per_unit: 7, name: slow }
"#,
    r"
domain: second # window: nothing is counted
descriptors:
- { key: SECOND, rate_limit: { unit: second, requests_per_unit: 1 } }
- { key: MINUTE, rate_limit: { unit: minute, requests_per_unit: 2 } }
- { key: HOUR, rate_limit: { unit: hour, requests_per_unit: 3 } }
- { key: MONTH, rate_limit: { unit: month, requests_per_unit: 4 } }
",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xds_rules_equal_file_rules_in_any_order() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in ["a.yaml", "b.yaml"].into_iter().zip(EVERYTHING) {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let from_files = Tollgate::start_at(directory.path(), &[]);
    let shown = |admin| http(admin, "GET", "/rlconfig", "").1;
    let expected = shown(from_files.admin);
    assert_eq!(expected.lines().count(), 8, "{expected}");

    let ads = Ads::start(None).await;
    let configs = everything();
    ads.send("1", &configs);
    let replica = start(&ads, &[]);
    assert_eq!(ads.answer_to("1"), ("1".to_owned(), None));
    replica.wait_until_ready();
    assert_eq!(replica.rules(), expected);
    let hash = replica.rules_hash();
    let turned: Vec<_> = configs.iter().rev().cloned().collect();
    ads.send("2", &turned);
    assert_eq!(ads.answer_to("2"), ("2".to_owned(), None));
    assert_eq!((replica.rules(), replica.rules_hash()), (expected, hash));
    // Rules that are no longer sent are removed.
    ads.send("3", &configs[1..]);
    assert_eq!(ads.answer_to("3"), ("3".to_owned(), None));
    assert_eq!(replica.rules().lines().count(), 4);
    assert_ne!(replica.rules_hash(), hash);
    ads.send("4", &[]);
    assert_eq!(ads.answer_to("4"), ("4".to_owned(), None));
    assert_eq!(replica.rules(), "");
    assert_eq!(
        replica.metric("tollgate_xds_responses_total{result=\"ack\"}"),
        4
    );
    assert_eq!(replica.metric("ratelimit_service_config_load_success"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_have_the_configured_node_and_headers() {
    let ads = Ads::start(None).await;
    let said = [
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a,role=edge"),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "X-Tenant:one, authorization:Bearer hunter2",
        ),
        ("LOG_LEVEL", "debug"),
    ];
    let replica = start(&ads, &said);
    ads.wait_for_streams(1);
    assert_eq!(replica.health(), 500);
    let connected = |resources| {
        format!(
            "[+] xds: connected to {}, {resources} resources\n",
            url(&ads)
        )
    };
    assert!(
        readiness(&replica).contains(&connected(0)),
        "{}",
        readiness(&replica)
    );
    ads.send("1", &everything());
    ads.answer_to("1");
    assert!(
        readiness(&replica).contains(&connected(2)),
        "{}",
        readiness(&replica)
    );
    assert_eq!(ads.header("x-tenant").as_deref(), Some("one"));
    assert_eq!(
        ads.header("authorization").as_deref(),
        Some("Bearer hunter2")
    );
    ads.close(true);
    let lost = format!("[-] xds: not connected to {}: ", url(&ads));
    let report = until("the report has the lost connection", || {
        let report = readiness(&replica);
        report.contains(&lost).then(|| report.clone()).ok_or(report)
    });
    assert!(report.ends_with("\nready\n"), "{report}");
    assert!(!report.contains("hunter2"), "{report}");
    assert!(!replica.said().contains("hunter2"), "{}", replica.said());
    let heard = ads.heard();
    assert_eq!(heard.len(), 2, "{heard:?}");
    for heard in &heard {
        let node = heard.request.node.as_ref().unwrap();
        assert_eq!(node.id, "envoy-ratelimit");
        let metadata = &node.metadata.as_ref().unwrap().fields;
        assert_eq!(metadata["zone"], Value::from("a"));
        assert_eq!(metadata["role"], Value::from("edge"));
        assert_eq!(heard.request.type_url, TYPE_URL);
        assert!(heard.request.resource_names.is_empty());
    }
    assert_eq!(heard[0].request.version_info, "");
    assert_eq!(heard[0].request.response_nonce, "");
}

/// Invalid rules, and the beginning of the error: what only resources can have, or several of them.
/// Resources are read as files otherwise.
fn bad() -> Vec<(Vec<RateLimitConfig>, (&'static str, &'static str))> {
    let unit = |number| RateLimitDescriptor {
        rate_limit: Some(RateLimitPolicy {
            unit: number,
            ..RateLimitPolicy::default()
        }),
        ..limited("k", RateLimitUnit::Second, 1)
    };
    let second = |descriptor: RateLimitDescriptor| vec![domain("d", vec![descriptor])];
    let mut deep = limited("k", RateLimitUnit::Second, 1);
    for _ in 0..30 {
        deep = RateLimitDescriptor {
            key: "k".to_owned(),
            descriptors: vec![deep],
            ..RateLimitDescriptor::default()
        };
    }
    let twice = vec![
        limited("k", RateLimitUnit::Day, 1),
        limited("k", RateLimitUnit::Day, 2),
    ];
    vec![
        (
            second(unit(0)),
            ("d.resource", "invalid rate limit unit 'UNKNOWN'"),
        ),
        (
            second(unit(9)),
            ("d.resource", "invalid rate limit unit '9'"),
        ),
        (
            vec![domain("d", twice)],
            ("d.resource", "duplicate descriptor composite key 'd.k'"),
        ),
        (
            second(deep),
            ("d.resource", "descriptors nest deeper than 24 levels"),
        ),
        (
            vec![domain("", vec![])],
            (".resource", "config file cannot have empty domain"),
        ),
        (
            vec![domain("d", vec![]), domain("d", vec![])],
            ("d.resource", "duplicate domain 'd' in config file"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_resources_are_rejected_with_reasons_and_change_nothing() {
    let ads = Ads::start(None).await;
    ads.send("good", &everything());
    let settings = [
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "65536"),
        ("TOLLGATE_ON_BAD_DOMAIN", "refuse_all"),
    ];
    let replica = start(&ads, &settings);
    assert_eq!(ads.answer_to("good").1, None);
    replica.wait_until_ready();
    let rules = replica.rules();
    let bad = bad();
    let count = bad.len();
    for (number, (configs, words)) in bad.into_iter().enumerate() {
        let version = format!("bad {number}");
        ads.send(&version, &configs);
        let (in_use, why) = ads.answer_to(&version);
        let why = why.unwrap_or_else(|| panic!("{words:?}: it was accepted"));
        let (resource, words) = words;
        let first = why.lines().next().unwrap_or_default();
        assert!(first.ends_with(&format!("]: {words}")), "{words}: {why}");
        assert!(why.contains(&format!("--> {resource}\n")), "{why}");
        assert!(why.contains("help: "), "{why}");
        assert!(!why.contains(":0:0"), "{why}");
        assert_eq!(in_use, "good");
        assert_eq!(replica.rules(), rules, "{words}");
    }
    // Resources of another type.
    let any = |type_url: &str, value: &[u8]| Any {
        type_url: type_url.to_owned(),
        value: value.to_owned(),
    };
    let whole = everything()[0].encode_to_vec();
    let other = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let shapeless = [
        (
            TYPE_URL,
            any(TYPE_URL, &[0xff; 9]),
            "resources[0] cannot be read",
        ),
        (
            TYPE_URL,
            any(TYPE_URL, &whole[..whole.len() - 1]),
            "resources[0] cannot be read",
        ),
        (
            TYPE_URL,
            any(TYPE_URL, b"\x12\x01\xff"),
            "resources[0] cannot be read",
        ),
        (
            TYPE_URL,
            any(other, &[]),
            "resources[0] is `type.googleapis.com/envoy.config.cluster",
        ),
        (
            other,
            any(other, &[]),
            "the xDS server sent `type.googleapis.com/envoy.config.cluster",
        ),
    ];
    for (number, (type_url, resource, words)) in shapeless.into_iter().enumerate() {
        let version = format!("shapeless {number}");
        ads.send_any(&version, type_url, vec![resource]);
        let (in_use, why) = ads.answer_to(&version);
        assert!(
            why.as_ref().is_some_and(|why| why.starts_with(words)),
            "{words}: {why:?}"
        );
        assert_eq!(in_use, "good");
        assert_eq!(replica.rules(), rules, "{words}");
    }
    let nacks = replica.metric("tollgate_xds_responses_total{result=\"nack\"}");
    assert_eq!(nacks, count as u64 + 5);
    assert_eq!(replica.metric("ratelimit_service_config_load_error"), nacks);
    assert_eq!(replica.health(), 200);
    // One stream received all of it. A message beyond the bound ends the stream, and the next valid
    // one is accepted.
    assert!(ads.heard().iter().all(|heard| heard.stream == 1));
    let large = limited(&"k".repeat(65_536), RateLimitUnit::Day, 1);
    ads.send("large", &[domain("d", vec![large])]);
    ads.wait_for_streams(2);
    assert_eq!(replica.rules(), rules);
    ads.send("good again", &everything()[1..]);
    assert_eq!(ads.answer_to("good again"), ("good again".to_owned(), None));
    assert_eq!(replica.rules().lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_domain_is_rejected_and_stops_no_other() {
    let ads = Ads::start(None).await;
    let of = |name: &str, requests| domain(name, vec![limited("k", RateLimitUnit::Day, requests)]);
    let bad = domain("bad", vec![limited("", RateLimitUnit::Day, 1)]);
    // At the start, too: the other domain has its rules.
    ads.send("1", &[of("good", 1), bad.clone()]);
    let replica = start(&ads, &[]);
    let (in_use, why) = ads.answer_to("1");
    let why = why.unwrap();
    assert!(
        why.starts_with("domain 'bad' refused; it has no rules in use\n"),
        "{why}"
    );
    assert!(why.contains("descriptor has empty key"), "{why}");
    assert_eq!(in_use, "");
    replica.wait_until_ready();
    assert_eq!(replica.rules().lines().count(), 1);
    ads.send("2", &[of("good", 1), of("bad", 1)]);
    assert_eq!(ads.answer_to("2"), ("2".to_owned(), None));
    ads.send("3", &[of("good", 2), bad]);
    let (in_use, why) = ads.answer_to("3");
    assert_eq!(in_use, "2");
    let kept = "domain 'bad' refused; its last good rules stay in use\n";
    assert!(why.is_some_and(|why| why.starts_with(kept)));
    let rules = replica.rules();
    assert!(
        rules.contains("requests_per_unit=2") && rules.lines().count() == 2,
        "{rules}"
    );
    let said = http(replica.admin, "GET", "/readyz?verbose", "").1;
    assert!(
        said.contains("[-] domain bad: newest rules refused since "),
        "{said}"
    );
    // The server sends the rejected version again and again, which is rejected and loaded no more.
    ads.wait_for_nacks("3", 2);
    assert_eq!(
        replica.metric("tollgate_xds_responses_total{result=\"nack\"}"),
        2
    );
    let refused = replica.said().matches("rules of a domain refused").count();
    assert_eq!(refused, 2, "{}", replica.said());
    ads.send("4", &[of("good", 2), of("bad", 2)]);
    assert_eq!(ads.answer_to("4").1, None);
    assert_eq!(replica.metric("tollgate_rules_refused"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_of_one_domain_are_merged_when_configured() {
    let ads = Ads::start(None).await;
    let half = |name: &str, key| RateLimitConfig {
        name: name.to_owned(),
        ..domain("d", vec![limited(key, RateLimitUnit::Day, 1)])
    };
    ads.send("1", &[half("b", "second"), half("a", "first")]);
    let replica = start(&ads, &[("MERGE_DOMAIN_CONFIG", "true")]);
    assert_eq!(ads.answer_to("1").1, None);
    let rules = replica.rules();
    let keys: Vec<_> = rules
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(keys, ["d.first", "d.second"], "{rules}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_server_is_reconnected_and_the_rules_stay() {
    let ads = Ads::start(None).await;
    ads.send("1", &everything());
    let replica = start(&ads, &[]);
    assert_eq!(ads.answer_to("1").1, None);
    replica.wait_until_ready();
    let rules = replica.rules();
    let acks = || replica.metric("tollgate_xds_responses_total{result=\"ack\"}");
    for round in 0..3 {
        let streams = ads.heard().iter().map(|heard| heard.stream).max().unwrap();
        ads.cut();
        ads.wait_for_streams(streams + 1);
        assert_eq!(replica.rules(), rules, "{round}");
        let first = ads
            .heard()
            .into_iter()
            .find(|heard| heard.stream == streams + 1)
            .unwrap();
        let request = first.request;
        assert_eq!(
            (request.version_info, request.response_nonce),
            (String::new(), String::new())
        );
        until("the rules have come again", || acks() == round + 2);
    }
    // After a longer absence the metric shows it, and requests are decided by the rules it sent.
    ads.close(true);
    let lost = || replica.metric("tollgate_xds_lost_total");
    until("the server is away for long", || match lost() {
        6.. => Ok(()),
        lost => Err(lost),
    });
    assert_eq!(replica.metric("tollgate_xds_up"), 0);
    assert_eq!((replica.rules(), replica.health()), (rules, 200));
    // After a restart its versions may begin at 1 again.
    ads.send("1", &everything()[1..]);
    ads.close(false);
    until("its rules are in use", || {
        match replica.rules().lines().count() {
            4 => Ok(()),
            _ => Err(replica.said()),
        }
    });
    assert_eq!(replica.metric("tollgate_xds_up"), 1);
    let again = "WARN tollgate::app::xds: the xDS server sends rules again";
    let said = until("each recovery is logged", || {
        let said = replica.said();
        if said.matches(again).count() == 4 {
            Ok(said)
        } else {
            Err(said)
        }
    });
    // The first loss of each absence and every tenth.
    let warned = said.matches("WARN tollgate::app::xds: no connection to the xDS server");
    let warned = warned.count() as u64;
    assert!((4..=4 + lost() / 10).contains(&warned), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_with_the_xds_server_reloads_certificates() {
    let authority = Authority::new("an authority");
    let theirs = authority.signs_rsa(&["envoy-gateway", "envoy-gateway.system.svc"]);
    let ads = Ads::start(Some((&theirs, &authority.pem))).await;
    ads.send("1", &everything());
    // The first client certificate is not of the server's client authority.
    let other_client = Authority::new("another").signs_rsa(&["*.system"]);
    let mut secret = Secret::new(&other_client, &authority.pem);
    let [certificate, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| secret.file(name));
    let tls = [
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", certificate.as_str()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key.as_str()),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ca.as_str()),
    ];
    let named = ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy-gateway.system.svc");
    let each = ("LOG_LEVEL", "debug"); // each lost connection is logged
    let replica = start(&ads, &[&tls[..], &[named, each]].concat());
    let said = |replica: &RatelimitProcess, words: &str| wait_for_log(|| replica.said(), words);
    said(&replica, "received fatal alert: UnknownCA");
    assert_eq!((replica.health(), ads.heard().len()), (500, 0));
    // A replaced client certificate is used by the next attempt.
    let ours = authority.signs_rsa(&["*.system"]);
    secret.exchange(&ours.certificate, &ours.key, &authority.pem);
    replica.wait_until_ready();
    assert_eq!(ads.answer_to("1").1, None);
    // A server with another name or of another authority is not trusted.
    let misnamed = start(&ads, &tls);
    said(&misnamed, "not valid for name");
    assert_eq!(misnamed.health(), 500);
    let elsewhere = Secret::new(&ours, &Authority::new("another").pem);
    let other = elsewhere.file("ca.crt");
    let mut distrusting = tls;
    distrusting[3].1 = &other;
    let distrusting = start(&ads, &[&distrusting[..], &[named]].concat());
    said(&distrusting, "UnknownIssuer");
    // An unreadable certificate is reported with its path.
    let gone = [
        tls[0],
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/nowhere/ca.crt"),
    ];
    said(&start(&ads, &gone), "/nowhere/ca.crt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rules_it_is_ready_only_when_configured() {
    let ads = Ads::start(None).await;
    let waiting = start(&ads, &[]);
    let forced = start(&ads, &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")]);
    let demanding = start(&ads, &[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")]);
    ads.wait_for_streams(3);
    let healths = || [&waiting, &forced, &demanding].map(RatelimitProcess::health);
    assert_eq!(healths(), [500, 200, 500]);
    ads.send("1", &[]);
    let turn_to = |expected: [u16; 3]| {
        until("health follows the rules", || match healths() {
            healths if healths == expected => Ok(()),
            healths => Err(healths),
        });
    };
    turn_to([200, 200, 500]);
    ads.send("2", &everything());
    turn_to([200; 3]);
}

#[test]
fn invalid_settings_are_rejected_without_repeating_a_secret() {
    let rules = ("TOLLGATE_RULES", "examples/edge.yaml");
    for (variable, words) in [
        (
            ("CONFIG_GRPC_XDS_SERVER_URL", "somewhere"),
            "is no HOST:PORT",
        ),
        (
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone"),
            "write NAME=VALUE",
        ),
        (
            ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x:y,hunter2"),
            "number 2 cannot be read",
        ),
        (rules, "set only one of them"),
    ] {
        let (code, said) = run_to_end(
            std::process::Command::new(tollgate_binary())
                .arg("serve")
                .env_clear()
                .envs([("CONFIG_TYPE", "GRPC_XDS_SOTW"), variable])
                .envs([("GRPC_HOST", "127.0.0.1"), ("HOST", "127.0.0.1")])
                .envs([("GRPC_PORT", "0"), ("PORT", "0"), ("DEBUG_PORT", "0")]),
        );
        assert_eq!(code, Some(1), "{words}: {said}");
        assert!(said.contains(words), "{words}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
