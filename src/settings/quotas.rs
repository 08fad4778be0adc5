//! The settings of the rate limit quota service.
//!
//! What it deliberately does not do: apportion (`quota`).

use clap::Args;

use crate::settings::headings::WORKERS;
use crate::settings::parse::positive;

/// Limits that are apportioned over proxies (`rlqs: true`).
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = WORKERS)]
pub struct QuotaSettings {
    /// Time to live of a quota assignment, in seconds
    ///
    /// A proxy enforces what it was assigned for this time after its last message. Limits are
    /// apportioned anew no sooner than the larger assignments have expired. After a start nothing
    /// is assigned for this time.
    ///
    /// Range: 15 to 3600
    ///
    /// Example: 30
    #[arg(long, env = "TOLLGATE_QUOTA_TTL_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(15..=3600), value_name = "SECONDS")]
    pub quota_ttl_seconds: u32,

    /// Time without a request after which a proxy's part of a bucket is abandoned, in seconds
    ///
    /// The proxy then forgets the bucket, and reports it again with its next request.
    ///
    /// Range: 15 to 86400
    ///
    /// Example: 600
    #[arg(long, env = "TOLLGATE_QUOTA_IDLE_SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(15..=86_400), value_name = "SECONDS")]
    pub quota_idle_seconds: u32,

    /// Maximum parts of quota buckets: one for each bucket that a proxy's stream reports
    ///
    /// A part needs about 400 bytes. Beyond it, further buckets are abandoned.
    #[arg(
        long,
        env = "TOLLGATE_QUOTA_SHARES_MAX",
        default_value_t = 1_000_000,
        value_parser = positive,
        value_name = "COUNT"
    )]
    pub quota_shares_max: usize,
}
