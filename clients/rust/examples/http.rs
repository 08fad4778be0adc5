//! An axum service whose requests are limited by the address of the client.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_limits::Client;
use tollgate_limits::middleware::{RateLimit, RequestEntry};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("TOLLGATE").unwrap_or_else(|_| "localhost:8081".to_owned());
    let port: u16 = std::env::var("PORT").as_deref().unwrap_or("8000").parse()?;

    let client = Client::builder("edge").address(address).build()?;
    let limit = RateLimit::builder(client)
        .descriptor([RequestEntry::remote_address("remote_address")])
        .peer_address(|request| {
            request
                .extensions
                .get::<ConnectInfo<SocketAddr>>()
                .map(|info| info.0)
        })
        .skip_paths(["/healthz"])
        .build()?;

    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/healthz", get(|| async { "ok" }))
        .layer(limit.http_layer())
        .into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(TcpListener::bind(("127.0.0.1", port)).await?, app).await?;
    Ok(())
}
