//! A replacement of the reference service: with Envoy Gateway's exact environment, and for Envoy AI
//! Gateway's quota service.
//!
//! Every variable that Envoy Gateway sets has its own value; paths get a folder of the test as
//! prefix. Only addresses and ports are added, and a Redis deadline that a busy test machine keeps.

use std::collections::BTreeMap;

use tollgate::xds::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitUnit,
};
use tollgate_test_support::background_clients::{
    statuses, wait_for_decisions, with_background_load,
};
use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::gateway_environment::environment;
use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::ratelimit_process::RatelimitProcess;
use tollgate_test_support::redis_server::RedisServer;

use crate::gateway::ads::Ads;
use crate::gateway::xds::{domain, limited};

/// The name of a route, as Envoy Gateway makes it.
pub(crate) const ROUTE: &str = "httproute/default/app/rule/0/match/0/*";

/// Rules with Envoy Gateway's names: `each` for each value of a header, and a high limit for all.
fn rules(each: u32) -> Vec<RateLimitConfig> {
    let all = RateLimitDescriptor {
        value: "rule-1-match--1".to_owned(),
        ..limited("rule-1-match--1", RateLimitUnit::Year, 1_000_000)
    };
    let route = RateLimitDescriptor {
        key: ROUTE.to_owned(),
        value: ROUTE.to_owned(),
        descriptors: vec![limited("rule-0-match-0", RateLimitUnit::Year, each), all],
        ..RateLimitDescriptor::default()
    };
    vec![domain("default/eg/http", vec![route])]
}

pub(crate) fn start(
    variables: &[(&'static str, String)],
    more: &[(&str, &str)],
) -> RatelimitProcess {
    let variables = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()));
    RatelimitProcess::start(&variables.chain(more.iter().copied()).collect::<Vec<_>>())
}

fn envoy(replica: &RatelimitProcess, directory: &tempfile::TempDir, secret: &Secret) -> Envoy {
    let backend = directory.path().join("backend.sock");
    let bootstrap = include_str!("envoy.yaml")
        .replace("@BACKEND@", backend.to_str().unwrap())
        .replace("@CERTIFICATE@", &secret.file("tls.crt"))
        .replace("@KEY@", &secret.file("tls.key"))
        .replace("@AUTHORITY@", &secret.file("ca.crt"))
        .replace("@PORT@", &replica.grpc.port().to_string());
    Envoy::start(&bootstrap)
}

/// Requests that are decided between one change and the next: more than all clients are admitted.
const DECISIONS: u64 = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn certificates_and_rules_change_in_envoy_gateways_environment_without_failed_requests() {
    let authority = Authority::new("envoy-gateway");
    let redis = RedisServer::start(&[]);
    let gateway = authority.signs_rsa(&["envoy-gateway", "envoy-gateway.system", "localhost"]);
    let ads = Ads::start(Some((&gateway, &authority.pem))).await;
    let mut secret = Secret::new(&authority.signs_rsa(&["*.system"]), &authority.pem);
    let envoy_secret = Secret::new(&authority.signs_rsa(&["*.system"]), &authority.pem);
    let xds = format!("localhost:{}", ads.address.port());
    let variables = environment(&secret.file(""), &xds, &redis);
    // Connections are replaced constantly, so that the present certificates are presented.
    let more = [
        ("GRPC_MAX_CONNECTION_AGE", "500ms"),
        ("CACHE_KEY_PREFIX", "edge"),
    ];
    let replica = start(&variables, &more);
    // Its probes succeed before there are rules, because it is configured to start without rules.
    replica.wait_until_ready();
    assert_eq!(replica.rules(), "");
    let json = http(replica.http, "GET", "/json", "");
    assert_eq!(
        json.0, 400,
        "/json is on, since client certificates are not verified: {json:?}"
    );
    ads.send("1", &rules(10));
    assert_eq!(ads.answer_to("1").1, None);
    let node = ads.heard()[0].request.node.clone().unwrap();
    assert_eq!(node.id, "envoy-ratelimit");
    until("the store is up", || {
        replica.metric("tollgate_store_up") == 1
    });

    let directory = tempfile::tempdir().unwrap();
    let envoy = envoy(&replica, &directory, &envoy_secret);
    let loads = "tollgate_tls_certificate_loads_total{port=\"grpc\",result=\"success\"}";
    let answers = with_background_load(&envoy, "/", || {
        wait_for_decisions(&envoy, DECISIONS);
        for round in 1..=3 {
            let signed = authority.signs_rsa(&["*.system"]);
            secret.exchange(&signed.certificate, &signed.key, &authority.pem);
            until("the certificate is loaded", || {
                match replica.metric(loads) {
                    loads if loads == round => Ok(()),
                    _ => Err(replica.said()),
                }
            });
            let version = format!("after {round}");
            ads.send(&version, &rules(10 + u32::try_from(round).unwrap()));
            assert_eq!(ads.answer_to(&version).1, None);
            wait_for_decisions(&envoy, DECISIONS);
        }
        let handshakes = "tollgate_tls_handshakes_total{port=\"grpc\"}";
        until("connections are replaced", || {
            replica.metric(handshakes) > 4
        });
        // Invalid rules, a lost server, and incomplete certificates.
        ads.send("bad", &[domain("", vec![])]);
        assert!(ads.answer_to("bad").1.is_some());
        ads.close(true);
        let signed = authority.signs_rsa(&["*.system"]);
        secret.exchange(&signed.certificate[..100], &signed.key, &authority.pem);
        let refused = loads.replace("success", "error");
        until("the certificate is refused", || {
            replica.metric(&refused) == 1
        });
        wait_for_decisions(&envoy, DECISIONS);
    });
    let counts = envoy.counts();
    assert_eq!((counts.error, counts.failure_mode_allowed), (0, 0));
    assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
    let limits: Vec<_> = answers
        .keys()
        .filter_map(|(_, limit)| limit.clone())
        .collect();
    assert!(
        limits
            .iter()
            .any(|limit| limit.starts_with("10, 10;w=31536000")),
        "{limits:?}"
    );
    assert!(
        limits
            .iter()
            .any(|limit| limit.starts_with("13, 13;w=31536000")),
        "{limits:?}"
    );
    // Requests arrived, and were sent to Redis.
    let keys: Vec<String> = redis.say(&["KEYS", "edgetg:{*}:?????*"]);
    assert!(!keys.is_empty());

    metrics_match_envoy_gateways_dashboards(&replica);
    let said = replica.said();
    assert_eq!(said.matches("PROMETHEUS_MAPPER_YAML").count(), 1, "{said}");
}

/// Asserts the names and labels of Envoy Gateway's dashboards at the Prometheus port.
fn metrics_match_envoy_gateways_dashboards(replica: &RatelimitProcess) {
    let (status, text) = http(replica.prometheus, "GET", "/metrics", "");
    assert_eq!(status, 200);
    assert_eq!(http(replica.prometheus, "GET", "/healthcheck", "").0, 404);
    let key1 = format!("{ROUTE}_{ROUTE}");
    let of_rule = |name: &str, key2: &str| {
        format!(
            "ratelimit_service_rate_limit_{name}{{domain=\"default/eg/http\",key1=\"{key1}\",key2=\"{key2}\"}} "
        )
    };
    let mut series = vec![
        of_rule("total_hits", "rule-1-match--1_rule-1-match--1"),
        "ratelimit_service_config_load_success ".to_owned(),
        "ratelimit_service_config_load_error ".to_owned(),
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} ".to_owned(),
        "ratelimit_service_response_time_seconds_bucket{grpc_method=\"ShouldRateLimit\",le="
            .to_owned(),
        "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} ".to_owned(),
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} ".to_owned(),
    ];
    let names = [
        "total_hits",
        "over_limit",
        "near_limit",
        "within_limit",
        "shadow_mode",
    ];
    series.extend(names.map(|name| of_rule(name, "rule-0-match-0")));
    for series in series {
        assert!(
            text.lines().any(|line| line.starts_with(&series)),
            "{series}: {text}"
        );
    }
}

fn look(descriptor: Descriptor, hits: u64) -> Descriptor {
    Descriptor {
        hits_addend: Some(hits),
        ..descriptor
    }
}

/// The key of the default bucket of a model with one rule.
const DEFAULT: &str = "rule-1-match--1";

/// The descriptors of a QuotaPolicy for two backends of one model, and a limit that is no quota.
/// The second backend has a rule for each team in shadow mode.
fn quotas() -> Vec<RateLimitDescriptor> {
    let quota = |key: &str, requests| RateLimitDescriptor {
        quota_mode: true,
        ..limited(key, RateLimitUnit::Year, requests)
    };
    let of_value = |value: &str, descriptor| RateLimitDescriptor {
        value: value.to_owned(),
        ..descriptor
    };
    let below = |key: &str, value: &str, descriptors| RateLimitDescriptor {
        key: key.to_owned(),
        value: value.to_owned(),
        descriptors,
        ..RateLimitDescriptor::default()
    };
    let each_team = RateLimitDescriptor {
        shadow_mode: true,
        ..quota("rule-0-x-team-match-0", 1)
    };
    let rules = vec![each_team, of_value(DEFAULT, quota(DEFAULT, 10))];
    let small = of_value("m", quota("model_name_override", 100));
    let large = below("model_name_override", "m", rules);
    vec![
        below("backend_name", "default/small", vec![small]),
        below("backend_name", "default/large", vec![large]),
        limited("budget", RateLimitUnit::Year, 1_000),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_as_the_quota_service_of_envoy_ai_gateway() {
    let ads = Ads::start(None).await;
    ads.send("1", &[domain("ai-gateway-quota", quotas())]);
    let url = format!("localhost:{}", ads.address.port());
    let replica = RatelimitProcess::start(&[
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &url),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ai-gateway-ratelimit"),
        ("RESPONSE_DYNAMIC_METADATA", "true"),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "127.0.0.1:@PROMETHEUS@"),
        ("PROMETHEUS_PATH", "/stats/prometheus"),
    ]);
    assert_eq!(
        http(replica.prometheus, "GET", "/stats/prometheus", "").0,
        200
    );
    assert_eq!(http(replica.prometheus, "GET", "/metrics", "").0, 404);
    assert_eq!(ads.answer_to("1").1, None);
    replica.wait_until_ready();
    assert_eq!(
        ads.heard()[0].request.node.as_ref().unwrap().id,
        "envoy-ai-gateway-ratelimit"
    );
    let mut client = Service::connect(replica.grpc).await;
    let of_backend = |backend, more: &[(&str, &str)]| {
        let base = [("backend_name", backend), ("model_name_override", "m")];
        descriptor(&[&base[..], more].concat())
    };
    let small = || of_backend("default/small", &[]);
    let large = || of_backend("default/large", &[(DEFAULT, DEFAULT)]);
    let watched = || of_backend("default/large", &[("rule-0-x-team-match-0", "t")]);
    let mut ask = async |descriptors: Vec<Descriptor>| {
        let answer = client
            .should_rate_limit(request("ai-gateway-quota", descriptors))
            .await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.dynamic_metadata.is_some());
        answer.overall_code()
    };
    let both = |hits| vec![look(small(), hits), look(large(), hits)];
    // A request peeks first, and its tokens are charged when they are known.
    assert_eq!(ask(both(0)).await, Code::Ok);
    ask(vec![look(large(), 25)]).await;
    // One quota is exhausted and the other allows the request. If both are exhausted it is refused.
    assert_eq!(ask(vec![look(large(), 0)]).await, Code::OverLimit);
    assert_eq!(ask(both(0)).await, Code::Ok);
    ask(vec![look(small(), 101)]).await;
    assert_eq!(ask(both(0)).await, Code::OverLimit);
    // A limit that is no quota refuses, whatever the quotas allow.
    assert_eq!(
        ask(vec![descriptor(&[("budget", "team")]), watched()]).await,
        Code::Ok
    );
    ask(vec![look(descriptor(&[("budget", "team")]), 1_000)]).await;
    let spent = vec![
        look(descriptor(&[("budget", "team")]), 0),
        look(watched(), 5),
    ];
    assert_eq!(ask(spent).await, Code::OverLimit);
    assert_eq!(
        ask(vec![look(watched(), 5)]).await,
        Code::Ok,
        "only watched"
    );
    let by_code: BTreeMap<_, _> = ["ok", "over_limit"]
        .map(|code| {
            (
                code,
                replica.metric(&format!("tollgate_decisions_total{{code=\"{code}\"}}")),
            )
        })
        .into();
    assert!(by_code.values().all(|count| *count > 2), "{by_code:?}");
}
