//! What is logged when a cluster fails and recovers: each once, at one level.

use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::cluster::Node;
use tollgate_test_support::tollgate_process::Tollgate;

use super::cluster::cluster;
use super::{RECOVERY, RULES, decides, replica};

/// How often a worker of the store has logged this warning.
fn logged(tollgate: &Tollgate, words: &str) -> usize {
    let words = format!("WARN tollgate::store::redis::worker::{words}");
    tollgate.said().matches(&words).count()
}

/// Waits until a worker of the store has logged this warning once.
pub(super) fn wait_until_logged(tollgate: &Tollgate, words: &str) {
    let seen = wait_for(RECOVERY * 4, || {
        (logged(tollgate, words) == 1).then_some(())
    });
    assert!(seen.is_some(), "{words}: {}", tollgate.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_reports_no_topology_is_logged_once_and_so_is_its_return() {
    let shared = cluster();
    let cluster = shared.lock().await;
    cluster.clear();
    let tollgate = replica(RULES, &["--store", &cluster.url()]);
    let signal = |name| {
        let nodes = cluster.nodes.iter();
        nodes.for_each(|node| node.server.signal(name));
    };
    let away = "topology_task: no node reported the cluster's topology";
    signal("STOP");
    let frozen = wait_for(RECOVERY * 4, || {
        (logged(&tollgate, away) == 1).then_some(())
    });
    signal("CONT");
    assert!(frozen.is_some(), "{}", tollgate.said());
    wait_until_logged(
        &tollgate,
        "topology_task: the cluster's topology was read again",
    );
    assert_eq!(logged(&tollgate, away), 1);
    cluster.settle();
    decides(&tollgate, RECOVERY);
}

#[test]
fn slots_without_a_server_are_logged_once_and_so_is_the_cluster_that_serves_them() {
    let node = Node::start(&[]);
    let url = format!("redis+cluster://127.0.0.1:{}", node.server.port());
    let tollgate = Tollgate::start(RULES, &["--store", &url]);
    let away = "topology_task: some slots are unavailable";
    wait_until_logged(&tollgate, away);
    node.serve(0..=16_383);
    wait_until_logged(&tollgate, "topology_task: connected to the cluster");
    decides(&tollgate, RECOVERY);
    assert_eq!(logged(&tollgate, away), 1);
}
