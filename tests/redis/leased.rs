//! Leases on a real Redis: what only a real server or process shows. `tests/store/leased` has the
//! rest on simulated time; `reference` has a stop that returns leased hits.

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{ask, becomes, client, left, patient, replica};

const RULES: &str = "
domain: d
descriptors:
- { key: k, value: sliding_log, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: sliding_log } }
- { key: k, value: wide, rate_limit: { unit: year, requests_per_unit: 1000000 } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_are_returned_later_when_redis_is_read_only() {
    let redis = RedisServer::start(&[]);
    let leased = ["--store-mode", "leased", "--lease-age-max-ms", "5000"];
    let tollgate = replica(RULES, &patient(&redis.url(), &leased));
    let metric = |name: &str| tollgate.metric(name);
    let mut client = client(&tollgate).await;
    let mut passed = 0;
    until_async("hits are held", async || {
        for _ in 0..20 {
            assert_eq!(ask(&mut client, "wide").await, Ok(Code::Ok));
            passed += 1;
        }
        metric("tollgate_lease_hits_held") > 0
    })
    .await;
    let _: redis::Value = redis.say(&["REPLICAOF", "127.0.0.1", "1"]);
    // It has tried and was rejected.
    becomes(&tollgate, "tollgate_lease_hits_held", 0);
    becomes(&tollgate, "tollgate_store_up", 0);
    let returns = metric("tollgate_lease_returns_total");
    let _: redis::Value = redis.say(&["REPLICAOF", "NO", "ONE"]);
    until("the hits are returned", || {
        metric("tollgate_lease_returns_total") > returns
    });
    assert_eq!(metric("tollgate_lease_returns_lost_total"), 0);
    assert_eq!(left(&mut client, "wide").await, 1_000_000 - passed);
}

#[test]
fn rules_without_leases_are_logged_at_start() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    for (arguments, words) in [
        (&["--store-mode", "leased"][..], "set --store"),
        (
            &["--store-mode", "leased", "--store", &url],
            "some rules use exact mode despite --store-mode leased",
        ),
    ] {
        let said = Tollgate::start(RULES, arguments).said();
        assert!(said.contains(words), "{said}");
    }
}
