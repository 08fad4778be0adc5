//! What is logged when a cluster fails and recovers: each once, at one level.

use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::cluster::{Node, RedisCluster};
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RULES, decides, patient, replica};

/// How often a worker of the store has logged this warning.
fn logged(tollgate: &Tollgate, words: &str) -> usize {
    let words = format!("WARN tollgate::store::redis::worker::{words}");
    tollgate.said().matches(&words).count()
}

/// Waits until a worker of the store has logged this warning once.
pub(super) fn wait_until_logged(tollgate: &Tollgate, words: &str) {
    until(&format!("`{words}` is logged once"), || {
        match logged(tollgate, words) {
            1 => Ok(()),
            _ => Err(tollgate.said()),
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_reports_no_topology_is_logged_once_and_so_is_its_return() {
    let cluster = RedisCluster::start(3);
    let url = cluster.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "2000"]);
    let signal = |name| {
        let nodes = cluster.nodes.iter();
        nodes.for_each(|node| node.server.signal(name));
    };
    let away = "topology_task: no node reported the cluster's topology";
    signal("STOP");
    wait_until_logged(&tollgate, away);
    signal("CONT");
    wait_until_logged(
        &tollgate,
        "topology_task: the cluster's topology was read again",
    );
    assert_eq!(logged(&tollgate, away), 1);
    decides(&tollgate);
}

#[test]
fn slots_without_a_server_are_logged_once_and_so_is_the_cluster_that_serves_them() {
    let node = Node::start(&[]);
    let url = format!("redis+cluster://127.0.0.1:{}", node.server.port());
    let tollgate = Tollgate::start(RULES, &patient(&url, &[]));
    let away = "topology_task: some slots are unavailable";
    wait_until_logged(&tollgate, away);
    node.serve(0..=16_383);
    wait_until_logged(&tollgate, "topology_task: connected to the cluster");
    decides(&tollgate);
    assert_eq!(logged(&tollgate, away), 1);
}
