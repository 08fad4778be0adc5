//! A limit is never exceeded and never wasted: 64 tasks, 10,000 calls, a limit of 1,000, exactly
//! 1,000 allowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::{Service, limit_of};

const TASKS: u32 = 64;
const CALLS: u32 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_a_thousand_of_ten_thousand_concurrent_calls_pass_in_every_algorithm() {
    for algorithm in ALGORITHMS {
        let name = algorithm.name();
        let limit = limit_of(1_000, *algorithm);
        let rules = format!("{{domain: d, descriptors: [{{key: k, rate_limit: {limit}}}]}}");
        let service = Service::start(&rules, &[]).await;
        let left = Arc::new(AtomicU32::new(CALLS));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            // Several connections, several tasks on each.
            let shared = service.client.clone();
            let grpc = service.grpc;
            let left = Arc::clone(&left);
            tasks.spawn(async move {
                let mut client = match task % 4 {
                    0 => Service::connect(grpc).await,
                    _ => shared,
                };
                let mut allowed = 0_u32;
                let take = |left: u32| left.checked_sub(1);
                while left
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
                    .is_ok()
                {
                    let asked = request("d", vec![descriptor(&[("k", "v")])]);
                    let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
                    allowed += u32::from(answer.overall_code() == Code::Ok);
                }
                allowed
            });
        }
        let allowed: u32 = tasks.join_all().await.into_iter().sum();
        assert_eq!(allowed, 1_000, "{name}");
        assert_eq!(
            service.metric("tollgate_decisions_total{code=\"ok\"}"),
            1_000
        );
        assert_eq!(
            service.metric("tollgate_decisions_total{code=\"over_limit\"}"),
            9_000
        );
    }
}
