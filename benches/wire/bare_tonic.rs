//! Bare tonic service: decodes and encodes the same messages and decides nothing.
//!
//! Why: the cost of a check above it is tollgate's own; its cost above the static file is that of
//! tonic and protobuf. How: this program as a process of its own, with one thread per core.
//!
//! What it deliberately does not do: anything else that a service needs.

use tollgate::proto::envoy::service::ratelimit::v3 as rls;
use tonic::{Request, Response, Status};

use rls::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use rls::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};

/// Argument that starts this program as the bare service.
pub(crate) const ARGUMENT: &str = "bare-tonic";

struct Constant;

/// Serves on a free port until it is killed; the first line it prints is its address.
#[tokio::main]
pub(crate) async fn serve() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let incoming = tonic::transport::server::TcpIncoming::bind(any)
        .expect("a free port")
        .with_nodelay(Some(true));
    println!("{}", incoming.local_addr().expect("its address"));
    tonic::transport::Server::builder()
        .max_concurrent_streams(4_096) // as tollgate
        .add_service(RateLimitServiceServer::new(Constant))
        .serve_with_incoming(incoming)
        .await
        .expect("it serves");
}

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        request: Request<rls::RateLimitRequest>,
    ) -> Result<Response<rls::RateLimitResponse>, Status> {
        let statuses = request
            .get_ref()
            .descriptors
            .iter()
            .map(|_| DescriptorStatus {
                code: Code::Ok.into(),
                current_limit: Some(RateLimit {
                    requests_per_unit: u32::MAX,
                    unit: 6,
                    ..Default::default()
                }),
                limit_remaining: 4_000_000_000,
                duration_until_reset: Some(prost_types::Duration {
                    seconds: 10_000_000,
                    nanos: 0,
                }),
                quota: None,
            });
        Ok(Response::new(rls::RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: statuses.collect(),
            ..Default::default()
        }))
    }
}
