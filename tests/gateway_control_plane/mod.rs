//! tollgate with Envoy Gateway's real control plane: rules, restarts, and Envoy.
//!
//! Why: `tests/gateway` uses an xDS server of its own and cannot detect when Envoy Gateway changes
//! the names it generates.
//!
//! How: the real `envoy-gateway` (`make test-gateway` builds it) reads policies from files, serves
//! them to tollgate over mTLS, and starts the real Envoy, which calls tollgate over mTLS. All
//! certificates are from `envoy-gateway certgen`. Not part of `cargo test`: the build takes five
//! minutes, and Envoy Gateway needs fixed ports.
//!
//! What it deliberately does not do: start a cluster, or rotate certificates (`tests/gateway`).

mod bad_domain;
mod control_plane;
mod route_config;
mod tenants;

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tollgate_test_support::certificates::Leaf;
use tollgate_test_support::gateway_environment::environment;
use tollgate_test_support::grpc_client::{
    Code, RateLimitResponse, RateLimitServiceClient, descriptor, request,
};
use tollgate_test_support::http_client::http;
use tollgate_test_support::ratelimit_process::RatelimitProcess;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tls_client::{TlsClient, VERSIONS};
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::Status;

use crate::gateway_control_plane::control_plane::{ControlPlane, RATE_LIMIT_XDS, wait_long};
use crate::gateway_control_plane::route_config::{Incoming, Question};

/// Variables that Envoy Gateway does not set: the host, which is part of its URL in a cluster, and
/// shorter delays before a reconnect.
const OWN: [(&str, &str); 4] = [
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy-gateway"),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "100ms"),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "100ms"),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1s"),
];

const GUIDE: &str = include_str!("../../docs/guides/envoy-gateway.md");

type Headers<'h> = &'h [(&'h str, &'h str)];

/// Policy and rules of the guide, and the descriptors that Envoy sends for them.
struct GuideExample {
    policy: String,
    rules: String,
    descriptors: String,
}

/// All processes of a test.
struct Stack {
    // Dropped first: its drop waits until its processes have ended.
    control_plane: ControlPlane,
    tollgate: RatelimitProcess,
    _redis: RedisServer,
}

// === impl GuideExample ===

impl GuideExample {
    fn read() -> Self {
        let (_, section) = GUIDE.split_once("\n## Limits\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let mut blocks = section.split("\n```").skip(1).step_by(2).map(|block| {
            let (_, text) = block.split_once('\n').unwrap();
            format!("{text}\n")
        });
        Self {
            policy: blocks.next().unwrap(),
            rules: blocks.next().unwrap(),
            descriptors: blocks.next().unwrap(),
        }
    }
}

// === impl Stack ===

impl Stack {
    /// Installs Envoy Gateway, and starts tollgate in Envoy Gateway's environment with further
    /// variables, in which `@CERTIFICATES@` is the folder of its certificates.
    async fn start(more: &[(&str, &str)]) -> Self {
        let redis = RedisServer::start(&[]);
        let control_plane = ControlPlane::install();
        let certificates = control_plane.certificates("envoy-rate-limit");
        let mut variables = environment(&certificates, RATE_LIMIT_XDS, &redis);
        variables.extend(OWN.map(|(name, value)| (name, value.to_owned())));
        let more = more
            .iter()
            .map(|(name, value)| (*name, value.replace("@CERTIFICATES@", &certificates)));
        let variables: Vec<_> = variables.into_iter().chain(more).collect();
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let tollgate = RatelimitProcess::start(&variables.collect::<Vec<_>>());
        control_plane.configure(tollgate.grpc, backend().await);
        Self {
            control_plane,
            tollgate,
            _redis: redis,
        }
    }

    /// Sends a check like Envoy: over TLS with Envoy's certificate.
    async fn ask(&self, question: &Question) -> Result<RateLimitResponse, Status> {
        let folder = self.control_plane.certificates("envoy");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}{name}")).unwrap();
        let client = TlsClient {
            server_name: "envoy-ratelimit.envoy-gateway-system.svc",
            ca_bundle: read("ca.crt"),
            certificate: Some(Leaf {
                certificate: read("tls.crt"),
                key: read("tls.key"),
            }),
            versions: VERSIONS,
            protocol: "h2",
        };
        let channel = client.channel(self.tollgate.grpc).await.unwrap();
        let descriptors = question.descriptors.iter().map(|it| descriptor(it));
        let asked = request(&question.domain, descriptors.collect());
        let mut client = RateLimitServiceClient::new(channel);
        Ok(client.should_rate_limit(asked).await?.into_inner())
    }

    /// Waits until tollgate's rules satisfy a condition.
    fn wait_for_rules(&self, what: &str, so: impl Fn(&str) -> bool) {
        let found = wait_long(|| so(&self.tollgate.rules()).then_some(()));
        let (rules, said) = (self.tollgate.rules(), self.tollgate.said());
        assert!(found.is_some(), "no rules with {what}:\n{rules}\n{said}");
    }

    /// Statuses of requests of one user through Envoy.
    fn statuses(&self, user: &str, requests: usize) -> Vec<u16> {
        let ask = |_| self.control_plane.get("/", &[("x-user", user)]).status;
        (0..requests).map(ask).collect()
    }
}

/// An HTTP server that answers every request with 200, on the test's runtime.
async fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = service_fn(async |_| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"well"))))
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    address
}

/// A limit per year for each value of `x-user`.
fn each_user(requests: u32) -> String {
    format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {{ name: app, namespace: default }}
spec:
  targetRefs: [{{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: app }}]
  rateLimit:
    type: Global
    global:
      rules:
        - clientSelectors: [{{ headers: [{{ name: x-user, type: Distinct }}] }}]
          limit: {{ requests: {requests}, unit: Year }}
"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guides_policy_gives_the_documented_rules_and_descriptors() {
    let shown = GuideExample::read();
    let from_file = Tollgate::start(&shown.rules, &[]);
    let expected = http(from_file.admin, "GET", "/rlconfig", "").1;
    assert_eq!(expected.lines().count(), 3, "{expected}");

    let stack = Stack::start(&[]).await;
    stack.control_plane.set_policy(&shown.policy);
    stack.control_plane.start();
    stack.wait_for_rules("the guide's limits", |rules| rules == expected);

    let incoming = Incoming {
        headers: &[("x-user", "bob")],
        address: "10.1.2.3",
    };
    let question = incoming.question(&stack.control_plane.envoy_config().await);
    assert_eq!(question.domain, "default/eg/http");
    let entry = |(key, value): &(String, String)| format!("{key}={value}");
    let line = |entries: &Vec<_>| entries.iter().map(entry).collect::<Vec<_>>().join(",") + "\n";
    let asked: String = question.descriptors.iter().map(line).collect();
    assert_eq!(asked, shown.descriptors);

    let answer = stack.ask(&question).await.unwrap();
    let limits = answer.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref().unwrap();
        (limit.requests_per_unit, limit.unit().as_str_name())
    });
    let limits: Vec<_> = limits.collect();
    assert_eq!(limits, [(10, "HOUR"), (5, "MINUTE"), (1000, "SECOND")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_selector_of_a_policy_limits_its_requests() {
    // Envoy's certificate is from certgen, so tollgate can require it, as the guide advises.
    let client_ca = ("GRPC_CLIENT_TLS_CACERT", "@CERTIFICATES@ca.crt");
    let stack = Stack::start(&[client_ca]).await;
    let policy = include_str!("policy.yaml");
    stack.control_plane.set_policy(policy);
    stack.control_plane.start();
    // Each rule exists once for each of the two routes, except for the shared one.
    let rules = policy.matches("limit: {").count();
    stack.wait_for_rules("each rule", |text| text.lines().count() == 2 * rules - 1);

    let shared = "default/all.default/all/rule/5_default/all/rule/5.";
    assert!(stack.tollgate.rules().contains(shared));

    let free = [("x-plan", "free"), ("x-region", "north")];
    let counted = [("x-address", "counted")];
    let requests: &[(&str, Headers<'_>, u16)] = &[
        ("/", &[], 200),
        ("/", &[("x-user", "bob")], 200),
        ("/", &[("x-user", "bob")], 200),
        ("/", &[("x-user", "bob")], 429),
        ("/", &[("x-user", "carol")], 200),
        // A limit of one route.
        ("/second", &[("x-user", "bob")], 200),
        ("/", &free, 200),
        ("/", &free, 429),
        ("/", &[free[0], ("x-region", "south")], 200),
        ("/", &[("x-plan", "paid"), free[1]], 200),
        ("/reports/1", &[], 200),
        ("/reports/2", &[], 429),
        ("/?search=a", &[], 200),
        ("/?search=a", &[], 429),
        ("/?search=b", &[], 200),
        ("/", &counted, 200),
        ("/", &counted, 429),
        // A limit shared by both routes.
        ("/", &[("x-tenant", "t")], 200),
        ("/second", &[("x-tenant", "t")], 200),
        ("/", &[("x-tenant", "t")], 429),
        ("/second", &[("x-tenant", "t")], 429),
        // Shadow mode.
        ("/", &[("x-watched", "w")], 200),
        ("/", &[("x-watched", "w")], 200),
    ];
    for (number, (path, headers, expected)) in requests.iter().enumerate() {
        let answer = stack.control_plane.get(path, headers);
        let what = format!("request {number}, {path} with {headers:?}");
        assert_eq!(answer.status, *expected, "{what}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_policies_and_control_plane_restarts_are_handled() {
    let stack = Stack::start(&[]).await;
    let limit = |requests: u32| format!(": unit=YEAR requests_per_unit={requests},");
    // Before Envoy Gateway runs, tollgate is ready without rules and answers with an error.
    stack.tollgate.wait_until_ready();
    assert_eq!(stack.tollgate.rules(), "");
    let any = Question {
        domain: "default/eg/http".to_owned(),
        descriptors: vec![vec![("any".to_owned(), "value".to_owned())]],
    };
    let refused = stack.ask(&any).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");

    stack.control_plane.set_policy(&each_user(2));
    stack.control_plane.start();
    stack.wait_for_rules("2 a year", |rules| rules.contains(&limit(2)));
    assert_eq!(stack.statuses("bob", 3), [200, 200, 429]);
    let config = stack.control_plane.envoy_config().await;
    let question = |user: &str| {
        let incoming = Incoming {
            headers: &[("x-user", user)],
            address: "127.0.0.1",
        };
        incoming.question(&config)
    };
    let (dave, erin) = (question("dave"), question("erin"));

    // A policy that changes while Envoy Gateway runs.
    stack.control_plane.set_policy(&each_user(4));
    stack.wait_for_rules("4 a year", |rules| rules.contains(&limit(4)));
    assert_eq!(stack.statuses("dave", 5), [200, 200, 200, 200, 429]);

    // While it is stopped, the rules stay.
    let rules = stack.tollgate.rules();
    stack.control_plane.stop();
    let up = |up: u64| {
        let so = || (stack.tollgate.metric("tollgate_xds_up") == up).then_some(());
        assert!(wait_long(so).is_some(), "{}", stack.tollgate.said());
    };
    up(0);
    assert_eq!(stack.tollgate.rules(), rules);
    assert_eq!(stack.tollgate.health(), 200);
    let code = async |question| stack.ask(question).await.unwrap().overall_code();
    assert_eq!(code(&dave).await, Code::OverLimit);
    assert_eq!(code(&erin).await, Code::Ok);

    // A policy that changed while it was stopped. Its versions begin at 1 again.
    stack.control_plane.set_policy(&each_user(7));
    stack.control_plane.start();
    up(1);
    stack.wait_for_rules("7 a year", |rules| rules.contains(&limit(7)));
    let statuses = stack.statuses("frank", 8);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 429]);

    // A policy that is deleted.
    stack.control_plane.remove_policy();
    stack.wait_for_rules("no limit", str::is_empty);
    assert_eq!(code(&dave).await, Code::Ok);
    // Envoy Gateway removes the cluster from Envoy before the filter, which then fails closed for a
    // moment.
    let passes = || (stack.statuses("frank", 1) == [200]).then_some(());
    assert!(wait_long(passes).is_some());
    let refused = "tollgate_xds_responses_total{result=\"nack\"}";
    assert_eq!(stack.tollgate.metric(refused), 0);
}
