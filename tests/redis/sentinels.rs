//! Three sentinels and their failovers: on demand, and because a primary has died.
//!
//! In neither case is the new primary waited for. On demand, the old primary accepts writes until
//! it is demoted, and these are lost. A dead primary loses what it had not replicated. The tests
//! print how much (`cargo test --test redis -- --nocapture sentinels`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::follow;
use tollgate_test_support::tollgate_process::Tollgate;

use super::cluster::{Tally, load, wait_for_load};
use super::{RECOVERY, RULES, ask, client, decides, replica};

const LIMIT: usize = 1_000;

/// A primary, its replica, and three sentinels.
pub(super) struct Trio {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
}

impl Trio {
    pub(super) fn start() -> Self {
        let servers = [0; 2].map(|_| RedisServer::start(&["--repl-diskless-sync-delay", "0"]));
        let port = servers[0].port();
        let _: redis::Value = servers[1].say(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        let sentinels = [0; 3].map(|_| RedisServer::sentinel_of("main", port, 2));
        let trio = Self { servers, sentinels };
        trio.settle();
        trio
    }

    /// Waits until the sentinels know each other and the replica, and the replica follows.
    fn settle(&self) {
        let settled = || {
            let known = self.sentinels.iter().all(|sentinel| {
                let said = sentinel.try_say::<String>(&["SENTINEL", "CKQUORUM", "main"]);
                let all = said.is_ok_and(|said| said.starts_with("OK 3 usable"));
                let primary: Vec<String> =
                    sentinel.say(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
                let replicas: Vec<redis::Value> = sentinel.say(&["SENTINEL", "REPLICAS", "main"]);
                all && primary[1] == self.servers[self.primary()].port().to_string()
                    && !replicas.is_empty()
            });
            // What is written now must be replicated.
            let info: String = self.servers[self.primary()].say(&["INFO", "replication"]);
            (known && info.contains("state=online")).then_some(())
        };
        assert!(wait_for(6 * RECOVERY, settled).is_some());
        let primary = &self.servers[self.primary()];
        let _: redis::Value = primary.say(&["SET", "something", "to follow"]);
        follow(primary);
    }

    /// Which server accepts writes; of two, the one that the others will follow.
    fn primary(&self) -> usize {
        let named: Vec<String> =
            self.sentinels[0].say(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        usize::from(named[1] != self.servers[0].port().to_string())
    }

    pub(super) fn url(&self) -> String {
        let addresses = self.sentinels.iter();
        let addresses: Vec<_> = addresses
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/main", addresses.join(","))
    }
}

/// Three replicas under load while something is done to the servers: how many requests had passed
/// by then, and how many in the end.
async fn under_load(
    replicas: &[Tollgate],
    key: &'static str,
    within: impl FnOnce(&Tally),
) -> (usize, usize, Arc<Tally>) {
    let tally = Tally::of(&[key]);
    let tasks = load(replicas, &tally).await;
    tally.reaches(200).await;
    within(&tally);
    let before = tally.passed();
    wait_for_load(tasks).await;
    for replica in replicas {
        decides(replica, 2 * RECOVERY);
    }
    // Lost hits can be taken again.
    let mut one = client(&replicas[0]).await;
    let mut over = 0;
    let end = async {
        while over < 3 {
            match ask(&mut one, key).await {
                Ok(Code::Ok) => {
                    tally.passed[key].fetch_add(1, Ordering::Relaxed);
                    over = 0;
                }
                Ok(_) => over += 1,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(2 * RECOVERY, end).await.unwrap();
    (before, tally.passed(), tally)
}

fn unknown(replicas: &[Tollgate]) -> usize {
    let metric = "tollgate_store_unknown_outcomes_total";
    let all = replicas.iter().map(|replica| replica.metric(metric));
    usize::try_from(all.sum::<u64>()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_lose_only_unreplicated_hits() {
    let mut trio = Trio::start();
    let arguments = [
        "--store",
        &trio.url(),
        "--store-deadline-ms",
        "20000",
        "--store-over-limit-cache-ms",
        "0",
    ];
    let replicas = [0; 3].map(|_| replica(RULES, &arguments));

    let old = trio.primary();
    let on_demand = |tally: &Tally| {
        // A failover takes time, and the rest of the thousand must last as long.
        tally.pause_ms.store(1_500, Ordering::Relaxed);
        let _: redis::Value = trio.sentinels[0].say(&["SENTINEL", "FAILOVER", "main"]);
    };
    let made = |replica: &Tollgate| replica.metric("tollgate_store_connections_total");
    let connections: Vec<_> = replicas.iter().map(made).collect();
    // Every replica has moved to the new primary.
    let all_went = || {
        let mut both = replicas.iter().zip(&connections);
        trio.primary() != old && both.all(|(replica, before)| made(replica) > *before)
    };
    // Before Redis demotes the old primary and so tells its clients.
    let in_time = async {
        loop {
            let role: Vec<redis::Value> = trio.servers[old].say(&["ROLE"]);
            if all_went() || role[0] != redis::Value::BulkString(b"master".to_vec()) {
                return all_went();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (load, in_time) = tokio::join!(
        under_load(&replicas, "a", on_demand),
        tokio::time::timeout(6 * RECOVERY, in_time)
    );
    let (before, passed, tally) = load;
    eprintln!(
        "a failover on demand: {before} had passed, {passed} in the end, {} of unknown outcome, {} errors",
        unknown(&replicas),
        tally.undecided.load(Ordering::Relaxed)
    );
    assert_eq!(in_time, Ok(true));
    // What the old primary accepted after the promotion is lost: a limit's worth at most.
    assert!(passed + unknown(&replicas) >= LIMIT, "{passed}");
    assert!(passed <= 2 * LIMIT, "{passed}");
    trio.settle();

    let known = unknown(&replicas);
    let primary = trio.primary();
    let kill = |_: &Tally| trio.servers[primary].kill();
    let (before, passed, tally) = under_load(&replicas, "b", kill).await;
    let unknown = unknown(&replicas) - known;
    eprintln!(
        "a primary killed: {before} had passed, {passed} in the end, {unknown} of unknown outcome, {} errors",
        tally.undecided.load(Ordering::Relaxed)
    );
    assert!(passed + unknown >= LIMIT, "{passed} {unknown}");
    assert!(passed < LIMIT + before / 2, "{passed} {before}");
    assert_ne!(trio.primary(), primary);
}
