//! Assignments on the wire: they are encoded before a connection asks for them.
//!
//! What it deliberately does not do: decide when they are sent (`exchange`), or decode a report
//! (`waiting_report`).

use bytes::Bytes;
use prost::Message as _;
use prost_types::Duration;

use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy as WireStrategy};
use crate::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use crate::proto::envoy::service::rate_limit_quota::v3::bucket_id::BucketEntry;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Kind, QuotaAssignmentAction,
};
use crate::proto::envoy::service::rate_limit_quota::v3::{BucketId, RateLimitQuotaResponse};
use crate::quota::registry::{Outgoing, ProxyAction};
use crate::quota::share::Strategy;

/// The message with these actions, encoded.
pub(super) fn encode(actions: &[Outgoing], ttl_seconds: u32) -> Bytes {
    let actions = actions
        .iter()
        .map(|action| wire_action(action, ttl_seconds));
    let message = RateLimitQuotaResponse {
        bucket_action: actions.collect(),
    };
    message.encode_to_vec().into()
}

fn seconds(seconds: u32) -> Duration {
    Duration {
        seconds: i64::from(seconds),
        nanos: 0,
    }
}

fn wire_action(outgoing: &Outgoing, ttl_seconds: u32) -> BucketAction {
    let strategy = match outgoing.action {
        ProxyAction::Abandon => None,
        ProxyAction::AllowAll => Some(WireStrategy::BlanketRule(BlanketRule::AllowAll.into())),
        ProxyAction::Assign(Strategy::Deny) => {
            Some(WireStrategy::BlanketRule(BlanketRule::DenyAll.into()))
        }
        ProxyAction::Assign(Strategy::Bucket(bucket)) => {
            Some(WireStrategy::TokenBucket(TokenBucket {
                max_tokens: bucket.tokens_max,
                tokens_per_fill: Some(bucket.tokens_per_fill),
                fill_interval: Some(seconds(bucket.fill_seconds)),
            }))
        }
    };
    let action = match strategy {
        None => Kind::AbandonAction(AbandonAction {}),
        Some(strategy) => Kind::QuotaAssignmentAction(QuotaAssignmentAction {
            assignment_time_to_live: Some(seconds(ttl_seconds)),
            rate_limit_strategy: Some(RateLimitStrategy {
                strategy: Some(strategy),
            }),
        }),
    };
    let pairs = outgoing.id.iter().map(|(key, value)| BucketEntry {
        key: key.clone(),
        value: value.clone(),
    });
    BucketAction {
        bucket_id: Some(BucketId {
            bucket: pairs.collect(),
        }),
        bucket_action: Some(action),
    }
}
