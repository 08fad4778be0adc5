//! A penalty on a real Redis, among replicas in both modes: every refusal reaches it, whatever the
//! denial cache and leases know, and a reset ends it.

use serde_json::Value;
use tollgate_test_support::grpc_client::descriptor;

use super::{Code, RedisServer, http, in_process};

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 1, penalty: { after: 3, within: 1h, block: 2h } }
";

async fn two_replicas_block_a_key(more: &[&str]) {
    let redis = RedisServer::start(&[]);
    let more: Vec<&str> = [&["--top-keys", "plain"], more].concat();
    let mut replicas = [
        in_process(RULES, &redis, &more).await,
        in_process(RULES, &redis, &more).await,
    ];
    let mut answers = Vec::new();
    for number in 0..6 {
        for replica in &replicas {
            replica.clock.advance_us(1);
        }
        let status = replicas[number % 2].status("d", descriptor(&[("k", "a")]));
        answers.push(status.await);
    }
    let codes: Vec<_> = answers.iter().map(|answer| answer.code).collect();
    let mut expected = [i32::from(Code::OverLimit); 6];
    expected[0] = Code::Ok.into();
    assert_eq!(codes, expected);
    let reset = |number: usize| {
        answers[number]
            .duration_until_reset
            .as_ref()
            .unwrap()
            .seconds
    };
    // The window ends much later than the block, and says when the key may return.
    assert!((0..6).all(|number| reset(number) > 7_200));
    let reasons = |page: &str| -> Vec<Value> {
        let page: Value = serde_json::from_str(page).expect(page);
        let decisions = page["decisions"].as_array().unwrap().iter();
        decisions.map(|one| one["reason"].clone()).collect()
    };
    // The newest is first. The third refusal, on the second replica, begins the block.
    let (_, page) = http(replicas[0].admin, "GET", "/decisions?key=k%3Da", "");
    assert_eq!(reasons(&page), ["penalty", "over_limit", "within_limit"]);
    let (_, page) = http(replicas[1].admin, "GET", "/decisions?key=k%3Da", "");
    assert_eq!(reasons(&page), ["penalty", "penalty", "over_limit"]);

    let body = r#"{"domain": "d", "descriptor": [{"key": "k", "value": "a"}]}"#;
    let (code, page) = http(replicas[0].admin, "POST", "/reset", body);
    assert_eq!(code, 200, "{page}");
    let status = replicas[0].status("d", descriptor(&[("k", "a")])).await;
    assert_eq!(status.code, i32::from(Code::Ok));
    let status = replicas[0].status("d", descriptor(&[("k", "a")])).await;
    assert_eq!(status.code, i32::from(Code::OverLimit));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_count_refusals_together_and_a_reset_ends_the_block() {
    two_replicas_block_a_key(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_with_a_penalty_is_not_leased() {
    two_replicas_block_a_key(&["--store-mode", "leased"]).await;
}
