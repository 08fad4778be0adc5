//! Applies what the xDS client receives: rules to the generations, the rest to log and metrics.
//!
//! What it deliberately does not do: connect or parse (`rules/xds`).

use std::sync::Arc;
use std::time::Duration;

use super::store;
use crate::metrics::Metrics;
use crate::pipeline::Generations;
use crate::rules::xds::{XdsClient, XdsEvent};

/// Number of failed attempts for one warning: the first is logged, then every tenth.
const LOSSES_PER_WARNING: u64 = 10;

/// Runs the xDS client for ever.
pub(super) async fn watch(
    xds: XdsClient,
    generations: Arc<Generations>,
    metrics: Arc<Metrics>,
    leased: bool,
) {
    let mut lost = 0_u64;
    let xds = xds.run(move |event| match event {
        XdsEvent::Connected(server) => {
            metrics.xds.up.set(1);
            metrics.xds.streams.inc();
            tracing::info!(%server, "connected to the xDS server");
        }
        XdsEvent::Update(change) => {
            lost = 0;
            match &change {
                Ok(change) => {
                    metrics.xds.acks.inc();
                    if leased {
                        store::warn_about_rules_without_leases(change.loaded.rules.rules());
                    }
                }
                Err(_) => metrics.xds.nacks.inc(),
            }
            generations.take(Some(change));
        }
        XdsEvent::Disconnected { error, retry_in } => {
            metrics.xds.up.set(0);
            metrics.xds.lost.inc();
            let kept = if generations.any() {
                "the rules in use stay"
            } else {
                "no rules are in use"
            };
            let wait =
                Duration::from_millis(u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX));
            if lost.is_multiple_of(LOSSES_PER_WARNING) {
                tracing::warn!("{error}; {kept}; retrying in {wait:?}");
            } else {
                tracing::debug!("{error}; {kept}; retrying in {wait:?}");
            }
            lost = lost.saturating_add(1);
        }
    });
    xds.await;
}
