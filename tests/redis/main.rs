//! Limits shared through a real Redis by the real binary: exact among replicas, and answered in
//! time whatever Redis does.
//!
//! Each test has a server of its own (`redis_server`) and stops it by its id.
//!
//! What it deliberately does not do: repeat the store's contract (`tests/store`) or the algorithms'
//! arithmetic.
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod candidates;
mod cluster;
mod cluster_calls;
mod cluster_log;
mod cluster_moving;
mod cluster_proxy;
mod connections;
mod decisions;
mod exactness;
mod failures;
mod leased;
mod memory;
mod quotas;
mod rate_lease_cost;
mod rate_lease_faults;
mod rate_leases;
mod reference;
mod reservations;
mod resets;
mod sentinels;
mod slow;
mod states;
mod top_keys;

use std::time::Duration;

use tollgate_test_support::grpc_client::{Code, RateLimitServiceClient, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::transport::Channel;

/// A limit of a thousand per hour for each key, in one domain.
const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: hour, requests_per_unit: 1000 }
";

/// How long recovery may take.
const RECOVERY: Duration = Duration::from_secs(5);

/// Starts a replica and waits until it is connected to its store.
fn replica(rules: &str, arguments: &[&str]) -> Tollgate {
    let tollgate = Tollgate::start(rules, arguments);
    decides(&tollgate, RECOVERY);
    tollgate
}

/// Adds the user `limits` with the rights that the page names, and no others. Its password is
/// `secret`. Returns the commands of the page.
fn add_user_of_the_page(redis: &RedisServer) -> Vec<String> {
    let page = std::fs::read_to_string("docs/shared-limits.md").unwrap();
    let (_, section) = page
        .split_once("\n## A Redis user with few rights\n")
        .unwrap();
    let commands = section.split("```").nth(1).unwrap();
    let commands = commands.strip_prefix("text").unwrap();
    let mut words = vec!["ACL", "SETUSER", "limits", "on", ">secret", "~tg:*"];
    let allowed: Vec<_> = commands
        .split_whitespace()
        .map(|command| format!("+{}", command.to_lowercase()))
        .collect();
    words.extend(allowed.iter().map(String::as_str));
    let set: String = redis.say(&words);
    assert_eq!(set, "OK");
    commands.split_whitespace().map(str::to_owned).collect()
}

/// Waits until the store decides.
fn decides(tollgate: &Tollgate, within: Duration) {
    let good = || (tollgate.metric("tollgate_store_up") == 1).then_some(());
    assert!(
        wait_for(within, good).is_some(),
        "{} {}",
        verbose(tollgate),
        tollgate.said()
    );
}

/// The readiness page of the admin port.
fn verbose(tollgate: &Tollgate) -> String {
    http(tollgate.admin, "GET", "/readyz?verbose", "").1
}

async fn client(tollgate: &Tollgate) -> RateLimitServiceClient<Channel> {
    Service::connect(tollgate.grpc).await
}

/// Sends one request for a key: the overall code, or the error's.
async fn ask(client: &mut RateLimitServiceClient<Channel>, key: &str) -> Result<Code, tonic::Code> {
    let request = request("d", vec![descriptor(&[("k", key)])]);
    match client.should_rate_limit(request).await {
        Ok(answer) => Ok(Code::try_from(answer.into_inner().overall_code).unwrap()),
        Err(status) => Err(status.code()),
    }
}

/// What is left of a key's thousand, as the store says.
async fn left(client: &mut RateLimitServiceClient<Channel>, key: &str) -> u32 {
    let mut look = descriptor(&[("k", key)]);
    look.hits_addend = Some(0);
    let request = request("d", vec![look]);
    let answer = client
        .should_rate_limit(request)
        .await
        .unwrap()
        .into_inner();
    answer.statuses[0].limit_remaining
}
