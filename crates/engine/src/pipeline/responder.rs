//! Where a batcher writes the response to a call of the fast path.

use crate::ended::RequestError;
use crate::pipeline::api::ApiError;
use crate::pipeline::encode::EncodedResponse;

/// Receives the response to one call. It costs nothing, because the batcher is generic over it.
pub trait Responder {
    /// Sends the response, or the error of a request without one.
    fn respond(self, response: Result<EncodedResponse<'_>, RequestError>);

    /// Sends the answer to a check of tollgate's API: an encoded `CheckResponse`.
    fn respond_check(self, answer: Result<&[u8], ApiError>);

    /// Gives up the call without a response: the slow path answers it.
    fn release(self);

    /// Whether the client no longer waits for a response.
    fn is_cancelled(&self) -> bool;
}
