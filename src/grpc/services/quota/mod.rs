//! `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`: proxies report what they let pass,
//! and are assigned what they may.
//!
//! What Envoy 1.40 does, and this service allows for: a first report measures no time; an empty
//! list is a report; the domain is in every message, though the first would do; only token buckets
//! and blanket rules are obeyed, with intervals and times to live of whole seconds.
//!
//! A connection's thread moves the bytes of a stream; all else happens on threads of quotas.
//!
//! What it deliberately does not do: apportion (`quota`).

mod exchange;

use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::metadata::MetadataMap;
use tonic::server::StreamingService;
use tonic::{Request, Response, Status, Streaming};

use self::exchange::{Assignments, Exchange};
use super::bytes_codec::add_streaming;
use crate::grpc::service::{GrpcService, StreamingMethod};
use crate::quota::registry::QuotaRegistry;

/// The header of a stream's initial metadata with its weight.
const WEIGHT_HEADER: &str = "tollgate-quota-weight";

/// The largest weight.
const WEIGHT_MAX: u32 = 1_000;

/// Encoded messages that wait for a connection. The others wait in the registry.
const ENCODED_WAITING_MAX: usize = 1;

const METHOD: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// Envoy's quota service.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: &[StreamingMethod {
        path: METHOD,
        requests_stream: true,
    }],
    add: |routes, context| {
        let quotas = Quotas {
            registry: Arc::clone(context.quotas),
            thread: context.quota_thread.cloned(),
        };
        let message_size_max = context.parts.settings.message_size_max;
        let router = routes.into_axum_router();
        Ok(add_streaming(router, METHOD, quotas, message_size_max).into())
    },
};

/// The service. It is written out, since the generated one would encode messages on the
/// connection's thread.
#[derive(Clone)]
struct Quotas {
    registry: Arc<QuotaRegistry>,
    /// Where exchanges run; without it where the call does.
    thread: Option<Handle>,
}

fn weight_of(metadata: &MetadataMap) -> Result<u32, Status> {
    let Some(value) = metadata.get(WEIGHT_HEADER) else {
        return Ok(1);
    };
    let weight = value.to_str().ok().and_then(|text| text.parse().ok());
    weight
        .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
        .ok_or_else(|| {
            Status::invalid_argument(format!(
                "{WEIGHT_HEADER} is not a whole number from 1 to {WEIGHT_MAX}"
            ))
        })
}

// === impl Quotas ===

impl Quotas {
    /// Opens a stream.
    fn open(&self, request: Request<Streaming<Bytes>>) -> Result<Assignments, Status> {
        let weight = weight_of(request.metadata())?;
        let (stream, messages) = self.registry.open(weight);
        let (to_connection, encoded) = mpsc::channel(ENCODED_WAITING_MAX);
        let last_status = Arc::new(OnceLock::new());
        let exchange = Exchange {
            registry: Arc::clone(&self.registry),
            stream,
            reports: request.into_inner(),
            rest: None,
            messages,
            encoded: to_connection,
            last_status: Arc::clone(&last_status),
        };
        match &self.thread {
            Some(thread) => drop(thread.spawn(exchange.run())),
            None => drop(tokio::spawn(exchange.run())),
        }
        Ok(Assignments {
            registry: Arc::clone(&self.registry),
            stream,
            encoded,
            last_status,
            handed_over_ms: None,
            ended: false,
        })
    }
}

impl StreamingService<Bytes> for Quotas {
    type Response = Bytes;
    type ResponseStream = Assignments;
    type Future = Ready<Result<Response<Assignments>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        ready(self.open(request).map(Response::new))
    }
}
