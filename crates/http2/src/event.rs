//! What [`crate::ServerConnection::receive`] reports.

use std::borrow::Cow;
use std::fmt;

use crate::{HeaderList, RequestHead};

/// Longest captured value in bytes.
const CAPTURED_BYTES_MAX: usize = 63;

/// Something for the embedding program to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'b> {
    /// A call of one of [`crate::Config::unary_paths`] has arrived in full.
    ///
    /// Answer with [`crate::ServerConnection::respond_unary`], with
    /// [`crate::ServerConnection::send_response`] for an error, or turn it into a request with
    /// [`crate::ServerConnection::decline_call`].
    Call(Call<'b>),
    /// The head of any other request has arrived, or of a call too long for the fast path.
    ///
    /// Answer with [`crate::ServerConnection::send_response`].
    Request(Request<'b>),
    /// A part of the body of such a request.
    ///
    /// Return its length with [`crate::ServerConnection::release_capacity`] once it is used.
    Data {
        /// Stream of the request.
        stream: u32,
        /// The part, without padding. It may be empty where `end_stream` is set.
        bytes: &'b [u8],
        /// Whether the request is complete.
        end_stream: bool,
    },
    /// Trailers of such a request: it is complete.
    Trailers {
        /// Stream of the request.
        stream: u32,
        /// The trailers.
        headers: HeaderList,
    },
    /// Such a request ended before its response did: its client reset it or broke a rule.
    Reset {
        /// Stream of the request.
        stream: u32,
    },
    /// Many frames have been read that complete no request, and more may follow.
    ///
    /// Call [`crate::ServerConnection::receive`] again once other connections had a chance to run.
    Yield,
}

/// A call on the fast path.
#[derive(Debug)]
pub struct Call<'b> {
    /// Stream to answer on.
    pub stream: u32,
    /// The one of [`crate::Config::unary_paths`] that it names.
    pub path: &'static str,
    /// The request's body: one gRPC message behind its five-byte head, as the client sent it.
    /// Neither is checked.
    pub body: Cow<'b, [u8]>,
    /// The client's `grpc-timeout` in microseconds; none if absent. A call with a malformed one is
    /// a [`Request`].
    pub timeout_us: Option<u64>,
    /// Value of [`crate::Config::captured_header`]; none if absent or repeated.
    pub captured: Option<CapturedValue>,
}

/// A request that does not take the fast path.
#[derive(Debug)]
pub struct Request<'b> {
    /// Stream to answer on.
    pub stream: u32,
    /// Method, path and headers.
    pub head: RequestHead,
    /// The part of the body that arrived before this event.
    pub body: Cow<'b, [u8]>,
    /// Whether the request is complete. If not, [`Event::Data`], [`Event::Trailers`] or
    /// [`Event::Reset`] follow.
    pub end_stream: bool,
}

/// Value of a captured header, cut off behind 63 bytes.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct CapturedValue {
    bytes: [u8; CAPTURED_BYTES_MAX],
    length: u8,
}

// === impl CapturedValue ===

impl CapturedValue {
    /// Keeps the beginning of a value.
    pub(crate) fn new(value: &[u8]) -> Self {
        let mut bytes = [0; CAPTURED_BYTES_MAX];
        for (byte, copied) in bytes.iter_mut().zip(value) {
            *byte = *copied;
        }
        // At most 63.
        let length = u8::try_from(value.len().min(CAPTURED_BYTES_MAX)).unwrap_or_default();
        Self { bytes, length }
    }

    /// The value's first 63 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}

impl fmt::Debug for CapturedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_value_is_cut_off() {
        assert_eq!(CapturedValue::new(b"").as_bytes(), b"");
        assert_eq!(CapturedValue::new(b"short").as_bytes(), b"short");
        let long = [b'x'; 100];
        assert_eq!(
            CapturedValue::new(&long).as_bytes(),
            &long[..CAPTURED_BYTES_MAX]
        );
    }
}
