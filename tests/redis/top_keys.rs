//! Top keys with a shared store: each replica counts what it decided itself, also from its denial
//! cache and from leases.

use tollgate::admin_api::RankBy;
use tollgate::top_keys::TopQuery;
use tollgate_test_support::grpc_client::descriptor;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::redis_server::RedisServer;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 3 }
";

#[tokio::test]
async fn each_replica_counts_what_it_decided() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    for mode in ["exact", "leased"] {
        let arguments = [
            "--store",
            &url,
            "--store-mode",
            mode,
            "--store-deadline-ms",
            "20000",
            "--top-keys",
            "plain",
        ];
        let mut replicas = [
            Service::start(RULES, &arguments).await,
            Service::start(RULES, &arguments).await,
        ];
        for (replica, requests) in replicas.iter_mut().zip([6, 2]) {
            for _ in 0..requests {
                let status = descriptor(&[("k", mode)]);
                replica.status("d", status).await;
            }
        }
        // The first took all hits; the others were refused, most of them without Redis.
        for (replica, counts) in replicas.iter().zip([(6, 3), (2, 2)]) {
            let query = TopQuery {
                by: RankBy::Refused,
                n: 10,
                ..TopQuery::default()
            };
            let top = replica.top(&query).await;
            let keys: Vec<_> = top
                .keys
                .iter()
                .map(|key| (key.asked, key.refused))
                .collect();
            assert_eq!(keys, [counts], "{mode}");
            assert_eq!(top.keys[0].descriptor[0].value, mode);
        }
    }
}
