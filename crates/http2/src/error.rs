//! Why a connection or a stream ends.

use std::error::Error;
use std::fmt;

/// Error code of RST_STREAM and GOAWAY (RFC 9113, section 7), as far as a server sends them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// No error: the connection shuts down gracefully, or the rest of a request is not needed.
    NoError = 0,
    /// The client broke a rule of the protocol.
    Protocol = 1,
    /// The server failed.
    Internal = 2,
    /// The client broke flow control.
    FlowControl = 3,
    /// A frame for a stream that has ended.
    StreamClosed = 5,
    /// A frame has the wrong length.
    FrameSize = 6,
    /// The stream was refused before anything was done.
    RefusedStream = 7,
    /// The stream is not needed any more.
    Cancel = 8,
    /// A header block cannot be decoded.
    Compression = 9,
    /// The client exceeded a limit.
    EnhanceYourCalm = 11,
}

/// A fault of the client that ends the connection.
///
/// The embedding program passes [`ConnectionError::reason`] to
/// [`crate::ServerConnection::abrupt_shutdown`], writes what is left to write, and closes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionError {
    pub(crate) reason: Reason,
    pub(crate) message: &'static str,
}

/// A rule of the protocol is broken.
pub(crate) const fn protocol(message: &'static str) -> ConnectionError {
    error(Reason::Protocol, message)
}

/// A frame has the wrong length.
pub(crate) const fn frame_size(message: &'static str) -> ConnectionError {
    error(Reason::FrameSize, message)
}

/// A window is exceeded.
pub(crate) const fn flow_control(message: &'static str) -> ConnectionError {
    error(Reason::FlowControl, message)
}

/// A limit is exceeded.
pub(crate) const fn too_much(message: &'static str) -> ConnectionError {
    error(Reason::EnhanceYourCalm, message)
}

const fn error(reason: Reason, message: &'static str) -> ConnectionError {
    ConnectionError { reason, message }
}

// === impl Reason ===

impl Reason {
    /// Name in snake case, for metric labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoError => "no_error",
            Self::Protocol => "protocol",
            Self::Internal => "internal",
            Self::FlowControl => "flow_control",
            Self::StreamClosed => "stream_closed",
            Self::FrameSize => "frame_size",
            Self::RefusedStream => "refused_stream",
            Self::Cancel => "cancel",
            Self::Compression => "compression",
            Self::EnhanceYourCalm => "enhance_your_calm",
        }
    }

    /// Error code on the wire.
    #[must_use]
    pub fn code(self) -> u32 {
        self as u32
    }
}

// === impl ConnectionError ===

impl ConnectionError {
    /// Error code for GOAWAY.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.reason)
    }
}

impl Error for ConnectionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_happened_and_its_code() {
        let error = protocol("DATA on stream 0");
        assert_eq!(error.to_string(), "DATA on stream 0 (Protocol)");
    }
}
