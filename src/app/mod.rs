//! The staircase: builds the rooms, joins them, and stops them in order. Only this room knows everyone.
//!
//! Bound listeners, a clock and a shutdown future are inputs, so a test runs the whole service in its own process, at
//! whatever time it likes, in three lines.
//!
//! | file | what |
//! | --- | --- |
//! | `listeners` | the ports |
//! | `store` | the store that the settings ask for |
//! | `tls` | certificates of ports, looked after |
//! | `rules` | rules' files, looked after |
//! | `xds` | what an xDS server brings, handed on |
//! | `traces` | where decisions are traced, if they are |
//! | `running` | all of it at work, and how it stops |
//!
//! What it deliberately does not do: decide anything, read flags (`cli`), install signal handlers (`cli/serve`).

mod listeners;
mod rules;
mod running;
mod store;
mod tls;
mod traces;
mod xds;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub use self::listeners::Listeners;
use self::running::Running;
pub use self::store::{BucketName, BucketNames};
use self::tls::Guarded;
use crate::admin::{LogLevelSwitch, Token};
use crate::clock::Clock;
use crate::grpc::JsonRateLimit;
use crate::metrics::Metrics;
use crate::pipeline::Generations;
use crate::pipeline::rate_limit::{Parts, RateLimit};
use crate::rules::xds::Xds;
use crate::settings::memory_limit::MemoryLimit;
use crate::settings::{MEMORY_MIN, OnMemoryFull, Settings};
use crate::store::{Setup, Store, Worker, memory};
use crate::tls::ServerFiles;
use crate::tracing::Traces;
use tollgate_limiter::RuleSet;

/// A service, built and not yet running.
pub struct App {
    settings: Settings,
    listeners: Listeners,
    service: Arc<RateLimit>,
    store: Arc<dyn Store>,
    /// Those of each store together.
    workers: Vec<Vec<Worker>>,
    cores: usize,
    metrics: Arc<Metrics>,
    generations: Arc<Generations>,
    json: Arc<JsonRateLimit>,
    log_level: Option<LogLevelSwitch>,
    clock: Arc<dyn Clock>,
    /// TLS on the gRPC port.
    grpc_tls: Option<Guarded>,
    admin_tls: Option<Guarded>,
    admin_token: Option<Token>,
    /// Where rules come from, if not from files.
    xds: Option<Xds>,
    /// Where decisions are traced, if they are.
    traces: Option<Arc<Traces>>,
}

/// How many bytes buckets may take where neither a setting nor the system says anything.
const MEMORY_MAX_UNKNOWN: u64 = 256 << 20;

/// How often files of rules and certificates are looked at. A change counts once two looks agree, so it is taken within twice this and
/// the time it takes to read.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Why a service could not be built or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system has no randomness to key the hash with.
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    /// A mistake of ours, found at start.
    #[error("this is a defect in tollgate: {0}")]
    Defect(String),
    /// The store that the settings ask for cannot be used.
    #[error("{0}")]
    Store(String),
    /// Settings of memory contradict each other.
    #[error("{0}")]
    Memory(String),
    /// Certificates or a token that the settings name cannot be used.
    #[error("{0}")]
    Tls(String),
    /// Rules cannot be had as the settings say.
    #[error("{0}")]
    Rules(String),
    /// A part of it ended that should not.
    #[error("{part} {how}")]
    Ended {
        /// Which.
        part: &'static str,
        /// How.
        how: String,
    },
}

/// How many partitions suit so many cores: one each while they are few. A turn of a core wakes every partition it has a
/// check for, and one partition decides for a dozen cores (`docs/performance.md`), so many cores share.
fn usual_partitions(cores: usize) -> usize {
    cores.min(8).max(cores / 4)
}

/// How many bytes buckets may take, and in the log why so many.
fn memory_max(settings: &Settings) -> usize {
    let (bytes, why) = match (settings.memory_max, MemoryLimit::of_this_process()) {
        (Some(bytes), _) => (bytes, "--memory-max says so".to_owned()),
        (None, Some(limit)) => (
            limit.share().max(MEMORY_MIN),
            format!(
                "half of the {} bytes in {}",
                limit.bytes,
                limit.from.display()
            ),
        ),
        (None, None) => (
            MEMORY_MAX_UNKNOWN,
            "the system does not tell how much memory there is".to_owned(),
        ),
    };
    tracing::info!(bytes, "buckets may take {bytes} bytes: {why}");
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

// === impl App ===

impl App {
    /// Builds the service. Nothing is answered and no task runs until [`App::run`], but for the threads that send spans and that wait for handshakes. Where
    /// there are to be traces it must be called within a runtime.
    ///
    /// # Errors
    ///
    /// When the system gives no randomness, the settings name a store or certificates that cannot be, or something in the
    /// build is wrong.
    pub fn build(
        settings: Settings,
        listeners: Listeners,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AppError> {
        let metrics = Metrics::new().map_err(|error| AppError::Defect(error.to_string()))?;
        let metrics = Arc::new(metrics);
        let cores = settings.cores.map_or_else(
            || std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            usize::from,
        );
        let setup = Setup {
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            memory: memory::MemoryLimits {
                partitions: settings
                    .partitions
                    .map_or_else(|| usual_partitions(cores), usize::from),
                queue_checks_max: settings.mailbox_checks_max,
                memory_max: memory_max(&settings),
                when_full: match settings.on_memory_full {
                    OnMemoryFull::Share => memory::WhenFull::Share,
                    OnMemoryFull::Allow => memory::WhenFull::Allow,
                    OnMemoryFull::Deny => memory::WhenFull::Deny,
                    OnMemoryFull::Error => memory::WhenFull::Error,
                },
            },
        };
        let shared = store::configure(&settings.store)?;
        let (store, workers) = store::build(&setup, shared.as_deref(), &settings.store)?;
        let now = clock.now();
        let guarded = |port, files: Option<ServerFiles>| {
            let guarded =
                files.map(|files| Guarded::new(port, files, &settings.grpc_tls, &metrics, now));
            guarded.transpose()
        };
        let grpc_files = ServerFiles::of_grpc(&settings.grpc_tls);
        let grpc_tls = guarded(
            "grpc",
            grpc_files.map_err(|error| tls::refusal("grpc", &error))?,
        )?;
        let admin_tls = guarded("admin", ServerFiles::of_admin(&settings.admin))?;
        let admin_token = settings.admin.admin_token_file.as_deref().map(Token::read);
        let admin_token = admin_token
            .transpose()
            .map_err(|error| AppError::Tls(format!("--admin-token-file: {error}")))?;
        let xds = rules::from_xds(&settings)?;
        let traces = traces::start(&settings.tracing, &metrics);
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = Parts {
            generations: Arc::clone(&generations),
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            hash: store::hash(&settings.store, shared.is_some())?,
            traces: traces.clone(),
        };
        let service = Arc::new(RateLimit::new(parts, &settings));
        let json = JsonRateLimit::new(Arc::clone(&service)).map_err(AppError::Defect)?;
        Ok(Self {
            settings,
            listeners,
            service,
            store,
            workers,
            cores,
            metrics,
            generations,
            json: Arc::new(json),
            log_level: None,
            clock,
            grpc_tls,
            admin_tls,
            admin_token,
            xds,
            traces,
        })
    }

    /// Lets the admin port change the log level by `switch`.
    #[must_use]
    pub fn with_log_level(mut self, switch: LogLevelSwitch) -> Self {
        self.log_level = Some(switch);
        self
    }

    /// The metrics, to look at from outside.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Loads the rules, goes on looking for changes to them, and serves until `shutdown`; then drains. Ports answer from
    /// the start, requests for decisions with an error until there are rules. `ready` is called with the first ones.
    /// Whatever comes out of `reload` has the rules read again at once.
    ///
    /// # Errors
    ///
    /// When a port stops serving or a partition's worker ends.
    pub async fn run(
        self,
        ready: impl FnOnce(&RuleSet),
        reload: mpsc::Receiver<()>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let (delay, within) = (self.settings.drain_delay, self.settings.drain_timeout);
        let mut running = Running::start(self, reload).await?;
        running.until(ready, shutdown).await?;
        running.drain(delay, within).await;
        Ok(())
    }
}
