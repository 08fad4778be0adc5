//! What is logged when a cluster fails and recovers: each once, at one level.

use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::cluster::Node;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RULES, decides};

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

#[test]
fn what_a_cluster_lacks_is_logged_once_and_so_is_its_return() {
    let node = Node::start(&[]);
    let url = format!("redis+cluster://127.0.0.1:{}", node.server.port());
    let tollgate = Tollgate::start(RULES, &["--store", &url, "--store-deadline-ms", "2000"]);
    let unserved = "topology_task: some slots are unavailable";
    wait_until_logged(&tollgate, unserved);
    node.serve(0..=16_383);
    wait_until_logged(&tollgate, "topology_task: connected to the cluster");
    decides(&tollgate);
    assert_eq!(logged(&tollgate, unserved), 1);
    let silent = "topology_task: no node reported the cluster's topology";
    node.server.signal("STOP");
    wait_until_logged(&tollgate, silent);
    node.server.signal("CONT");
    wait_until_logged(
        &tollgate,
        "topology_task: the cluster's topology was read again",
    );
    assert_eq!(logged(&tollgate, silent), 1);
    decides(&tollgate);
}
