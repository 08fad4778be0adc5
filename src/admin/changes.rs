//! Bodies of `POST /reset` and `POST /shadow`: bounded in size, number and time, and parsed
//! strictly.

use std::time::Duration;

use ::http::StatusCode;
use axum::body::{Body, to_bytes};
use tokio::time::timeout;

use super::AdminState;
use super::failure::ApiFailure;

/// Largest body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// How long a body may take to arrive.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Requests for a change whose body is being read.
pub(super) const BODIES_MAX: usize = 256;

/// Changes in progress.
pub(super) const CHANGES_MAX: usize = 16;

/// Reads and parses a body; `form` is an example of a good one.
pub(super) async fn read_json<T: serde::de::DeserializeOwned>(
    state: &AdminState,
    body: Body,
    form: &str,
) -> Result<T, ApiFailure> {
    let Ok(_permit) = state.api.bodies.try_acquire() else {
        let why = "too many requests for a change are in progress; try again later";
        return Err(ApiFailure::unavailable(why));
    };
    let read = timeout(BODY_WAIT_MAX, to_bytes(body, BODY_BYTES_MAX)).await;
    let Ok(read) = read else {
        let seconds = BODY_WAIT_MAX.as_secs();
        return Err(ApiFailure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {seconds} seconds; send it at once"),
        ));
    };
    let body = read.map_err(|_| {
        ApiFailure::invalid(format!(
            "the body is incomplete or larger than {BODY_BYTES_MAX} bytes; send {form}"
        ))
    })?;
    serde_json::from_slice(&body)
        .map_err(|error| ApiFailure::invalid(format!("the body is invalid: {error}; send {form}")))
}
