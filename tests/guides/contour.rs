//! `docs/guides/contour.md`: requests through the configuration that Contour generates, sent by
//! real Envoy, are limited as documented.
//!
//! How: Contour's documented translation, entry by entry, the same as in the page's table.
//!
//! What it deliberately does not do: run Contour, or validate objects against schemas that are in
//! no registry.

use serde_json::{Value, json};
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::edge::{Parts, YEAR_S};
use crate::guides::guide::{Page, of_a_year, yaml};

fn only(guide: &Page, heading: &str) -> Value {
    yaml(&guide.only(heading, "yaml")).remove(0)
}

/// Envoy's action for an entry.
fn action(entry: &Value) -> Value {
    let (kind, said) = entry.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "remoteAddress" => json!({ "remote_address": {} }),
        "genericKey" => {
            let mut key = json!({ "descriptor_value": said["value"] });
            if !said["key"].is_null() {
                key["descriptor_key"] = said["key"].clone();
            }
            json!({ "generic_key": key })
        }
        "requestHeader" => json!({ "request_headers": {
            "header_name": said["headerName"], "descriptor_key": said["descriptorKey"],
        } }),
        other => panic!("{other}"),
    }
}

/// Envoy's rate limits for a policy.
fn limits(policy: &Value) -> Value {
    let descriptors = policy["global"]["descriptors"]
        .as_array()
        .into_iter()
        .flatten();
    let actions = |descriptor: &Value| -> Vec<Value> {
        descriptor["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(action)
            .collect()
    };
    descriptors
        .map(|descriptor| json!({ "actions": actions(descriptor) }))
        .collect()
}

/// The configuration that Contour generates.
fn parts(guide: &Page) -> Parts {
    let config = &only(guide, "Contour's configuration")["rateLimitService"];
    let service = only(guide, "ExtensionService");
    let proxy = only(guide, "Descriptors");
    let named = format!(
        "{}/{}",
        service["metadata"]["namespace"].as_str().unwrap(),
        service["metadata"]["name"].as_str().unwrap()
    );
    assert_eq!(config["extensionService"], named);
    assert_eq!(service["spec"]["services"][0]["port"], 8081);
    assert_eq!(service["spec"]["protocol"], "h2c");

    let per_route =
        "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
    let route = |route: &Value| {
        let prefix = route["conditions"][0]["prefix"].as_str().unwrap_or("/");
        let policy = &route["rateLimitPolicy"];
        let option = if policy["global"]["disabled"] == true {
            "IGNORE"
        } else {
            "INCLUDE"
        };
        json!({
            "match": { "prefix": prefix },
            "route": { "cluster": "backend", "rate_limits": limits(policy) },
            "typed_per_filter_config": {
                "envoy.filters.http.ratelimit": { "@type": per_route, "vh_rate_limits": option },
            },
        })
    };
    let routes: Vec<_> = proxy["spec"]["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(route)
        .collect();
    let host = json!({
        "name": "shop",
        "domains": ["*"],
        "rate_limits": limits(&proxy["spec"]["virtualhost"]["rateLimitPolicy"]),
        "routes": routes,
    });
    let filter = json!({
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": config["domain"],
            "timeout": service["spec"]["timeoutPolicy"]["response"].as_str().unwrap().replace("50ms", "0.05s"),
            "failure_mode_deny": config["failOpen"] == false,
            "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
            "rate_limited_as_resource_exhausted": config["enableResourceExhaustedCode"],
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": "extension/projectcontour/tollgate" } },
            },
        },
    });
    let mut cluster = yaml(&Page::guide("envoy.md").only("The cluster", "yaml"))[0][0].clone();
    cluster["name"] = json!("extension/projectcontour/tollgate");
    cluster["load_assignment"]["cluster_name"] = cluster["name"].clone();
    Parts {
        clusters: vec![cluster],
        filters: vec![filter],
        virtual_hosts: vec![host],
    }
}

#[test]
fn requests_of_contours_proxy_are_limited_as_documented() {
    let guide = Page::guide("contour.md");
    let parts = parts(&guide);
    parts.validate();
    let rules = of_a_year(&only(&guide, "tollgate")["rules"]["contour.yaml"].to_string());
    let tollgate = Tollgate::start(&rules, &[]);
    let directory = tempfile::tempdir().unwrap();
    let parts = parts.at(&[tollgate.grpc]);
    let envoy = Envoy::start(&parts.bootstrap(directory.path()).to_string());
    let mut caller = HttpConnection::open(envoy.edge);
    let mut checkout = |user: &str| caller.get_with("/checkout", &[("x-user", user.as_bytes())]);
    let statuses: Vec<_> = (0..4).map(|_| checkout("bob").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // All three limits were checked: the user's, the address's and the host's.
    let told = checkout("eve");
    assert_eq!(told.status, 200);
    let limits = told.header("x-ratelimit-limit").unwrap();
    for limit in [3, 50, 10_000] {
        let part = format!("{limit};w={YEAR_S}");
        assert!(limits.contains(&part), "{limits}");
    }
    // Nothing is checked when the policy is disabled.
    assert_eq!(
        caller.get_with("/healthz", &[]).header("x-ratelimit-limit"),
        None
    );
    assert_eq!(envoy.counts().error, 0);
}
