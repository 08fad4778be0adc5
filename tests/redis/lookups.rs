//! A slow name server: every kind of store is reached once it answers, and connections that are
//! open do not need it.

use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use tokio::sync::watch;
use tollgate::store::SharedSettings;
use tollgate::store_redis::{Lookup, RedisSetup, Resolver, Target};
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::RedisCluster;

use super::rate_leases::Replica;
use super::sentinels::sentinel_of;

/// A name server that knows every name as loopback, and answers while it is open.
#[derive(Debug)]
struct Gate(watch::Receiver<bool>);

impl Resolver for Gate {
    fn look_up(&self, _: String) -> Lookup {
        let mut open = self.0.clone();
        Box::pin(async move {
            open.wait_for(|open| *open).await.unwrap();
            Ok(vec![([127, 0, 0, 1], 0).into()])
        })
    }
}

fn store(url: &str, gate: &watch::Sender<bool>) -> Replica {
    Replica::start(&RedisSetup {
        target: Target::of_url(url).unwrap(),
        per_second: None,
        settings: SharedSettings {
            deadline: Duration::from_secs(20),
            lookup_timeout: Duration::from_secs(300),
            queue_bytes_max: 32 << 20,
            ..SharedSettings::default()
        },
        resolver: Arc::new(Gate(gate.subscribe())),
    })
}

async fn says(replica: &Replica, words: &str) {
    until_async(words, async || {
        let health = replica.store.health().unwrap();
        if health.message.contains(words) {
            Ok(())
        } else {
            Err(health)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_name_server_is_named_and_each_kind_of_store_is_reached_when_it_answers() {
    let redis = RedisServer::start(&[]);
    let cluster = RedisCluster::start_masters(1);
    let sentinel = sentinel_of(&Arc::new(AtomicU16::new(redis.port()))).await;
    let (single, sentinel, node) = (
        redis.port(),
        sentinel.port(),
        cluster.nodes[0].server.port(),
    );
    for url in [
        format!("redis://cache.test:{single}"),
        format!("redis+sentinel://one.test:{sentinel}/main"),
        format!("redis+cluster://node.test:{node}"),
    ] {
        let (gate, _) = watch::channel(false);
        let replica = store(&url, &gate);
        // The attempt to connect has ended, and the lookup has not.
        says(&replica, "its name was not looked up").await;
        says(&replica, "is in progress").await;
        gate.send_replace(true);
        replica.connect().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_connections_and_known_addresses_need_no_name_server() {
    let redis = RedisServer::start(&[]);
    let (gate, _) = watch::channel(true);
    let replica = store(&format!("redis://cache.test:{}", redis.port()), &gate);
    let replica = replica.connect().await;
    let made = || {
        let text = replica.metrics.render().unwrap();
        tollgate_test_support::metrics_text::series_value(&text, "tollgate_store_connections_total")
    };
    let before = made();
    gate.send_replace(false);
    assert!(replica.store.health().unwrap().healthy);
    let _: redis::Value = redis.say(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until_async("it is connected again", async || made() > before).await;
    replica.connect().await;
}
