//! The gRPC status of a request's error.

use tonic::Status;

use crate::pipeline::RequestError;
use crate::store::StoreError;

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        let words = error.to_string();
        match error {
            RequestError::Malformed(_) => Self::internal(words),
            RequestError::EmptyDomain | RequestError::NoDescriptors | RequestError::Invalid(_) => {
                Self::invalid_argument(words)
            }
            RequestError::TooManyDescriptors { .. }
            | RequestError::TooManyEntries { .. }
            | RequestError::TooManyMatchingSteps
            | RequestError::AnswerTooLarge { .. } => Self::resource_exhausted(words),
            RequestError::Store(StoreError::DeadlineExceeded) => Self::deadline_exceeded(words),
            RequestError::NoRules | RequestError::Store(_) => Self::unavailable(words),
        }
    }
}
