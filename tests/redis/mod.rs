//! Limits shared through a real Redis by the real binary: exact among replicas, and answered in
//! time whatever Redis does.
//!
//! Each test has a server of its own (`redis_server`) and stops it by its id.
//!
//! What it deliberately does not do: repeat the store's contract (`tests/store`) or the algorithms'
//! arithmetic.

mod caller_lease_histories;
mod caller_leases;
mod candidates;
mod charged;
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
mod lookups;
mod memory;
mod overrides;
mod penalties;
mod proxy;
mod quotas;
mod rate_lease_faults;
mod rate_leases;
mod reference;
mod reservations;
mod reservations_raced;
mod resets;
mod rights;
mod sentinels;
mod slow;
mod states;
mod tenants;

use tollgate_test_support::grpc_client::{Code, RateLimitServiceClient, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::transport::Channel;

/// A limit of a thousand for each key, in one domain. Nothing is refilled while a test runs.
const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 1000 }
";

type Client = RateLimitServiceClient<Channel>;

/// The arguments for this store, with a deadline that a busy machine meets.
fn patient<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--store", url, "--store-deadline-ms", "20000"], more].concat()
}

/// Starts a replica and waits until it is connected to its store.
fn replica(rules: &str, arguments: &[&str]) -> Tollgate {
    let tollgate = Tollgate::start(rules, arguments);
    decides(&tollgate);
    tollgate
}

/// A replica of [`RULES`] and its client.
async fn shared(url: &str, more: &[&str]) -> (Tollgate, Client) {
    let tollgate = replica(RULES, &patient(url, more));
    let client = client(&tollgate).await;
    (tollgate, client)
}

/// A replica in this process that is connected to its store. The test sets its clock.
async fn in_process(rules: &str, redis: &RedisServer, more: &[&str]) -> Service {
    connected(Service::start(rules, &patient(&redis.url(), more)).await).await
}

/// Waits until the store of this service decides.
async fn connected(service: Service) -> Service {
    until_async("the store decides", async || {
        // When a failed probe is sent again is a matter of this clock.
        service.clock.advance_us(10_000);
        service.metric("tollgate_store_up") == 1
    })
    .await;
    service
}

/// Waits until the store decides.
fn decides(tollgate: &Tollgate) {
    until("the store decides", || {
        if tollgate.metric("tollgate_store_up") == 1 {
            return Ok(());
        }
        Err(verbose(tollgate) + tollgate.said().as_str())
    });
}

/// The readiness page of the admin port.
fn verbose(tollgate: &Tollgate) -> String {
    http(tollgate.admin, "GET", "/readyz?verbose", "").1
}

/// Waits until the readiness page has these words.
fn shows(tollgate: &Tollgate, words: &str) {
    until(&format!("the page has `{words}`"), || {
        let page = verbose(tollgate);
        if page.contains(words) {
            Ok(())
        } else {
            Err(page)
        }
    });
}

/// Waits until a metric has this value.
fn becomes(tollgate: &Tollgate, series: &str, value: u64) {
    until(&format!("{series} is {value}"), || {
        let current = tollgate.metric(series);
        if current == value {
            Ok(())
        } else {
            Err(current)
        }
    });
}

async fn client(tollgate: &Tollgate) -> Client {
    Service::connect(tollgate.grpc).await
}

/// Sends one request for a key: the overall code, or the error's.
async fn ask(client: &mut Client, key: &str) -> Result<Code, tonic::Code> {
    let request = request("d", vec![descriptor(&[("k", key)])]);
    match client.should_rate_limit(request).await {
        Ok(answer) => Ok(Code::try_from(answer.into_inner().overall_code).unwrap()),
        Err(status) => Err(status.code()),
    }
}

/// Sends requests for a key until one passes.
async fn passes(client: &mut Client, key: &str) {
    until_async("a request passes", async || match ask(client, key).await {
        Ok(Code::Ok) => Ok(()),
        other => Err(other),
    })
    .await;
}

/// What is left of a key's thousand, as the store says.
async fn left(client: &mut Client, key: &str) -> u32 {
    let mut look = descriptor(&[("k", key)]);
    look.hits_addend = Some(0);
    let answer = client.should_rate_limit(request("d", vec![look])).await;
    answer.unwrap().into_inner().statuses[0].limit_remaining
}

/// The names of all buckets on a server.
fn buckets(redis: &RedisServer) -> Vec<String> {
    redis.say(&["KEYS", "*tg:{*}:?????*"])
}
