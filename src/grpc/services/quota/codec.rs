//! Messages on the wire: assignments are encoded before a connection asks for them, and reports are
//! decoded when it is their turn.
//!
//! What it deliberately does not do: decide when they are sent (`exchange`), or decode a report
//! (`waiting_report`).

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;
use prost_types::Duration;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

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

/// Messages are received as bytes, and sent as bytes.
#[derive(Debug, Default)]
pub(super) struct QuotaCodec;

/// Copies an encoded message.
#[derive(Debug)]
pub(super) struct EncodedMessages;

/// Takes the bytes of a message.
#[derive(Debug)]
pub(super) struct WaitingMessages;

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

// === impl QuotaCodec ===

impl Codec for QuotaCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = EncodedMessages;
    type Decoder = WaitingMessages;

    fn encoder(&mut self) -> EncodedMessages {
        EncodedMessages
    }

    fn decoder(&mut self) -> WaitingMessages {
        WaitingMessages
    }
}

// === impl EncodedMessages ===

impl Encoder for EncodedMessages {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(message);
        Ok(())
    }
}

// === impl WaitingMessages ===

impl Decoder for WaitingMessages {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
