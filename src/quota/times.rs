//! The times of the quota service.

/// How much later than it was queued an assignment may be sent.
const DELIVERY_MS_MAX: u64 = 2_000;

/// A stream's part of a bucket ends after this time without a request.
const IDLE_MS: u64 = 300_000;

/// Envoy reports every 5 s; a stream without a report for this time is silent.
const SILENT_MS: u64 = 20_000;

/// The bounds and times of all buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaTimes {
    /// The time to live of an assignment, in whole seconds.
    pub(crate) ttl_seconds: u32,
    /// How much later than it was sent an assignment may arrive, in milliseconds. A stream whose
    /// messages wait longer is closed.
    pub(crate) delivery_ms_max: u64,
    /// A stream's part of a bucket ends after this time without a request, in milliseconds.
    pub(crate) idle_ms: u64,
    /// A stream counts as ended after this time without a report, in milliseconds.
    pub(crate) silent_ms: u64,
}

// === impl QuotaTimes ===

impl QuotaTimes {
    /// Those of the service, with this time to live.
    pub(crate) fn of_service(ttl_seconds: u32) -> Self {
        Self {
            ttl_seconds,
            delivery_ms_max: DELIVERY_MS_MAX,
            idle_ms: IDLE_MS,
            silent_ms: SILENT_MS,
        }
    }

    /// How long an assignment may be in force after it was sent, in milliseconds.
    pub(crate) fn lives_ms(&self) -> u64 {
        u64::from(self.ttl_seconds) * 1_000 + self.delivery_ms_max
    }
}
