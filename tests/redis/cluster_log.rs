//! What is logged when a cluster fails and recovers: nothing again while it stays so, at one level.

use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::cluster::Node;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RULES, decides};

const WORKER: &str = " WARN tollgate::store::redis::worker::";

/// Waits until a worker of the store has logged this warning.
pub(super) fn wait_until_logged(tollgate: &Tollgate, words: &str) {
    let words = format!("{WORKER}{words}");
    until(&format!("`{words}` is logged"), || {
        let said = tollgate.said();
        said.contains(&words).then_some(()).ok_or(said)
    });
}

/// No worker of the store has logged a warning again while nothing changed. On a busy machine
/// something else may fail in between, which is a line, and its return another.
pub(super) fn repeats_no_line(tollgate: &Tollgate) {
    let said = tollgate.said();
    let lines = said.lines().filter_map(|line| line.split_once(WORKER));
    let lines: Vec<_> = lines.map(|(_, line)| line).collect();
    assert!(lines.windows(2).all(|two| two[0] != two[1]), "{said}");
}

#[test]
fn what_a_cluster_lacks_is_logged_until_it_changes_and_so_is_its_return() {
    let node = Node::start(&[]);
    let url = format!("redis+cluster://127.0.0.1:{}", node.server.port());
    let tollgate = Tollgate::start(RULES, &["--store", &url, "--store-deadline-ms", "2000"]);
    wait_until_logged(&tollgate, "topology_task: some slots are unavailable");
    node.serve(0..=16_383);
    wait_until_logged(&tollgate, "topology_task: connected to the cluster");
    decides(&tollgate);
    node.server.signal("STOP");
    wait_until_logged(
        &tollgate,
        "topology_task: no node reported the cluster's topology",
    );
    node.server.signal("CONT");
    wait_until_logged(
        &tollgate,
        "topology_task: the cluster's topology was read again",
    );
    decides(&tollgate);
    // The topology is read up to ten times a second.
    repeats_no_line(&tollgate);
}
