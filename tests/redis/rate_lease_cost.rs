//! What an exchange of a lease costs Redis: three replicas, a hundred buckets, demands of 200
//! bytes.
//!
//! `TOLLGATE_RATE_LEASES=100000 cargo test --test redis -- --nocapture what_an_exchange_costs`
//! prints Redis's CPU time for so many exchanges. Nothing is asserted of it.

use bytes::Bytes;
use tollgate::store::rate_leases::RateLeaseRequest;
use tollgate_test_support::redis_server::RedisServer;

use super::rate_leases::{REPLICAS, buckets, look, replicas, settings};

/// The seconds of CPU time that Redis has used, and the microseconds and calls of scripts.
fn used(redis: &RedisServer) -> (f64, f64, f64) {
    let info: String = redis.say(&["INFO", "all"]);
    let line = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)).unwrap_or("")
    };
    let number = |text: &str| text.trim().parse::<f64>().unwrap_or_default();
    let scripts = line("cmdstat_evalsha:");
    let of = |name: &str| {
        let mut parts = scripts.split(',');
        number(parts.find_map(|part| part.strip_prefix(name)).unwrap_or(""))
    };
    let cpu = number(line("used_cpu_user:")) + number(line("used_cpu_sys:"));
    (cpu, of("usec="), of("calls="))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_exchange_costs() {
    let exchanges = std::env::var("TOLLGATE_RATE_LEASES");
    let exchanges: usize = exchanges.map_or(3_000, |count| count.parse().unwrap());
    let redis = RedisServer::start(&[]);
    let settings = settings(&redis.url());
    let mut replicas = replicas(&settings).await;
    replicas.truncate(3);
    let request = |number: usize, version: u64| {
        let each = |bucket| RateLeaseRequest {
            replica: REPLICAS[number],
            version,
            keeps: 1_000_000,
            wants: 2_000_000,
            limit: 5_000_000,
            demand: Bytes::from(vec![7; 200]),
            ..look(bucket)
        };
        buckets(100).into_iter().map(each).collect::<Vec<_>>()
    };
    let mut sent = 0;
    let mut before = (0.0, 0.0, 0.0);
    for version in 1.. {
        if version == 2 {
            before = used(&redis);
            sent = 0;
        } else if sent >= exchanges {
            break;
        }
        for (number, replica) in replicas.iter().enumerate() {
            let results = replica.leases.exchange(request(number, version)).await;
            assert!(results.iter().all(Result::is_ok));
            sent += results.len();
        }
    }
    let after = used(&redis);
    let each = |seconds: f64| seconds * 1e6 / (after.2 - before.2);
    // The probes of a store's breaker use EVAL.
    let counted = f64::from(u32::try_from(sent).unwrap());
    assert!((after.2 - before.2 - counted).abs() < 0.5);
    eprintln!(
        "{sent} exchanges: {:.2} us each in the script, {:.2} us of Redis's CPU time",
        (after.1 - before.1) / (after.2 - before.2),
        each(after.0 - before.0),
    );
}
