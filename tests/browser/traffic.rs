//! Rules and requests of the tests.

use serde_json::json;
use tollgate_test_support::http_client::http;
use tollgate_test_support::tollgate_process::Tollgate;

/// Rules of one domain: two hits a year for each user, and others.
// window: the others are shown, and no test counts on their answers.
pub(crate) const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: remote_address, rate_limit: { unit: second, requests_per_unit: 20, algorithm: token_bucket, burst: 40 } }
  - { key: api_key, rate_limit: { unit: minute, requests_per_unit: 60, algorithm: sliding_window } }
  - { key: plan, value: free, descriptors: [{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 100 } }] }
  - { key: export, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: internal, rate_limit: { unlimited: true } }
";

/// A service with RULES, values as sent and these further arguments.
pub(crate) fn service(arguments: &[&str]) -> Tollgate {
    Tollgate::start(RULES, &[&["--top-keys", "plain"], arguments].concat())
}

/// Sends one request; returns whether it was admitted.
pub(crate) fn hit(service: &Tollgate, entries: &[(&str, &str)]) -> bool {
    let entries = entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}));
    let entries: Vec<_> = entries.collect();
    let body = json!({"domain": "edge", "descriptors": [{"entries": entries}]});
    match http(service.http, "POST", "/json", &body.to_string()) {
        (200, _) => true,
        (429, _) => false,
        (status, body) => panic!("{status}: {body}"),
    }
}

/// Sends one request with a descriptor for each value.
pub(crate) fn hit_each(service: &Tollgate, key: &str, values: &[String]) {
    let entries = values
        .iter()
        .map(|value| json!({"entries": [{"key": key, "value": value}]}));
    let descriptors: Vec<_> = entries.collect();
    let body = json!({"domain": "edge", "descriptors": descriptors});
    let (status, body) = http(service.http, "POST", "/json", &body.to_string());
    assert!(matches!(status, 200 | 429), "{status}: {body}");
}

/// Uses up the limit of a user, and is refused once.
pub(crate) fn exceed(service: &Tollgate, user: &str) {
    let admitted = [0; 3].map(|_| hit(service, &[("user", user)]));
    assert_eq!(admitted, [true, true, false], "{user}");
}

/// The address of the live page.
pub(crate) fn page(service: &Tollgate) -> String {
    format!("http://{}/live", service.admin)
}
