//! A real Envoy around the configuration of a guide: a listener, a backend that answers `well`, and
//! the parts of the page.
//!
//! Names and timeouts are the page's; only tollgate's address and Envoy's timeout are the test's.
//!
//! What it deliberately does not do: change the parts otherwise.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_test_support::components::component;

const TYPES: &str = "type.googleapis.com/envoy.extensions.filters";

/// The length of a year in Envoy's headers.
pub(crate) const YEAR_S: u32 = 31_536_000;

/// Parts of an Envoy configuration on a page.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) clusters: Vec<Value>,
    pub(crate) filters: Vec<Value>,
    pub(crate) virtual_hosts: Vec<Value>,
}

// === impl Parts ===

impl Parts {
    /// Builds a bootstrap; the backend listens on a unix socket in that folder.
    pub(crate) fn bootstrap(&self, folder: &std::path::Path) -> Value {
        let socket = json!({ "pipe": { "path": folder.join("backend.sock") } });
        let endpoint = json!({ "endpoint": { "address": socket } });
        let router = json!({
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": format!("{TYPES}.http.router.v3.Router") },
        });
        let mut filters = self.filters.clone();
        filters.push(router.clone());
        let answer = json!({ "status": 200, "body": { "inline_string": "well" } });
        let well = json!([{
            "name": "well", "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "direct_response": answer }],
        }]);
        let listener = |name: &str, address: Value, virtual_hosts: Value, filters: Value| {
            json!({
                "name": name,
                "address": address,
                "filter_chains": [{ "filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": format!("{TYPES}.network.http_connection_manager.v3.HttpConnectionManager"),
                        "stat_prefix": name,
                        "use_remote_address": true,
                        "route_config": { "virtual_hosts": virtual_hosts },
                        "http_filters": filters,
                    },
                }] }],
            })
        };
        let free = json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } });
        let mut clusters = vec![json!({
            "name": "backend",
            "load_assignment": { "cluster_name": "backend", "endpoints": [{ "lb_endpoints": [endpoint] }] },
        })];
        clusters.extend(self.clusters.clone());
        json!({
            "admin": { "address": free },
            "static_resources": {
                "listeners": [
                    listener("edge", free.clone(), json!(self.virtual_hosts), json!(filters)),
                    listener("backend", socket, well, json!([router])),
                ],
                "clusters": clusters,
            },
        })
    }

    /// Sets the endpoints of each cluster to these services, and the filters' timeout for a busy
    /// test machine.
    pub(crate) fn at(mut self, services: &[SocketAddr]) -> Self {
        for cluster in &mut self.clusters {
            let endpoints = services.iter().map(|service| {
                // By name, so that DNS is used.
                let address = json!({ "address": "localhost", "port_value": service.port() });
                json!({ "endpoint": { "address": { "socket_address": address } } })
            });
            cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints.collect();
            cluster["dns_lookup_family"] = json!("V4_ONLY");
            cluster["connect_timeout"] = json!("30s");
            for check in cluster["health_checks"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                check["timeout"] = json!("30s");
            }
        }
        for filter in &mut self.filters {
            let config = &mut filter["typed_config"];
            assert!(config["timeout"].is_string(), "{config}");
            config["timeout"] = json!("30s");
        }
        self
    }

    /// Validates the parts with Envoy, unchanged.
    pub(crate) fn validate(&self) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("bootstrap.yaml");
        let bootstrap = self.bootstrap(directory.path());
        std::fs::write(&file, bootstrap.to_string()).expect("the bootstrap");
        let output = Command::new(component("venv/bin/envoy"))
            .args([
                "--mode",
                "validate",
                "--log-level",
                "warning",
                "--config-path",
            ])
            .arg(&file)
            .output()
            .expect("Envoy runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(!said.to_lowercase().contains("deprecated"), "{said}");
    }
}
