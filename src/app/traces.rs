//! Traces, as the settings say, or why there are none.
//!
//! A mistake in what they say is no reason not to limit: it is said at the start, and the service goes on without.
//!
//! What it deliberately does not do: send spans (`telemetry`).

use std::sync::Arc;

use crate::metrics::Metrics;
use crate::settings::TracingSettings;
use crate::tracing::Traces;
use crate::tracing::export_settings::TraceExport;

/// Where decisions are traced; none where they are not to be, or cannot.
pub(super) fn start(settings: &TracingSettings, metrics: &Metrics) -> Option<Arc<Traces>> {
    let export = TraceExport::from_settings(settings).unwrap_or_else(|error| {
        tracing::error!("going on without traces: {error}");
        None
    })?;
    for warning in &export.warnings {
        tracing::warn!("{warning}");
    }
    match Traces::new(&export, metrics) {
        Ok(traces) => {
            tracing::info!(
                "decisions are traced; spans go to {}",
                traces.display_endpoint()
            );
            Some(Arc::new(traces))
        }
        Err(error) => {
            tracing::error!("going on without traces: {error}");
            None
        }
    }
}
