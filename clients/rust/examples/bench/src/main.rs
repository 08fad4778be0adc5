//! An HTTP server whose routes `/bare`, `/tollgate` and `/peer` answer `hello`: without a limiter,
//! limited by tollgate, and limited by tower-governor in memory.
//!
//! Environment: `PORT` (default: 8000), `TOLLGATE` (default: localhost:8081), `BATCHING` (`1` turns
//! batching on). `REDIS` is not used.

use std::error::Error;

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

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = variable("PORT", "8000").parse()?;
    let client = Client::builder("bench")
        .address(variable("TOLLGATE", "localhost:8081"))
        .denial_cache(0)
        .batching(variable("BATCHING", "0") == "1")
        .build()?;
    let tollgate = RateLimit::builder(client.clone())
        .descriptor([RequestEntry::value("generic_key", "bench")])
        .build()?;
    // A billion in a burst; one every 86 microseconds is a billion a day.
    let peer = GovernorConfigBuilder::default()
        .key_extractor(GlobalKeyExtractor)
        .per_nanosecond(86_400)
        .burst_size(1_000_000_000)
        .finish()
        .ok_or("the limits of tower-governor are invalid")?;

    let hello = || get(|| async { "hello" });
    let app = Router::new()
        .route("/bare", hello())
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
