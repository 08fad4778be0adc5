//! A domain that becomes invalid among valid ones.
//!
//! Two rules of a policy with one network: Envoy Gateway accepts the policy, and gives both rules
//! one descriptor, which is invalid. The reference rejects all rules for it.

use tollgate_test_support::http_client::http;

use crate::gateway_control_plane::Stack;
use crate::gateway_control_plane::control_plane::wait_long;

/// The end of the names of two limits: one of a domain that becomes invalid, one of another domain.
const APP: &str = "httproute/default/app/rule/0/match/0/*.rule-0-match-0";
const SECOND: &str = "default/second/rule/0.rule-0-match-0";

/// A policy of one route, with a limit a year for each user and further rules. A shared policy has
/// a domain of its own.
fn policy(route: &str, requests: u32, further: &str) -> String {
    let shared = route == "second";
    format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {{ name: {route}, namespace: default }}
spec:
  targetRefs: [{{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: {route} }}]
  rateLimit:
    type: Global
    global:
      rules:
        - clientSelectors: [{{ headers: [{{ name: x-user, type: Distinct }}] }}]
          limit: {{ requests: {requests}, unit: Year }}
          shared: {shared}
{further}---
"
    )
}

/// Further rules for one network.
fn of_network(types: &[&str]) -> String {
    let rule = |kind: &&str| {
        format!(
            "        - clientSelectors: [{{ sourceCIDR: {{ value: 10.0.0.0/8, type: {kind} }} }}]
          limit: {{ requests: 100, unit: Year }}
"
        )
    };
    types.iter().map(rule).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_that_becomes_invalid_keeps_its_rules_and_the_others_change() {
    let stack = Stack::start(&[]).await;
    let set = |bad: &str, requests: u32| {
        let policies = [policy("app", 2, bad), policy("second", requests, "")].concat();
        stack.control_plane.set_policy(&policies);
    };
    let limit = |key: &str, requests: u32| {
        let said = format!("{key}: unit=YEAR requests_per_unit={requests},");
        stack.wait_for_rules(&said, |rules| rules.contains(&said));
    };
    let statuses = |path: &str, user: &str, requests: usize| -> Vec<u16> {
        let ask = |_| stack.control_plane.get(path, &[("x-user", user)]).status;
        (0..requests).map(ask).collect()
    };
    let nacks = || {
        stack
            .tollgate
            .metric("tollgate_xds_responses_total{result=\"nack\"}")
    };
    set(&of_network(&["Exact"]), 3);
    stack.control_plane.start();
    limit(APP, 2);
    limit(SECOND, 3);
    assert_eq!(nacks(), 0);

    set(&of_network(&["Exact", "Distinct"]), 4);
    limit(SECOND, 4);
    assert_eq!(nacks(), 1);
    limit(APP, 2);
    assert_eq!(statuses("/second", "bob", 5), [200, 200, 200, 200, 429]);
    assert_eq!(statuses("/", "bob", 3), [200, 200, 429]);
    let ready = http(stack.tollgate.admin, "GET", "/readyz?verbose", "").1;
    let refused = "[-] domain default/eg/http: newest rules refused since ";
    assert!(ready.contains(refused), "{ready}");
    assert!(
        ready.contains("duplicate descriptor composite key"),
        "{ready}"
    );
    let since = "tollgate_domain_refused_since_seconds{domain=\"default/eg/http\"}";
    assert!(stack.tollgate.metric(since) > 0);

    // Each rejected version is loaded and logged once, although Envoy Gateway repeats it.
    set(&of_network(&["Exact", "Distinct"]), 6);
    limit(SECOND, 6);
    assert_eq!(nacks(), 2);
    let said = stack.tollgate.said();
    assert_eq!(
        said.matches("rules of a domain refused").count(),
        2,
        "{said}"
    );

    set(&of_network(&["Distinct"]), 6);
    let good = || (stack.tollgate.metric("tollgate_rules_refused") == 0).then_some(());
    assert!(wait_long(good).is_some(), "{}", stack.tollgate.said());
    limit("remote_address", 100);
    assert_eq!(nacks(), 2);
}
