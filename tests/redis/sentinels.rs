//! Sentinels name the primary: a real one after a primary has died, and one of the test that names
//! another while the old primary still accepts writes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::follow;

use super::cluster_proxy::read_command;
use super::{ask, buckets, left, passes, shared};

/// A sentinel that names the server at this port. It ends with the test's runtime.
pub(super) async fn sentinel_of(primary: &Arc<AtomicU16>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let primary = Arc::clone(primary);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let primary = Arc::clone(&primary);
            tokio::spawn(async move {
                let mut client = BufReader::new(stream);
                while let Some(words) = read_command(&mut client).await {
                    let port = primary.load(Ordering::Relaxed);
                    let reply = match words[0].as_slice() {
                        b"SENTINEL" => format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{port:05}\r\n"),
                        _ => "+OK\r\n".to_owned(),
                    };
                    if client.get_mut().write_all(reply.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The old primary has not been demoted: nothing but the sentinel shows that there is another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_primary_is_used_as_soon_as_the_sentinel_names_it() {
    let servers = [0; 2].map(|_| RedisServer::start(&[]));
    let primary = Arc::new(AtomicU16::new(servers[0].port()));
    let sentinel = sentinel_of(&primary).await;
    let (tollgate, mut client) = shared(&format!("redis+sentinel://{sentinel}/main"), &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert_eq!(buckets(&servers[0]).len(), 1);
    primary.store(servers[1].port(), Ordering::Relaxed);
    until_async("the new primary counts", async || {
        // The request that finds the change may have an unknown outcome.
        let _ = ask(&mut client, "a").await;
        !buckets(&servers[1]).is_empty()
    })
    .await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert!(tollgate.metric("tollgate_store_connections_total") > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_give_the_primary_before_and_after_a_failover() {
    let mut first = RedisServer::start(&[]);
    let second = RedisServer::start(&["--repl-diskless-sync-delay", "0"]);
    let port = first.port().to_string();
    let _: redis::Value = second.say(&["REPLICAOF", "127.0.0.1", &port]);
    let sentinel = RedisServer::sentinel("main", first.port());
    let down_after = |ms: &str| {
        let words = ["SENTINEL", "SET", "main", "down-after-milliseconds", ms];
        let _: redis::Value = sentinel.say(&words);
    };
    let url = format!(
        "redis+sentinel://127.0.0.1:1,127.0.0.1:{}/main",
        sentinel.port()
    );
    let (_tollgate, mut client) = shared(&url, &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    until("the sentinel knows the replica", || {
        let known: Vec<Vec<redis::Value>> = sentinel.say(&["SENTINEL", "REPLICAS", "main"]);
        !known.is_empty()
    });
    follow(&first);
    first.kill();
    // Until here it was a minute, so that a busy primary was not taken for dead.
    down_after("2000");
    passes(&mut client, "a").await;
    let role: Vec<redis::Value> = second.say(&["ROLE"]);
    assert_eq!(role[0], redis::Value::BulkString(b"master".to_vec()));
    // Earlier counts are kept.
    assert!(left(&mut client, "a").await <= 998);
}
