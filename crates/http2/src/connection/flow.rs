//! Flow control of a connection: its windows, and their sizes.

use crate::frame;

/// Window for request bodies, of a stream and of the connection, in bytes.
pub(super) const WINDOW_BYTES: u32 = 1024 * 1024;

/// A window is returned to the client once this many bytes of it were used.
pub(super) const WINDOW_RETURNED_BYTES_MIN: u32 = WINDOW_BYTES / 2;

/// Initial window of both sides (RFC 9113, section 6.9.2).
pub(super) const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// The windows of a connection, and what its client allows to send.
pub(super) struct Flow {
    pub(super) receive_window: u32,
    /// How much of that window was used and is not yet returned.
    pub(super) receive_window_owed: u32,
    pub(super) send_window: i64,
    /// The same when the client last widened it.
    pub(super) send_window_granted: i64,
    /// Send window of a new stream.
    pub(super) initial_send_window: i64,
    /// The client's SETTINGS_MAX_FRAME_SIZE.
    pub(super) send_payload_bytes_max: usize,
}

// === impl Flow ===

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            receive_window: WINDOW_BYTES,
            receive_window_owed: 0,
            send_window: i64::from(DEFAULT_WINDOW_BYTES),
            send_window_granted: i64::from(DEFAULT_WINDOW_BYTES),
            initial_send_window: i64::from(DEFAULT_WINDOW_BYTES),
            send_payload_bytes_max: frame::PAYLOAD_BYTES_MAX,
        }
    }

    /// Returns bytes of the receive window. Some once there are enough for a WINDOW_UPDATE.
    #[inline]
    pub(super) fn return_window(&mut self, bytes: u32) -> Option<u32> {
        self.receive_window_owed = self.receive_window_owed.saturating_add(bytes);
        if self.receive_window_owed < WINDOW_RETURNED_BYTES_MIN {
            return None;
        }
        let owed = std::mem::take(&mut self.receive_window_owed);
        self.receive_window = self.receive_window.saturating_add(owed);
        Some(owed)
    }

    /// How many bytes one DATA frame may have now, on a stream with this window.
    #[inline]
    pub(super) fn data_bytes_max(&self, stream_window: i64) -> usize {
        let window = usize::try_from(self.send_window.min(stream_window)).unwrap_or(0);
        window.min(self.send_payload_bytes_max)
    }

    /// Counts bytes of DATA that are sent.
    #[inline]
    pub(super) fn send(&mut self, bytes: usize) {
        self.send_window = self.send_window.saturating_sub_unsigned(bytes as u64);
    }
}
