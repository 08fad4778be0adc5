//! The memory of a process while fifty thousand keys wait for a frozen Redis: bounded, also the
//! second time; with a smaller bound it is less, and the rest is rejected at once and counted.
//!
//! Measured is `VmRSS` of the real process, before, while all keys wait (the gauge says so) and
//! afterwards. Each request has a hundred keys, so that few streams carry many checks.
//! `tests/memory` measures buckets.

use tokio::task::JoinSet;
use tollgate_limiter::Check;
use tollgate_test_support::grpc_client::{descriptor, request};
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;

use super::{Client, RULES, becomes, client, replica};

const REQUESTS: usize = 500;
const KEYS_A_REQUEST: usize = 100;
const KEYS: u64 = (REQUESTS * KEYS_A_REQUEST) as u64;

const WAITING: &str = "tollgate_store_waiting_checks";

/// Bytes for the pages of the system, the requests and the answers. Measured: 20 to 28 MiB, most
/// of all beside busy loops. Without the queue's bound, 38 MB of checks would wait beside them.
const BESIDES: u64 = 32 << 20;

/// Sends all keys at once; returns for each request whether it was decided.
fn ask_for_all(clients: &[Client], round: usize) -> JoinSet<bool> {
    let mut tasks = JoinSet::new();
    for number in 0..REQUESTS {
        let mut client = clients[number % clients.len()].clone();
        tasks.spawn(async move {
            let key = |key| descriptor(&[("k", &format!("{round}-{number}-{key}"))]);
            let asked = request("d", (0..KEYS_A_REQUEST).map(key).collect());
            client.should_rate_limit(asked).await.is_ok()
        });
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_keys_waiting_for_a_frozen_redis_stay_within_the_bound() {
    for bound_mib in [48, 2] {
        let redis = RedisServer::start(&[]);
        let (url, bound) = (redis.url(), format!("{bound_mib}MiB"));
        let arguments = [
            ["--store", &url],
            ["--store-deadline-ms", "60000"],
            ["--store-queue-max", &bound],
        ];
        let tollgate = replica(RULES, &arguments.concat());
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(client(&tollgate).await);
        }
        let bound = bound_mib << 20;
        let all_fit = bound_mib == 48;
        let before = tollgate.status_bytes("VmRSS");
        let (mut most, mut afterwards) = (0, Vec::new());
        for round in 1..=2 {
            let full = || tollgate.metric("tollgate_store_queue_full_total");
            let full_before = full();
            redis.signal("STOP");
            let tasks = ask_for_all(&clients, round);
            // All wait, or as many as fit, and the rest was rejected.
            let (waiting, rejected) = until("all keys wait or are rejected", || {
                let found = (tollgate.metric(WAITING), full() - full_before);
                if found.0 + found.1 >= KEYS {
                    Ok(found)
                } else {
                    Err(found)
                }
            });
            most = most.max(tollgate.status_bytes("VmRSS"));
            assert_eq!(rejected == 0, all_fit, "{rejected}");
            assert!(waiting * size_of::<Check>() as u64 <= bound, "{waiting}");
            redis.signal("CONT");
            let decided = tasks.join_all().await;
            assert_eq!(!decided.contains(&false), all_fit);
            becomes(&tollgate, WAITING, 0);
            afterwards.push(tollgate.status_bytes("VmRSS"));
        }
        println!("{bound_mib} MiB: {before} bytes before, {most} at most, {afterwards:?} after");
        assert!(most <= before + bound + BESIDES, "{before} {most}");
        // It does not grow from one round to the next.
        assert!(afterwards[1] <= afterwards[0] + (8 << 20), "{afterwards:?}");
        assert!(afterwards[1] <= before + bound + BESIDES, "{afterwards:?}");
    }
}
