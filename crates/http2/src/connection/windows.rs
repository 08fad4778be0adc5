//! Sizes of flow-control windows.

/// Window for request bodies, of a stream and of the connection, in bytes.
pub(super) const WINDOW_BYTES: u32 = 1024 * 1024;

/// A window is returned to the client once this many bytes of it were used.
pub(super) const WINDOW_RETURNED_BYTES_MIN: u32 = WINDOW_BYTES / 2;

/// Initial window of both sides (RFC 9113, section 6.9.2).
pub(super) const DEFAULT_WINDOW_BYTES: u32 = 65_535;
