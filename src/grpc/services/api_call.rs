//! What the calls of tollgate's API and of Kuadrant's have in common: their caller, and why a call
//! has no answer: a gRPC status with the standard details of `google.rpc`.
//!
//! | detail | where |
//! | --- | --- |
//! | `ErrorInfo` | always: a reason, and the domain `tollgate` |
//! | `BadRequest` | a field is invalid |
//! | `ResourceInfo` | a reservation or a lease is not known |
//! | `RetryInfo` | UNAVAILABLE |

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::timeout;
use tollgate_http2::grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::answer_memory::AnswerMemoryFull;
use crate::api_calls::{Fault, InvalidField};
use crate::pipeline::{ApiError, Pipeline, RequestError};
use crate::store::{Deadline, StoreError};
use crate::tracing::TraceParent;

/// The domain of the reasons.
const DOMAIN: &str = "tollgate";

/// The type of the resource that is not known.
const RESERVATION: &str = "tollgate.v1.Reservation";

/// How long a caller should wait before it sends a call again that tollgate cannot decide now.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest id that is repeated in an error, in characters.
const SHOWN_ID_CHARS_MAX: usize = 256;

/// Fields that errors of the pipeline begin with.
const FIELDS: [&str; 7] = [
    "domain",
    "descriptors",
    "hits",
    "reservation",
    "expires",
    "lease",
    "unused",
];

/// Who made a call, as its metadata says.
#[derive(Clone, Copy)]
pub(in crate::grpc) struct Caller {
    /// When the answer is no longer of use.
    pub(in crate::grpc) deadline: Deadline,
    /// The caller's trace.
    pub(in crate::grpc) parent: Option<TraceParent>,
}

/// A field of a call is invalid.
pub(super) fn invalid_field(field: &str, why: &str) -> Status {
    let message = format!("{field} {why}");
    let mut details = info("INVALID_FIELD");
    details.add_bad_request_violation(field, why);
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// A field of a call has a fault.
pub(super) fn field_status(invalid: InvalidField) -> Status {
    let InvalidField { path, fault } = invalid;
    invalid_field(&path, fault.grpc_text())
}

/// The call is not what the service needs.
pub(super) fn invalid_call(why: impl Into<String>) -> Status {
    Status::with_error_details(Code::InvalidArgument, why, info("INVALID_CALL"))
}

/// The deadline of a stream has passed.
pub(super) fn deadline_exceeded() -> Status {
    api_status(RequestError::Store(StoreError::DeadlineExceeded).into(), "")
}

/// There is no memory for an answer.
pub(super) fn answer_memory_full(error: AnswerMemoryFull) -> Status {
    Status::with_error_details(
        Code::ResourceExhausted,
        error.to_string(),
        info("ANSWER_MEMORY_FULL"),
    )
}

/// tollgate has a defect, or the system does.
pub(super) fn internal(why: impl Into<String>) -> Status {
    Status::with_error_details(Code::Internal, why, info("INTERNAL"))
}

/// The status of a call for the reservation of this id.
pub(in crate::grpc) fn api_status(error: ApiError, id: &str) -> Status {
    let message = error.to_string();
    match error {
        ApiError::Invalid(why) => invalid(why),
        ApiError::Unknown(why) => {
            let mut details = info("UNKNOWN_RESERVATION");
            let id: String = id.chars().take(SHOWN_ID_CHARS_MAX).collect();
            details.set_resource_info(RESERVATION, id, "", why);
            Status::with_error_details(Code::NotFound, message, details)
        }
        ApiError::Request(error) => request_status(&error, message),
    }
}

/// The status of a request without an answer, without details.
pub(in crate::grpc) fn plain_status(error: &RequestError) -> Status {
    let words = error.to_string();
    match error {
        RequestError::Malformed(_) => Status::internal(words),
        RequestError::EmptyDomain | RequestError::NoDescriptors | RequestError::Invalid(_) => {
            Status::invalid_argument(words)
        }
        RequestError::TooManyDescriptors { .. }
        | RequestError::TooManyEntries { .. }
        | RequestError::TooManyMatchingSteps
        | RequestError::AnswerTooLarge { .. } => Status::resource_exhausted(words),
        RequestError::Store(StoreError::DeadlineExceeded) => Status::deadline_exceeded(words),
        RequestError::NoRules | RequestError::Store(_) => Status::unavailable(words),
    }
}

fn request_status(error: &RequestError, message: String) -> Status {
    let reason = match error {
        RequestError::EmptyDomain => return field_status(Fault::NoDomain.at("domain")),
        RequestError::NoDescriptors => {
            return field_status(Fault::NoDescriptors.at("descriptors"));
        }
        RequestError::Invalid(_) => return invalid(message),
        RequestError::Malformed(_) => "MALFORMED",
        RequestError::TooManyDescriptors { .. } => "TOO_MANY_DESCRIPTORS",
        RequestError::TooManyEntries { .. } => "TOO_MANY_ENTRIES",
        RequestError::TooManyMatchingSteps => "TOO_MANY_MATCHING_STEPS",
        RequestError::AnswerTooLarge { .. } => "ANSWER_TOO_LARGE",
        RequestError::NoRules => "NO_RULES",
        RequestError::Store(StoreError::DeadlineExceeded) => "DEADLINE_EXCEEDED",
        RequestError::Store(StoreError::Overloaded { .. }) => "OVERLOADED",
        RequestError::Store(StoreError::Full { .. }) => "MEMORY_FULL",
        RequestError::Store(_) => "STORE_UNAVAILABLE",
    };
    let code = plain_status(error).code();
    let mut details = info(reason);
    if code == Code::Unavailable {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    Status::with_error_details(code, message, details)
}

/// The status of a message that may begin with a field.
fn invalid(message: String) -> Status {
    let field = message.split_once(' ');
    match field.filter(|(field, _)| FIELDS.contains(field)) {
        Some((field, why)) => invalid_field(field, why),
        None => invalid_call(message),
    }
}

fn info(reason: &str) -> ErrorDetails {
    ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new())
}

// === impl Caller ===

impl Caller {
    pub(super) fn of(metadata: &MetadataMap, pipeline: &Pipeline) -> Self {
        let timeout_us = metadata
            .get("grpc-timeout")
            .and_then(|header| grpc::timeout_us(header.as_bytes()));
        let parent = pipeline
            .is_tracing()
            .then(|| TraceParent::of(metadata.as_ref()));
        Self {
            deadline: pipeline.deadline_after(timeout_us),
            parent: parent.flatten(),
        }
    }

    /// Carries out a call until the deadline. A reservation whose result comes later is withdrawn,
    /// because nobody would settle it.
    pub(super) async fn within<T>(
        self,
        pipeline: &Pipeline,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        match pipeline.time_until(self.deadline) {
            None => call.await,
            Some(time) => timeout(time, call)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded())),
        }
    }
}
