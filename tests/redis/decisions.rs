//! Decisions that the denial cache made, and not Redis: for a bounded time, counted and shown.

use serde_json::Value;
use tollgate::top_keys::TopQuery;
use tollgate_test_support::grpc_client::descriptor;

use super::{Code, RULES, RedisServer, buckets, http, in_process};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_denial_cache_answers_for_a_bounded_time_and_says_so() {
    use Code::{Ok, OverLimit};
    let redis = RedisServer::start(&[]);
    let rules = RULES.replace("1000", "1");
    let mut service = in_process(&rules, &redis, &["--top-keys", "plain"]).await;
    let mut answers = Vec::new();
    // The second asks Redis; the third is answered by the cache.
    for us in [0, 1, 1] {
        service.clock.advance_us(us);
        answers.push(service.status("d", descriptor(&[("k", "a")])).await.code);
    }
    let (_, page) = http(service.admin, "GET", "/decisions?key=k%3Da", "");
    let page: Value = serde_json::from_str(&page).expect(&page);
    let decisions = page["decisions"].as_array().unwrap();
    let reasons: Vec<_> = decisions.iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["over_limit_cache", "over_limit", "within_limit"]);
    let query = TopQuery {
        n: 1,
        ..TopQuery::default()
    };
    let top = service.top(&query).await;
    assert_eq!((top.keys[0].asked, top.keys[0].refused), (3, 2));
    // The bucket is deleted, as if by another replica: this shows after a second.
    let deleted: i64 = redis.say(&["DEL", &buckets(&redis)[0]]);
    assert_eq!(deleted, 1);
    for us in [999_998, 1] {
        service.clock.advance_us(us);
        answers.push(service.status("d", descriptor(&[("k", "a")])).await.code);
    }
    let expected = [Ok, OverLimit, OverLimit, OverLimit, Ok];
    assert_eq!(answers, expected.map(i32::from));
    let cached = service.metric("tollgate_store_over_limit_cache_answers_total");
    assert_eq!(cached, 2);
}
