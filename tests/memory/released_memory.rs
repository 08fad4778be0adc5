//! Memory is returned to the system soon after a flood or a reload.
//!
//! How: the anonymous resident memory (`RssAnon`) of the real binary before, during and after.
//! `MEMORY_CROWD` multiplies the size of each flood: 1 by default, 4 in `make test-memory`.
//!
//! What it deliberately does not do: find out who holds the memory. A lasting rise is a failure,
//! whether tollgate or its allocator keeps it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use tollgate_test_support::polling::until_async;

use super::*;

const MIB: u64 = 1 << 20;

/// Smallest rise that is meaningful.
const RISES_BYTES_MIN: u64 = 16 * MIB;

/// A quarter of a rise may stay, and at least this much.
const STAYS_BYTES_MIN: u64 = 8 * MIB;

/// The slots of `short` expire after a flood has ended.
const RULES: &str = "
domain: memory
descriptors:
  - key: ordinary
    rate_limit: { unit: year, requests_per_unit: 1000000 }
  - key: short
    rate_limit: { requests_per_unit: 10, algorithm: concurrency, slot_seconds: 20 }
";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const SETTINGS: u8 = 4;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn times() -> u64 {
    std::env::var("MEMORY_CROWD").map_or(1, |text| text.parse().unwrap())
}

fn frame(kind: u8, flags: u8, stream: u64, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    let stream = u32::try_from(stream).unwrap().to_be_bytes();
    [&head[..], &stream, payload].concat()
}

fn head(stream: u64, path: &str) -> Vec<u8> {
    // HEADERS of a POST over http, with literal header fields.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", path), ("content-type", "application/grpc")] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// Opens a connection with `streams` streams; `body` is sent on each.
fn connection(grpc: SocketAddr, streams: u64, path: &str, body: Option<&[u8]>) -> TcpStream {
    let mut stream = TcpStream::connect(grpc).unwrap();
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    for number in 0..streams {
        let id = number * 2 + 1;
        bytes.extend(head(id, path));
        if let Some(body) = body {
            bytes.extend(frame(DATA, END_STREAM, id, body));
        }
    }
    stream.write_all(&bytes).unwrap();
    stream
}

/// Runs `attack`, which must raise memory by [`RISES_BYTES_MIN`], and sends ordinary calls until it
/// is released after `end`. `is_over` says when the service has nothing of it any more.
async fn goes_back<T>(
    what: &str,
    running: &Tollgate,
    attack: impl AsyncFnOnce() -> T,
    end: impl FnOnce(T),
    is_over: impl Fn() -> bool,
) {
    let resident = || running.status_bytes("RssAnon");
    ask_for_each(running, "ordinary", 0..10_000).await;
    let before = resident();
    let made = attack().await;
    let most = resident();
    println!("{what}: {} MiB before, {} MiB", before / MIB, most / MIB);
    let rise = most.saturating_sub(before);
    assert!(
        rise > RISES_BYTES_MIN,
        "{what}: {rise} bytes more show nothing"
    );
    end(made);
    until_async("the service has forgotten it", async || {
        ask_for_each(running, "ordinary", 0..1_000).await;
        is_over()
    })
    .await;
    let may_stay = before + (rise / 4).max(STAYS_BYTES_MIN);
    until_async("the memory is released", async || {
        ask_for_each(running, "ordinary", 0..1_000).await;
        let now = resident();
        if now <= may_stay {
            println!("{what}: {} MiB again", now / MIB);
            Ok(())
        } else {
            Err(format!("{} MiB", now / MIB))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_many_streams_is_released() {
    let bounds = [
        "--streaming-calls-per-connection-max",
        "4096",
        "--streaming-calls-max",
        "1000000",
    ];
    let running = Tollgate::start(RULES, &bounds);
    let (connections, streams) = (10, (1_000 * times()).min(4_096));
    for (path, body) in [(REFLECTION, None), (WATCH, Some([0; 5].as_slice()))] {
        let attack = async || {
            let clients: Vec<_> = (0..connections)
                .map(|_| connection(running.grpc, streams, path, body))
                .collect();
            let open = || running.metric("tollgate_streaming_calls");
            until("all streams are open", || match open() {
                open if open == connections * streams => Ok(()),
                open => Err(open),
            });
            clients
        };
        let is_over = || running.metric("tollgate_streaming_calls") == 0;
        goes_back(path, &running, attack, drop, is_over).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_many_connections_is_released() {
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    // The calls stay incomplete, and nobody answers a ping.
    let patient = ["--body-wait", "1h", "--keepalive-interval", "1h"];
    let running = Tollgate::start(RULES, &patient);
    let count = (5_000 * times()).min(15_000);
    let attack = async || {
        // Each has an incomplete call, so it holds what a busy connection holds.
        let clients: Vec<_> = (0..count)
            .map(|_| {
                let mut stream = connection(running.grpc, 1, CALL, None);
                let half = [&[0, 0, 0, 16, 0][..], &[0; 1_000]].concat();
                stream.write_all(&frame(DATA, 0, 1, &half)).unwrap();
                stream
            })
            .collect();
        let open = || running.metric("tollgate_connections{port=\"grpc\"}");
        until("all connections are open", || match open() {
            open if open >= count => Ok(()),
            open => Err(open),
        });
        clients
    };
    let is_over = || running.metric("tollgate_connections{port=\"grpc\"}") < count;
    goes_back("connections", &running, attack, drop, is_over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_large_rules_is_released_on_reload() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    std::fs::write(&file, RULES).unwrap();
    let running = Tollgate::start_at(&file, &[]);
    // Long lists and few rules, since the metrics of each rule are kept for a while.
    let mut large = RULES.to_owned();
    for rule in 0..20 * times() {
        let values: Vec<_> = (0..5_000).map(|number| format!("value{number}")).collect();
        let values = values.join(", ");
        writeln!(
            large,
            "  - key: large{rule}\n    values: [{values}]\n    rate_limit: {{ unit: year, requests_per_unit: 1 }}"
        )
        .unwrap();
    }
    let replace = |rules: &str| {
        let loaded = || running.metric("ratelimit_service_config_load_success");
        let before = loaded();
        let next = directory.path().join("next");
        std::fs::write(&next, rules).unwrap();
        std::fs::rename(&next, &file).unwrap();
        until("the rules are loaded", || loaded() > before);
    };
    let attack = async || replace(&large);
    let end = |()| replace(RULES);
    goes_back("large rules", &running, attack, end, || true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_expired_keys_is_released() {
    let running = Tollgate::start(RULES, &["--memory-max", "1GiB"]);
    let keys = 100_000 * times();
    let attack = async || ask_for_each(&running, "short", 0..keys).await;
    let is_over = || running.metric_sum("tollgate_buckets{") < keys;
    goes_back("keys", &running, attack, drop, is_over).await;
}
