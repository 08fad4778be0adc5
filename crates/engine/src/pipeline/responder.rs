//! Where a batcher writes the response to a call of the fast path.

use crate::ended::RequestError;
use crate::pipeline::encode::EncodedResponse;

/// Receives the response to one call. It costs nothing, because the batcher is generic over it.
pub trait Responder {
    /// Sends the response, or the error of a request without one. A check of tollgate's API has a
    /// `CheckResponse`.
    fn respond(self, response: Result<EncodedResponse<'_>, RequestError>);

    /// Gives up the call without a response: the slow path answers it.
    fn release(self);

    /// Whether the client no longer waits for a response.
    fn is_cancelled(&self) -> bool;
}
