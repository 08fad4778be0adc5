//! A call of the API as a recording has it: written when the call is captured, read by a replay.
//!
//! Why here: only one place knows what each step of a call means, for both directions.

use std::num::NonZeroU32;

use prost::Message as _;
use tollgate_limiter::{Hits, OnExpiry, Otherwise};

use super::{ApiCall, ApiStep};
use proto::api_call::{OnExpiry as ProtoOnExpiry, Operation, Otherwise as ProtoOtherwise};
use tollgate_wire::proto::tollgate::recording::v1 as proto;

impl ApiCall {
    /// What it asks, encoded. It is never empty.
    pub(in crate::pipeline) fn recorded(&self) -> Vec<u8> {
        let mut recorded = proto::ApiCall {
            operation: operation(self.step) as i32,
            reservation: self.id.clone(),
            peeked_hits: self.peeked.iter().map(|hits| hits.count()).collect(),
            ..proto::ApiCall::default()
        };
        match self.step {
            ApiStep::Reserve {
                expires_ms,
                on_expiry,
                uses_rule_amount,
            } => {
                recorded.expires_ms = expires_ms.map_or(0, NonZeroU32::get);
                recorded.on_expiry = match on_expiry {
                    None => ProtoOnExpiry::Default,
                    Some(OnExpiry::Charge) => ProtoOnExpiry::Charge,
                    Some(OnExpiry::Release) => ProtoOnExpiry::Released,
                } as i32;
                recorded.uses_rule_amount = uses_rule_amount;
            }
            ApiStep::Extend { expires_ms } => recorded.expires_ms = expires_ms.get(),
            ApiStep::Commit { otherwise } => {
                recorded.otherwise = match otherwise {
                    Otherwise::Unknown => ProtoOtherwise::Unknown,
                    Otherwise::Charge => ProtoOtherwise::ChargeInFull,
                    Otherwise::ChargeOnce => ProtoOtherwise::ChargeOnce,
                } as i32;
            }
            _ => {}
        }
        recorded.encode_to_vec()
    }
}

fn operation(step: ApiStep) -> Operation {
    match step {
        ApiStep::Check => Operation::Check,
        ApiStep::Peek => Operation::Peek,
        // A replay has no lease that told hits were taken by.
        ApiStep::Report | ApiStep::Told { refused: false } => Operation::Report,
        ApiStep::Reserve { .. } => Operation::Reserve,
        ApiStep::Extend { .. } => Operation::Extend,
        ApiStep::Commit { .. } => Operation::Commit,
        ApiStep::Release => Operation::Release,
        ApiStep::Told { refused: true } => Operation::ToldRefused,
    }
}

/// The call that a recording has. Fails on a call of a later version.
pub fn decode(call: &proto::ApiCall) -> Result<ApiCall, String> {
    let later = |what| format!("a later tollgate recorded it: its {what} is not known");
    let expires_ms = NonZeroU32::new(call.expires_ms);
    let operation = Operation::try_from(call.operation).map_err(|_| later("operation"))?;
    let step = match operation {
        Operation::Unspecified => return Err(later("operation")),
        Operation::Check => ApiStep::Check,
        Operation::Peek => ApiStep::Peek,
        Operation::Report => ApiStep::Report,
        Operation::Reserve => ApiStep::Reserve {
            expires_ms,
            on_expiry: match ProtoOnExpiry::try_from(call.on_expiry) {
                Ok(ProtoOnExpiry::Default) => None,
                Ok(ProtoOnExpiry::Charge) => Some(OnExpiry::Charge),
                Ok(ProtoOnExpiry::Released) => Some(OnExpiry::Release),
                Err(_) => return Err(later("on_expiry")),
            },
            uses_rule_amount: call.uses_rule_amount,
        },
        Operation::Extend => ApiStep::Extend {
            expires_ms: expires_ms.ok_or("the recorded expiry is 0")?,
        },
        Operation::Commit => ApiStep::Commit {
            otherwise: match ProtoOtherwise::try_from(call.otherwise) {
                Ok(ProtoOtherwise::Unknown) => Otherwise::Unknown,
                Ok(ProtoOtherwise::ChargeInFull) => Otherwise::Charge,
                Ok(ProtoOtherwise::ChargeOnce) => Otherwise::ChargeOnce,
                Err(_) => return Err(later("otherwise")),
            },
        },
        Operation::Release => ApiStep::Release,
        Operation::ToldRefused => ApiStep::Told { refused: true },
    };
    let peeked = match step {
        ApiStep::Peek => call.peeked_hits.iter().copied().map(Hits::Take).collect(),
        _ => Vec::new(),
    };
    Ok(ApiCall::new(step, &*call.reservation, peeked))
}
