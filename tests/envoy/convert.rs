//! The actions of `tollgate convert --envoy` in a real Envoy, with converted rules.
//!
//! Windows become a year, since a test with Envoy cannot set the time.

use tollgate::convert::asp_net_core;
use tollgate::convert::envoy_actions::{KeySources, actions};
use tollgate::rules::file::{Options, load};
use tollgate::rules::path::Source;
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::envoy::example_bootstrap::example;

/// The example's actions, which the converted ones replace.
const EXAMPLE_ACTIONS: &str = "                            rate_limits:
                              - actions: [{ generic_key: { descriptor_value: hello } }]
                              - actions: [{ remote_address: {} }]
";

const SETTINGS: &str = r#"{
  "ClientRateLimiting": {
    "EnableEndpointRateLimiting": true,
    "ClientIdHeader": "X-Key",
    "EndpointWhitelist": [ "get:/free" ],
    "IpWhitelist": [ "203.0.113.9" ],
    "GeneralRules": [
      { "Endpoint": "*", "Period": "365d", "Limit": 4 },
      { "Endpoint": "get:/api/values", "Period": "365d", "Limit": 2 }
    ]
  },
  "ClientRateLimitPolicies": {
    "ClientRules": [ { "ClientId": "gold", "Rules": [ { "Endpoint": "get:/api/values", "Period": "365d", "Limit": 3 } ] } ]
  }
}"#;

fn source(text: &str) -> Source {
    Source {
        name: "input".to_owned(),
        text: text.to_owned(),
    }
}

fn pair(header: &str) -> (Tollgate, Envoy) {
    let conversion = asp_net_core::convert(&[source(SETTINGS)], Some("edge")).expect("settings");
    assert!(conversion.is_complete(), "{:?}", conversion.findings);
    let rules = &conversion.rules[0].text;
    let loaded = load(&[source(rules)], Options::default()).expect("rules");
    let pair = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    let sources = KeySources {
        headers: pair("client_id", header),
        absent: pair("client_id", "anon"),
    };
    let printed = actions(&loaded.rules, &sources);
    let lines: Vec<_> = printed
        .lines()
        .map(|line| format!("{:28}{line}", ""))
        .collect();
    let indented = lines.join("\n") + "\n";
    let tollgate = Tollgate::start(rules, &[]);
    let bootstrap = example(&tollgate);
    assert!(bootstrap.contains(EXAMPLE_ACTIONS));
    let envoy = Envoy::start(&bootstrap.replace(EXAMPLE_ACTIONS, &indented));
    (tollgate, envoy)
}

#[test]
fn envoy_sends_the_descriptors_that_converted_rules_expect() {
    let (_tollgate, envoy) = pair("x-key");
    let mut caller = HttpConnection::open(envoy.edge);
    let mut statuses = |path: &str, headers: &[(&str, &[u8])], times: usize| -> Vec<u16> {
        (0..times)
            .map(|_| caller.get_with(path, headers).status)
            .collect()
    };
    // Two of each client; case, query and a slash at the end are one path.
    let bronze: &[(&str, &[u8])] = &[("X-Key", b"bronze")];
    assert_eq!(statuses("/api/values", bronze, 1), [200]);
    assert_eq!(statuses("/API/Values/?page=2", bronze, 2), [200, 429]);
    // A policy overrides the general limit of its endpoint, and of all endpoints in its period.
    let gold: &[(&str, &[u8])] = &[("x-key", b"gold")];
    assert_eq!(statuses("/api/values", gold, 4), [200, 200, 200, 429]);
    // Without the header, the client is anon.
    assert_eq!(statuses("/other", &[], 5), [200, 200, 200, 200, 429]);
    assert_eq!(statuses("/other", &[("x-key", b"anon")], 1), [429]);
    // The white list.
    assert_eq!(statuses("/free", bronze, 6), [200; 6]);
    assert_eq!(envoy.counts().error, 0);
}

#[test]
fn actions_of_another_header_do_not_limit_by_it() {
    let (_tollgate, envoy) = pair("x-other");
    let mut caller = HttpConnection::open(envoy.edge);
    let mut status = |key: &[u8]| caller.get_with("/api/values", &[("x-key", key)]).status;
    // All clients are anon.
    assert_eq!([status(b"a"), status(b"b"), status(b"c")], [200, 200, 429]);
}

#[test]
fn envoy_accepts_the_actions_of_every_kind_of_key() {
    let printed = include_str!("../rules/convert/actions/every_key.envoy.yaml");
    let rules = include_str!("../rules/convert/actions/every_key.yaml");
    // window: none is left that turns during the test.
    let rules = rules
        .replace("unit: minute", "unit: year")
        .replace("unit: second", "unit: year");
    let route = "                          route:\n                            cluster: backend\n";
    let lines: Vec<_> = printed
        .lines()
        .map(|line| format!("{:30}{line}", ""))
        .collect();
    let filter = format!(
        "{route}                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
{}
",
        lines.join("\n")
    );
    let tollgate = Tollgate::start(&rules, &[]);
    let bootstrap = example(&tollgate).replace(EXAMPLE_ACTIONS, "");
    assert!(bootstrap.contains(route));
    let envoy = Envoy::start(&bootstrap.replacen(route, &filter, 1));
    let mut caller = HttpConnection::open(envoy.edge);
    // Of the user `nobody` of the tenant `none`, by the actions for requests without headers.
    let statuses: Vec<_> = (0..6).map(|_| caller.get_with("/", &[]).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(envoy.counts().error, 0);
}
