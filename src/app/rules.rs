//! Where rules come from: files, which are looked at, or an xDS server.
//!
//! What it deliberately does not do: read them (`config`), follow an xDS server (`xds`).

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{AppError, POLL_INTERVAL, store};
use crate::pipeline::Generations;
use crate::rules::reload::{Change, LoadError, Reload};
use crate::rules::xds::Xds;
use crate::settings::{ConfigType, Settings};

/// Looks for changes of the rules' files for ever, and at once when asked. A file may take long to read, a pipe or a
/// network file system for ever; nothing else waits for that.
pub(super) async fn watch(
    mut rules: Reload,
    generations: Arc<Generations>,
    mut reload: mpsc::Receiver<()>,
    leased: bool,
) {
    let mut now = true;
    loop {
        let afresh = rules.afresh();
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
                // A defect in reading is no reason to stop serving by the rules in use.
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

/// Looks for a change of the rules, or reads them whatever has changed.
fn reload_if_changed(mut reload: Reload, now: bool) -> (Reload, Option<Change>) {
    let change = if now { reload.read() } else { reload.look() };
    (reload, change)
}

/// The xDS server that rules come from, where the settings say so.
pub(super) fn xds_client(settings: &Settings) -> Result<Option<Xds>, AppError> {
    if settings.xds.config_type == ConfigType::File {
        return Ok(None);
    }
    if let Some(rules) = &settings.rules {
        return Err(AppError::Rules(format!(
            "rules come from an xDS server (CONFIG_TYPE) and from {}; say one of them",
            rules.display()
        )));
    }
    Xds::new(&settings.xds, settings.rules_settings.options())
        .map(Some)
        .map_err(|error| AppError::Rules(error.to_string()))
}
