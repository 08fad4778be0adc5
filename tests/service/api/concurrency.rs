//! Many tasks at once: what is committed and reserved is never more than the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tollgate_test_support::in_process::Service;

use super::{body, left, post};

const BUDGET: u64 = 10_000;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 10000 }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 20000 }
";

/// One task: reserves 100, commits less. Returns what it committed.
async fn reserve_and_commit(service: Arc<Service>, task: u64, open: Arc<AtomicU64>) -> u64 {
    let call = |more| {
        let mut call = body("user", "ann", more);
        let team = json!({"entries": [{"key": "team", "value": "red"}]});
        call["descriptors"].as_array_mut().unwrap().push(team);
        call
    };
    let id = format!("task {task}");
    let reserved = loop {
        let reserve = call(json!({"hits": 100, "reservation": id}));
        match post(service.http, "reserve", &reserve).await {
            (200, answer) => break answer["hits"].as_u64().unwrap(),
            (429, _) => return 0,
            // Too many requests are in progress.
            (503, _) => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    };
    let now_open = open.fetch_add(reserved, Ordering::SeqCst) + reserved;
    assert!(now_open <= BUDGET, "{now_open} are reserved at once");
    let used = task % 80;
    // From here it counts what was used, and what it holds goes back with the commit.
    open.fetch_sub(reserved - used, Ordering::SeqCst);
    loop {
        let commit = call(json!({"hits": used, "reservation": id}));
        match post(service.http, "commit", &commit).await {
            (200, answer) => {
                assert_eq!(
                    (&answer["reserved"], &answer["committed"]),
                    (&json!(100), &json!(used))
                );
                return used;
            }
            (503, _) => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_tasks_never_take_more_than_the_budget() {
    let service = Arc::new(Service::start(RULES, &[]).await);
    let open = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..500)
        .map(|task| {
            tokio::spawn(reserve_and_commit(
                Arc::clone(&service),
                task,
                Arc::clone(&open),
            ))
        })
        .collect();
    let mut committed = 0;
    for task in tasks {
        committed += task.await.unwrap();
    }
    assert!(committed > 0 && committed <= BUDGET, "{committed}");
    assert_eq!(left(&service, "user", "ann").await, BUDGET - committed);
    assert_eq!(left(&service, "team", "red").await, 20_000 - committed);
}
