//! Three sentinels, and failovers that they carry out: on demand, and because a primary has died.
//!
//! Neither is orderly: the new primary is not waited for. On demand the old one takes writes until it is told, and all of those
//! are lost; a dead one has lost what it had not sent on. How much that was is printed
//! (`cargo test --test redis -- --nocapture sentinels`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::follow;
use tollgate_test_support::tollgate_process::Tollgate;

use super::cluster::{Tally, crowd, dispersed};
use super::{RECOVERY, RULES, ask, client, decides, replica};

const LIMIT: usize = 1_000;

/// A primary, a replica of it, and three who watch.
struct Trio {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
}

impl Trio {
    fn start() -> Self {
        let servers = [0; 2].map(|_| RedisServer::start(&["--repl-diskless-sync-delay", "0"]));
        let port = servers[0].port();
        let _: redis::Value = servers[1].say(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        let sentinels = [0; 3].map(|_| RedisServer::sentinel_of("main", port, 2));
        let trio = Self { servers, sentinels };
        trio.settle();
        trio
    }

    /// Waits until the sentinels know one another and the replica, and that follows.
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
            // What is written only now has to be sent on.
            let info: String = self.servers[self.primary()].say(&["INFO", "replication"]);
            (known && info.contains("state=online")).then_some(())
        };
        assert!(wait_for(6 * RECOVERY, settled).is_some());
        let primary = &self.servers[self.primary()];
        let _: redis::Value = primary.say(&["SET", "something", "to follow"]);
        follow(primary);
    }

    /// Which server takes writes; of two that do, the one that the others will follow.
    fn primary(&self) -> usize {
        let named: Vec<String> =
            self.sentinels[0].say(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        usize::from(named[1] != self.servers[0].port().to_string())
    }

    fn url(&self) -> String {
        let addresses = self.sentinels.iter();
        let addresses: Vec<_> = addresses
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/main", addresses.join(","))
    }
}

/// A crowd at three replicas, something done to the servers in its midst: how many had passed then, and how many in the end.
async fn with_a_crowd(
    replicas: &[Tollgate],
    key: &'static str,
    within: impl FnOnce(&Tally),
) -> (usize, usize, Arc<Tally>) {
    let tally = Tally::of(&[key]);
    let tasks = crowd(replicas, &tally).await;
    tally.reaches(200).await;
    within(&tally);
    let before = tally.passed();
    dispersed(tasks).await;
    for replica in replicas {
        decides(replica, 2 * RECOVERY);
    }
    // Whatever was lost passes again.
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
async fn failovers_lose_what_was_not_sent_on_and_no_more() {
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
        // Sentinels take their time, and the rest of the thousand is to last for as long.
        tally.pause_ms.store(1_500, Ordering::Relaxed);
        let _: redis::Value = trio.sentinels[0].say(&["SENTINEL", "FAILOVER", "main"]);
    };
    let made = |replica: &Tollgate| replica.metric("tollgate_store_connections_total");
    let connections: Vec<_> = replicas.iter().map(made).collect();
    // Every replica has gone over to the other one.
    let all_went = || {
        let mut both = replicas.iter().zip(&connections);
        trio.primary() != old && both.all(|(replica, before)| made(replica) > *before)
    };
    // Before Redis tells the old one that it is none, and so us.
    let in_time = async {
        loop {
            let role: Vec<redis::Value> = trio.servers[old].say(&["ROLE"]);
            if all_went() || role[0] != redis::Value::BulkString(b"master".to_vec()) {
                return all_went();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (crowd, in_time) = tokio::join!(
        with_a_crowd(&replicas, "a", on_demand),
        tokio::time::timeout(6 * RECOVERY, in_time)
    );
    let (before, passed, tally) = crowd;
    eprintln!(
        "a failover on demand: {before} had passed, {passed} in the end, {} of unknown outcome, {} errors",
        unknown(&replicas),
        tally.undecided.load(Ordering::Relaxed)
    );
    assert_eq!(in_time, Ok(true));
    // What the old one took after the new one was made is lost: a limit's worth at most.
    assert!(passed + unknown(&replicas) >= LIMIT, "{passed}");
    assert!(passed <= 2 * LIMIT, "{passed}");
    trio.settle();

    let known = unknown(&replicas);
    let primary = trio.primary();
    let kill = |_: &Tally| trio.servers[primary].kill();
    let (before, passed, tally) = with_a_crowd(&replicas, "b", kill).await;
    let unknown = unknown(&replicas) - known;
    eprintln!(
        "a primary killed: {before} had passed, {passed} in the end, {unknown} of unknown outcome, {} errors",
        tally.undecided.load(Ordering::Relaxed)
    );
    assert!(passed + unknown >= LIMIT, "{passed} {unknown}");
    assert!(passed < LIMIT + before / 2, "{passed} {before}");
    assert_ne!(trio.primary(), primary);
}
