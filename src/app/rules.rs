//! Reloads the rules from files, and builds the xDS client when rules come from a server.
//!
//! What it deliberately does not do: parse rules (`rules/file`) or speak xDS (`rules/xds`).

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::error::AppError;
use super::poll::POLL_INTERVAL;
use super::store;
use crate::pipeline::Generations;
use crate::rules::reload::{LoadError, RulesUpdate, RulesWatcher};
use crate::rules::xds::XdsClient;
use crate::settings::{ConfigType, Settings};

/// Reloads the rules files for ever: when a poll finds a change, and at once on a message. Reads
/// happen on a blocking thread: a pipe or a network file system may take for ever.
pub(super) async fn watch(
    mut rules: RulesWatcher,
    generations: Arc<Generations>,
    mut reload: mpsc::Receiver<()>,
    leased: bool,
) {
    let mut now = true;
    loop {
        let afresh = rules.restarted();
        let looked = tokio::task::spawn_blocking(move || reload_if_changed(rules, now)).await;
        rules = match looked {
            Ok((rules, change)) => {
                if leased && let Some(Ok(change)) = &change {
                    store::warn_about_rules_without_leases(change.loaded.rules.rules());
                }
                generations.take(change);
                rules
            }
            Err(panic) => {
                // A panic while reading does not stop the service: the rules in use stay.
                generations.take(Some(Err(LoadError::Defect(panic.to_string()))));
                afresh
            }
        };
        now = tokio::select! {
            asked = reload.recv() => asked.is_some(),
            () = sleep(POLL_INTERVAL) => false,
        };
    }
}

/// Polls for a change, or reads the rules unconditionally when `now` is set.
fn reload_if_changed(mut reload: RulesWatcher, now: bool) -> (RulesWatcher, Option<RulesUpdate>) {
    let change = if now { reload.read() } else { reload.poll() };
    (reload, change)
}

/// The xDS client, if the settings select one.
pub(super) fn xds_client(settings: &Settings) -> Result<Option<XdsClient>, AppError> {
    if settings.xds.config_type == ConfigType::File {
        return Ok(None);
    }
    if let Some(rules) = &settings.rules {
        return Err(AppError::Rules(format!(
            "CONFIG_TYPE selects an xDS server and the rules also come from {}; set only one of them",
            rules.display()
        )));
    }
    XdsClient::new(&settings.xds, (&settings.rules_settings).into())
        .map(Some)
        .map_err(|error| AppError::Rules(error.to_string()))
}
