//! Three replicas with a hundred and twenty-eight requests in flight on each, and a limit of a
//! thousand: a thousand pass.

use std::fmt::Write as _;

use tokio::task::JoinSet;
use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::in_process::limit_of;
use tollgate_test_support::redis_server::RedisServer;

use super::{ask, becomes, client, patient, replica};

const IN_FLIGHT: usize = 128;
const EACH: usize = 10;

/// A limit in each algorithm that refills nothing while a test runs.
fn rules() -> String {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for algorithm in ALGORITHMS {
        // window: replaced by years
        let limit = limit_of(1_000, *algorithm).replace("unit: hour", "unit: year");
        let name = algorithm.name();
        let _ = writeln!(rules, "- {{ key: k, value: {name}, rate_limit: {limit} }}");
    }
    rules
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_let_exactly_a_thousand_pass_in_every_algorithm() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    // The denial cache would save most calls, and this test needs the store.
    let arguments = patient(&url, &["--store-over-limit-cache-ms", "0"]);
    let replicas = [0; 3].map(|_| replica(&rules(), &arguments));
    for algorithm in ALGORITHMS {
        let mut tasks = JoinSet::new();
        for replica in &replicas {
            let client = client(replica).await;
            for _ in 0..IN_FLIGHT {
                let mut client = client.clone();
                tasks.spawn(async move {
                    let mut passed = 0;
                    for _ in 0..EACH {
                        let answer = ask(&mut client, algorithm.name()).await;
                        passed += usize::from(answer.unwrap() == Code::Ok);
                    }
                    passed
                });
            }
        }
        let passed: usize = tasks.join_all().await.into_iter().sum();
        assert_eq!(passed, 1_000, "{algorithm:?}");
    }
    for replica in &replicas {
        assert_eq!(replica.metric("tollgate_store_unknown_outcomes_total"), 0);
        let checks = replica.metric("tollgate_store_call_checks_sum");
        assert_eq!(checks, (ALGORITHMS.len() * IN_FLIGHT * EACH) as u64);
        becomes(replica, "tollgate_store_replicas", 3);
    }
}
