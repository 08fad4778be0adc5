//! Decisions that the denial cache made, and not Redis.

use serde_json::Value;

use super::{Code, RULES, RedisServer, ask, client, http, replica};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_from_the_denial_cache_says_so() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let rules = RULES.replace("1000", "1");
    let tollgate = replica(&rules, &["--store", &url, "--top-keys", "plain"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    // The second asks Redis; the third is answered by the cache.
    for _ in 0..2 {
        assert_eq!(ask(&mut client, "a").await, Ok(Code::OverLimit));
    }
    let answered = tollgate.metric("tollgate_store_over_limit_cache_answers_total");
    let (_, page) = http(tollgate.admin, "GET", "/decisions?key=k%3Da", "");
    let page: Value = serde_json::from_str(&page).expect(&page);
    let decisions = page["decisions"].as_array().unwrap();
    let reasons: Vec<_> = decisions.iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["over_limit_cache", "over_limit", "within_limit"]);
    assert_eq!(answered, 1);
}
