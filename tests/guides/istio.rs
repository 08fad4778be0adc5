//! `docs/guides/istio.md`: its patches, applied as Istio applies them, configure an Envoy that
//! limits as documented.
//!
//! How: a configuration of the shape that Istio generates (one connection manager with a router,
//! one virtual host), and the three patch operations of the page.
//!
//! What it deliberately does not do: run Istio, or evaluate a patch's `match`.

use serde_json::{Value, json};
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::edge::Parts;
use crate::guides::guide::{Page, of_a_year, yaml};

/// Merges like protobuf: lists are appended, messages merged, other values replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.clone()),
        (into, from) => *into = from.clone(),
    }
}

fn apply(filter: &Value, parts: &mut Parts) {
    for patch in filter["spec"]["configPatches"].as_array().unwrap() {
        assert!(patch["match"]["proxy"].is_null(), "names a version");
        let value = &patch["patch"]["value"];
        match (&patch["applyTo"], &patch["patch"]["operation"]) {
            (to, operation) if to == "CLUSTER" && operation == "ADD" => {
                parts.clusters.push(value.clone());
            }
            (to, operation) if to == "HTTP_FILTER" && operation == "INSERT_BEFORE" => {
                let manager = &patch["match"]["listener"]["filterChain"]["filter"];
                assert_eq!(
                    manager["name"],
                    "envoy.filters.network.http_connection_manager"
                );
                assert_eq!(manager["subFilter"]["name"], "envoy.filters.http.router");
                parts.filters.push(value.clone());
            }
            (to, operation) if to == "VIRTUAL_HOST" && operation == "MERGE" => {
                assert!(patch["match"]["routeConfiguration"]["vhost"].is_object());
                merge(&mut parts.virtual_hosts[0], value);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The configuration that Istio generates before any patch.
fn unpatched() -> Parts {
    let host = json!({
        "name": "*:80",
        "domains": ["*"],
        "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "backend" } }],
    });
    Parts {
        virtual_hosts: vec![host],
        ..Parts::default()
    }
}

fn filter(guide: &Page, heading: &str) -> Value {
    let filter = yaml(&guide.only(heading, "yaml")).remove(0);
    assert_eq!(filter["kind"], "EnvoyFilter");
    assert!(filter["spec"]["workloadSelector"]["labels"].is_object());
    filter
}

fn rules(guide: &Page) -> String {
    of_a_year(&yaml(&guide.only("tollgate", "yaml"))[0]["rules"]["mesh.yaml"].to_string())
}

/// Five orders of one user pass, and the sixth does not.
fn five_orders_pass(parts: Parts, rules: &str) {
    parts.validate();
    let tollgate = Tollgate::start(rules, &[]);
    let directory = tempfile::tempdir().unwrap();
    let parts = parts.at(&[tollgate.grpc]);
    let envoy = Envoy::start(&parts.bootstrap(directory.path()).to_string());
    let mut caller = HttpConnection::open(envoy.edge);
    let mut order = |user: &str| {
        caller
            .get_with("/orders", &[("x-user", user.as_bytes())])
            .status
    };
    let statuses: Vec<_> = (0..6).map(|_| order("bob")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(order("eve"), 200);
    assert_eq!(envoy.counts().error, 0);
}

#[test]
fn the_gateways_patches_limit_orders() {
    let guide = Page::guide("istio.md");
    let mut parts = unpatched();
    apply(&filter(&guide, "At the ingress gateway"), &mut parts);
    five_orders_pass(parts, &rules(&guide));
}

#[test]
fn the_sidecars_patch_limits_orders() {
    let guide = Page::guide("istio.md");
    let mut parts = unpatched();
    apply(&filter(&guide, "At the ingress gateway"), &mut parts);
    parts.virtual_hosts = unpatched().virtual_hosts;
    apply(
        &filter(&guide, "For one workload, at its sidecar"),
        &mut parts,
    );
    five_orders_pass(parts, &rules(&guide));
}

#[test]
fn istios_own_cluster_can_be_used() {
    let guide = Page::guide("istio.md");
    let mut parts = unpatched();
    apply(&filter(&guide, "At the ingress gateway"), &mut parts);
    let snippet = yaml(&guide.only("tollgate in the mesh", "yaml")).remove(0);
    let name = snippet["envoy_grpc"]["cluster_name"].clone();
    parts.filters[0]["typed_config"]["rate_limit_service"]["grpc_service"] = snippet;
    parts.clusters[0]["name"] = name.clone();
    parts.clusters[0]["load_assignment"]["cluster_name"] = name;
    five_orders_pass(parts, &rules(&guide));
}
