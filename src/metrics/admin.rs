//! Metrics of the admin listener.

use super::declaration::{Counter, CounterVec, Gauge, LabelValues, metrics};

/// The module of audit lines, for the log filter.
pub const AUDIT_LOG: &str = "tollgate::audit";

const CHANGES: LabelValues = LabelValues::OneOf(&["record", "reset", "shadow"]);

const RESULTS: LabelValues =
    LabelValues::OneOf(&["done", "ended", "invalid", "not_found", "failed"]);

metrics! {
    /// Metrics of the admin listener.
    pub struct AdminMetrics {
        /// Requests by POST /record, POST /reset and POST /shadow, and shadow modes that ended.
        CounterVec "tollgate_admin_changes_total" [change: CHANGES, result: RESULTS] => changes;

        /// Requests to the admin listener that were refused, by the rule of access.
        Counter "tollgate_admin_refused_total" by reason {
            refused_host = "host",
            refused_origin = "origin",
            refused_site = "site",
            refused_token = "token",
            refused_content_type = "content_type",
        }

        /// Open streams of GET /events.
        Gauge "tollgate_event_streams" => pub event_streams;

        /// Streams of GET /events refused because of --event-streams-max.
        Counter "tollgate_event_streams_refused_total" => pub event_streams_refused;
    }
}

/// The rule of access that a request to the admin listener broke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdminRefusal {
    /// The Host header.
    Host,
    /// The Origin header.
    Origin,
    /// The Sec-Fetch-Site header.
    Site,
    /// The token.
    Token,
    /// The content type of a POST.
    ContentType,
}

// === impl AdminMetrics ===

impl AdminMetrics {
    /// Counts a request for a change, by its result.
    pub fn changed(&self, change: &'static str, result: &'static str) {
        self.changes.with_label_values(&[change, result]).inc();
    }

    /// Counts a refused request.
    pub fn refused(&self, reason: AdminRefusal) {
        let counter = match reason {
            AdminRefusal::Host => &self.refused_host,
            AdminRefusal::Origin => &self.refused_origin,
            AdminRefusal::Site => &self.refused_site,
            AdminRefusal::Token => &self.refused_token,
            AdminRefusal::ContentType => &self.refused_content_type,
        };
        counter.inc();
    }
}
