//! What an xDS server brings, handed on: rules to those who use them, the rest to the log and the metrics.
//!
//! What it deliberately does not do: connect or load (`config/xds`).

use std::sync::Arc;
use std::time::Duration;

use super::store;
use crate::metrics::Metrics;
use crate::pipeline::Generations;
use crate::rules::xds::{News, Xds};

/// How often at most it is said that there is no connection, in losses: the first, and then each so many.
const LOSSES_PER_WARNING: u64 = 10;

/// Takes what comes for ever.
pub(super) async fn watch(
    xds: Xds,
    generations: Arc<Generations>,
    metrics: Arc<Metrics>,
    leased: bool,
) {
    let mut lost = 0_u64;
    let xds = xds.run(move |news| match news {
        News::Connected(server) => {
            metrics.xds.up.set(1);
            metrics.xds.streams.inc();
            tracing::info!(%server, "connected to the xDS server");
        }
        News::Rules(change) => {
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
        News::Lost { why, wait } => {
            metrics.xds.up.set(0);
            metrics.xds.lost.inc();
            let kept = if generations.any() {
                "the rules in use stay"
            } else {
                "there are none in use"
            };
            let wait = Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            if lost.is_multiple_of(LOSSES_PER_WARNING) {
                tracing::warn!("{why}; {kept}; it is tried again in {wait:?}");
            } else {
                tracing::debug!("{why}; {kept}; it is tried again in {wait:?}");
            }
            lost = lost.saturating_add(1);
        }
    });
    xds.await;
}
