//! Overrides of replicas on one Redis: set on one, in force on the other; a bound of all replicas;
//! a Redis that loses its data; a cluster.

use serde_json::{Value, json};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::RedisCluster;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{patient, replica};

const RULES: &str = "
domain: d
descriptors:
- key: user
  rate_limit: { unit: year, requests_per_unit: 1 }
";

fn put(replica: &Tollgate, value: &str, what: &Value) -> u16 {
    let mut body = json!({
        "domain": "d", "descriptor": [{"key": "user", "value": value}], "for_seconds": 3600,
    });
    for (name, value) in what.as_object().unwrap() {
        body[name] = value.clone();
    }
    http(replica.admin, "PUT", "/overrides", &body.to_string()).0
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

/// Sets, changes and ends overrides on two replicas. Both have them, and one that starts later.
fn are_shared(url: &str) {
    let [one, other] = [(); 2].map(|()| replica(RULES, &patient(url, &["--overrides-max", "3"])));
    assert_eq!(put(&one, "a", &json!({"unlimited": true})), 200);
    assert_eq!(put(&one, "b", &json!({"blocked": true})), 200);
    assert_eq!(overridden(&one), ["a", "b"], "at once");
    until_overridden(&other, &["a", "b"]);
    assert_eq!(put(&other, "c", &json!({"blocked": true})), 200);
    until_overridden(&one, &["a", "b", "c"]);
    // The bound is that of all of them together.
    for replica in [&one, &other] {
        assert_eq!(put(replica, "d", &json!({"blocked": true})), 409);
    }
    assert_eq!(
        put(&other, "a", &json!({"blocked": true, "for_seconds": 7200})),
        200
    );
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
    assert_eq!(
        put(&one, "c", &json!({"blocked": true, "for_seconds": 1})),
        200
    );
    until("the store has one override", || {
        let left: u64 = redis.say(&["HLEN", "tg:{quota}:records"]);
        if left == 1 { Ok(()) } else { Err(left) }
    });
    until_overridden(&one, &["a"]);
    // While it does not answer, those that are known stay. Without its data, none is left.
    redis.kill();
    assert_eq!(put(&one, "e", &json!({"blocked": true})), 503);
    assert_eq!(overridden(&one), ["a"]);
    redis.start_again();
    let flushed: String = redis.say(&["FLUSHALL"]);
    assert_eq!(flushed, "OK");
    until_overridden(&one, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_on_a_cluster_have_the_same_overrides() {
    let cluster = RedisCluster::start_masters(3);
    are_shared(&cluster.url());
}
