//! Many tasks at once: what is committed and reserved is never more than the budget.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;

use super::{Connection, body, has, left};

const BUDGET: u64 = 10_000;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 10000 }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 20000 }
";

/// One client: reserves 100, commits less. Returns what it committed.
fn reserve_and_commit(address: SocketAddr, client: u64, held: &AtomicU64) -> u64 {
    let mut connection = Connection::open(address);
    let mut post = |call: &str, more: Value| {
        let mut body = body("user", "ann", more);
        let team = json!({"entries": [{"key": "team", "value": "red"}]});
        body["descriptors"].as_array_mut().unwrap().push(team);
        // Too many requests can be in progress.
        until("it is not refused with 503", || {
            match connection.post(call, body.to_string().as_bytes()) {
                (503, answer) => Err(answer),
                answered => Ok(answered),
            }
        })
    };
    let id = format!("client {client}");
    match post("reserve", json!({"hits": 100, "reservation": id})) {
        (200, answer) => assert_eq!(answer["hits"], 100),
        (429, _) => return 0,
        other => panic!("{other:?}"),
    }
    let now_held = held.fetch_add(100, Ordering::SeqCst) + 100;
    assert!(now_held <= BUDGET, "{now_held} hits are held at once");
    let used = client % 80;
    // The commit gives back the rest, at the earliest now.
    held.fetch_sub(100 - used, Ordering::SeqCst);
    let (status, answer) = post("commit", json!({"hits": used, "reservation": id}));
    assert_eq!(status, 200, "{answer}");
    has(&answer, json!({"reserved": 100, "committed": used}));
    used
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_clients_never_take_more_than_the_budget() {
    let service = Service::start(RULES, &["--http-connections-max", "1000"]).await;
    let (address, held) = (service.http, Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..500)
        .map(|client| {
            let held = Arc::clone(&held);
            tokio::task::spawn_blocking(move || reserve_and_commit(address, client, &held))
        })
        .collect();
    let mut committed = 0;
    for client in clients {
        committed += client.await.unwrap();
    }
    assert!(committed > 0 && committed <= BUDGET, "{committed}");
    assert_eq!(left(&service, "user", "ann").await, BUDGET - committed);
    assert_eq!(left(&service, "team", "red").await, 20_000 - committed);
}
