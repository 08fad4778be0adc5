//! What tollgate must know about a kind of store to offer it: one [`Backend`] each.
//!
//! A backend reads its URL and the settings that all shared stores have in common
//! ([`SharedSettings`]), and builds a store with its workers. It counts in the metrics that all
//! stores share (`StoreMetrics`, refunds in `tollgate_given_back_total`), and shows them with
//! `Metrics::show`. Everything else follows from the table `BACKENDS` in `src/app/store.rs`: which
//! URLs `--store` accepts, and what the contract suite in `tests/store` runs on.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{PartitionRecorder, Store, Worker};
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::Metrics;

/// One kind of store.
#[derive(Debug)]
pub struct Backend {
    /// Its name.
    pub name: &'static str,
    /// How its URLs begin, as error messages list them. Empty for a store that needs no URL.
    pub url_forms: &'static [&'static str],
    /// Whether a URL of this scheme (the text before `://`) names such a store.
    pub accepts_scheme: fn(&str) -> bool,
    /// Reads the URL and the settings. Does not connect.
    pub configure: fn(&SharedSettings) -> Result<Box<dyn StoreBuilder>, BuildError>,
    /// Reads the variables of Envoy's reference service in place of a URL. None where that service
    /// has no variables for such a store.
    pub configure_from_variables: Option<FromVariables>,
}

/// Reads a store from environment variables: [`Backend::configure_from_variables`]. Returns none
/// when the variables name no store.
pub type FromVariables = fn(
    &SharedSettings,
    &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Box<dyn StoreBuilder>>, BuildError>;

/// A store whose settings have been read, ready to be built.
pub trait StoreBuilder: fmt::Debug + Send + Sync {
    /// Makes the store and the workers that the caller must spawn.
    ///
    /// # Errors
    ///
    /// When a file that the store needs cannot be used.
    fn build(&self, setup: &Setup) -> Result<StoreWithWorkers, BuildError>;
}

/// The settings that all shared stores have in common.
#[derive(Clone, Default)]
pub struct SharedSettings {
    /// `--store`; empty when variables of Envoy's reference service name the store.
    pub url: String,
    /// The user to log in as.
    pub user: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// Files for TLS connections.
    pub tls_files: TlsFiles,
    /// The prefix of every key.
    pub key_prefix: String,
    /// Whether counters of Envoy's reference service are continued under its names.
    pub reference_keys: bool,
    /// How long an answer may take.
    pub deadline: Duration,
    /// How long the lookup of a server's name may take.
    pub lookup_timeout: Duration,
    /// How many bytes the checks that wait for one server may take.
    pub queue_bytes_max: usize,
    /// How long a denied key is remembered at most.
    pub over_limit_cache: Duration,
}

/// Files for TLS connections to a shared store.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// CA bundle, PEM; default: system roots.
    pub ca_bundle: Option<PathBuf>,
    /// Client certificate and its key, PEM.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Whether the server's certificate may have another host name.
    pub skip_hostname_verification: bool,
}

/// What every store is built from.
pub struct Setup {
    /// The time, for stores that have no time of their own.
    pub clock: Arc<dyn Clock>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// The limits of the memory store.
    pub memory: MemoryLimits,
    /// Records what partitions do.
    pub recorder: Option<Arc<dyn PartitionRecorder>>,
}

/// The limits of the memory store.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// How many partitions; at least 1.
    pub partitions: usize,
    /// How many checks may wait in one partition's queue.
    pub queue_checks_max: usize,
    /// How many bytes buckets, marks (logged hits, segments, slots) and the memory that they need
    /// to grow may take together.
    pub memory_max: usize,
    /// What to do with new keys when there is no space and nothing may be evicted.
    pub when_full: WhenFull,
}

tollgate_limiter::named! {
    /// What to do with a check for whose bucket there is no space.
    pub enum WhenFull {
        /// Count it in a bucket that all such keys of its rule share, one per partition.
        Share = "share",
        /// Let it pass uncounted.
        Allow = "allow",
        /// Deny it.
        Deny = "deny",
        /// Answer with an error.
        Error = "error",
    }
}

/// Why a store cannot be built, in a sentence.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);

/// A store, and the workers that the caller must spawn.
pub type StoreWithWorkers = (Arc<dyn Store>, Vec<Worker>);

// === impl SharedSettings ===

impl fmt::Debug for SharedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password in any part.
        f.debug_struct("SharedSettings").finish_non_exhaustive()
    }
}

// === impl Backend ===

impl Backend {
    /// Configures and builds a store in one step.
    ///
    /// # Errors
    ///
    /// When the URL or a file cannot be used.
    pub fn build(
        &self,
        settings: &SharedSettings,
        setup: &Setup,
    ) -> Result<StoreWithWorkers, BuildError> {
        (self.configure)(settings)?.build(setup)
    }
}
