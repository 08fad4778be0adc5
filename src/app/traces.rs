//! Starts the exporter of spans, if tracing is configured.
//!
//! Invalid tracing settings do not prevent the start: they are logged, and the service runs without
//! tracing.
//!
//! What it deliberately does not do: send spans (`tracing`).

use std::sync::Arc;

use crate::metrics::Metrics;
use crate::settings::TracingSettings;
use crate::tracing::Traces;

/// The exporter of spans; none if tracing is off or cannot start.
pub(super) fn start(settings: &TracingSettings, metrics: &Metrics) -> Option<Arc<Traces>> {
    let export = settings.trace_export().unwrap_or_else(|error| {
        tracing::error!(%error, "running without traces");
        None
    })?;
    for warning in &export.warnings {
        tracing::warn!(%warning, "a tracing setting is ignored");
    }
    match Traces::new(&export, metrics) {
        Ok(traces) => {
            tracing::info!(endpoint = %traces.display_endpoint(), "tracing is on");
            Some(Arc::new(traces))
        }
        Err(error) => {
            tracing::error!(%error, "running without traces");
            None
        }
    }
}
