//! `docs/guides/candidates.md`: its rule is tried by a real service, and what it says of `tap`, the
//! counters and `/limits` is so.

use std::process::Command;

use serde_json::{Value, json};
use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::guide::{Page, of_a_year};

/// Sends a request of one user; returns the status.
fn hit(service: &Tollgate) -> u16 {
    let entry = json!({"key": "user", "value": "someone"});
    let body = json!({"domain": "shop", "descriptors": [{"entries": [entry]}]});
    http(service.http, "POST", "/json", &body.to_string()).0
}

#[test]
fn the_rule_of_the_page_is_tried_and_not_enforced() {
    let guide = Page::guide("candidates.md");
    let rules = of_a_year(&guide.only("One rule", "yaml"));
    let service = Tollgate::start(&rules, &["--top-keys", "plain"]);
    let tap = Command::new(tollgate_binary())
        .args(["tap", "--candidates", "only", "--verdict", "over_limit"])
        .args(["--count", "1", "--format", "json"])
        .args(["--admin", &format!("http://{}", service.admin)])
        .stdout(std::process::Stdio::piped())
        .spawn_tied()
        .unwrap();
    let mut tap = KillOnDrop(tap);
    until("the tap listens", || {
        service.metric("tollgate_event_streams") == 1
    });
    // The candidate's burst is 20, and the limit in force is 100.
    let admitted = (0..60).filter(|_| hit(&service) == 200).count();
    assert_eq!(admitted, 60);
    let requests = |result: &str| {
        service.metric(&format!(
            "tollgate_candidate_requests_total{{domain=\"shop\",result=\"{result}\"}}"
        ))
    };
    until("the candidate decides all", || {
        let decided = ["admitted", "newly_refused"].map(requests);
        (decided == [20, 40]).then_some(()).ok_or(decided)
    });
    let limits: Value = serde_json::from_str(&http(service.admin, "GET", "/limits", "").1).unwrap();
    let counts = &limits["limits"][0]["candidate"]["counts"];
    assert_eq!(counts["newly_refused"], 40);
    assert_eq!(counts["live_refused_percent"], 0.0);
    let status = until("the tap ends", || tap.0.try_wait().unwrap());
    assert!(status.success());
    let mut line = String::new();
    std::io::Read::read_to_string(&mut tap.0.stdout.take().unwrap(), &mut line).unwrap();
    let decision: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(decision["candidate"], true);
    assert_eq!(decision["live_verdict"], "OK");
}

#[test]
fn every_metric_and_reason_of_the_page_exists() {
    let page = Page::guide("candidates.md");
    let reference = crate::guides::guide::read("docs/metrics.md");
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
