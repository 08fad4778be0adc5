//! `docs/guides/envoy-gateway.md`: the documented rules decide the documented descriptors.
//!
//! What it deliberately does not do: environment, xDS and TLS; `tests/gateway` tests them.

use std::process::Command;

use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guide::{Guide, yaml};

const PAGE: &str = "envoy-gateway.md";

#[test]
fn the_documented_rules_apply_the_policys_limits() {
    let guide = Guide::of(PAGE);
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
        let article = if unit == "Hour" { "an" } else { "a" };
        let expected = format!(
            "{} left of {requests} {article} {}",
            requests - 1,
            unit.to_lowercase()
        );
        assert!(
            said.contains(&expected),
            "{descriptor}: {said}, not {expected}"
        );
    }
}
