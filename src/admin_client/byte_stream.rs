//! A response that is a stream of bytes.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::admin_client::error::AdminError;
use crate::grpc_client::error_chain;

/// The bytes of one response.
#[derive(Debug)]
pub struct ByteStream {
    body: Incoming,
}

// === impl ByteStream ===

impl ByteStream {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body }
    }

    /// The next bytes; none when the service has ended the response. Cancellation loses none.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AdminError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| AdminError::Ended {
                reason: error_chain(&error),
            })?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}
