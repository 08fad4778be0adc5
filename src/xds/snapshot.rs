//! The last resources of the server, and the overlay that is applied to them.
//!
//! The overlay is a file, so it changes without the server. Then the last resources are loaded
//! again. One lock is held while rules are loaded and given away, so the newest rules come last.
//!
//! What it deliberately does not do: sleep between polls (`app`), or talk to a server (`mod`).

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::regular_file::FileStamp;
use crate::rules::file::Options;
use crate::rules::isolation::LastGood;
use crate::rules::reload::{LoadError, RulesUpdate, refusal};
use crate::xds::proto::envoy::service::discovery::v3::DiscoveryResponse;
use crate::xds::resources::{self, Config};

/// The resources in use, shared by the client and the watcher of the overlay.
#[derive(Clone, Debug)]
pub(super) struct Snapshot(Arc<Mutex<Current>>);

/// Polls the overlay of rules from an xDS server.
#[derive(Clone, Debug)]
pub struct OverlayWatcher(Snapshot);

#[derive(Debug, Default)]
struct Current {
    options: Options,
    /// The resources of the rules in use.
    good: LastGood<Config>,
    /// The last response of which something is in use, or would be without the overlay.
    answer: Option<Arc<DiscoveryResponse>>,
    /// The overlay at the last poll.
    seen: Option<Stamp>,
    /// The overlay that was last read.
    tried: Option<Stamp>,
    /// The last error of reading, as it was reported.
    unreadable: Option<String>,
}

/// The stamp of the overlay, or why there is none. No stamp without an overlay.
type Stamp = Result<Option<FileStamp>, String>;

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn new(options: Options) -> Self {
        Self(Arc::new(Mutex::new(Current {
            options,
            ..Current::default()
        })))
    }

    /// Loads a response on a blocking thread, and gives the result away before any other. Gives the
    /// reason for which the server's resources are rejected.
    pub(super) async fn load(
        &self,
        answer: Arc<DiscoveryResponse>,
        emit: impl FnOnce(RulesUpdate),
    ) -> Result<(), String> {
        let mut current = self.0.lock().await;
        let update = current.load(&answer).await;
        let rejected = match &update {
            Err(error) if !error.is_of_the_overlay() => {
                if current.options.isolate_domains && error.waits_for_the_overlay() {
                    current.answer = Some(answer);
                }
                Err(error.to_string())
            }
            update => {
                current.answer = Some(answer);
                let refused = update.is_ok().then(|| refusal(update)).flatten();
                refused.map_or(Ok(()), Err)
            }
        };
        emit(update);
        rejected
    }

    /// The watcher of the overlay; none without an overlay.
    pub(super) async fn overlay(&self) -> Option<OverlayWatcher> {
        let current = self.0.lock().await;
        current.options.overlay.as_ref()?;
        Some(OverlayWatcher(self.clone()))
    }
}

// === impl OverlayWatcher ===

impl OverlayWatcher {
    /// Polls once. When the overlay has changed and is stable, loads the last resources again.
    pub async fn poll(&self, emit: impl FnOnce(RulesUpdate)) {
        let mut current = self.0.0.lock().await;
        let stamp = current.stamp().await;
        let Some(answer) = current.answer.clone() else {
            return;
        };
        if current.tried.as_ref() == Some(&stamp) || current.seen.as_ref() != Some(&stamp) {
            current.seen = Some(stamp);
            return;
        }
        let known = current.unreadable.clone();
        let update = current.load(&answer).await;
        // An overlay that cannot be read is tried again, and reported once.
        if known.is_none() || known != current.unreadable {
            emit(update);
        }
    }
}

// === impl Current ===

impl Current {
    async fn load(&mut self, answer: &Arc<DiscoveryResponse>) -> RulesUpdate {
        let before = self.stamp().await;
        let (answer, options) = (Arc::clone(answer), self.options.clone());
        let good = self.good.clone();
        let update = spawn_blocking(move || resources::load(&answer, &options, &good))
            .await
            .unwrap_or_else(|panic| Err(LoadError::Defect(panic.to_string())));
        self.unreadable = match &update {
            Err(LoadError::Overlay(error, _)) => Some(error.to_string()),
            _ => None,
        };
        // A change during the read is found by the next poll.
        let stable = self.stamp().await == before && self.unreadable.is_none();
        self.tried = stable.then_some(before);
        update
    }

    async fn stamp(&self) -> Stamp {
        let Some(path) = self.options.overlay.clone() else {
            return Ok(None);
        };
        spawn_blocking(move || FileStamp::at(path))
            .await
            .map_err(|panic| panic.to_string())?
            .map(Some)
            .map_err(|error| error.to_string())
    }
}
