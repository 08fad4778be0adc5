//! What a connection accepts.

/// Limits and choices of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Streams open at the same time. Default: 1,000.
    pub streams_max: usize,
    /// Size of a header list in bytes, as RFC 9113 section 6.5.2 counts it: names, values and 32
    /// bytes for each field. Default: 16 KiB.
    pub header_list_bytes_max: usize,
    /// Length of a gRPC message in bytes. Memory is never reserved for a message that declares
    /// more. Default: 4 MiB.
    pub message_bytes_max: u32,
    /// Streams that a client may open and reset in a second, or have reset for its mistakes.
    /// Default: 200.
    pub resets_per_second_max: u32,
    /// Frames in a second that carry no part of a request. Default: 1,000.
    pub control_frames_per_second_max: u32,
    /// Paths of the unary gRPC methods that take the fast path, the most used one first. Default:
    /// none.
    pub unary_paths: &'static [&'static str],
    /// Name, in lower case, of a header that the handler of those methods reads
    /// ([`crate::Call::captured`]). Default: none.
    pub captured_header: Option<&'static str>,
    /// Whether requests for this path stream: their bodies may go on as long as the client likes,
    /// so they are bounded by flow control and not by [`crate::ByteBudget`] or
    /// [`crate::ServerConnection::reset_stalled`]. Default: none do.
    pub is_client_streaming: fn(path: &[u8]) -> bool,
    /// Advice behind the `grpc-message` for a call whose header list is too long. Default: empty.
    pub header_list_hint: &'static str,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams_max: 1_000,
            header_list_bytes_max: 16 * 1024,
            message_bytes_max: 4 * 1024 * 1024,
            resets_per_second_max: 200,
            control_frames_per_second_max: 1_000,
            unary_paths: &[],
            captured_header: None,
            is_client_streaming: |_| false,
            header_list_hint: "",
        }
    }
}
