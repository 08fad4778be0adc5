//! A tonic service whose calls are limited by the address of the client.

use tollgate_limits::Client;
use tollgate_limits::middleware::{RateLimit, RequestEntry};
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("TOLLGATE").unwrap_or_else(|_| "localhost:8081".to_owned());
    let port: u16 = std::env::var("PORT").as_deref().unwrap_or("8000").parse()?;

    let client = Client::builder("edge").address(address).build()?;
    let limit = RateLimit::builder(client)
        .descriptor([RequestEntry::remote_address("remote_address")])
        .peer_address(|request| request.extensions.get::<TcpConnectInfo>()?.remote_addr())
        .build()?;

    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(limit.grpc_layer())
        .add_service(health)
        .serve(([127, 0, 0, 1], port).into())
        .await?;
    Ok(())
}
