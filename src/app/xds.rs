//! Applies what the xDS client receives: rules to the generations, the rest to log and metrics.
//!
//! What it deliberately does not do: connect or parse (`rules/xds`).

use std::sync::Arc;

use super::store;
use crate::metrics::Metrics;
use crate::pipeline::Generations;
use crate::rules::xds::{XdsClient, XdsEvent};

/// Number of failed attempts for one warning: the first is logged, then every tenth. The first
/// rules after that are logged as a warning too.
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
            if std::mem::take(&mut lost) > 0 {
                tracing::warn!("the xDS server sends rules again");
            }
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
            let has_rules = generations.any();
            let retry_in_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
            if lost.is_multiple_of(LOSSES_PER_WARNING) {
                tracing::warn!(%error, has_rules, retry_in_ms, "no connection to the xDS server");
            } else {
                tracing::debug!(%error, has_rules, retry_in_ms, "no connection to the xDS server");
            }
            lost = lost.saturating_add(1);
        }
    });
    xds.await;
}
