//! Applies what the xDS client receives: rules to the generations, the rest to log and metrics.
//! Polls the overlay of those rules.
//!
//! What it deliberately does not do: connect or parse (`xds`).

use std::sync::Arc;

use tokio::time::sleep;

use super::poll::POLL_INTERVAL;
use super::store;
use crate::metrics::Metrics;
use crate::pipeline::Generations;
use crate::rules::reload::RulesUpdate;
use crate::xds::{OverlayWatcher, XdsClient, XdsEvent};

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
    let overlay = watch_overlay(xds.overlay().await, Arc::clone(&generations), leased);
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
            match change.as_ref() {
                Ok(change) => {
                    metrics.xds.acks.inc();
                    if leased {
                        store::warn_about_rules_without_leases(change.loaded.rules.rules());
                    }
                }
                Err(error) if error.is_of_the_overlay() => metrics.xds.acks.inc(),
                Err(_) => metrics.xds.nacks.inc(),
            }
            generations.take(Some(*change));
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
    tokio::join!(xds, overlay);
}

/// Polls the overlay for ever, and publishes the rules with each change of it.
async fn watch_overlay(
    overlay: Option<OverlayWatcher>,
    generations: Arc<Generations>,
    leased: bool,
) {
    let Some(overlay) = overlay else {
        return;
    };
    loop {
        sleep(POLL_INTERVAL).await;
        let take = |change: RulesUpdate| {
            if leased && let Ok(change) = &change {
                store::warn_about_rules_without_leases(change.loaded.rules.rules());
            }
            generations.take(Some(change));
        };
        overlay.poll(take).await;
    }
}
