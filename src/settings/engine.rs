//! The configuration of the decision path, as the settings say, and the settings of its snapshots,
//! learnt amounts and quotas.

use std::path::PathBuf;

use clap::Args;
use tollgate_limiter::{Modes, OnUndecided};

use crate::pipeline::{Config, Headers, RequestPolicy};
use crate::settings::help::WORKERS;
use crate::settings::parse::{positive, size_from};
use crate::settings::{HeaderStyle, ResponseSettings, Settings};

impl From<&Settings> for Config {
    fn from(settings: &Settings) -> Self {
        Self {
            request: RequestPolicy {
                negative_hits: settings.negative_hits,
                overrides: settings.overrides,
            },
            modes: Modes {
                shadow: settings.shadow_mode,
                quota: settings.quota_mode,
            },
            near_limit_ratio: settings.near_limit_ratio,
            on_overload: settings.on_overload,
            on_store_failure: settings.store.on_store_failure,
            on_excess: match settings.on_excess {
                // In shadow mode nothing is refused.
                OnUndecided::Deny if settings.shadow_mode => OnUndecided::Allow,
                answer => answer,
            },
            descriptors_max: settings.descriptors_max,
            entries_max: settings.entries_max,
            answer_bytes_max: settings.answer_size_max,
            lease_age_max_us: settings.store.lease_age_max_ms.saturating_mul(1_000),
            caller_lease_hits_max: settings.store.caller_lease_hits_max as u64,
            estimates_memory_max: settings.estimates.memory_max,
            headers: headers(&settings.response),
            dynamic_metadata: settings.response.response_dynamic_metadata,
            all_or_nothing: settings.decision.all_or_nothing,
        }
    }
}

/// The headers of responses; none if all are off.
fn headers(settings: &ResponseSettings) -> Option<Headers> {
    let enabled = |style| settings.response_headers.contains(&style);
    let mut triples = Vec::new();
    if settings.limit_response_headers_enabled || enabled(HeaderStyle::Reference) {
        triples.push([
            settings.limit_limit_header.clone(),
            settings.limit_remaining_header.clone(),
            settings.limit_reset_header.clone(),
        ]);
    }
    if enabled(HeaderStyle::XRateLimit) {
        let name = |part| format!("X-RateLimit-{part}");
        triples.push([name("Limit"), name("Remaining"), name("Reset")]);
    }
    let upstream = settings.limit_request_headers_enabled.then(|| {
        [
            settings.limit_request_limit_header.clone(),
            settings.limit_request_remaining_header.clone(),
            settings.limit_request_reset_header.clone(),
        ]
    });
    let headers = Headers {
        triples,
        upstream,
        ietf: enabled(HeaderStyle::Ietf),
        retry_after: enabled(HeaderStyle::RetryAfter),
    };
    let any = !headers.triples.is_empty() || headers.ietf || headers.retry_after;
    (any || headers.upstream.is_some()).then_some(headers)
}

/// Snapshots of the buckets in memory.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = WORKERS)]
pub struct SnapshotSettings {
    /// File that keeps the buckets in memory across restarts
    ///
    /// It is read before the service is ready, and written at intervals and after the last request
    /// of a shutdown. Only one process may use it, and its folder must be writable. It holds the
    /// hash key of the buckets. --store cannot be set with it.
    ///
    /// Example: /var/lib/tollgate/buckets.snapshot
    #[arg(
        id = "snapshot",
        long = "snapshot",
        env = "TOLLGATE_SNAPSHOT",
        value_name = "FILE"
    )]
    pub path: Option<PathBuf>,

    /// Interval at which --snapshot is written, in seconds
    ///
    /// After a crash, what was counted since the last snapshot is forgotten.
    ///
    /// Range: 1 to 86400
    ///
    /// Example: 10
    #[arg(id = "snapshot_interval_seconds", long = "snapshot-interval-seconds", env = "TOLLGATE_SNAPSHOT_INTERVAL_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400), value_name = "SECONDS")]
    pub interval_seconds: u64,
}

/// Amounts that are learnt from commits.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = WORKERS)]
pub struct EstimatesSettings {
    /// Memory for learnt amounts to reserve (reserve.amount: p50 to p99)
    ///
    /// It is used when a rule has such an amount. Beyond it, a new rule or key takes the place of
    /// one that was not used recently.
    ///
    /// Range: 64KiB to below 4GiB
    #[arg(id = "estimates_memory_max", long = "estimates-memory-max", env = "TOLLGATE_ESTIMATES_MEMORY_MAX", default_value = "4MiB", value_parser = size_from(64 << 10, "use a number and MiB, such as 4MiB, from 64KiB to below 4GiB"), value_name = "BYTES")]
    pub memory_max: usize,
}

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
    #[arg(id = "quota_ttl_seconds", long = "quota-ttl-seconds", env = "TOLLGATE_QUOTA_TTL_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(15..=3600), value_name = "SECONDS")]
    pub ttl_seconds: u32,

    /// Time without a request after which a proxy's part of a bucket is abandoned, in seconds
    ///
    /// The proxy then forgets the bucket, and reports it again with its next request.
    ///
    /// Range: 15 to 86400
    ///
    /// Example: 600
    #[arg(id = "quota_idle_seconds", long = "quota-idle-seconds", env = "TOLLGATE_QUOTA_IDLE_SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(15..=86_400), value_name = "SECONDS")]
    pub idle_seconds: u32,

    /// Maximum parts of quota buckets: one for each bucket that a proxy's stream reports
    ///
    /// A part needs about 400 bytes. Beyond it, further buckets are abandoned.
    #[arg(
        id = "quota_shares_max",
        long = "quota-shares-max",
        env = "TOLLGATE_QUOTA_SHARES_MAX",
        default_value_t = 1_000_000,
        value_parser = positive,
        value_name = "COUNT"
    )]
    pub shares_max: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_engine_are_those_of_serve() {
        let settings = Settings::from_flags(Vec::<String>::new()).unwrap();
        let read = Config::from(&settings);
        assert_eq!(format!("{read:?}"), format!("{:?}", Config::default()));
    }
}
