//! An HTTP service whose requests tollgate limits.
//!
//! Environment: `PORT` (default: 8000), `TOLLGATE` (default: localhost:8081), `ON_ERROR` (allow, deny
//! or local; default: allow), `DEADLINE_MS` (default: 100).

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_limits::middleware::{RateLimit, RequestEntry};
use tollgate_limits::{Client, Decision, OnError, Source};

const SOURCES: [Source; 6] = [
    Source::Server,
    Source::Lease,
    Source::Cache,
    Source::Local,
    Source::Allow,
    Source::Deny,
];

/// Decisions since the start.
#[derive(Default)]
struct Stats {
    checks: AtomicU64,
    late: AtomicU64,
    sources: [AtomicU64; SOURCES.len()],
}

impl Stats {
    fn count(&self, decision: &Decision, latest: Duration) {
        self.checks.fetch_add(1, Ordering::Relaxed);
        if decision.elapsed > latest {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        for (source, count) in SOURCES.iter().zip(&self.sources) {
            if *source == decision.source {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn json(&self) -> Value {
        let counts = SOURCES.iter().zip(&self.sources);
        let sources: serde_json::Map<_, _> = counts
            .map(|(source, count)| (source.as_str().into(), count.load(Ordering::Relaxed).into()))
            .collect();
        json!({
            "checks": self.checks.load(Ordering::Relaxed),
            "late": self.late.load(Ordering::Relaxed),
            "sources": sources,
            "tasks": tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        })
    }
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = variable("PORT", "8000").parse()?;
    let deadline = Duration::from_millis(variable("DEADLINE_MS", "100").parse()?);
    let on_error = match variable("ON_ERROR", "allow").as_str() {
        "allow" => OnError::Allow,
        "deny" => OnError::Deny,
        "local" => OnError::Local,
        other => return Err(format!("ON_ERROR is {other:?}; set allow, deny or local").into()),
    };
    let client = Client::builder("demo")
        .address(variable("TOLLGATE", "localhost:8081"))
        .deadline(deadline)
        .on_error(on_error)
        .build()?;
    let stats = Arc::new(Stats::default());
    let counted = Arc::clone(&stats);
    let limit = RateLimit::builder(client.clone())
        .descriptor([RequestEntry::value("generic_key", "demo")])
        .skip_paths(["/healthz", "/stats"])
        .on_decision(move |_, decision| {
            counted.count(decision, deadline + Duration::from_millis(100));
        })
        .build()?;
    let app = Router::new()
        .route("/", get(|| async { "hello from rust" }))
        .route("/healthz", get(|| async { "ok" }))
        .route("/stats", get(move || async move { Json(stats.json()) }))
        .layer(limit.http_layer());

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
