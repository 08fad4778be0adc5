//! Migration from Envoy's reference service: both count in one Redis, under that service's names.
//!
//! The reference service is simulated by its commands, `INCRBY` and `EXPIRE`, and by its rule: over
//! the limit when the returned number is greater. `tests/matching` checks every name, and
//! `tests/twin` walks at random.

use tollgate::clock::{Clock as _, SystemClock};
use tollgate_test_support::grpc_client::{Code, Descriptor, RateLimitOverride, hits, request};
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::tollgate_binary;

use super::{Client, client, patient, replica};

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 10 }
- key: files
  value: x/*
  share_threshold: true
  rate_limit: { unit: year, requests_per_unit: 10 }
- key: p*
  value: '*'
  share_threshold: true
  rate_limit: { unit: year, requests_per_unit: 10 }
- key: bucket
  rate_limit: { unit: year, requests_per_unit: 10, algorithm: token_bucket }
- key: both
  rate_limits:
  - { unit: year, requests_per_unit: 10 }
  # window: hit once
  - { unit: day, requests_per_unit: 10 }
";

const YEAR_S: u64 = 31_536_000;

/// Both services use this prefix.
const PREFIX: [&str; 2] = ["--cache-key-prefix", "rl:"];

fn reference_keys<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["--store-keys", "reference"];
    patient(url, &[&own[..], &PREFIX, more].concat())
}

fn now_s() -> u64 {
    SystemClock::new().now().as_us() / 1_000_000
}

/// The reference service's name for this year's counter.
fn this_year(text: &str) -> String {
    let now_s = now_s();
    format!("rl:d_{text}_{}", now_s - now_s % YEAR_S)
}

/// Hits of the reference service: the number afterwards, and whether they pass.
fn reference_takes(redis: &RedisServer, text: &str, hits: u64) -> (u64, bool) {
    let key = this_year(text);
    let after: u64 = redis.say(&["INCRBY", &key, &hits.to_string()]);
    let _: i64 = redis.say(&["EXPIRE", &key, &(YEAR_S + 17).to_string()]);
    (after, after <= 10)
}

fn counted(redis: &RedisServer, text: &str) -> Option<String> {
    redis.say(&["GET", &this_year(text)])
}

async fn status(client: &mut Client, asked: Descriptor) -> (Code, u32) {
    let answer = client.should_rate_limit(request("d", vec![asked])).await;
    let status = answer.unwrap().into_inner().statuses.remove(0);
    (Code::try_from(status.code).unwrap(), status.limit_remaining)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_the_reference_are_continued_and_it_continues_ours() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    // As before the migration.
    assert_eq!(reference_takes(&redis, "k_v", 4), (4, true));
    assert_eq!(reference_takes(&redis, "files_x/*", 9), (9, true));
    assert_eq!(reference_takes(&redis, "pq_p*_*", 9), (9, true));
    let asks_every_time = ["--store-over-limit-cache-ms", "0"];
    let tollgate = replica(RULES, &reference_keys(&url, &asks_every_time));
    let mut client = client(&tollgate).await;
    assert_eq!(status(&mut client, hits("k", "v", 0)).await, (Code::Ok, 6));
    assert_eq!(status(&mut client, hits("k", "v", 3)).await, (Code::Ok, 3));
    assert_eq!(reference_takes(&redis, "k_v", 2), (9, true));
    // Both deny and count hits that do not fit.
    assert_eq!(
        status(&mut client, hits("k", "v", 4)).await,
        (Code::OverLimit, 0)
    );
    assert_eq!(reference_takes(&redis, "k_v", 1), (14, false));
    assert_eq!(
        status(&mut client, hits("k", "v", 1)).await,
        (Code::OverLimit, 0)
    );
    assert_eq!(counted(&redis, "k_v").as_deref(), Some("15"));
    // Keys that the reference service merges are merged.
    assert_eq!(
        status(&mut client, hits("files", "x/1", 1)).await,
        (Code::Ok, 0)
    );
    assert_eq!(
        status(&mut client, hits("files", "x/2", 1)).await,
        (Code::OverLimit, 0)
    );
    for (value, answer) in [("1", (Code::Ok, 0)), ("2", (Code::OverLimit, 0))] {
        assert_eq!(status(&mut client, hits("pq", value, 1)).await, answer);
    }
    // New counters start here and are kept as long as the reference service keeps its own.
    assert_eq!(
        status(&mut client, hits("k", "new", 0)).await,
        (Code::Ok, 10)
    );
    assert_eq!(counted(&redis, "k_new"), None, "a look is not written");
    assert_eq!(
        status(&mut client, hits("k", "new", 1)).await,
        (Code::Ok, 9)
    );
    let life: u64 = redis.say(&["TTL", &this_year("k_new")]);
    assert!((YEAR_S - 60..YEAR_S + 300).contains(&life), "{life}");
    assert_eq!(reference_takes(&redis, "k_new", 1), (2, true));
    // A limit override is counted where the reference service counts it.
    let mut own = hits("k", "new", 1);
    own.limit = Some(RateLimitOverride {
        requests_per_unit: 3,
        unit: 6,
        ..Default::default()
    });
    assert_eq!(status(&mut client, own).await, (Code::Ok, 0));
    let ours: Vec<String> = redis.say(&["KEYS", "rl:tg:{*}:?????*"]);
    assert!(ours.is_empty(), "{ours:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_denial_is_not_counted() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    assert_eq!(reference_takes(&redis, "k_v", 10), (10, true));
    let tollgate = replica(RULES, &reference_keys(&url, &[]));
    let mut client = client(&tollgate).await;
    let cached = || tollgate.metric("tollgate_store_over_limit_cache_answers_total");
    let mut asked = 0;
    // A denial is cached for a second at most.
    until_async("ten denials were cached", async || {
        asked += 1;
        let denied = status(&mut client, hits("k", "v", 1)).await;
        assert_eq!(denied, (Code::OverLimit, 0));
        cached() >= 10
    })
    .await;
    let counted: u64 = counted(&redis, "k_v").unwrap().parse().unwrap();
    assert_eq!(counted + cached(), 10 + asked);
    // A refund shows at once.
    let mut refund = hits("k", "v", counted - 9);
    refund.is_negative_hits = true;
    status(&mut client, refund).await;
    assert_eq!(status(&mut client, hits("k", "v", 1)).await, (Code::Ok, 0));
    assert_eq!(reference_takes(&redis, "k_v", 1), (11, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_taken_from_the_reference_s_counter_and_go_back_to_it() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let rules = RULES.replace("requests_per_unit: 10 }", "requests_per_unit: 1000 }");
    let more = ["--store-mode", "leased", "--lease-age-max-ms", "500"];
    let mut tollgate = replica(&rules, &reference_keys(&url, &more));
    let mut client = client(&tollgate).await;
    reference_takes(&redis, "k_v", 100);
    for asked in 1..=200 {
        let (code, left) = status(&mut client, hits("k", "v", 1)).await;
        assert_eq!((code, left), (Code::Ok, 900 - asked));
        let counted: u32 = counted(&redis, "k_v").unwrap().parse().unwrap();
        assert!(
            counted >= 100 + asked,
            "debited before it is admitted: {counted} {asked}"
        );
    }
    tollgate.signal("TERM");
    tollgate.wait();
    assert_eq!(counted(&redis, "k_v").as_deref(), Some("300"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_prints_the_reference_s_name_of_a_counter() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let explained = |more: &[&str], descriptor: &str| {
        let output = std::process::Command::new(tollgate_binary())
            .args(["explain", &rules.display().to_string(), "--key"])
            .args(PREFIX)
            .args(more)
            .args(["d", descriptor])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let reference = ["--store-keys", "reference"];
    for (descriptor, name) in [
        ("k=v", "rl:d_k_v_ followed by"),
        ("files=x/1", "rl:d_files_x/*_ followed by"),
        ("bucket=v", "rl:tg:{"),
        ("both=v", "rl:tg:{"),
    ] {
        let said = explained(&reference, descriptor);
        assert!(
            said.contains(&format!("bucket in a shared store: {name}")),
            "{said}"
        );
    }
    assert!(explained(&[], "k=v").contains("bucket in a shared store: rl:tg:{"));
}
