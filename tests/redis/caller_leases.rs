//! Leases of callers from replicas that share a real Redis: any replica takes back the lease of
//! another, and all callers together get exactly the limit, in exact and in leased mode.

use tollgate::proto::tollgate::v1::{CheckRequest, LeaseRequest, ReturnRequest, Verdict};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;
use tollgate_test_support::tollgate_process::Tollgate;

use super::reservations::{Client, client, descriptor, left};
use super::{patient, replica};

const RULES: &str = "
domain: d
descriptors:
- { key: k, rate_limit: { unit: year, requests_per_unit: 1000 } }
- key: two
  rate_limits:
    - { unit: year, requests_per_unit: 400, count_refused: none }
    - { unit: year, unit_multiplier: 2, requests_per_unit: 900, count_refused: none }
";

/// The smaller limit of `two`.
const TIGHTEST: u64 = 400;

/// Random histories, each of a bucket of its own.
const HISTORIES: u64 = 40;
const STEPS: u64 = 30;

async fn lease(client: &mut Client, (key, value): (&str, &str), hits: u64) -> (String, u64) {
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

async fn give_back(
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

/// Callers of two limits lease, lose the answer, check, return, and return again, at either
/// replica.
async fn leases_agree_with_a_count(mode: &str) {
    let redis = RedisServer::start(&[]);
    let (_replicas, mut clients) = replicas(&redis, mode).await;
    for history in 0..HISTORIES {
        let mut chance = SeededRng::of_seed(history);
        let value = history.to_string();
        let of = ("two", &*value);
        let mut taken = 0;
        let mut leases: Vec<(String, u64, Option<u64>)> = Vec::new();
        for _ in 0..STEPS {
            let client = &mut clients[chance.position(2)];
            match chance.below(6) {
                0..=2 => {
                    let (id, granted) = lease(client, of, 1 + chance.below(300)).await;
                    let rest = TIGHTEST - taken;
                    assert!(
                        granted <= (rest / 4).max(1).min(rest),
                        "{granted} of {rest}"
                    );
                    assert_eq!(granted == 0, rest == 0);
                    taken += granted;
                    if granted > 0 && chance.below(4) > 0 {
                        leases.push((id, granted, None));
                    }
                }
                3 | 4 if !leases.is_empty() => {
                    let at = chance.position(leases.len());
                    let (id, granted, first) = &mut leases[at];
                    let unused = chance.below(*granted + 1);
                    taken -= if first.is_none() { unused } else { 0 };
                    // Whatever a repeated return says.
                    let expected = *first.get_or_insert(unused);
                    assert_eq!(give_back(client, of, id, unused).await, expected);
                }
                // In leased mode a replica takes hits for checks in advance.
                _ if mode == "exact" => {
                    let check = CheckRequest {
                        domain: "d".to_owned(),
                        descriptors: descriptor(of.0, of.1),
                        hits: None,
                    };
                    let answer = client.check(check).await.unwrap().into_inner();
                    assert_eq!(answer.verdict() == Verdict::Ok, taken < TIGHTEST);
                    taken += u64::from(answer.verdict() == Verdict::Ok);
                }
                _ => {}
            }
            for client in &mut clients {
                assert_eq!(left(client, of.0, of.1).await, TIGHTEST - taken, "{mode}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_exact_mode_leases_of_two_limits_agree_with_a_count_in_any_history() {
    leases_agree_with_a_count("exact").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_leased_mode_leases_of_two_limits_agree_with_a_count_in_any_history() {
    leases_agree_with_a_count("leased").await;
}
