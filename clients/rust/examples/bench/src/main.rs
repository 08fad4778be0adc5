//! An HTTP server whose routes `/bare`, `/headers`, `/tollgate` and `/peer` answer `hello`: without a
//! limiter, with the headers of one that are constants, limited by tollgate, and limited by
//! tower-governor in memory.
//!
//! Environment: `PORT` (default: 8000), `TOLLGATE` (default: localhost:8081), `BATCHING` (`1` turns
//! batching on), `LEASES` (`1` turns leases on), `KEYS` (number of keys, of which a request has one;
//! default: 1; not of tower-governor). `REDIS` is not used.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_limits::Client;
use tollgate_limits::middleware::{RateLimit, RequestEntry};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::GlobalKeyExtractor;

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// One of so many keys, spread by a multiplicative hash of the number of the request.
fn key_of(request: u64, keys: u64) -> String {
    let spread = request.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (spread % keys).to_string()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = variable("PORT", "8000").parse()?;
    let client = Client::builder("bench")
        .address(variable("TOLLGATE", "localhost:8081"))
        .denial_cache(0)
        .batching(variable("BATCHING", "0") == "1")
        .leases(variable("LEASES", "0") == "1")
        .build()?;
    let keys: u64 = variable("KEYS", "1").parse()?;
    let requests = AtomicU64::new(0);
    let key = move |_: &_| Some(key_of(requests.fetch_add(1, Ordering::Relaxed), keys));
    let tollgate = RateLimit::builder(client.clone())
        .descriptor([RequestEntry::function("key", key)])
        .build()?;
    // A billion in a burst; one every 86 microseconds is a billion a day.
    let peer = GovernorConfigBuilder::default()
        .key_extractor(GlobalKeyExtractor)
        .per_nanosecond(86_400)
        .burst_size(1_000_000_000)
        .finish()
        .ok_or("the limits of tower-governor are invalid")?;

    let hello = || get(|| async { "hello" });
    let headers = || async {
        let names = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
        (names.map(|name| (name, "1000000000")), "hello")
    };
    let app = Router::new()
        .route("/bare", hello())
        .route("/headers", get(headers))
        .route("/tollgate", hello().layer(tollgate.http_layer()))
        .route("/peer", hello().layer(GovernorLayer::new(peer)));

    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on {}", listener.local_addr()?);
    tokio::select! {
        served = async { axum::serve(listener, app).await } => served?,
        _ = terminate.recv() => {}
    }
    client.close().await;
    Ok(())
}
