//! Where rules come from: files, which are looked at, or an xDS server.
//!
//! What it deliberately does not do: read them (`config`), follow an xDS server (`xds`).

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{AppError, LOOK_INTERVAL, store};
use crate::pipeline::Generations;
use crate::rules::reload::{LoadError, RulesUpdate, RulesWatcher};
use crate::rules::xds::XdsClient;
use crate::settings::{ConfigType, Settings};

/// Looks for changes of the rules' files for ever, and at once when asked. A file may take long to read, a pipe or a
/// network file system for ever; nothing else waits for that.
pub(super) async fn look_after(
    mut rules: RulesWatcher,
    generations: Arc<Generations>,
    mut reload: mpsc::Receiver<()>,
    leased: bool,
) {
    let mut now = true;
    loop {
        let afresh = rules.restarted();
        let looked = tokio::task::spawn_blocking(move || look(rules, now)).await;
        rules = match looked {
            Ok((rules, change)) => {
                if leased && let Some(Ok(change)) = &change {
                    store::say_what_has_no_leases(change.loaded.rules.rules());
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
            () = sleep(LOOK_INTERVAL) => false,
        };
    }
}

/// Looks for a change of the rules, or reads them whatever has changed.
fn look(mut reload: RulesWatcher, now: bool) -> (RulesWatcher, Option<RulesUpdate>) {
    let change = if now { reload.read() } else { reload.poll() };
    (reload, change)
}

/// The xDS server that rules come from, where the settings say so.
pub(super) fn from_xds(settings: &Settings) -> Result<Option<XdsClient>, AppError> {
    if settings.xds.config_type == ConfigType::File {
        return Ok(None);
    }
    if let Some(rules) = &settings.rules {
        return Err(AppError::Rules(format!(
            "rules come from an xDS server (CONFIG_TYPE) and from {}; say one of them",
            rules.display()
        )));
    }
    XdsClient::new(&settings.xds, (&settings.rules_settings).into())
        .map(Some)
        .map_err(|error| AppError::Rules(error.to_string()))
}
