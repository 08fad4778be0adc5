//! `kuadrant.service.ratelimit.v1.RateLimitService`: look before a request, charge after it, or
//! reserve and commit.
//!
//! What it deliberately does not do: read Kuadrant's limits. Rules are tollgate's.

use std::sync::Arc;

use prost::Message as _;
use tollgate_limiter::{Code, Otherwise, Request as LimiterRequest};
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use super::api_call::{Caller, api_status, field_status, internal, invalid_field};
use crate::api_calls::{expiry_ms, limiter_request};
use crate::grpc::service::GrpcService;
use crate::pipeline::{
    API_HITS_MAX, ApiAnswer, ApiRequest, ApiStep, Pipeline, RESERVATION_ID_BYTES_MAX,
    new_reservation_id,
};
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code as EnvoyCode;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::proto::kuadrant::service::ratelimit::v1 as proto;
use crate::proto::kuadrant::service::ratelimit::v1::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};

/// Kuadrant's RPCs.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: &[],
    add: |routes, context| {
        let server = RateLimitServiceServer::new(KuadrantCalls(Arc::clone(context.parts.pipeline)))
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(context.parts.settings.message_size_max);
        Ok(routes.add_service(server))
    },
};

/// The service over the pipeline.
struct KuadrantCalls(Arc<Pipeline>);

/// A request with so many hits for each descriptor, by those of its own.
fn envoy_request<'c>(
    domain: &'c [u8],
    descriptors: &'c [RateLimitDescriptor],
    hits: impl Fn(Option<u64>) -> u64,
) -> LimiterRequest<'c> {
    let descriptors = descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| (&*entry.key, &*entry.value));
        (hits(descriptor.hits_addend), entries)
    });
    limiter_request(domain, descriptors)
}

/// Refuses an amount beyond the bound by the name of its field.
fn require_amount(field: &str, amount: u64) -> Result<(), Status> {
    if amount > API_HITS_MAX {
        let why = format!("is more than {API_HITS_MAX}; send less at once");
        return Err(invalid_field(field, &why));
    }
    Ok(())
}

fn envoy_response(answer: ApiAnswer) -> Result<Response<RateLimitResponse>, Status> {
    let encoded = answer
        .response
        .ok_or_else(|| internal("the answer has no message"))?;
    RateLimitResponse::decode(&*encoded)
        .map(Response::new)
        .map_err(|error| internal(error.to_string()))
}

// === impl KuadrantCalls ===

impl KuadrantCalls {
    /// Carries out a call with this caller.
    async fn call(
        &self,
        request: LimiterRequest<'_>,
        step: ApiStep,
        id: &str,
        caller: Caller,
    ) -> Result<ApiAnswer, Status> {
        let call = ApiRequest {
            request,
            operation: step,
            id,
            deadline: caller.deadline,
            parent: caller.parent,
        };
        let answered = caller.within(&self.0, async {
            let answered = self.0.call_api(call).await;
            answered.map_err(|error| api_status(error, ""))
        });
        answered.await
    }

    /// A call in Envoy's messages.
    async fn envoy_call(
        &self,
        request: Request<RateLimitRequest>,
        step: ApiStep,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let caller = Caller::of(request.metadata(), &self.0);
        let call = request.get_ref();
        let of_request = u64::from(call.hits_addend.max(1));
        let request = envoy_request(&call.domain, &call.descriptors, |own| match step {
            ApiStep::Report => own.unwrap_or(of_request).max(1),
            _ => own.unwrap_or(of_request),
        });
        envoy_response(self.call(request, step, "", caller).await?)
    }
}

#[tonic::async_trait]
impl RateLimitService for KuadrantCalls {
    async fn check_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.envoy_call(request, ApiStep::Peek).await
    }

    async fn report(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.envoy_call(request, ApiStep::Report).await
    }

    async fn reserve(
        &self,
        request: Request<proto::ReserveRequest>,
    ) -> Result<Response<proto::ReserveResponse>, Status> {
        let caller = Caller::of(request.metadata(), &self.0);
        let call = request.get_ref();
        require_amount("amount", call.amount)?;
        let ttl = call.ttl.as_ref();
        let ttl = ttl.filter(|ttl| (ttl.seconds, ttl.nanos) != (0, 0));
        let expires_ms = ttl.map(expiry_ms).transpose();
        let expires_ms = expires_ms.map_err(|fault| field_status(fault.at("ttl")))?;
        let id = new_reservation_id().map_err(internal)?;
        let step = ApiStep::Reserve {
            expires_ms,
            on_expiry: None,
            uses_rule_amount: false,
        };
        let limits = envoy_request(&call.domain, &call.descriptors, |_| call.amount);
        let answer = self.call(limits, step, &id, caller).await?;
        let (code, reservation_id) = match answer.verdict {
            Code::Ok => (EnvoyCode::Ok, id),
            Code::OverLimit => (EnvoyCode::OverLimit, String::new()),
        };
        Ok(Response::new(proto::ReserveResponse {
            code: code.into(),
            reservation_id,
        }))
    }

    async fn commit(
        &self,
        request: Request<proto::CommitRequest>,
    ) -> Result<Response<proto::CommitResponse>, Status> {
        let caller = Caller::of(request.metadata(), &self.0);
        let call = request.get_ref();
        require_amount("actual_amount", call.actual_amount)?;
        if call.reservation_id.len() > RESERVATION_ID_BYTES_MAX {
            let why = format!(
                "is longer than {RESERVATION_ID_BYTES_MAX} bytes; send the id of the reservation"
            );
            return Err(invalid_field("reservation_id", &why));
        }
        let otherwise = Otherwise::ChargeOnce;
        let step = ApiStep::Commit { otherwise };
        let limits = envoy_request(&call.domain, &call.descriptors, |_| call.actual_amount);
        self.call(limits, step, &call.reservation_id, caller)
            .await?;
        Ok(Response::new(proto::CommitResponse {}))
    }
}
