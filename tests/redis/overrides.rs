//! Overrides of replicas on one Redis: set on one, in force on the other; a bound of all replicas;
//! a replica that dies; a Redis that keeps its data over a restart, and one that loses it; a
//! cluster.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::RedisCluster;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{client, in_process, patient, replica};

const RULES: &str = "
domain: d
descriptors:
- key: user
  rate_limit: { unit: year, requests_per_unit: 1 }
";

fn put(admin: SocketAddr, value: &str, what: &Value) -> u16 {
    let mut body = json!({
        "domain": "d", "descriptor": [{"key": "user", "value": value}], "for_seconds": 3600,
    });
    for (name, value) in what.as_object().unwrap() {
        body[name] = value.clone();
    }
    http(admin, "PUT", "/overrides", &body.to_string()).0
}

/// Sets an override, again after a 503: on a busy machine Redis may answer later than a call waits.
fn sets(admin: SocketAddr, value: &str, what: &Value) {
    until("the override is set", || match put(admin, value, what) {
        200 => Ok(()),
        code => Err(code),
    });
}

fn delete(replica: &Tollgate, value: &str) -> u16 {
    let body = json!({"domain": "d", "descriptor": [{"key": "user", "value": value}]});
    http(replica.admin, "DELETE", "/overrides", &body.to_string()).0
}

/// The values that have an override.
fn overridden(replica: &Tollgate) -> Vec<String> {
    let list: Value =
        serde_json::from_str(&http(replica.admin, "GET", "/overrides", "").1).unwrap();
    let list = list["overrides"].as_array().unwrap().iter();
    let values = list.map(|one| one["descriptor"][0]["value"].as_str().unwrap().to_owned());
    values.collect()
}

fn until_overridden(replica: &Tollgate, expected: &[&str]) {
    until(&format!("the overrides are those of {expected:?}"), || {
        let now = overridden(replica);
        if now == expected { Ok(()) } else { Err(now) }
    });
}

/// Asserts that `a` has no limit and `b` is blocked.
async fn are_in_force(replica: &Tollgate) {
    let mut client = client(replica).await;
    for (value, code) in [("a", Code::Ok), ("a", Code::Ok), ("b", Code::OverLimit)] {
        let asked = request("d", vec![descriptor(&[("user", value)])]);
        let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
        assert_eq!(answer.overall_code, i32::from(code), "{value}: {answer:?}");
    }
}

/// Sets, changes and ends overrides on two replicas. Both have them, and one that starts later.
fn are_shared(url: &str) {
    let [one, other] = [(); 2].map(|()| replica(RULES, &patient(url, &["--overrides-max", "3"])));
    sets(one.admin, "a", &json!({"unlimited": true}));
    sets(one.admin, "b", &json!({"blocked": true}));
    assert_eq!(overridden(&one), ["a", "b"], "at once");
    until_overridden(&other, &["a", "b"]);
    sets(other.admin, "c", &json!({"blocked": true}));
    until_overridden(&one, &["a", "b", "c"]);
    // The bound is that of all of them together.
    for replica in [&one, &other] {
        assert_eq!(put(replica.admin, "d", &json!({"blocked": true})), 409);
    }
    let longer = json!({"blocked": true, "for_seconds": 7200});
    sets(other.admin, "a", &longer);
    assert_eq!(delete(&one, "b"), 200);
    until_overridden(&other, &["a", "c"]);
    assert_eq!(delete(&other, "b"), 404);
    let late = replica(RULES, &patient(url, &[]));
    until_overridden(&late, &["a", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_on_one_server_have_the_same_overrides() {
    let mut redis = RedisServer::start(&[]);
    are_shared(&redis.url());
    // One that ends is removed from the store, by a replica.
    let one = replica(RULES, &patient(&redis.url(), &[]));
    until_overridden(&one, &["a", "c"]);
    let short = json!({"blocked": true, "for_seconds": 1});
    sets(one.admin, "c", &short);
    until("the store has one override", || {
        let left: u64 = redis.say(&["HLEN", "tg:{quota}:records"]);
        if left == 1 { Ok(()) } else { Err(left) }
    });
    until_overridden(&one, &["a"]);
    // While it does not answer, those that are known stay. Without its data, none is left.
    redis.kill();
    assert_eq!(put(one.admin, "e", &json!({"blocked": true})), 503);
    assert_eq!(overridden(&one), ["a"]);
    redis.start_again();
    let flushed: String = redis.say(&["FLUSHALL"]);
    assert_eq!(flushed, "OK");
    until_overridden(&one, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_outlive_their_replica_and_a_restart_of_a_redis_that_keeps_data() {
    let mut redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = redis.url();
    let [mut one, other] = [(); 2].map(|()| replica(RULES, &patient(&url, &[])));
    sets(one.admin, "a", &json!({"unlimited": true}));
    sets(one.admin, "b", &json!({"blocked": true}));
    one.signal("KILL");
    one.wait();
    until_overridden(&other, &["a", "b"]);
    are_in_force(&other).await;
    redis.kill();
    assert_eq!(put(other.admin, "c", &json!({"blocked": true})), 503);
    assert_eq!(overridden(&other), ["a", "b"]);
    are_in_force(&other).await;
    redis.start_again();
    // It knows only what Redis has.
    let late = replica(RULES, &patient(&url, &[]));
    until_overridden(&late, &["a", "b"]);
    for replica in [&late, &other] {
        are_in_force(replica).await;
    }
    sets(late.admin, "c", &json!({"blocked": true}));
    until_overridden(&other, &["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_that_redis_loses_at_once_is_lost_where_it_was_set() {
    let mut redis = RedisServer::start(&[]);
    let one = replica(RULES, &patient(&redis.url(), &[]));
    sets(one.admin, "a", &json!({"unlimited": true}));
    // Before the replica has read what it set: the version is that of no overrides again.
    redis.kill();
    redis.start_again();
    until_overridden(&one, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_ends_while_redis_does_not_answer() {
    let mut redis = RedisServer::start(&[]);
    let replica = in_process(RULES, &redis, &[]).await;
    sets(replica.admin, "a", &json!({"unlimited": true}));
    redis.kill();
    assert_eq!(replica.metric("tollgate_overrides"), 1);
    replica.clock.advance_us(3_600_000_000);
    until_async("it has ended", async || {
        replica.metric("tollgate_overrides") == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_on_a_cluster_have_the_same_overrides() {
    let cluster = RedisCluster::start_masters(3);
    are_shared(&cluster.url());
}
