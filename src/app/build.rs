//! Builds the service from its settings: metrics, store, certificates, rules source, traces.
//!
//! What it deliberately does not do: spawn tasks or answer requests (`lifecycle`).

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use super::error::AppError;
use super::hash_key::shown_values;
use super::listeners::Listeners;
use super::snapshot::Snapshots;
use super::tls::{CertificateReloader, tls_error};
use super::{decisions, rules, store, traces};
use crate::admin::{AdminToken, JsonService, LogLevelSwitch};
use crate::answer_memory::AnswerMemory;
use crate::capture::Capture;
use crate::clock::Clock;
use crate::grpc::{Health, Routes, ServerParts, routes};
use crate::metrics::Metrics;
use crate::notify::Webhook;
use crate::pipeline::{CandidatePartitions, Generations, Parts, Pipeline};
use crate::settings::memory_limit::MemoryLimit;
use crate::settings::{MEMORY_MIN, Settings};
use crate::store::{Setup, Worker, memory};
use crate::tls::ServerFiles;
use crate::top_keys::TopKeys;
use crate::xds::XdsClient;
use tollgate_limiter::Timestamp;

/// A service that is built and not yet running.
pub struct App {
    pub(super) settings: Settings,
    pub(super) listeners: Listeners,
    pub(super) service: Arc<Pipeline>,
    pub(super) answers: Arc<AnswerMemory>,
    /// What decides, and what others read of it.
    pub parts: Parts,
    /// Workers, grouped by store.
    pub(super) workers: Vec<Vec<Worker>>,
    pub(super) cores: usize,
    pub(super) json: Arc<JsonService>,
    /// Changes the log filter at run time, if something does.
    pub log_level: Option<LogLevelSwitch>,
    pub(super) certificates: Certificates,
    pub(super) admin_token: Option<AdminToken>,
    /// The password of the Redis protocol.
    pub(super) resp_password: Option<Arc<[u8]>>,
    /// Source of the rules; none when they come from files.
    pub(super) xds: Option<XdsClient>,
    /// What sends events of limits; none when it is not configured.
    pub(super) webhook: Option<Webhook>,
    /// What writes snapshots; none when they are not configured.
    pub(super) snapshots: Option<Snapshots>,
}

/// TLS of each port that has it.
pub(super) struct Certificates {
    pub(super) grpc: Option<CertificateReloader>,
    pub(super) admin: Option<CertificateReloader>,
    pub(super) ingresses: Option<CertificateReloader>,
}

/// Memory limit of buckets, in bytes, when neither a setting nor the system gives one.
const MEMORY_MAX_UNKNOWN: u64 = 256 << 20;

/// Default number of partitions: one for each core while there are few. A worker wakes every
/// partition that it has a check for, and one partition decides for a dozen cores
/// (`docs/performance.md`), so many cores share.
fn default_partitions(cores: usize) -> usize {
    cores.min(8).max(cores / 4)
}

/// Memory limit of buckets, in bytes. Logs the limit and its reason.
fn memory_max(settings: &Settings) -> usize {
    let (bytes, why) = match (settings.memory_max, MemoryLimit::of_current_process()) {
        (Some(bytes), _) => (bytes, "set by --memory-max".to_owned()),
        (None, Some(limit)) => (
            limit.bucket_bytes().max(MEMORY_MIN),
            format!(
                "half of the {} bytes in {}",
                limit.bytes,
                limit.from.display()
            ),
        ),
        (None, None) => (
            MEMORY_MAX_UNKNOWN,
            "the default; the memory of this system is unknown".to_owned(),
        ),
    };
    tracing::info!(bytes, why, "memory limit of buckets");
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// What stores are built from.
fn store_setup(
    settings: &Settings,
    cores: usize,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
    capture: &Arc<Capture>,
) -> Setup {
    Setup {
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        memory: memory::MemoryLimits {
            partitions: settings
                .partitions
                .map_or_else(|| default_partitions(cores), usize::from),
            queue_checks_max: settings.mailbox_checks_max,
            memory_max: memory_max(settings),
            when_full: settings.on_memory_full,
        },
        recorder: Some(Arc::<Capture>::clone(capture)),
    }
}

/// How much of the file of the password is read.
const RESP_PASSWORD_BYTES_MAX: u64 = 1 << 20;

/// Reads the password of the Redis protocol: a line.
fn resp_password_of(path: &Path) -> Result<Arc<[u8]>, AppError> {
    let read = crate::regular_file::read(path, RESP_PASSWORD_BYTES_MAX);
    let read = read.map_err(|error| error.to_string());
    let password = read.and_then(|password| match password.trim_ascii() {
        b"" => Err("the file is empty; write the password to it".to_owned()),
        password => Ok(Arc::from(password)),
    });
    password.map_err(|why| {
        AppError::Setting(format!("--resp-password-file: {}: {why}", path.display()))
    })
}

// === impl Certificates ===

impl Certificates {
    fn load(settings: &Settings, metrics: &Metrics, now: Timestamp) -> Result<Self, AppError> {
        let reloader = |port, files: Option<ServerFiles>| {
            let reloader = files.map(|files| {
                CertificateReloader::new(port, files, &settings.grpc_tls, metrics, now)
            });
            reloader.transpose()
        };
        let grpc_files = settings.grpc_tls.server_files();
        let grpc_files = grpc_files.map_err(|error| tls_error("grpc", &error))?;
        Ok(Self {
            grpc: reloader("grpc", grpc_files)?,
            admin: reloader("admin", settings.admin.server_files())?,
            ingresses: reloader("ingress", settings.ingresses.server_files())?,
        })
    }
}

// === impl App ===

impl App {
    /// tonic's routes of this service, without a port. Tests compare their answers with those of
    /// our HTTP/2 server.
    ///
    /// # Errors
    ///
    /// When something in the build is wrong.
    #[doc(hidden)]
    pub fn routes(&self, health: &Health) -> Result<Routes, AppError> {
        let routes = routes(self.server_parts(health));
        routes.map_err(|error| AppError::Defect(error.to_string()))
    }

    pub(super) fn server_parts<'a>(&'a self, health: &'a Health) -> ServerParts<'a> {
        ServerParts {
            pipeline: &self.service,
            answers: &self.answers,
            settings: &self.settings,
            health,
            metrics: &self.parts.metrics,
        }
    }

    /// Builds the service. No request is answered and no task runs until [`App::run`]; only the
    /// threads that export spans and run handshakes are started. When tracing is enabled this must
    /// be called within a runtime.
    ///
    /// # Errors
    ///
    /// When the system provides no randomness, a configured store or certificate cannot be used, or
    /// this program has a defect.
    pub fn build(
        settings: Settings,
        listeners: Listeners,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AppError> {
        let metrics = Metrics::new().map_err(|error| AppError::Defect(error.to_string()))?;
        if settings.statsd.sanitize_descriptor_metric_dots {
            metrics.limits.replace_dots();
        }
        let metrics = Arc::new(metrics);
        let cores = settings.cores.map_or_else(
            || std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            usize::from,
        );
        let capture = Capture::new();
        let setup = store_setup(&settings, cores, &clock, &metrics, &capture);
        let generations = Generations::new(Arc::clone(&metrics))
            .with_clock(Arc::clone(&clock))
            .with_overrides_max(settings.admin.overrides_max as usize);
        let generations = Arc::new(generations);
        let built = store::open(&setup, &settings, &generations)?;
        let (store, mut workers) = built.store;
        // As many as those of buckets, each with a queue as long.
        let of_candidates = memory::MemoryLimits {
            memory_max: settings.candidate.memory_max,
            ..setup.memory
        };
        let (partitions, candidates) =
            CandidatePartitions::new(of_candidates, &clock, &metrics).map_err(AppError::Defect)?;
        let values = shown_values(&settings.top_keys)?;
        let now = clock.now();
        let certificates = Certificates::load(&settings, &metrics, now)?;
        let admin_token = settings
            .admin
            .admin_token_file
            .as_deref()
            .map(AdminToken::read);
        let admin_token = admin_token
            .transpose()
            .map_err(|error| AppError::Setting(format!("--admin-token-file: {error}")))?;
        let resp_password = settings.ingresses.resp_password_file.as_deref();
        let resp_password = resp_password.map(resp_password_of).transpose()?;
        let xds = rules::xds_client(&settings)?;
        let traces = traces::start(&settings.tracing, &metrics);
        if settings.candidate.path.is_some() {
            generations.expect_candidate();
        }
        let (decisions, webhook) =
            decisions::build(&settings, cores, values, &capture, (&clock, &metrics))?;
        let top_keys = TopKeys::new(
            values,
            Arc::clone(&clock),
            &metrics,
            cores,
            settings.top_keys.memory_max,
        );
        let answers = AnswerMemory::of(&settings, &metrics);
        let parts = Parts {
            generations,
            store,
            clock,
            metrics,
            hash: built.hash,
            traces,
            decisions,
            top_keys: Arc::new(top_keys),
        };
        let service = Pipeline::new(parts.clone(), (&settings).into());
        let service = Arc::new(service.with_candidates(partitions));
        workers.push(candidates);
        let json = JsonService::new(Arc::clone(&service)).map_err(AppError::Defect)?;
        Ok(Self {
            settings,
            listeners,
            service,
            answers,
            parts,
            workers,
            cores,
            json: Arc::new(json),
            log_level: None,
            certificates,
            admin_token,
            resp_password,
            xds,
            webhook,
            snapshots: built.snapshots,
        })
    }
}
