//! Checks at a modest rate, and their latency.
//!
//! Each of many callers sends a check, waits for its answer, and sleeps. Their rate hardly changes
//! when the service is slow for a moment, so that slow answers are not left out.
//!
//! What it deliberately does not do: load the service (`benches/wire`).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollgate_test_support::grpc_client::{RateLimitServiceClient, channel, descriptor, request};

/// Callers on each of the connections.
const CALLERS: u64 = 25;
const CONNECTIONS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Latencies, in µs.
pub(crate) struct Latency {
    pub(crate) checks: usize,
    pub(crate) p50: u128,
    pub(crate) p99: u128,
    pub(crate) p999: u128,
}

pub(crate) fn run(grpc: SocketAddr, time: Duration) -> Latency {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut latencies: Vec<u128> = runtime.block_on(async {
        let until = Instant::now() + time;
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let client = RateLimitServiceClient::new(channel(grpc).await);
            for number in 0..CALLERS {
                let mut client = client.clone();
                callers.spawn(async move {
                    // Spread over the pause, and with pauses that do not stay in step.
                    sleep(PAUSE * u32::try_from(number).unwrap() / 25).await;
                    let mut latencies = Vec::new();
                    while Instant::now() < until {
                        let asked = request("edge", vec![descriptor(&[("path", "/items")])]);
                        let sent = Instant::now();
                        client.should_rate_limit(asked).await.unwrap();
                        latencies.push(sent.elapsed().as_micros());
                        sleep(PAUSE + Duration::from_micros(37 * number)).await;
                    }
                    latencies
                });
            }
        }
        callers.join_all().await.into_iter().flatten().collect()
    });
    latencies.sort_unstable();
    let at = |thousandths: usize| {
        latencies[(latencies.len() * thousandths / 1_000).min(latencies.len() - 1)]
    };
    Latency {
        checks: latencies.len(),
        p50: at(500),
        p99: at(990),
        p999: at(999),
    }
}
