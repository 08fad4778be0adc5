//! What the endpoints of the admin API share: the parts that they read and change, and the bounds
//! of their requests.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::LogLevelSwitch;
use super::changes::{BODIES_MAX, CHANGES_MAX};
use super::http::ClientConnection;
use super::json::JsonService;
use super::query::ApiFailure;
use super::quotas::RuleSums;
use super::rates::LimitRates;
use super::readiness::Readiness;
use super::record::RecordingSetup;
use super::state::StateHub;
use crate::admin_api::instance_name;
use crate::answer_memory::AnswerMemory;
use crate::pipeline::{Parts, Pipeline};
use crate::quota::registry::QuotaRegistry;
use crate::value_hash::ShownValues;

/// The parts of the admin API.
pub struct AdminApi {
    /// The name of this replica.
    pub(super) instance: Arc<str>,
    /// What they read and change.
    pub parts: AdminParts,
    /// How values of descriptors are shown.
    pub(super) values: ShownValues,
    pub(super) rates: Arc<LimitRates>,
    pub(super) states: Arc<StateHub>,
    /// Open streams of events.
    pub(super) streams: Arc<Semaphore>,
    /// Long responses in progress.
    responses: Arc<Semaphore>,
    /// Scrapes in progress: of a port that everybody may reach, so that they do not stop others.
    pub(super) scrapes: Arc<Semaphore>,
    /// Requests for a change whose body is being read.
    pub(super) bodies: Semaphore,
    /// Changes in progress.
    pub(super) changes: Semaphore,
}

/// What an [`AdminApi`] is made of.
pub struct AdminParts {
    /// Readiness of the service.
    pub readiness: Readiness,
    /// Decisions over JSON; none when `/json` is disabled.
    pub json: Option<Arc<JsonService>>,
    /// Changes the log filter; none when it cannot be changed.
    pub log_level: Option<LogLevelSwitch>,
    /// What decides.
    pub engine: Parts,
    /// Plans descriptors.
    pub pipeline: Arc<Pipeline>,
    /// Memory of answers that are not sent yet.
    pub(crate) answers: Arc<AnswerMemory>,
    /// Buckets and streams of the quota service.
    pub(crate) quotas: Arc<QuotaRegistry>,
    /// Most streams of events.
    pub streams_max: usize,
    /// What recordings may have.
    pub recordings: RecordingSetup,
    /// Whether requests carry a token.
    pub has_token: bool,
}

/// Most long responses in progress, and most scrapes; further requests get 503.
const RESPONSES_MAX: usize = 16;

// === impl AdminApi ===

impl AdminApi {
    /// An API of these parts.
    pub fn new(parts: AdminParts) -> Arc<Self> {
        let streams_max = parts.streams_max.min(Semaphore::MAX_PERMITS);
        let engine = &parts.engine;
        let (generations, clock) = (Arc::clone(&engine.generations), Arc::clone(&engine.clock));
        let quotas = Arc::clone(&parts.quotas);
        let sums = Box::new(move || RuleSums::new(&quotas));
        let rates = LimitRates::new(generations, clock, sums);
        Arc::new(Self {
            instance: instance_name().into(),
            values: *engine.decisions.values(),
            rates: Arc::new(rates),
            states: Arc::default(),
            streams: Arc::new(Semaphore::new(streams_max)),
            responses: Arc::new(Semaphore::new(RESPONSES_MAX)),
            scrapes: Arc::new(Semaphore::new(RESPONSES_MAX)),
            bodies: Semaphore::new(BODIES_MAX),
            changes: Semaphore::new(CHANGES_MAX),
            parts,
        })
    }

    /// Takes the place of a long response.
    pub(super) fn long_response(&self) -> Result<OwnedSemaphorePermit, ApiFailure> {
        let permit = Arc::clone(&self.responses).try_acquire_owned();
        let why = "too many long responses are in progress; try again later";
        permit.map_err(|_| ApiFailure::unavailable(why))
    }

    /// Samples the rates of rules for ever.
    pub async fn sample_rates(self: Arc<Self>) {
        Arc::clone(&self.rates).run().await;
    }

    /// Who made a request, for the audit: the name in the client's certificate, else the token,
    /// else the client's address.
    pub(super) fn who(&self, client: &ClientConnection) -> String {
        if let Some(name) = &client.certificate {
            return format!("certificate {name}");
        }
        if self.parts.has_token {
            return "token".to_owned();
        }
        client
            .peer
            .map_or_else(|| "unknown".to_owned(), |peer| peer.ip().to_string())
    }
}
