//! Metrics of quotas: streams, reports, and assignments.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of the rate limit quota service.
    pub struct QuotaMetrics {
        /// Open streams of proxies that report usage.
        Gauge "tollgate_quota_streams" => pub streams;

        /// Buckets that proxies report or whose assignments may be in force.
        Gauge "tollgate_quota_buckets" => pub buckets;

        /// Parts of buckets: one for each stream that reports one.
        Gauge "tollgate_quota_shares" => pub shares;

        /// Reports received.
        Counter "tollgate_quota_reports_total" => pub reports;

        /// Actions sent, by kind.
        Counter "tollgate_quota_actions_total" by action {
            assigned = "assigned", abandoned = "abandoned",
        }

        /// Usages in reports that belong to no bucket, by cause.
        Counter "tollgate_quota_usages_ignored_total" by cause {
            unknown_domain = "unknown_domain",
            unknown_id = "unknown_id",
            too_many = "too_many",
        }

        /// Streams closed by the service, by cause.
        Counter "tollgate_quota_streams_closed_total" by cause {
            closed_slow = "slow", closed_changed_domain = "changed_domain",
        }

        /// Checks of rules with rlqs: true, which were answered with an error.
        Counter "tollgate_quota_checks_refused_total" => pub checks_refused;
    }
}
