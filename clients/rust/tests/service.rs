//! The client with a real service, which `TOLLGATE_BIN` names, and with a scripted one.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::too_many_lines,
    clippy::unwrap_used
)]

mod support;

use std::collections::HashSet;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use support::service::Service;
use support::{ManualClock, Reply, ScriptedServer, tollgate, until};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tollgate_limits::middleware::{Count, HeaderStyle, Limiter, RateLimit, RequestEntry};
use tollgate_limits::{
    BreakerOptions, Check, Client, ClientBuilder, Code, Decision, Descriptor, Error, LocalLimit,
    NoLimit, OnError, Protocol, Reserve, Source, UnknownDomain,
};
use tower::ServiceExt as _;
use tower_layer::Layer as _;

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: hundred
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: many
    rate_limit: {unit: day, requests_per_unit: 1000000000}
  - key: budget
    rate_limit: {unit: day, requests_per_unit: 10000, algorithm: sliding_window}
";

fn builder(address: impl Into<String>) -> ClientBuilder {
    Client::builder("edge")
        .address(address)
        .deadline(Duration::from_secs(10))
}

fn descriptor(key: &str, value: &str) -> Descriptor {
    Descriptor::new([(key, value)])
}

/// Number of allowed checks of `count` concurrent ones.
async fn allowed_of(client: &Client, descriptor: &Descriptor, count: usize) -> usize {
    let mut checks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (client, descriptor) = (client.clone(), descriptor.clone());
        checks.spawn(async move { client.check(descriptor).await.expect("a decision") });
    }
    let decisions = checks.join_all().await;
    for decision in &decisions {
        assert_eq!(decision.error, None);
    }
    decisions.iter().filter(|decision| decision.allowed).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_checks_pass_exactly_the_limit() {
    let service = Service::start(RULES).await;
    for (value, protocol, batching) in [
        ("tollgate", Protocol::Tollgate, false),
        ("batching", Protocol::Tollgate, true),
        ("envoy", Protocol::Envoy, false),
    ] {
        let client = builder(service.grpc_address())
            .protocol(protocol)
            .batching(batching)
            .build()
            .expect("a client");
        assert_eq!(
            allowed_of(&client, &descriptor("hundred", value), 400).await,
            100,
            "{value}"
        );
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_with_leases_share_a_limit() {
    // Leases outlive the test: hits of one that has ended would not come back.
    let flags = ["--lease-age-max-ms", "60000"].map(str::to_owned);
    let service = Service::start_with(RULES, &flags).await;
    let hundred = descriptor("hundred", "leased");
    let mut callers = tokio::task::JoinSet::new();
    let clients = [(); 2].map(|()| {
        let builder = builder(service.grpc_address()).leases(true);
        builder.build().expect("a client")
    });
    for client in [&clients[0], &clients[1], &clients[0], &clients[1]] {
        let (client, hundred) = (client.clone(), hundred.clone());
        callers.spawn(async move {
            let (mut allowed, mut leased) = (0, 0);
            for _ in 0..40 {
                let decision = client.check(hundred.clone()).await.expect("a decision");
                allowed += usize::from(decision.allowed);
                leased += usize::from(decision.source == Source::Lease);
            }
            (allowed, leased)
        });
    }
    let counts = callers.join_all().await;
    let allowed: usize = counts.iter().map(|(allowed, _)| allowed).sum();
    assert!(counts.iter().any(|(_, leased)| *leased > 0), "{counts:?}");
    for client in &clients {
        client.close().await;
    }
    // They have given back what they did not use.
    let client = builder(service.grpc_address()).build().expect("a client");
    let rest = allowed_of(&client, &hundred, 100).await;
    assert_eq!(allowed + rest, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_domain_is_an_error_if_it_is_configured() {
    let service = Service::start(RULES).await;
    let elsewhere = Check::new([descriptor("hundred", "x")]).domain("nowhere");
    let client = builder(service.grpc_address()).build().expect("a client");
    let decision = client.check(elsewhere.clone()).await.expect("a decision");
    assert_eq!(decision.no_limit, Some(NoLimit::UnknownDomain));
    let strict = builder(service.grpc_address())
        .unknown_domain(UnknownDomain::Error)
        .build()
        .expect("a client");
    let failed = strict.check(elsewhere).await.expect_err("an error");
    assert!(matches!(failed, Error::Argument(_)), "{failed:?}");
    let decision = strict.check(descriptor("hundred", "x")).await;
    assert_eq!(decision.expect("a decision").no_limit, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_rotate_over_connected_addresses() {
    let (first, second) = (Service::start(RULES).await, Service::start(RULES).await);
    let unused = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let dead = unused.local_addr().expect("an address").to_string();
    drop(unused);
    let client = builder(first.grpc_address())
        .address(dead)
        .address(second.grpc_address())
        .build()
        .expect("a client");
    // Both services count for themselves, and the dead address gets no call. Warmed up first, so
    // that both are connected.
    for _ in 0..20 {
        let decision = client
            .check(descriptor("many", "x"))
            .await
            .expect("a decision");
        assert_eq!(decision.source, Source::Server);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        allowed_of(&client, &descriptor("hundred", "x"), 400).await,
        200
    );
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_are_committed_released_and_extended() {
    let service = Service::start(RULES).await;
    let client = builder(service.grpc_address()).build().expect("a client");
    let ann = descriptor("budget", "ann");

    let reservation = client
        .reserve(Reserve::from(ann.clone()).hits(8_000))
        .await
        .expect("one");
    assert!(reservation.allowed());
    assert_eq!(reservation.hits(), 8_000);
    let refused = client
        .reserve(Reserve::from(ann.clone()).hits(8_000))
        .await
        .expect("one");
    assert!(!refused.allowed());
    assert_eq!(refused.id(), None);
    let extended = reservation
        .extend(Duration::from_secs(300))
        .await
        .expect("extended");
    assert_eq!(extended.expires, Some(Duration::from_secs(300)));
    let settled = reservation.commit(1_200).await.expect("committed");
    assert_eq!(
        (settled.reserved, settled.committed, settled.repeated),
        (8_000, 1_200, false)
    );
    let repeated = reservation.commit(1_200).await.expect("committed");
    assert!(repeated.repeated);
    assert_eq!(
        client.peek(ann.clone()).await.expect("a peek").remaining,
        Some(8_800)
    );

    let released = client
        .reserve(Reserve::from(ann.clone()).hits(500))
        .await
        .expect("one");
    assert_eq!(released.release().await.expect("released").committed, 0);

    let scope = client
        .reserve(Reserve::from(ann.clone()).hits(500))
        .await
        .expect("one");
    drop(scope);
    until("a scope without a commit releases", async || {
        client.peek(ann.clone()).await.expect("a peek").remaining == Some(8_800)
    })
    .await;

    let bob = descriptor("budget", "bob");
    let both = client
        .reserve(Reserve::new([ann.clone(), bob.clone()]).hits(100))
        .await
        .expect("one");
    both.commit([10, 30]).await.expect("committed");
    assert_eq!(
        client.peek(ann).await.expect("a peek").remaining,
        Some(8_790)
    );
    assert_eq!(
        client.peek(bob).await.expect("a peek").remaining,
        Some(9_970)
    );
    client.close().await;
}

fn limit(client: Client) -> RateLimit {
    RateLimit::builder(client)
        .descriptor([RequestEntry::remote_address("remote_address")])
        .peer_address(|request| {
            let axum = request
                .extensions
                .get::<axum::extract::ConnectInfo<SocketAddr>>();
            let tonic = request
                .extensions
                .get::<tonic::transport::server::TcpConnectInfo>();
            axum.map(|info| info.0).or_else(|| tonic?.remote_addr())
        })
        .build()
        .expect("valid options")
}

#[tokio::test(flavor = "multi_thread")]
async fn axum_answers_429() {
    let service = Service::start(RULES).await;
    let client = builder(service.grpc_address()).build().expect("a client");
    let app = axum::Router::new()
        .route("/", axum::routing::get(|| async { "hello" }))
        .layer(limit(client.clone()).http_layer())
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    for number in 1..=6 {
        let (status, headers, body) = http_get(address).await;
        let header = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header("ratelimit-limit").as_deref(), Some("5"));
        if number <= 5 {
            assert_eq!((status, body.as_str()), (200, "hello"));
            assert_eq!(
                header("ratelimit-remaining"),
                Some((5 - number).to_string())
            );
        } else {
            assert_eq!((status, body.as_str()), (429, "Too Many Requests"));
            let wait: u64 = header("retry-after")
                .expect("Retry-After")
                .parse()
                .expect("seconds");
            assert!((1..=60).contains(&wait), "{wait}");
        }
    }
    server.abort();
    client.close().await;
}

/// Checks by a client, and reports what each check that takes hits left.
#[derive(Clone)]
struct Counting {
    client: Client,
    taken: mpsc::UnboundedSender<Option<u64>>,
}

impl Limiter for Counting {
    async fn check(&self, check: Check) -> Result<Decision, Error> {
        let dry_run = check.is_dry_run();
        let decision = self.client.check(check).await?;
        if !dry_run {
            self.taken.send(decision.remaining).expect("the test runs");
        }
        Ok(decision)
    }
}

/// A service, a client, a limit that counts some requests, and what each of them left.
async fn counting(
    count: Count,
) -> (
    Service,
    Client,
    RateLimit<Counting>,
    mpsc::UnboundedReceiver<Option<u64>>,
) {
    let service = Service::start(RULES).await;
    let client = builder(service.grpc_address()).build().expect("a client");
    let (taken, left) = mpsc::unbounded_channel();
    let counting = Counting {
        client: client.clone(),
        taken,
    };
    let limit = RateLimit::builder(counting)
        .descriptor([RequestEntry::value("remote_address", "any")])
        .count(count)
        .build()
        .expect("valid options");
    (service, client, limit, left)
}

/// Answers by the path of a request.
fn answer_of<B: Default>(
    request: &http::Request<Bytes>,
    failure: impl FnOnce() -> http::Response<B>,
) -> Ready<Result<http::Response<B>, &'static str>> {
    ready(match request.uri().path() {
        "/failed" => Ok(failure()),
        "/broken" => Err("part of the test"),
        _ => Ok(http::Response::default()),
    })
}

/// Sends requests through a layer until five have counted. `is_refused` sends one to a path.
async fn five_count<F: Future<Output = bool>>(
    count: Count,
    is_refused: impl Fn(RateLimit<Counting>, &'static str) -> F,
) {
    let (_service, client, limit, mut left) = counting(count).await;
    let bad: &[&str] = &["/failed", "/broken"];
    let good: &[&str] = &["/"];
    let (counted, free) = match count {
        Count::Failed => (bad, good),
        _ => (good, bad),
    };
    for number in 1..=5 {
        for path in free {
            assert!(!is_refused(limit.clone(), path).await, "{path}");
        }
        let path = counted[number % counted.len()];
        assert!(!is_refused(limit.clone(), path).await, "{path}");
        assert_eq!(left.recv().await, Some(Some(5 - number as u64)), "{path}");
    }
    for path in ["/", "/failed", "/broken"] {
        assert!(is_refused(limit.clone(), path).await, "{path}");
    }
    assert!(left.try_recv().is_err(), "more requests counted");
    client.close().await;
}

fn request_to(path: &str) -> http::Request<Bytes> {
    let request = http::Request::builder().uri(path).body(Bytes::new());
    request.expect("a request")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_or_successful_requests_are_counted() {
    for count in [Count::Failed, Count::Successful] {
        five_count(count, async |limit, path| {
            let failure = || {
                let mut failure = http::Response::new(Bytes::new());
                *failure.status_mut() = http::StatusCode::NOT_FOUND;
                failure
            };
            let service = tower::service_fn(move |request| answer_of(&request, failure));
            let service = limit.http_layer().layer(service);
            let answer = service.oneshot(request_to(path)).await;
            answer.is_ok_and(|answer| answer.status() == 429)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_or_successful_calls_are_counted() {
    for count in [Count::Failed, Count::Successful] {
        five_count(count, async |limit, path| {
            let failure = || tonic::Status::not_found("part of the test").into_http::<Bytes>();
            let service = tower::service_fn(move |request| answer_of(&request, failure));
            let service = limit.grpc_layer().layer(service);
            let answer = service.oneshot(request_to(path)).await;
            answer.is_ok_and(|answer| {
                answer
                    .headers()
                    .get("grpc-status")
                    .is_some_and(|it| it == "8")
            })
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_counts_as_failed() {
    let (_service, client, limit, mut left) = counting(Count::Failed).await;
    let (started, has_started) = tokio::sync::oneshot::channel();
    let started = Arc::new(std::sync::Mutex::new(Some(started)));
    let service = tower::service_fn(move |_: http::Request<Bytes>| {
        let started = started.lock().unwrap().take().expect("one request");
        async move {
            started.send(()).expect("the test waits");
            std::future::pending::<Result<http::Response<Bytes>, Error>>().await
        }
    });
    let request = tokio::spawn(limit.http_layer().layer(service).oneshot(request_to("/")));
    has_started.await.expect("it starts");
    request.abort();
    assert_eq!(left.recv().await, Some(Some(4)));
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_writes_the_refusal() {
    let service = Service::start(RULES).await;
    let client = builder(service.grpc_address()).build().expect("a client");
    let limit = RateLimit::builder(client.clone())
        .headers([HeaderStyle::XRateLimit])
        .body("slow down", "text/plain")
        .build()
        .expect("valid options");
    let check = Check::from(descriptor("user", "ann"));
    let allowed = client.check(check.clone()).await.expect("a decision");
    assert!(limit.http_refusal::<Bytes>(&allowed).is_none());
    let refused = client.check(check.hits(5)).await.expect("a decision");
    let refusal = limit.http_refusal::<Bytes>(&refused).expect("refused");
    assert_eq!(
        (refusal.status().as_u16(), &**refusal.body()),
        (429, &b"slow down"[..])
    );
    assert_eq!(refusal.headers()["x-ratelimit-limit"], "5");
    assert!(refusal.headers().contains_key("retry-after"));
    client.close().await;
}

async fn http_get(address: SocketAddr) -> (u16, http::HeaderMap, String) {
    use http_body_util::{BodyExt as _, Empty};
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connect");
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut send, driver) = hyper::client::conn::http1::handshake(io)
        .await
        .expect("HTTP");
    tokio::spawn(driver);
    let request = http::Request::builder().uri("/").header("host", "test");
    let request = request
        .body(Empty::<bytes::Bytes>::new())
        .expect("a request");
    let response = send.send_request(request).await.expect("a response");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (
        parts.status.as_u16(),
        parts.headers,
        String::from_utf8(body.into()).expect("text"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn tonic_answers_resource_exhausted() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_types::StatusExt as _;

    let service = Service::start(RULES).await;
    let client = builder(service.grpc_address()).build().expect("a client");
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("an address");
    let server = tonic::transport::Server::builder()
        .layer(limit(client.clone()).grpc_layer())
        .add_service(health)
        .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
    let server = tokio::spawn(server);
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
    let channel = endpoint.expect("a URI").connect().await.expect("connect");
    let mut caller = HealthClient::new(channel);
    for number in 1..=5 {
        let answer = caller
            .check(HealthCheckRequest::default())
            .await
            .expect("passes");
        let remaining = answer
            .metadata()
            .get("ratelimit-remaining")
            .expect("metadata");
        assert_eq!(remaining.to_str().unwrap(), (5 - number).to_string());
    }
    let status = caller
        .check(HealthCheckRequest::default())
        .await
        .expect_err("refused");
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "rate limited")
    );
    assert!(
        status
            .get_details_retry_info()
            .expect("RetryInfo")
            .retry_delay
            .is_some()
    );
    assert_eq!(
        status.metadata().get("ratelimit-limit").expect("metadata"),
        "5"
    );
    // A streaming call is checked when it starts.
    let status = caller
        .watch(HealthCheckRequest::default())
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    server.abort();
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_error_decides_while_the_service_is_killed() {
    killed(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_error_decides_while_the_service_is_killed_with_batching() {
    killed(true).await;
}

async fn killed(batching: bool) {
    let mut service = Service::start(RULES).await;
    let deadline = Duration::from_millis(200);
    let client = |on_error| {
        Client::builder("edge")
            .address(service.grpc_address())
            .deadline(deadline)
            .on_error(on_error)
            .batching(batching)
            .local(LocalLimit {
                per_second: 1,
                burst: 5,
            })
            .build()
            .expect("a client")
    };
    let clients = [
        client(OnError::Allow),
        client(OnError::Deny),
        client(OnError::Local),
    ];
    let seen = Arc::new(std::sync::Mutex::new(HashSet::new()));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut load = tokio::task::JoinSet::new();
    for client in &clients {
        for _ in 0..4 {
            let (client, seen, stop) = (client.clone(), Arc::clone(&seen), Arc::clone(&stop));
            load.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let check = client.check(descriptor("many", "x"));
                    let decision = check.await.expect("a decision");
                    let decided = (decision.source, decision.allowed);
                    seen.lock().unwrap().insert(decided);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
    }
    let is_seen = |all: &[_]| {
        let seen = seen.lock().unwrap();
        all.iter().all(|decided| seen.contains(decided))
    };
    let served = [(Source::Server, true)];
    until("the service decides", async || is_seen(&served)).await;
    service.kill().await;
    let alone = [
        (Source::Allow, true),
        (Source::Deny, false),
        (Source::Local, false),
    ];
    until("the clients decide", async || is_seen(&alone)).await;
    let [allow, deny, local] = &clients;
    let allowed = allow
        .check(descriptor("many", "x"))
        .await
        .expect("a decision");
    assert_eq!((allowed.allowed, allowed.source), (true, Source::Allow));
    let denied = deny
        .check(descriptor("many", "x"))
        .await
        .expect("a decision");
    assert_eq!((denied.allowed, denied.source), (false, Source::Deny));
    assert!(denied.error.is_some());
    let bucket = local
        .check(descriptor("many", "x"))
        .await
        .expect("a decision");
    assert_eq!(bucket.source, Source::Local);
    service.restart().await;
    for client in &clients {
        until("the service answers again", async || {
            let decision = client.check(descriptor("many", "x")).await;
            decision.expect("a decision").source == Source::Server
        })
        .await;
    }
    stop.store(true, Ordering::SeqCst);
    load.join_all().await;
    for client in clients {
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_stopped_service_ends_by_its_deadline() {
    stopped(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_stopped_service_ends_by_its_deadline_with_batching() {
    stopped(true).await;
}

async fn stopped(batching: bool) {
    let service = Service::start(RULES).await;
    let deadline = Duration::from_millis(300);
    let client = Client::builder("edge")
        .address(service.grpc_address())
        .deadline(deadline)
        .on_error(OnError::Deny)
        .batching(batching)
        .build()
        .expect("a client");
    let warm = client
        .check(descriptor("many", "x"))
        .await
        .expect("a decision");
    assert_eq!(warm.source, Source::Server);
    service.stop().await;
    let decision = client
        .check(descriptor("many", "x"))
        .await
        .expect("a decision");
    service.cont();
    assert_eq!(decision.source, Source::Deny);
    assert_eq!(
        decision.error.and_then(|error| error.code()),
        Some(Code::DeadlineExceeded)
    );
    assert!(decision.elapsed >= deadline);
    // The service goes on, and so does the client.
    let answered = client
        .check(descriptor("many", "x"))
        .await
        .expect("a decision");
    assert_eq!(answered.source, Source::Server);
    client.close().await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_and_mtls() {
    use tollgate_limits::TlsOptions;

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let openssl = |arguments: &str| {
        let output = std::process::Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder.path())
            .output()
            .expect("run openssl");
        assert!(output.status.success(), "openssl {arguments}: {output:?}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca"
    ));
    for name in ["server", "client"] {
        openssl(&format!(
            "req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        let usage = if name == "server" {
            "serverAuth"
        } else {
            "clientAuth"
        };
        let extensions = format!("subjectAltName=DNS:{name}.test\nextendedKeyUsage={usage}\n");
        std::fs::write(path("extensions"), extensions).expect("write");
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem \
             -days 2 -extfile extensions"
        ));
    }
    let flags = |more: &[&str]| {
        let mut flags = vec!["--grpc-server-use-tls".to_owned(), "true".to_owned()];
        flags.extend(["--grpc-server-tls-cert".to_owned(), path("server.pem")]);
        flags.extend(["--grpc-server-tls-key".to_owned(), path("server.key")]);
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        flags
    };
    let read = |name: &str| std::fs::read(path(name)).expect("read");
    let source = async |service: &Service, tls: TlsOptions| {
        let client = builder(service.grpc_address())
            .tls(tls)
            .build()
            .expect("a client");
        let decision = client
            .check(descriptor("many", "x"))
            .await
            .expect("a decision");
        client.close().await;
        decision.source
    };
    let tls = TlsOptions::new()
        .ca_bundle(read("ca.pem"))
        .server_name("server.test");

    let service = Service::start_with(RULES, &flags(&[])).await;
    assert_eq!(source(&service, tls.clone()).await, Source::Server);
    assert_eq!(
        source(&service, tls.clone().server_name("other.test")).await,
        Source::Allow
    );
    assert_eq!(
        source(&service, TlsOptions::new()).await,
        Source::Allow,
        "unknown CA"
    );

    let service = Service::start_with(
        RULES,
        &flags(&["--grpc-client-tls-cacert", &path("ca.pem")]),
    )
    .await;
    let identity = tls.clone().identity(read("client.pem"), read("client.key"));
    assert_eq!(source(&service, identity).await, Source::Server);
    assert_eq!(
        source(&service, tls).await,
        Source::Allow,
        "without a client certificate"
    );
}

fn refusal() -> Reply {
    Reply::Check(tollgate::CheckResponse {
        verdict: tollgate::Verdict::OverLimit.into(),
        ..tollgate::CheckResponse::default()
    })
}

fn pass() -> Reply {
    Reply::Check(tollgate::CheckResponse {
        verdict: tollgate::Verdict::Ok.into(),
        ..tollgate::CheckResponse::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_denial_cache_saves_calls_and_is_bounded() {
    let server = ScriptedServer::start().await;
    server.always(Some(refusal()));
    let clock = ManualClock::default();
    let client = builder(server.address.to_string())
        .clock(clock)
        .denial_cache(500)
        .build()
        .expect("a client");
    for _ in 0..=1_000 {
        assert!(
            !client
                .check(descriptor("user", "ann"))
                .await
                .expect("a decision")
                .allowed
        );
    }
    assert_eq!(server.calls(), 1);
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..20 {
        let client = client.clone();
        workers.spawn(async move {
            for number in 0..100 {
                let key = format!("{worker}-{number}");
                client
                    .check(descriptor("user", &key))
                    .await
                    .expect("a decision");
            }
        });
    }
    workers.join_all().await;
    assert_eq!(server.calls(), 2_001);
    assert_eq!(client.denial_cache_len(), 500);
    client.close().await;
}

/// A client whose breaker is half open, and its server.
async fn half_open() -> (Client, ScriptedServer) {
    let server = ScriptedServer::start().await;
    let clock = ManualClock::default();
    let client = builder(server.address.to_string())
        .clock(clock.clone())
        .on_error(OnError::Deny)
        .breaker(BreakerOptions {
            failures: 1,
            open_for: Duration::from_secs(1),
        })
        .build()
        .expect("a client");
    server.always(Some(Reply::error(Code::Unavailable)));
    client
        .check(descriptor("user", "ann"))
        .await
        .expect("a decision");
    clock.advance(1_000);
    (client, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_breaker_lets_one_of_many_through() {
    let (client, server) = half_open().await;
    server.always(Some(Reply::Hang));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        callers.spawn(async move { client.check(descriptor("user", "ann")).await });
    }
    for _ in 0..49 {
        let decision = callers
            .join_next()
            .await
            .expect("one")
            .expect("no panic")
            .expect("a decision");
        assert_eq!(decision.error, Some(Error::BreakerOpen));
    }
    until("the probe arrives", async || server.calls() > 0).await;
    assert_eq!(server.calls(), 1);
    callers.abort_all();
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_probe_gives_back_its_place() {
    let (client, server) = half_open().await;
    server.always(Some(Reply::Hang));
    let probe = client.check(descriptor("user", "ann"));
    let cancelled = tokio::time::timeout(Duration::from_millis(100), probe).await;
    assert!(cancelled.is_err(), "dropped before an answer");
    assert_eq!(server.calls(), 1);
    server.always(Some(pass()));
    let decision = client
        .check(descriptor("user", "ann"))
        .await
        .expect("a decision");
    assert_eq!(decision.source, Source::Server);
    client.close().await;
}

#[test]
fn close_ends_every_task() {
    closed(false);
}

#[test]
fn close_ends_every_task_with_batching() {
    closed(true);
}

fn closed(batching: bool) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let service = Service::start(RULES).await;
        let before = runtime.metrics().num_alive_tasks();
        let client = builder(service.grpc_address())
            .batching(batching)
            .build()
            .expect("a client");
        assert_eq!(allowed_of(&client, &descriptor("many", "x"), 20).await, 20);
        drop(
            client
                .reserve(descriptor("budget", "ann"))
                .await
                .expect("a reservation"),
        );
        assert!(
            runtime.metrics().num_alive_tasks() > before,
            "the connection has tasks"
        );
        client.close().await;
        client.close().await;
        let tasks = || runtime.metrics().num_alive_tasks();
        until("its tasks have ended", async || tasks() <= before).await;
        let closed = client.check(descriptor("many", "x")).await;
        assert_eq!(closed, Err(Error::Closed));
        assert_eq!(
            client.peek(descriptor("many", "x")).await,
            Err(Error::Closed)
        );
        assert!(matches!(
            client.reserve(descriptor("many", "x")).await,
            Err(Error::Closed)
        ));
    });
}
