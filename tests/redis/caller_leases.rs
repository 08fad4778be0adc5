//! Leases of callers from replicas that share a real Redis: any replica takes back the lease of
//! another, and all callers together get exactly the limit, in exact and in leased mode.
//! `caller_lease_histories` has random histories.

use tollgate::proto::tollgate::v1::{LeaseRequest, ReturnRequest, Verdict};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::reservations::{Client, client, descriptor, left};
use super::{patient, replica};

const RULES: &str = "
domain: d
descriptors:
- { key: k, rate_limit: { unit: year, requests_per_unit: 1000 } }
";

pub(super) async fn lease(
    client: &mut Client,
    (key, value): (&str, &str),
    hits: u64,
) -> (String, u64) {
    let lease = LeaseRequest {
        domain: "d".to_owned(),
        descriptors: descriptor(key, value),
        hits: Some(hits),
        ..LeaseRequest::default()
    };
    let answer = client.lease(lease).await.unwrap().into_inner();
    let is_granted = answer.verdict() == Verdict::Ok;
    assert_eq!(is_granted, answer.granted > 0, "{answer:?}");
    (answer.lease, answer.granted)
}

pub(super) async fn give_back(
    client: &mut Client,
    (key, value): (&str, &str),
    lease: &str,
    unused: u64,
) -> u64 {
    let lease = ReturnRequest {
        domain: "d".to_owned(),
        descriptors: descriptor(key, value),
        lease: lease.to_owned(),
        unused,
        ..ReturnRequest::default()
    };
    client.r#return(lease).await.unwrap().into_inner().returned
}

/// Two replicas, where no lease ends before its test does.
async fn replicas(redis: &RedisServer, mode: &str) -> ([Tollgate; 2], [Client; 2]) {
    let url = redis.url();
    let arguments = patient(&url, &["--store-mode", mode, "--lease-age-max-ms", "60000"]);
    let replicas = [replica(RULES, &arguments), replica(RULES, &arguments)];
    let clients = [client(&replicas[0]).await, client(&replicas[1]).await];
    (replicas, clients)
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_take_back_each_other_s_leases_and_grant_exactly_the_limit() {
    for mode in ["exact", "leased"] {
        let redis = RedisServer::start(&[]);
        let (_replicas, mut clients) = replicas(&redis, mode).await;
        let one = ("k", "v");
        let (id, granted) = lease(&mut clients[0], one, 100).await;
        assert_eq!(granted, 100);
        assert_eq!(left(&mut clients[1], "k", "v").await, 900);
        for replica in [1, 0, 1] {
            let returned = give_back(&mut clients[replica], one, &id, 5).await;
            assert_eq!(returned, 5, "{mode}");
            assert_eq!(left(&mut clients[0], "k", "v").await, 905);
        }
        let (mut granted, mut turn) = (95, 0);
        loop {
            let (id, hits) = lease(&mut clients[turn % 2], one, 1_000).await;
            if hits == 0 {
                break;
            }
            granted += hits;
            turn += 1;
            if turn % 3 == 0 {
                granted -= give_back(&mut clients[turn % 2], one, &id, hits / 2).await;
            }
        }
        assert_eq!(
            (granted, left(&mut clients[1], "k", "v").await),
            (1_000, 0),
            "{mode}"
        );
    }
}
