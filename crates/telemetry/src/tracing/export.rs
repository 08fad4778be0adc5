//! How spans and log records are exported: the configuration, and the error of starting.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tollgate_system::visible_text::masked;
use tollgate_tls::{ClientFiles, TlsError};

/// Where spans or log records are sent, and which decisions are sampled.
#[derive(Clone)]
pub struct TraceExport {
    /// Whether the collector is called by gRPC, and not by HTTP.
    pub is_grpc: bool,
    /// Full URL of the collector.
    pub endpoint: String,
    /// Timeout of a batch, including retries.
    pub timeout: Duration,
    /// Delay between two batches.
    pub batch_delay: Duration,
    /// Longest queue, in spans.
    pub queue_spans_max: usize,
    /// Largest batch, in spans.
    pub batch_spans_max: usize,
    /// Which decisions are traced.
    pub sampling: Sampling,
    /// The most traced decisions in any second; none for no bound.
    pub per_second_max: Option<NonZeroU32>,
    /// `service.name`, if the reference's variables set it.
    pub service_name: Option<String>,
    /// `service.namespace`, if the reference's variables set it.
    pub service_namespace: Option<String>,
    /// `service.instance.id`, if the reference's variables set it.
    pub service_instance_id: Option<String>,
    /// Warnings about values that were ignored.
    pub warnings: Vec<String>,
    /// The TLS files of the connection to the collector.
    pub files: ClientFiles,
}

/// Which decisions are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The client's sampling flag comes first.
    pub parent_based: bool,
    /// Ratio of sampled decisions when the client has no flag or it is ignored; from 0 to 1.
    pub share: f64,
}

/// Why tracing cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// A setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// There is no runtime to send spans on.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

// === impl TraceExport ===

impl TraceExport {
    /// TLS configuration of the collector; none if its URL is not https. Reads files.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is invalid, or certificate and key do not match.
    pub fn tls(&self) -> Result<Option<Arc<ClientConfig>>, TlsError> {
        let scheme = self.endpoint.split("://").next().unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("https") {
            return Ok(None);
        }
        // The ALPN protocols are set by the HTTP client.
        self.files.read(&[]).map(Some)
    }

    /// Endpoint for messages, without credentials and query.
    pub fn display_endpoint(&self) -> String {
        // The login first: a password may have a ? or a #.
        let shown = masked(&self.endpoint);
        let bare = shown.split(['?', '#']).next().unwrap_or_default();
        let place = bare.split_once("://").map_or(bare, |(_, place)| place);
        place.strip_prefix("***@").unwrap_or(place).to_owned()
    }
}

impl fmt::Debug for TraceExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TraceExport");
        shown.field("endpoint", &self.display_endpoint());
        shown.finish_non_exhaustive()
    }
}
