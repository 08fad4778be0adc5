//! A real Envoy as a proxy in front of Redis (`redis_proxy`): as good as the server while there is
//! one, and refused as soon as it shards.
//!
//! Envoy sends a script run to the server of its first key. One run carries checks of many keys, so
//! the same bucket would be counted on several servers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RULES, ask, buckets, client, decides, left, patient, shows};

const BOOTSTRAP: &str = r#"
node: { id: proxy, cluster: proxy }
admin:
  address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
static_resources:
  listeners:
    - name: edge
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.redis_proxy
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
                stat_prefix: redis
                settings: { op_timeout: 5s, enable_hashtagging: @HASHTAGGING@ }
                prefix_routes: { catch_all_route: { cluster: shards } }
  clusters:
    - name: shards
      type: EDS
      lb_policy: MAGLEV
      eds_cluster_config: { eds_config: { path_config_source: { path: "@ENDPOINTS@" } } }
"#;

/// Makes these servers the shards of the proxy.
fn put_shards(file: &Path, servers: &[&RedisServer]) {
    let mut endpoints = String::new();
    for server in servers {
        let port = server.port();
        let _ = write!(
            endpoints,
            "\n    - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
        );
    }
    let text = format!(
        "version_info: \"{}\"
resources:
- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: shards
  endpoints:
  - lb_endpoints:{endpoints}
",
        servers.len()
    );
    // Envoy watches for a file that is moved there.
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_used_while_it_has_one_server_and_refused_while_it_shards() {
    for hashtagging in ["false", "true"] {
        let servers = [RedisServer::start(&[]), RedisServer::start(&[])];
        let [one, other] = &servers;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shards.yaml");
        put_shards(&file, &[one, other]);
        let bootstrap = BOOTSTRAP
            .replace("@HASHTAGGING@", hashtagging)
            .replace("@ENDPOINTS@", &file.display().to_string());
        let envoy = Envoy::start(&bootstrap);
        let url = format!("redis://{}", envoy.edge);
        let tollgate = Tollgate::start(RULES, &patient(&url, &[]));
        let mut client = client(&tollgate).await;
        let refused = "it spreads keys over several servers, as a node of a cluster does, or a proxy such as Envoy's \
                       redis_proxy";
        shows(&tollgate, refused);
        assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
        let reason = "tollgate_store_undecided_total{reason=\"sharded\"}";
        assert_eq!(tollgate.metric(reason), 1);
        assert_eq!(http(tollgate.http, "GET", "/readyz", "").0, 500);
        assert!(servers.iter().all(|server| buckets(server).is_empty()));
        // With one server every run has all of its keys.
        put_shards(&file, &[one]);
        decides(&tollgate);
        let keys: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
        for _ in 0..3 {
            let descriptors = keys.iter().map(|key| descriptor(&[("k", key)])).collect();
            let answer = client.should_rate_limit(request("d", descriptors)).await;
            let answer = answer.unwrap().into_inner();
            assert_eq!(answer.overall_code, i32::from(Code::Ok));
        }
        for key in &keys {
            assert_eq!(left(&mut client, key).await, 997, "{key}");
        }
        assert_eq!(http(tollgate.http, "GET", "/readyz", "").0, 200);
        // A second one is found on the living connection.
        put_shards(&file, &[one, other]);
        shows(&tollgate, refused);
        assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
        // It was ready once, and stays so.
        assert_eq!(http(tollgate.http, "GET", "/readyz", "").0, 200);
    }
}

/// The other way to name one server where there are several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_that_is_named_as_one_server_is_refused() {
    let node = tollgate_test_support::redis_server::cluster::Node::start(&[]);
    node.serve(0..=16_383);
    let url = node.server.url();
    let tollgate = Tollgate::start(RULES, &patient(&url, &[]));
    shows(
        &tollgate,
        "name one server, or the cluster's nodes (redis+cluster://)",
    );
}
