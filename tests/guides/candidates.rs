//! `docs/guides/candidates.md`: its rule is tried by a real service, and what it says of `tap`, the
//! counters and `/limits` is so.

use std::process::{Child, Command};

use serde_json::{Value, json};
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guide::Guide;

/// Sends a request of one user; returns the status.
fn hit(service: &Tollgate) -> u16 {
    let entry = json!({"key": "user", "value": "someone"});
    let body = json!({"domain": "shop", "descriptors": [{"entries": [entry]}]});
    http(service.http, "POST", "/json", &body.to_string()).0
}

/// A process that ends with the test, whatever the test's result.
struct Tap(Child);

impl Drop for Tap {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_rule_of_the_page_is_tried_and_not_enforced() {
    let guide = Guide::of("candidates.md");
    let rules = guide.only("One rule", "yaml");
    let service = Tollgate::start(&rules, &["--top-keys", "plain"]);
    let tap = Command::new(tollgate_binary())
        .args(["tap", "--candidates", "only", "--verdict", "over_limit"])
        .args(["--count", "1", "--format", "json"])
        .args(["--admin", &format!("http://{}", service.admin)])
        .stdout(std::process::Stdio::piped())
        .spawn_tied()
        .unwrap();
    let mut tap = Tap(tap);
    let listening = || (service.metric("tollgate_event_streams") == 1).then_some(());
    assert!(wait_for(PATIENCE, listening).is_some());
    // The candidate's burst is 20, and the limit in force 100 a minute.
    let admitted = (0..60).filter(|_| hit(&service) == 200).count();
    assert_eq!(admitted, 60);
    let requests = |result: &str| {
        service.metric(&format!(
            "tollgate_candidate_requests_total{{domain=\"shop\",result=\"{result}\"}}"
        ))
    };
    let all = || (requests("admitted") + requests("newly_refused") == 60).then_some(());
    assert!(wait_for(PATIENCE, all).is_some());
    let refused = requests("newly_refused");
    assert!(refused > 0, "60 requests at once, and a burst of 20");
    let limits: Value = serde_json::from_str(&http(service.admin, "GET", "/limits", "").1).unwrap();
    let counts = &limits["limits"][0]["candidate"]["counts"];
    assert_eq!(counts["newly_refused"], refused);
    assert_eq!(counts["live_refused_percent"], 0.0);
    assert!(tap.0.wait().unwrap().success());
    let mut line = String::new();
    std::io::Read::read_to_string(&mut tap.0.stdout.take().unwrap(), &mut line).unwrap();
    let decision: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(decision["candidate"], true);
    assert_eq!(decision["live_verdict"], "OK");
}

#[test]
fn every_metric_and_reason_of_the_page_exists() {
    let page = Guide::of("candidates.md");
    let reference = crate::guide::read("docs/metrics.md");
    let names = page.text().split('`').skip(1).step_by(2);
    let names: Vec<_> = names
        .filter_map(|text| text.split('{').next())
        .filter(|name| name.starts_with("tollgate_candidate"))
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert!(reference.contains(&format!("| `{name}` |")), "{name}");
    }
    let skipped = reference
        .lines()
        .find(|line| line.contains("tollgate_candidate_skipped_total"))
        .unwrap();
    for reason in ["queue_full", "memory_full", "no_verdict", "matching_steps"] {
        assert!(skipped.contains(reason), "{skipped}");
        assert!(page.text().contains(&format!("| `{reason}` |")), "{reason}");
    }
}
