//! The memory of a process while fifty thousand keys wait for a frozen Redis: bounded, also the
//! second time; with a smaller bound it is less, and the rest is rejected at once and counted.
//!
//! Measured is `VmRSS` of the real process, before, while all keys wait (the gauge says so) and
//! afterwards. Each request has a hundred keys, so that few streams carry many checks.
//! `tests/memory` measures buckets.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::{RateLimitServiceClient, descriptor, request};
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::transport::Channel;

use super::{RECOVERY, RULES, client, decides, replica};

const REQUESTS: usize = 500;
const KEYS_A_REQUEST: usize = 100;
const KEYS: u64 = (REQUESTS * KEYS_A_REQUEST) as u64;

/// Long enough for all to wait at once.
const DEADLINE_MS: &str = "2000";

/// Bytes for the system's pages, the requests and the answers.
const BESIDES: u64 = 24 << 20;

fn waiting(tollgate: &Tollgate) -> u64 {
    tollgate.metric("tollgate_store_waiting_checks")
}

/// Sends all keys at once; returns how many requests got an error.
fn ask_for_all(clients: &[RateLimitServiceClient<Channel>], round: usize) -> JoinSet<bool> {
    let mut tasks = JoinSet::new();
    for number in 0..REQUESTS {
        let mut client = clients[number % clients.len()].clone();
        tasks.spawn(async move {
            let key = |key| descriptor(&[("k", &format!("{round}-{number}-{key}"))]);
            let asked = request("d", (0..KEYS_A_REQUEST).map(key).collect());
            client.should_rate_limit(asked).await.is_err()
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
            ["--store-deadline-ms", DEADLINE_MS],
            ["--store-queue-max", &bound],
        ];
        let tollgate = replica(RULES, &arguments.concat());
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(client(&tollgate).await);
        }
        let before = tollgate.status_bytes("VmRSS");
        let answered = ask_for_all(&clients, 0).join_all().await;
        assert!(bound_mib < 48 || !answered.contains(&true));
        let (mut most, mut afterwards) = (0, Vec::new());
        for round in 1..=2 {
            let full = || tollgate.metric("tollgate_store_queue_full_total");
            let full_before = full();
            redis.signal("STOP");
            let tasks = ask_for_all(&clients, round);
            // All wait, or as many as fit, and the rest was rejected.
            let all =
                || (waiting(&tollgate) + full() - full_before >= KEYS).then(|| waiting(&tollgate));
            let wait = tokio::task::block_in_place(|| wait_for(RECOVERY, all));
            let wait = wait.unwrap_or_else(|| panic!("{} wait", waiting(&tollgate)));
            most = most.max(tollgate.status_bytes("VmRSS"));
            if bound_mib == 48 {
                assert_eq!((wait, full()), (KEYS, 0));
            } else {
                assert!(wait > 1_000 && wait < KEYS / 10, "{wait}");
                assert!(full() - full_before >= KEYS * 9 / 10, "{}", full());
            }
            assert!(
                !tasks.join_all().await.contains(&false),
                "nothing was decided"
            );
            redis.signal("CONT");
            tokio::task::block_in_place(|| decides(&tollgate, RECOVERY));
            let none = || (waiting(&tollgate) == 0).then_some(());
            assert!(
                tokio::task::block_in_place(|| wait_for(Duration::from_secs(1), none)).is_some()
            );
            afterwards.push(tollgate.status_bytes("VmRSS"));
        }
        println!(
            "{bound_mib} MiB: {before} bytes resident before, {most} at most, {afterwards:?} afterwards"
        );
        let bound = (bound_mib << 20) + BESIDES;
        assert!(most <= before + bound, "{before} {most}");
        // It does not grow from one round to the next.
        assert!(afterwards[1] <= afterwards[0] + (8 << 20), "{afterwards:?}");
        assert!(afterwards[1] <= before + bound, "{afterwards:?}");
    }
}
