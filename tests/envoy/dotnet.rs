//! Envoy's part of `docs/dotnet.md`: its snippets, inserted into the example bootstrap and run by a
//! real Envoy.
//!
//! Windows of a minute become a year, since a test with Envoy cannot set the time.
//!
//! What it deliberately does not do: limits themselves (`tests/service/dotnet.rs`).

use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::markdown::{Page, arguments};
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::envoy::example_bootstrap::example;

/// The virtual host of the example and the text that follows it.
const ROUTES: (&str, &str) = (
    "                      routes:\n                        - match: { prefix: / }\n                          route:\n",
    "                http_filters:\n",
);

fn snippet(name: &str) -> String {
    Page::read("docs/dotnet.md").only(name, "yaml")
}

/// A snippet, indented.
fn indented(name: &str, spaces: usize) -> String {
    let snippet = snippet(name);
    let lines = snippet
        .lines()
        .map(|line| format!("{:spaces$}{line}\n", ""));
    lines.collect()
}

/// Replaces a text that must occur exactly once.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in the example");
    text.replacen(from, to, 1)
}

/// A tollgate with the rules of that name, and an Envoy whose bootstrap is `changed`.
fn pair(rules: &str, changed: impl Fn(String) -> String) -> (Tollgate, Envoy) {
    // window: none is left that turns during the test.
    let rules = snippet(rules).replace("unit: minute", "unit: year");
    let tollgate = Tollgate::start(&rules, &arguments(&rules));
    let bootstrap = replaced(&example(&tollgate), "domain: edge", "domain: api");
    let envoy = Envoy::start(&changed(bootstrap));
    (tollgate, envoy)
}

/// The bootstrap with the snippet of that name as virtual host.
fn with_host(bootstrap: &str, name: &str) -> String {
    let (before, rest) = bootstrap.split_once(ROUTES.0).expect("the routes");
    let (_, after) = rest.split_once(ROUTES.1).expect("what follows them");
    format!("{before}{}{}{after}", indented(name, 22), ROUTES.1)
}

fn statuses(
    caller: &mut HttpConnection,
    path: &str,
    headers: &[(&str, &[u8])],
    times: usize,
) -> Vec<u16> {
    let answers = (0..times).map(|_| caller.get_with(path, headers).status);
    answers.collect()
}

#[test]
fn the_client_is_its_header_or_anon() {
    let (_tollgate, envoy) = pair("client-policies", |bootstrap| {
        with_host(&bootstrap, "envoy-client-id")
    });
    let mut caller = HttpConnection::open(envoy.edge);
    let five = [200, 200, 200, 200, 200, 429];
    // Header names are case-insensitive.
    assert_eq!(statuses(&mut caller, "/", &[("X-ClientId", b"a")], 6), five);
    assert_eq!(statuses(&mut caller, "/", &[], 6), five);
    // A client named `anon` shares that bucket.
    assert_eq!(
        statuses(&mut caller, "/", &[("x-clientid", b"anon")], 1),
        [429]
    );
    assert_eq!(
        statuses(&mut caller, "/", &[("x-clientid", b"b")], 1),
        [200]
    );
    assert_eq!(envoy.counts().error, 0);
}

#[test]
fn the_address_is_the_one_the_trusted_proxy_saw() {
    let (_tollgate, envoy) = pair("ip-policies", |bootstrap| {
        let line = bootstrap
            .lines()
            .find(|line| line.trim_start().starts_with("use_remote_address: true"))
            .expect("the example has it")
            .to_owned();
        replaced(
            &bootstrap,
            &format!("{line}\n"),
            &indented("envoy-real-ip", 16),
        )
    });
    let mut caller = HttpConnection::open(envoy.edge);
    let mut from = |forwarded: &str, times| {
        statuses(
            &mut caller,
            "/",
            &[("x-forwarded-for", forwarded.as_bytes())],
            times,
        )
    };
    // The trusted proxy saw 192.0.2.1; the client may have written the addresses before it.
    assert_eq!(from("192.0.2.1", 1), [200]);
    assert_eq!(from("198.51.100.7, 192.0.2.1", 1), [200]);
    assert_eq!(from("198.51.100.8, 192.0.2.1", 1), [429]);
    assert_eq!(
        from("192.0.2.1, 84.247.85.224", 5),
        [200, 200, 200, 200, 429]
    );
    assert_eq!(envoy.counts().error, 0);
}

#[test]
fn the_status_is_envoys_and_the_body_the_rules() {
    let (_tollgate, envoy) = pair("over-limit", |bootstrap| {
        let bootstrap = with_host(&bootstrap, "envoy-client-id");
        let line = "                      failure_mode_deny: false\n";
        let with = format!("{line}{}", indented("envoy-status", 22));
        replaced(&bootstrap, line, &with)
    });
    let mut caller = HttpConnection::open(envoy.edge);
    let client: &[(&str, &[u8])] = &[("x-clientid", b"a")];
    assert_eq!(statuses(&mut caller, "/", client, 1), [200]);
    let refused = caller.get_with("/", client);
    assert_eq!(refused.status, 503);
    assert_eq!(
        String::from_utf8_lossy(&refused.body),
        "API calls quota exceeded! maximum admitted 1 per 1 year."
    );
    assert_eq!(envoy.counts().error, 0);
}

#[test]
fn the_global_limiter_and_the_routes_policy_both_count() {
    let (_tollgate, envoy) = pair("global-and-policy", |bootstrap| {
        with_host(&bootstrap, "envoy-policies")
    });
    let mut caller = HttpConnection::open(envoy.edge);
    // Two uploads; the third is refused by the policy and takes nothing from the global four.
    assert_eq!(statuses(&mut caller, "/uploads/1", &[], 3), [200, 200, 429]);
    assert_eq!(statuses(&mut caller, "/other", &[], 3), [200, 200, 429]);
    assert_eq!(envoy.counts().error, 0);
}

#[test]
fn a_route_may_have_no_limit_at_all() {
    let (_tollgate, envoy) = pair("global-and-policy", |bootstrap| {
        with_host(&bootstrap, "envoy-policies")
    });
    let mut caller = HttpConnection::open(envoy.edge);
    assert_eq!(statuses(&mut caller, "/health", &[], 6), [200; 6]);
    let counts = envoy.counts();
    assert_eq!((counts.ok, counts.error), (0, 0), "no check was sent");
    assert_eq!(statuses(&mut caller, "/", &[], 1), [200]);
    assert_eq!(envoy.counts().ok, 1);
}

#[test]
fn a_lease_ends_with_its_request() {
    let (_tollgate, envoy) = pair("concurrency", |bootstrap| {
        with_host(&bootstrap, "envoy-lease")
    });
    let mut caller = HttpConnection::open(envoy.edge);
    // Two slots, and more requests than that. A slot is released after the answer, so the next
    // request may arrive too early once.
    for _ in 0..8 {
        until("a slot is released", || {
            caller.get_with("/", &[]).status == 200
        });
    }
    assert_eq!(envoy.counts().error, 0);
}
