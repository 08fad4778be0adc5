//! Requests and responses converted by prost, to which tests compare the decoder and the encoder.
//! Only tests and fuzz targets are built with this file.

#![cfg_attr(not(test), allow(dead_code))] // fuzz targets only decode

use tollgate_limiter::{Decision, Entry, Request, Status};

use crate::pipeline::RequestPolicy;
use crate::pipeline::message::{
    OverrideFields, StatusFields, code_number, has_explicit_hits, hits,
};
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as descriptor;
use tollgate_wire::proto::envoy::service::ratelimit::v3 as rls;
use tollgate_wire::proto::envoy::service::ratelimit::v3::rate_limit_response as response;

/// The request that the decoder must make of this message.
pub(super) fn decode(request: &rls::RateLimitRequest, policy: RequestPolicy) -> Request<'_> {
    let mut decoded = Request::new(&request.domain);
    for descriptor in &request.descriptors {
        let entries = descriptor.entries.iter().map(|entry| Entry {
            key: &entry.key,
            value: &entry.value,
        });
        let (own, negative) = (descriptor.hits_addend, descriptor.is_negative_hits);
        let hits = hits(request.hits_addend, own, negative, policy);
        let limit = descriptor
            .limit
            .as_ref()
            .map(|limit| OverrideFields::from(limit).under(policy));
        decoded.push_descriptor(entries, hits, limit);
        let addend = request.hits_addend;
        if has_explicit_hits(addend, own, negative) {
            decoded.set_explicit_hits();
        }
    }
    decoded
}

/// The response that the encoder must write, except for fields that only some responses have.
pub(crate) fn encode(decision: &Decision<'_>) -> rls::RateLimitResponse {
    rls::RateLimitResponse {
        overall_code: code_number(decision.code).into(),
        statuses: decision.statuses.iter().map(status).collect(),
        ..Default::default()
    }
}

fn status(status: &Status<'_>) -> response::DescriptorStatus {
    let fields = StatusFields::of(status);
    response::DescriptorStatus {
        code: fields.code.into(),
        current_limit: fields.limit.map(|limit| response::RateLimit {
            name: limit.name.to_owned(),
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit.into(),
            unit_multiplier: limit.unit_multiplier,
        }),
        limit_remaining: fields.remaining,
        duration_until_reset: fields.until_seconds.map(|seconds| prost_types::Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }),
        quota: None,
    }
}

impl From<&descriptor::RateLimitOverride> for OverrideFields {
    fn from(limit: &descriptor::RateLimitOverride) -> Self {
        Self {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
            unit_multiplier: limit.unit_multiplier,
            burst: None,
        }
    }
}
