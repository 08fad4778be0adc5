//! Replicas that share a quota: proxies of both replicas get a part of it. That the parts never
//! exceed the limit is proven where time is simulated (`crates/engine/src/quota/tests/simulation`).
//!
//! `make test-quota` does the same with real Envoys.

use tollgate_test_support::polling::until_async;
use tollgate_test_support::quota_client::{Id, QuotaStream};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{patient, replica};

// window: the rate of a quota. No hits are counted in windows.
const QUOTA: &str = "
domain: d
descriptors:
- key: name
  rate_limit: { unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true }
";

const ID: Id<'_> = &[("name", "api")];

/// The rate that a replica has assigned; 0 before there is a bucket.
fn assigned(tollgate: &Tollgate) -> f64 {
    let page = tollgate.get("/metrics");
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("tollgate_quota_assigned_per_second{"));
    let rate = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    rate.unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_one_quota() {
    let redis = RedisServer::start(&[]);
    // Leases grow at once only where no data was lost.
    redis.say::<String>(&["SET", "tg:{quota}:era", "00000000000000ffs"]);
    let url = redis.url();
    let replicas = [(); 2].map(|()| replica(QUOTA, &patient(&url, &[])));
    let mut streams = Vec::new();
    for replica in &replicas {
        streams.push(QuotaStream::open(replica.grpc).await);
    }
    let mut looks = 0;
    until_async("both replicas have a fair part", async || {
        // More than the limit at each of them, however seldom a busy machine gets here.
        if looks % 50 == 0 {
            for stream in &streams {
                stream.report("d", &[(ID, 4_000, 4_000)]).await;
            }
        }
        looks += 1;
        let assigned = replicas.each_ref().map(assigned);
        if assigned.iter().all(|rate| *rate > 130.0) {
            Ok(())
        } else {
            Err(assigned)
        }
    })
    .await;
    for replica in &replicas {
        let answered = "tollgate_quota_lease_requests_total{result=\"answered\"}";
        assert!(replica.metric(answered) > 0, "{}", replica.said());
    }
}
