//! The reply of a cluster's node to one run of the script.

use redis::{RedisError, Value};

use super::command::UNEXPECTED_REPLY;
use crate::store::StoreFault;
use crate::store::redis::cluster::Redirect;
use crate::store::redis::error_class::{ErrorClass, classify};
use crate::store::redis::target::Address;

/// The reply to a run.
pub(super) enum StepReply {
    /// No reply yet.
    Nothing,
    Outcomes(Vec<u8>),
    Elsewhere(Redirect),
    NoScript,
    StoreFault(StoreFault, String),
}

// === impl StepReply ===

impl StepReply {
    pub(super) fn of(reply: Option<Value>, asked: &Address) -> Self {
        match reply {
            Some(Value::BulkString(bytes)) => Self::Outcomes(bytes),
            Some(Value::ServerError(error)) => Self::of_error(&error.into(), asked),
            _ => Self::StoreFault(StoreFault::UnexpectedReply, UNEXPECTED_REPLY.to_owned()),
        }
    }

    pub(super) fn of_error(error: &RedisError, asked: &Address) -> Self {
        if let Some(redirect) = Redirect::of(error, asked) {
            return Self::Elsewhere(redirect);
        }
        match classify(error) {
            ErrorClass::NoScript => Self::NoScript,
            ErrorClass::Fault(fault) => Self::StoreFault(fault, error.to_string()),
        }
    }
}
