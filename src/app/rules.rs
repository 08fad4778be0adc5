//! Changes the rules while the service runs: reloads them and the candidate's from files, takes
//! those of an xDS server, and ends shadow modes in time.
//!
//! What it deliberately does not do: parse rules (`crates/rules`) or speak xDS (`xds`).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::error::AppError;
use super::store;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::pipeline::{Generations, Parts};
use crate::rules::file::Options;
use crate::rules::path::RulesPath;
use crate::rules::reload::{LoadError, RulesUpdate, RulesWatcher};
use crate::settings::{ConfigType, OnBadDomain, RulesSettings, Settings};
use crate::xds::{OverlayWatcher, XdsClient, XdsEvent};

/// How often files of rules and certificates are polled. A change counts once two polls agree, so
/// it takes effect within twice this and the time it takes to read the files.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The module of log lines about the xDS server, for filters.
const XDS_LOG: &str = "tollgate::app::xds";

/// Number of failed attempts for one warning: the first is logged, then every tenth. The first
/// rules after that are logged as a warning too.
const LOSSES_PER_WARNING: u64 = 10;

/// How often the clock is read while there is a shadow mode: the time of day may jump.
const SHADOW_POLL_MAX: Duration = Duration::from_millis(500);

/// Spawns what changes the rules: their source, the candidate's files if there are any, and the end
/// of shadow modes.
pub(super) fn spawn_watchers(
    watchers: &mut JoinSet<()>,
    settings: &Settings,
    xds: Option<XdsClient>,
    reload: mpsc::Receiver<()>,
    parts: &Parts,
) {
    let leased = store::is_leased(&settings.store);
    let (generations, clock) = (&parts.generations, &parts.clock);
    let options = || Options::from(&settings.rules);
    let current = Arc::clone(generations);
    if let Some(client) = xds {
        watchers.spawn(watch_xds(
            client,
            current,
            Arc::clone(&parts.metrics),
            leased,
        ));
    } else if let Some(path) = settings.rules.path(settings.rules_path.as_deref()) {
        let files = RulesWatcher::new(path, isolating(&settings.rules));
        watchers.spawn(watch(files, Some(reload), move |change| {
            take(&current, change, leased);
        }));
    }
    if let Some(path) = &settings.candidate.path {
        let files = RulesWatcher::new(RulesPath::Path(path.clone()), options());
        let generations = Arc::clone(generations);
        watchers.spawn(watch(files, None, move |change| {
            generations.take_candidate(change);
        }));
    }
    watchers.spawn(end_timed(Arc::clone(generations), Arc::clone(clock)));
}

/// How rules are loaded that requests are decided by.
fn isolating(settings: &RulesSettings) -> Options {
    Options {
        isolate_domains: settings.on_bad_domain == OnBadDomain::Isolate,
        ..settings.into()
    }
}

/// Reloads rules files for ever, and passes each result to `take`: when a poll finds a change, and
/// at once on a message of `reload`. Reads happen on a blocking thread, and so does `take`: a pipe
/// or a network file system may take for ever.
async fn watch(
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
            taking(if now { rules.read() } else { rules.poll() });
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
fn take(generations: &Generations, change: Option<RulesUpdate>, leased: bool) {
    if leased && let Some(Ok(change)) = &change {
        store::warn_about_rules_without_leases(change.loaded.rules.rules());
    }
    generations.take(change);
}

/// Runs the xDS client for ever.
async fn watch_xds(
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
            tracing::info!(target: XDS_LOG, %server, "connected to the xDS server");
        }
        XdsEvent::Update(change) => {
            if std::mem::take(&mut lost) > 0 {
                tracing::warn!(target: XDS_LOG, "the xDS server sends rules again");
            }
            match change.as_ref() {
                Err(error) if !error.is_of_the_overlay() => metrics.xds.nacks.inc(),
                Ok(rules) if !rules.loaded.refused_domains.is_empty() => metrics.xds.nacks.inc(),
                _ => metrics.xds.acks.inc(),
            }
            take(&generations, Some(*change), leased);
        }
        XdsEvent::Disconnected { error, retry_in } => {
            metrics.xds.up.set(0);
            metrics.xds.lost.inc();
            let has_rules = generations.any();
            let retry_in_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
            if lost.is_multiple_of(LOSSES_PER_WARNING) {
                tracing::warn!(target: XDS_LOG, %error, has_rules, retry_in_ms, "no connection to the xDS server");
            } else {
                tracing::debug!(target: XDS_LOG, %error, has_rules, retry_in_ms, "no connection to the xDS server");
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
        let take = |change| take(&generations, Some(change), leased);
        overlay.poll(take).await;
    }
}

/// Ends each shadow mode and each override at its time, for ever.
async fn end_timed(generations: Arc<Generations>, clock: Arc<dyn Clock>) {
    let mut changes = generations.subscribe();
    loop {
        changes.mark_unchanged();
        let now = clock.now();
        let ending = Arc::clone(&generations);
        // It may copy the rules.
        let next = tokio::task::spawn_blocking(move || ending.end_timed(now)).await;
        match next.unwrap_or_default() {
            // The sender lives as long as `generations`.
            None => drop(changes.changed().await),
            Some(end) => {
                let left = Duration::from_micros(end.since_us(clock.now()));
                sleep(left.min(SHADOW_POLL_MAX)).await;
            }
        }
    }
}

/// The xDS client, if the settings select one.
pub(super) fn xds_client(settings: &Settings) -> Result<Option<XdsClient>, AppError> {
    if settings.xds.config_type == ConfigType::File {
        return Ok(None);
    }
    if let Some(rules) = &settings.rules_path {
        return Err(AppError::Setting(format!(
            "CONFIG_TYPE selects an xDS server and the rules also come from {}; set only one of them",
            rules.display()
        )));
    }
    XdsClient::new(&settings.xds, isolating(&settings.rules))
        .map(Some)
        .map_err(|error| AppError::Setting(error.to_string()))
}
