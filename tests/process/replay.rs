//! `tollgate replay`: a recording of a real service. `sessions/record.txt` has files that are
//! wrong.
//!
//! What it deliberately does not do: decide by every algorithm
//! (`crates/tools/src/replay/tests.rs`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate_test_support::child_process::KillOnDrop;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::admin_commands::{LIMITS, admin, hit};
use crate::process::commands::tollgate;

/// The limit of `user` is 1 instead of 2.
const CHANGED: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: team
    rate_limit: {unit: year, requests_per_unit: 1}
";

/// Records what this does at the service: so many requests.
fn record(service: &Tollgate, out: &Path, requests: u32, act: impl FnOnce()) {
    let client = Command::new(tollgate_binary())
        .args(["record", "--count", &requests.to_string(), "--for", "10m"])
        .args(["--out", out.to_str().unwrap(), "--admin", &admin(service)])
        .env_clear()
        .stderr(Stdio::null())
        .spawn_tied()
        .unwrap();
    let mut client = KillOnDrop(client);
    until("it records", || service.metric("tollgate_recordings") == 1);
    act();
    until("the recording ends", || client.0.try_wait().unwrap());
}

#[test]
fn a_recording_of_a_service_gives_its_verdicts_and_the_keys_that_a_change_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("rules.yaml"), LIMITS).unwrap();
    fs::write(path("changed.yaml"), CHANGED).unwrap();
    let service = Tollgate::start(LIMITS, &[]);
    let recording = path("run.tgrec");
    record(&service, Path::new(&recording), 6, || {
        hit(&service, "user=ada", 3);
        hit(&service, "user=bob", 1);
        hit(&service, "team=red", 2);
    });
    let rules = ["replay", &recording, "--rules", &path("rules.yaml")];
    let changed = ["--against", &path("changed.yaml")];
    let (code, json, stderr) = tollgate(&[&rules[..], &changed, &["--format", "json"]].concat());
    assert_eq!((code, &*stderr), (0, ""), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["admitted"], &json["refused"]),
        (&4.into(), &2.into())
    );
    assert_eq!(json["recorded"]["same"], 6);
    assert_eq!(json["recorded"]["different"], 0);
    assert_eq!(
        json["recorded"]["why_they_may_differ"],
        Value::Array(Vec::new())
    );
    assert_eq!(
        (&json["newly_refused"], &json["newly_admitted"]),
        (&1.into(), &0.into())
    );
    let keys = json["keys_newly_refused"].as_array().unwrap();
    assert_eq!(
        (keys.len(), &keys[0]["entries"][0]["value"]),
        (1, &"ada".into())
    );

    let (code, text, _) = tollgate(&[&rules[..], &changed].concat());
    assert_eq!(code, 0);
    assert!(
        text.contains("Newly refused by --against: 1 request"),
        "{text}"
    );
    assert!(text.contains("user=ada"), "{text}");
    let page = path("report.html");
    let (code, stdout, _) = tollgate(&[&rules[..], &["--format", "html", "--out", &page]].concat());
    assert_eq!((code, &*stdout), (0, ""));
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .starts_with("<!doctype html>")
    );
}
