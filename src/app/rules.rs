//! Reloads the rules from files, and builds the xDS client when rules come from a server.
//!
//! What it deliberately does not do: parse rules (`crates/rules`) or speak xDS (`xds`).

use std::future::pending;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::error::AppError;
use super::poll::POLL_INTERVAL;
use super::store;
use crate::pipeline::Generations;
use crate::rules::reload::{LoadError, RulesUpdate, RulesWatcher};
use crate::settings::{ConfigType, Settings};
use crate::xds::XdsClient;

/// Reloads rules files for ever, and passes each result to `take`: when a poll finds a change, and
/// at once on a message of `reload`. Reads happen on a blocking thread, and so does `take`: a pipe
/// or a network file system may take for ever.
pub(super) async fn watch(
    mut rules: RulesWatcher,
    mut reload: Option<mpsc::Receiver<()>>,
    take: impl Fn(Option<RulesUpdate>) + Send + Sync + 'static,
) {
    let take = Arc::new(take);
    let mut now = true;
    loop {
        let afresh = rules.restarted();
        let taking = Arc::clone(&take);
        let looked = tokio::task::spawn_blocking(move || {
            let (rules, change) = reload_if_changed(rules, now);
            taking(change);
            rules
        });
        rules = match looked.await {
            Ok(rules) => rules,
            Err(panic) => {
                // A panic while reading does not stop the service: the rules in use stay.
                take(Some(Err(LoadError::Defect(panic.to_string()))));
                afresh
            }
        };
        let asked = async {
            match &mut reload {
                Some(reload) => reload.recv().await.is_some(),
                None => pending().await,
            }
        };
        now = tokio::select! {
            asked = asked => asked,
            () = sleep(POLL_INTERVAL) => false,
        };
    }
}

/// Makes reloaded rules current.
pub(super) fn take(generations: &Generations, change: Option<RulesUpdate>, leased: bool) {
    if leased && let Some(Ok(change)) = &change {
        store::warn_about_rules_without_leases(change.loaded.rules.rules());
    }
    generations.take(change);
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
