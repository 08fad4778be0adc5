//! The memory of a service while fifty thousand keys wait for a frozen Redis: bounded, also when
//! that happens again; with a smaller bound it is less, and the rest is rejected at once and
//! counted.
//!
//! Measured are the bytes that are allocated in this process, which has the service and its
//! clients: before, while all keys wait (the gauge says so) and afterwards. They do not depend on
//! pages, which the allocator returns when it has time. Each request has a hundred keys, so that
//! few streams carry many checks. `tests/memory` measures buckets, and `top_keys` keys.

use tokio::task::JoinSet;
use tollgate_limiter::Check;
use tollgate_test_support::grpc_client::{descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;

use super::{Client, RULES, connected};
use crate::ALLOCATOR;

const REQUESTS: usize = 500;
const KEYS_A_REQUEST: usize = 100;
const KEYS: u64 = (REQUESTS * KEYS_A_REQUEST) as u64;

const WAITING: &str = "tollgate_store_waiting_checks";

/// Bytes for requests, plans and answers, in the service and its clients, besides the checks that
/// wait. Measured, in six runs beside ten other processes on two processors: 22.8 to 22.9 MB while
/// all wait for the first time, and 23.5 MB that are kept for later requests.
const BESIDES: u64 = 24 << 20;

/// Bytes that the third round may leave more than the second.
const GROWTH: u64 = 8 << 20;

/// The bytes of the heap.
fn allocated() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.bytes_allocated - stats.bytes_deallocated) as u64
}

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
            ["--top-keys", "off"],
            // The bounds are those of two threads, each with buffers of its own.
            ["--cores", "2"],
        ];
        let service = connected(Service::start(RULES, &arguments.concat()).await).await;
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(Service::connect(service.grpc).await);
        }
        let bound = bound_mib << 20;
        let all_fit = bound_mib == 48;
        let before = allocated();
        let mut afterwards = Vec::new();
        for round in 1..=3 {
            let full = || service.metric("tollgate_store_queue_full_total");
            let full_before = full();
            redis.signal("STOP");
            let begun = allocated();
            let tasks = ask_for_all(&clients, round);
            // All wait, or as many as fit, and the rest was rejected.
            let (waiting, rejected) = until_async("all keys wait or are rejected", async || {
                let found = (service.metric(WAITING), full() - full_before);
                if found.0 + found.1 >= KEYS {
                    Ok(found)
                } else {
                    Err(found)
                }
            })
            .await;
            let taken = allocated() - begun;
            assert_eq!(rejected == 0, all_fit, "{rejected}");
            let checks = waiting * size_of::<Check>() as u64;
            assert!(checks <= bound, "{waiting}");
            println!("{bound_mib} MiB: {taken} bytes, {checks} of them checks");
            assert!(taken <= checks + BESIDES, "{taken} {checks}");
            redis.signal("CONT");
            let decided = tasks.join_all().await;
            assert_eq!(!decided.contains(&false), all_fit);
            until_async("none waits", async || service.metric(WAITING) == 0).await;
            afterwards.push(allocated() - before);
        }
        println!("{bound_mib} MiB: {afterwards:?} bytes after");
        // What is kept for later requests does not grow once as many have waited.
        assert!(afterwards[2] <= afterwards[1] + GROWTH, "{afterwards:?}");
        assert!(afterwards[2] <= BESIDES, "{afterwards:?}");
    }
}
