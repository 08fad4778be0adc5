//! An overlay of rules from an xDS server: Envoy Gateway's names, and a policy of 100 a year that
//! becomes a token bucket and a fixed window again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use tollgate::clock::{Clock as _, SystemClock};
use tollgate::xds::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitUnit,
};
use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::gateway_environment::environment;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ratelimit_process::RatelimitProcess;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::gateway::ads::Ads;
use crate::gateway::dropin::{ROUTE, start};
use crate::gateway::wait_for_log;
use crate::gateway::xds::{domain, limited};

const DOMAIN: &str = "default/eg/http";

const YEAR_SECONDS: u64 = 365 * 86_400;

/// Matches the first rule of the policy on every route.
const BUCKET: &str = "
overlay:
- domain: default/eg/*
  path:
  - key: httproute/default/app/rule/*
  - key: rule-0-match-0
  algorithm: token_bucket
  charged: afterwards
";

/// A policy of `requests` a year for each value of a header.
fn policy(requests: u32) -> Vec<RateLimitConfig> {
    let route = RateLimitDescriptor {
        key: ROUTE.to_owned(),
        value: ROUTE.to_owned(),
        descriptors: vec![limited("rule-0-match-0", RateLimitUnit::Year, requests)],
        ..RateLimitDescriptor::default()
    };
    vec![domain(DOMAIN, vec![route])]
}

/// A file of an overlay.
struct OverlayFile {
    directory: TempDir,
}

impl OverlayFile {
    fn new(text: &str) -> Self {
        let file = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("overlay.yaml")
    }

    /// Replaces the file, as an editor does.
    fn write(&self, text: &str) {
        let new = self.directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path()).unwrap();
    }
}

/// Takes hits of a user. Gives the code, and the seconds until the limit is reset or lets a request
/// pass.
fn ask(replica: &RatelimitProcess, user: &str, hits: u32) -> (String, u64) {
    let body = serde_json::json!({
        "domain": DOMAIN,
        "hitsAddend": hits,
        "descriptors": [{"entries": [
            {"key": ROUTE, "value": ROUTE}, {"key": "rule-0-match-0", "value": user},
        ]}],
    });
    let (_, answer) = http(replica.http, "POST", "/json", &body.to_string());
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let status = &answer["statuses"][0];
    assert!(status.is_object(), "{answer}: {}", replica.said());
    let wait = status["durationUntilReset"].as_str().unwrap_or("0s");
    let wait = wait.trim_end_matches('s').parse().unwrap();
    (status["code"].as_str().unwrap().to_owned(), wait)
}

/// The seconds after which a user may come again who took 100 requests at once.
fn wait_after_a_hundred(replica: &RatelimitProcess, user: &str) -> u64 {
    let (first, _) = ask(replica, user, 100);
    assert_eq!(first, "OK", "{}", replica.said());
    let (second, wait) = ask(replica, user, 1);
    assert_eq!(second, "OVER_LIMIT", "{}", replica.said());
    wait
}

/// The seconds until the window of a year ends.
fn left_of_the_year() -> u64 {
    YEAR_SECONDS - SystemClock::new().now().as_us() / 1_000_000 % YEAR_SECONDS
}

/// Waits until `/rlconfig` or its absence of a word shows that other rules are in use.
fn wait_for_rules(replica: &RatelimitProcess, words: &str) {
    until(words, || match replica.rules() {
        rules if rules.contains(words) => Ok(()),
        rules => Err(format!("{rules}\n{}", replica.said())),
    });
}

/// What `tollgate decisions` prints.
fn explain_last(replica: &RatelimitProcess) -> String {
    let admin = format!("http://{}", replica.admin);
    let output = Command::new(tollgate_binary())
        .args(["decisions", "--admin", &admin])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn readiness(replica: &RatelimitProcess) -> String {
    http(replica.admin, "GET", "/readyz?verbose", "").1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overlay_makes_a_gateways_policy_a_token_bucket_and_without_it_a_fixed_window() {
    let authority = Authority::new("envoy-gateway");
    let redis = RedisServer::start(&[]);
    let gateway = authority.signs_rsa(&["envoy-gateway", "envoy-gateway.system", "localhost"]);
    let ads = Ads::start(Some((&gateway, &authority.pem))).await;
    let secret = Secret::new(&authority.signs_rsa(&["*.system"]), &authority.pem);
    let xds = format!("localhost:{}", ads.address.port());
    let file = OverlayFile::new(BUCKET);
    let path = file.path().display().to_string();
    let variables = environment(&secret.file(""), &xds, &redis);
    let replica = start(&variables, &[("TOLLGATE_OVERLAY", &path)]);
    ads.send("1", &policy(100));
    assert_eq!(ads.answer_to("1").1, None);
    wait_for_rules(&replica, "token_bucket");
    until("the store is up", || {
        replica.metric("tollgate_store_up") == 1
    });
    let with_overlay = replica.rules_hash();
    // A bucket has one request more each hundredth of the year, and the refused one was charged.
    let wait = wait_after_a_hundred(&replica, "bob");
    let hundredth = YEAR_SECONDS / 100;
    assert!((hundredth..=2 * hundredth).contains(&wait), "{wait}");

    // The running service names the resource and the entry.
    let limits = http(replica.admin, "GET", "/limits", "").1;
    let limits: serde_json::Value = serde_json::from_str(&limits).unwrap();
    let limit = &limits["limits"][0];
    assert_eq!(limit["source"], "default/eg/http.resource", "{limit}");
    assert_eq!(limit["overlay"], format!("{path}:3"), "{limit}");
    let last = explain_last(&replica);
    let words =
        format!("written in default/eg/http.resource, with the overlay's entry in {path}:3");
    assert!(last.contains(&words), "{last}");

    // A new snapshot is overlaid before it is published.
    ads.send("2", &policy(99));
    assert_eq!(ads.answer_to("2").1, None);
    wait_for_rules(&replica, "requests_per_unit=99");
    assert!(
        replica.rules().contains("token_bucket"),
        "{}",
        replica.rules()
    );
    ads.send("3", &policy(100));
    assert_eq!(ads.answer_to("3").1, None);
    wait_for_rules(&replica, "requests_per_unit=100");
    assert_eq!(replica.rules_hash(), with_overlay);

    // The overlay is removed while the server is away.
    ads.close(true);
    file.write("overlay: []\n");
    until("the overlay is removed", || match replica.rules() {
        rules if rules.contains("token_bucket") => Err(replica.said()),
        _ => Ok(()),
    });
    assert_ne!(replica.rules_hash(), with_overlay);
    let before = left_of_the_year();
    let wait = wait_after_a_hundred(&replica, "eve");
    let after = left_of_the_year();
    assert!((after..=before).contains(&wait), "{wait}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_the_overlay_is_reported_and_rejects_no_resource() {
    let ads = Ads::start(None).await;
    let file = OverlayFile::new(BUCKET);
    let path = file.path().display().to_string();
    let server = format!("localhost:{}", ads.address.port());
    let replica = RatelimitProcess::start(&[
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &server),
        ("TOLLGATE_OVERLAY", &path),
    ]);
    ads.send("1", &policy(100));
    assert_eq!(ads.answer_to("1"), ("1".to_owned(), None));
    wait_for_rules(&replica, "token_bucket");

    // The same overlay does not allow what the next version of it sets.
    file.write(&format!("{BUCKET}  burst: 101\n"));
    let refused = "tollgate_rules_refused";
    until("the rules are refused", || replica.metric(refused) == 1);
    let verbose = readiness(&replica);
    assert!(verbose.contains("burst 101 is above"), "{verbose}");
    wait_for_log(|| replica.said(), "may_raise: true");

    // A good resource is accepted, and used as soon as the overlay fits.
    ads.send("2", &policy(50));
    assert_eq!(ads.answer_to("2"), ("2".to_owned(), None));
    assert!(
        replica.rules().contains("requests_per_unit=100"),
        "{}",
        replica.rules()
    );
    assert_eq!(
        replica.metric("tollgate_xds_responses_total{result=\"nack\"}"),
        0
    );
    // Beside a bad domain it waits for the overlay too. The server hears of both.
    let twice = [1, 2].map(|requests| limited("twice", RateLimitUnit::Year, requests));
    let mut both = policy(40);
    both.push(domain("second", twice.to_vec()));
    ads.send("both", &both);
    let (version, reasons) = ads.answer_to("both");
    assert_eq!(version, "2");
    let reasons = reasons.unwrap();
    for part in ["burst 101 is above", "twice"] {
        assert!(reasons.contains(part), "{part}: {reasons}");
    }
    // A bad one is rejected as without an overlay.
    ads.send("bad", &[domain("", vec![])]);
    assert_eq!(ads.answer_to("bad").0, "2");
    file.write(&format!("{BUCKET}  burst: 20\n"));
    wait_for_rules(&replica, "requests_per_unit=40");

    // The policy's names change, and the overlay matches nothing.
    let renamed = domain(DOMAIN, vec![limited("other", RateLimitUnit::Year, 7)]);
    ads.send("3", &[renamed]);
    assert_eq!(ads.answer_to("3").1, None);
    wait_for_rules(&replica, "other");
    until("the rules are good", || replica.metric(refused) == 0);
    let warned = readiness(&replica);
    assert!(
        warned.contains("this entry matches no limit of the rules"),
        "{warned}"
    );
}
