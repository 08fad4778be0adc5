//! `docs/guides/envoy-gateway.md`: the documented rules decide the documented descriptors.
//!
//! What it deliberately does not do: environment, xDS and TLS; `tests/gateway` tests them.

use std::process::Command;

use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::guide::{Page, yaml};

const PAGE: &str = "envoy-gateway.md";

#[test]
fn the_documented_rules_apply_the_policys_limits() {
    let guide = Page::guide(PAGE);
    let [policy, rules] = &guide.under("Limits", "yaml")[..] else {
        panic!("a policy and its rules")
    };
    let tollgate = Tollgate::start(rules, &[]);
    let policy = &yaml(policy)[0];
    let limits = policy["spec"]["rateLimit"]["global"]["rules"]
        .as_array()
        .unwrap();
    let asked = guide.only("Limits", "text");
    let descriptors: Vec<_> = asked.lines().collect();
    assert_eq!(descriptors.len(), limits.len());
    for (descriptor, limit) in descriptors.iter().zip(limits) {
        let output = Command::new(tollgate_binary())
            .args([
                "hit",
                &tollgate.grpc.to_string(),
                "default/eg/http",
                descriptor,
            ])
            .env_clear()
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{descriptor}: {said}");
        let limit = &limit["limit"];
        let (requests, unit) = (
            limit["requests"].as_u64().unwrap(),
            limit["unit"].as_str().unwrap(),
        );
        let unit = unit.to_lowercase();
        let expected = format!("{} left of {requests} per {unit}", requests - 1);
        assert!(
            said.contains(&expected),
            "{descriptor}: {said}, not {expected}"
        );
    }
}

#[test]
fn the_documented_overlay_makes_the_policy_a_token_bucket() {
    let guide = Page::guide(PAGE);
    let heading = "A token bucket for a policy";
    let [policy, overlay, rules] = &guide.under(heading, "yaml")[..] else {
        panic!("a policy, an overlay and rules")
    };
    let limit = &yaml(policy)[0]["spec"]["rateLimit"]["global"]["rules"][0]["limit"];
    assert_eq!(limit["requests"].as_u64(), Some(100));
    let [commands, printed] = &guide.under(heading, "text")[..] else {
        panic!("commands and what they print")
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("overlay.yaml"), overlay).unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(tollgate_binary())
            .args(arguments)
            .current_dir(directory.path())
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_eq!(output.stderr, b"", "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = commands
        .lines()
        .map(|line| line.strip_prefix("tollgate ").unwrap());
    let commands: Vec<Vec<_>> = commands.map(|line| line.split(' ').collect()).collect();
    let said: String = commands.iter().map(|arguments| run(arguments)).collect();
    for line in printed.lines() {
        assert!(
            said.lines().any(|said| said == line),
            "{line:?} in:\n{said}"
        );
    }
    // Without the overlay the policy is a fixed window.
    let descriptor = *commands[1].last().unwrap();
    let said = run(&["explain", "rules.yaml", "default/eg/http", descriptor]);
    assert!(
        said.contains("limit: 100 per minute, fixed_window"),
        "{said}"
    );
    assert!(!said.contains("overlay"), "{said}");
}
