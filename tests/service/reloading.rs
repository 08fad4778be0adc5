//! Reloads while requests arrive: valid rules apply as a whole, invalid ones change nothing and are
//! reported.
//!
//! `Service::reload` writes a file and waits until it was accepted or rejected. The clock does not
//! move, so what is left in a bucket depends on the test alone.
//!
//! What it deliberately does not do: detect changed files (`tests/rules/watching.rs`).

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tollgate::admin_api::time_text;
use tollgate::app::{App, Listeners};
use tollgate::clock::{Clock as _, ManualClock};
use tollgate::rules::file::Options;
use tollgate::rules::path::RulesPath;
use tollgate::rules::reload::RulesWatcher;
use tollgate::settings::Settings;
use tollgate_test_support::grpc_client::{Code, channel, descriptor, hits, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::{START, Service, settings};
use tonic::Code as Grpc;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// One rule with a limit of `requests` a minute.
fn rules(requests: u32) -> String {
    format!(
        "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: minute, requests_per_unit: {requests}}}}}]\n"
    )
}

/// The limit and its remaining hits after another hit.
async fn hit(service: &mut Service) -> (u32, u32) {
    let status = service.status("d", hits("k", "a", 1)).await;
    (
        status.current_limit.expect("a limit").requests_per_unit,
        status.limit_remaining,
    )
}

async fn get(address: std::net::SocketAddr, path: &'static str) -> (u16, String) {
    tokio::task::spawn_blocking(move || http(address, "GET", path, ""))
        .await
        .unwrap()
}

#[tokio::test]
async fn buckets_outlive_good_and_bad_rules() {
    let mut service = Service::start(&rules(10), &[]).await;
    assert_eq!(hit(&mut service).await, (10, 9));
    service.reload(&rules(20)).await;
    assert_eq!(
        hit(&mut service).await,
        (20, 18),
        "the limit is new, what was taken stays"
    );
    service.reload("domain: d\nnonsense: 1\n").await;
    assert_eq!(
        hit(&mut service).await,
        (20, 17),
        "bad rules change nothing"
    );
    service.reload(&rules(5)).await;
    assert_eq!(hit(&mut service).await, (5, 1));
    // Another position in the file and other rules beside it do not change the bucket.
    service.reload("domain: d\ndescriptors: [{key: j, rate_limit: {unit: day}}, {key: k, rate_limit: {unit: minute, requests_per_unit: 10}}]\n").await;
    assert_eq!(hit(&mut service).await, (10, 5));
    assert_eq!(
        service.status("d", hits("j", "a", 1)).await.code(),
        Code::OverLimit
    );
}

#[tokio::test]
async fn removed_rules_no_longer_apply() {
    let mut service = Service::start(&rules(0), &[]).await;
    assert_eq!(
        service.status("d", hits("k", "a", 1)).await.code(),
        Code::OverLimit
    );
    service.reload("domain: d\n").await;
    assert_eq!(
        service.status("d", hits("k", "a", 1)).await.current_limit,
        None
    );
    service.reload("domain: other\n").await;
    service.status("d", hits("k", "a", 1)).await;
    assert_eq!(
        service.metric("ratelimit_service_rate_limit_domain_not_found{domain=\"d\"}"),
        1
    );
}

#[tokio::test]
async fn generation_and_hash_identify_the_rules_in_use() {
    let mut service = Service::start(&rules(1), &[]).await;
    let shown = |service: &Service| {
        (
            service.metric("tollgate_rules_generation"),
            service.rules_hash(),
        )
    };
    let (first, hash) = shown(&service);
    assert_eq!(first, 1);
    service.reload(&rules(2)).await;
    let (second, other) = shown(&service);
    assert_eq!(second, 2);
    assert_ne!(hash, other);
    service.reload("domain: [").await;
    assert_eq!(
        shown(&service),
        (2, other),
        "what was refused is not in use"
    );
    service.reload(&rules(1)).await;
    assert_eq!(
        shown(&service),
        (3, hash),
        "the same files have the same hash"
    );
    assert_eq!(service.metric("ratelimit_service_config_load_success"), 3);
    assert_eq!(service.metric("ratelimit_service_config_load_error"), 1);
    let replica = Service::start(&rules(1), &[]).await;
    assert_eq!(shown(&replica), (1, hash), "on every replica");
    // The series of earlier rules is gone.
    for (service, hash) in [(&service, hash), (&replica, hash)] {
        let (_, text) = get(service.http, "/metrics").await;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("tollgate_rules_info"));
        let expected = format!("tollgate_rules_info{{hash=\"{hash:012x}\"}} 1");
        assert_eq!(lines.collect::<Vec<_>>(), [expected]);
    }
}

#[tokio::test]
async fn a_new_algorithm_that_counts_fewer_refused_hits_is_a_warning() {
    let rules = |options: &str| {
        format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: year, requests_per_unit: 9{options}}}}}]\n"
        )
    };
    let mut service = Service::start(&rules(""), &[]).await;
    for (options, is_weaker) in [
        (", algorithm: token_bucket", true),
        ("", false),
        (", algorithm: sliding_window, charged: afterwards", false),
        (", algorithm: gcra, count_refused: all", true),
        // The algorithm is that of before.
        (", algorithm: gcra", false),
    ] {
        service.reload(&rules(options)).await;
        let (_, said) = get(service.admin, "/readyz?verbose").await;
        let is_said = said.contains("which is weaker than");
        assert_eq!(is_said, is_weaker, "{options}: {said}");
    }
}

#[tokio::test]
async fn rejected_rules_are_reported_until_valid_ones_load() {
    let mut service = Service::start(&rules(1), &[]).await;
    let good = get(service.admin, "/readyz?verbose").await;
    let hash = format!("{:012x}", service.rules_hash());
    let expected = format!(
        "[+] rules: generation 1, hash {hash}, 1 limit in 1 domain\n[+] stop: not asked to stop\nready\n"
    );
    assert_eq!(good, (200, expected));

    service
        .reload("domain: d\nnonsense: 1\ndescriptors: []\n")
        .await;
    let (status, said) = get(service.admin, "/readyz?verbose").await;
    assert_eq!(status, 200, "the rules in use still are");
    assert!(said.contains("[+] rules: generation 1, "), "{said}");
    let refused = format!(
        "[-] newest rules: refused\nerror[unknown-key]: config error, unknown key 'nonsense'\n --> {file}:2:1\n  |\n2 | nonsense: 1\n  | ^^^^^^^^\n",
        file = service.rules.display()
    );
    assert!(said.contains(&refused), "{said}");
    assert!(said.ends_with("ready\n"), "{said}");
    // The public port shows no more than before.
    assert_eq!(
        get(service.http, "/readyz?verbose").await,
        (200, "OK".to_owned())
    );

    service.reload(&rules(1)).await;
    let (_, said) = get(service.admin, "/readyz?verbose").await;
    assert!(
        said.starts_with("[+] rules: generation 2, ") && !said.contains("[-]"),
        "{said}"
    );
}

#[tokio::test]
async fn a_domain_that_is_refused_is_reported_until_it_is_valid() {
    let service = Service::start(&rules(1), &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        isolate_domains: true,
        ..Options::default()
    };
    let path = RulesPath::Path(directory.path().to_owned());
    let mut watcher = RulesWatcher::new(path, options);
    let mut load = |texts: [&str; 2]| {
        for (name, text) in ["a.yaml", "b.yaml"].iter().zip(texts) {
            fs::write(directory.path().join(name), text).unwrap();
        }
        service.generations.take(watcher.read());
    };
    let since = time_text(service.clock.now());
    load(["domain: a\n", "domain: b\nnonsense: 1\n"]);
    service.clock.advance_us(1_000_000);
    // It stays refused, with another mistake, while the other one changes.
    load(["domain: a # again\n", "domain: b\nother: 1\n"]);
    let (_, said) = get(service.admin, "/readyz?verbose").await;
    let line = format!("[-] domain b: newest rules refused since {since}; it has no rules in use");
    assert!(said.contains(&line), "{said}");
    assert!(said.contains("unknown key 'other'"), "{said}");
    assert!(!said.contains("newest rules: refused"), "{said}");
    let series = "tollgate_domain_refused_since_seconds{domain=\"b\"}";
    assert_eq!(service.metric(series), START.as_us() / 1_000_000);
    assert_eq!(service.metric("tollgate_rules_refused"), 1);
    assert_eq!(service.metric("ratelimit_service_config_load_error"), 2);
    load(["domain: a\n", "domain: b\n"]);
    let (_, said) = get(service.admin, "/readyz?verbose").await;
    assert!(!said.contains("[-]"), "{said}");
    assert_eq!(service.metric(series), 0);
    assert_eq!(service.metric("tollgate_rules_refused"), 0);
}

#[tokio::test]
async fn a_request_under_many_reloads_always_finds_whole_rules() {
    // Each generation limits `a` and `b` alike: an answer that mixed two would show two limits.
    let both = |n: u32| {
        format!(
            "domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: day, requests_per_unit: {n}}}}}, {{key: b, rate_limit: {{unit: day, requests_per_unit: {n}}}}}]\n"
        )
    };
    let mut service = Service::start(&both(1_000_000), &[]).await;
    let mut client = Service::connect(service.grpc).await;
    let (done, mut finished) = oneshot::channel::<()>();
    let asking = tokio::spawn(async move {
        let mut asked = 0_u32;
        while finished.try_recv().is_err() {
            let two = vec![hits("a", "x", 1), hits("b", "x", 1)];
            let answer = client
                .should_rate_limit(request("d", two))
                .await
                .unwrap()
                .into_inner();
            let limits: Vec<_> = answer
                .statuses
                .iter()
                .map(|status| status.current_limit.as_ref().unwrap().requests_per_unit)
                .collect();
            assert_eq!(limits[0], limits[1]);
            asked += 1;
        }
        asked
    });
    for n in 0..30 {
        service.reload(&both(1_000_000 + n)).await;
    }
    done.send(()).unwrap();
    assert!(asking.await.unwrap() > 0);
    assert_eq!(service.metric("tollgate_rules_generation"), 31);
}

/// A service with rules that may be missing or invalid, so that it may never be ready.
struct Unready {
    grpc: std::net::SocketAddr,
    http: std::net::SocketAddr,
    rules: PathBuf,
    ready: oneshot::Receiver<()>,
    reload: mpsc::Sender<()>,
    directory: tempfile::TempDir,
}

async fn unready(text: Option<&str>, arguments: &[&str]) -> Unready {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    if let Some(text) = text {
        std::fs::write(&rules, text).unwrap();
    }
    let mut settings = settings(arguments);
    settings.rules_path = Some(rules);
    start(settings, directory).await
}

/// A service with these settings, whose rules are in this directory.
async fn start(settings: Settings, directory: tempfile::TempDir) -> Unready {
    let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (grpc_at, http_at) = (grpc.local_addr().unwrap(), http.local_addr().unwrap());
    let listeners = Listeners {
        grpc: grpc.into(),
        http,
        admin: None,
        prometheus: None,
        ingresses: Vec::new(),
    };
    let app = App::build(settings, listeners, Arc::new(ManualClock::at(START))).unwrap();
    let (is_ready, ready) = oneshot::channel();
    let (reload, reloads) = mpsc::channel(1);
    tokio::spawn(app.run(
        |_| is_ready.send(()).expect("the test waits"),
        reloads,
        std::future::pending(),
    ));
    Unready {
        grpc: grpc_at,
        http: http_at,
        rules: directory.path().join("rules.yaml"),
        ready,
        reload,
        directory,
    }
}

// === impl Unready ===

impl Unready {
    async fn asked(&self) -> Result<Code, (Grpc, String)> {
        let mut client = Service::connect(self.grpc).await;
        let answer = client
            .should_rate_limit(request("d", vec![descriptor(&[("k", "v")])]))
            .await;
        answer
            .map(|answer| answer.get_ref().overall_code())
            .map_err(|status| (status.code(), status.message().to_owned()))
    }

    async fn health(&self) -> ServingStatus {
        let mut health = HealthClient::new(channel(self.grpc).await);
        let asked = HealthCheckRequest {
            service: "ratelimit".to_owned(),
        };
        health.check(asked).await.unwrap().get_ref().status()
    }

    /// Waits until it has read its rules once more: it accepts the second message only after it has
    /// acted on the first.
    async fn looked(&self) {
        for _ in 0..3 {
            self.reload.send(()).await.unwrap();
        }
    }
}

const NO_RULES: &str = "no rate limit configuration loaded";

#[tokio::test]
async fn without_rules_it_answers_an_error_and_is_not_ready() {
    for text in [None, Some("domain: [")] {
        let service = unready(text, &[]).await;
        service.looked().await;
        assert_eq!(
            service.asked().await,
            Err((Grpc::Unavailable, NO_RULES.to_owned())),
            "{text:?}"
        );
        assert_eq!(service.health().await, ServingStatus::NotServing);
        assert_eq!(get(service.http, "/readyz").await.0, 500);
        assert_eq!(get(service.http, "/livez").await.0, 200);
        // Valid rules end that, without a restart.
        std::fs::write(&service.rules, "domain: d\n").unwrap();
        let Unready { ready, .. } = service;
        ready.await.unwrap();
    }
}

#[tokio::test]
async fn forced_to_start_without_rules_it_is_ready_and_answers_an_error() {
    let service = unready(None, &["--force-start-without-initial-config", "true"]).await;
    service.looked().await;
    assert_eq!(service.health().await, ServingStatus::Serving);
    assert_eq!(get(service.http, "/readyz").await.0, 200);
    assert_eq!(
        service.asked().await,
        Err((Grpc::Unavailable, NO_RULES.to_owned()))
    );
    std::fs::write(&service.rules, "domain: d\n").unwrap();
    service.looked().await;
    assert_eq!(service.asked().await, Ok(Code::Ok));
}

#[tokio::test]
async fn rules_without_a_domain_may_count_as_none() {
    for (arguments, healthy) in [
        (&[][..], 200),
        (&["--healthy-with-at-least-one-config-loaded", "true"], 500),
    ] {
        // Only the reference's variables can name a directory without any rules.
        let root = tempfile::tempdir().unwrap();
        let mut settings = settings(arguments);
        settings.rules.runtime_root = Some(root.path().to_path_buf());
        let mut service = start(settings, root).await;
        (&mut service.ready).await.unwrap();
        let health = get(service.http, "/healthcheck").await.0;
        assert_eq!(health, healthy, "{arguments:?}");
        let config = service.directory.path().join("config");
        std::fs::create_dir(&config).unwrap();
        std::fs::write(config.join("d.yaml"), "domain: d\n").unwrap();
        service.looked().await;
        let health = get(service.http, "/healthcheck").await.0;
        assert_eq!(health, 200, "{arguments:?}");
    }
}
