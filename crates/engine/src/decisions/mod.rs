//! Single decisions: the last ones, those that a subscription asks for, and the decision log.
//!
//! | file or folder | what |
//! | --- | --- |
//! | `recorder` | what a worker thread does with its decisions |
//! | `kept_decision` | one decision, compact; makes its JSON record |
//! | `limit_events` | events of limits with `notify` |
//! | `reason` | why a request was answered as it was |
//! | `ring` | the last decisions of one thread |
//! | `filter` | which decisions a reader asks for |
//! | `taps` | subscriptions, for `/events` and `tollgate tap` |
//! | `log` | the decision log |
//!
//! Decisions that no reader asks for cost a few instructions: the request is not kept, and nothing
//! is allocated or locked. Every memory here is bounded.
//!
//! What it deliberately does not do: HTTP (`admin`), count (`metrics`, `top_keys`).

mod filter;
mod kept_decision;
mod limit_events;
mod log;
mod reason;
mod recorder;
mod ring;
mod taps;

use std::cmp::Reverse;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::filter::{CandidateFilter, DecisionFilter};
pub use self::kept_decision::KeptDecision;
pub use self::limit_events::LimitEvents;
pub(crate) use self::limit_events::has_event;
pub use self::log::{DecisionLog, LogDestination, LogFile, LogSetup};
pub use self::recorder::Recorder;
pub(crate) use self::recorder::Wanted;
use self::ring::{Ring, RingWriter};
use self::taps::Taps;
pub use self::taps::{
    FILTERS_MAX, PER_SECOND_MAX, SUBSCRIPTIONS_MAX, SubscribeError, Subscription,
};
use crate::capture::Capture;
use crate::ended::Ended;
use crate::value_hash::ShownValues;
use tollgate_admin_api::{instance_name, time_text};
use tollgate_system::clock::Clock;
use tollgate_system::per_thread::PerThread;

/// How many decisions a query returns at most.
pub const RECENT_MAX: usize = 1_000;

/// The decisions of a service. Clones share them.
#[derive(Clone)]
pub struct Decisions(Arc<Shared>);

/// The parts of [`Decisions`].
pub struct DecisionsSetup {
    /// The time of decisions.
    pub clock: Arc<dyn Clock>,
    /// How values are shown.
    pub values: ShownValues,
    /// How many decisions are kept in all; 0 keeps none.
    pub kept_max: usize,
    /// How many worker threads keep them.
    pub threads: usize,
    /// The decision log, if there is one.
    pub log: Option<DecisionLog>,
    /// Makes events of limits.
    pub events: Option<LimitEvents>,
    /// Captures requests for recordings.
    pub capture: Arc<Capture>,
}

/// Which of the last decisions a reader asks for.
#[derive(Clone, Debug, Default)]
pub struct RecentQuery {
    /// Those that match.
    pub filter: DecisionFilter,
    /// At most so many; never more than [`RECENT_MAX`].
    pub count: usize,
}

/// What all threads and readers share.
struct Shared {
    setup: DecisionsSetup,
    instance: String,
    rings: PerThread<Ring>,
    threads: AtomicUsize,
    taps: Arc<Taps>,
}

// === impl Decisions ===

impl Decisions {
    /// Keeps decisions as the setup says.
    pub fn new(setup: DecisionsSetup) -> Self {
        Self(Arc::new(Shared {
            setup,
            instance: instance_name(),
            rings: PerThread::default(),
            threads: AtomicUsize::new(0),
            taps: Arc::default(),
        }))
    }

    /// Keeps this many decisions of one worker thread, and shows values hashed. For tests and
    /// benches.
    ///
    /// # Errors
    ///
    /// When the system provides no randomness.
    #[doc(hidden)]
    pub fn alone(clock: &Arc<dyn Clock>, kept_max: usize) -> Result<Self, getrandom::Error> {
        Ok(Self::new(DecisionsSetup {
            clock: Arc::clone(clock),
            values: ShownValues::random(tollgate_admin_api::ValueMode::Hashed)?,
            kept_max,
            threads: 1,
            log: None,
            events: None,
            capture: Capture::new(),
        }))
    }

    /// Keeps the decisions of one more worker thread.
    pub fn recorder(&self) -> Recorder {
        let DecisionsSetup {
            kept_max, threads, ..
        } = self.0.setup;
        self.0.recorder(kept_max.div_ceil(threads.max(1)))
    }

    /// Passes decisions to subscriptions and keeps none.
    pub(crate) fn tap_recorder(&self) -> Recorder {
        self.0.recorder(0)
    }

    /// Whether there is a subscription.
    #[inline]
    pub(crate) fn has_taps(&self) -> bool {
        self.0.taps.any()
    }

    /// Makes the events of a request that has ended.
    pub(crate) fn notify(&self, ended: &Ended<'_>) {
        let DecisionsSetup {
            clock, log, events, ..
        } = &self.0.setup;
        if let Some(events) = events {
            events.make(ended, &self.0.instance, clock.now(), log.as_ref());
        }
    }

    /// Captures requests for recordings.
    pub fn capture(&self) -> &Arc<Capture> {
        &self.0.setup.capture
    }

    /// How values are shown.
    pub fn values(&self) -> &ShownValues {
        &self.0.setup.values
    }

    /// The last decisions that match, newest first.
    pub fn recent(&self, query: &RecentQuery) -> tollgate_admin_api::Decisions {
        let (shared, values) = (&self.0, self.values());
        let rings = shared.rings.all();
        let mut kept: Vec<_> = rings.iter().flat_map(|ring| ring.decisions()).collect();
        kept.sort_by_key(|decision| Reverse(decision.at));
        let matching = kept
            .iter()
            .filter(|decision| query.filter.matches(decision, values));
        tollgate_admin_api::Decisions {
            instance: shared.instance.clone(),
            at: time_text(shared.setup.clock.now()),
            values: values.mode(),
            decisions: matching
                .take(query.count.min(RECENT_MAX))
                .map(|decision| decision.record(values))
                .collect(),
            kept: kept.len() as u64,
            skipped: rings
                .iter()
                .fold(0, |sum: u64, ring| sum.wrapping_add(ring.skipped())),
        }
    }

    /// Decisions that match, as they are made, at most `per_second_max` in any second. More than
    /// [`PER_SECOND_MAX`] counts as that.
    ///
    /// # Errors
    ///
    /// When there are too many subscriptions.
    pub fn subscribe(
        &self,
        filter: DecisionFilter,
        per_second_max: NonZeroU32,
    ) -> Result<Subscription, SubscribeError> {
        self.0
            .taps
            .subscribe(filter, per_second_max, *self.values())
    }

    /// Ends the decision log: what waits is written, for two seconds at most.
    pub async fn stop(&self) {
        if let Some(log) = &self.0.setup.log {
            log.stop().await;
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Whether anybody but the ring may want decisions.
    #[inline]
    fn has_readers(&self) -> bool {
        self.taps.any() || self.setup.log.is_some()
    }

    fn recorder(self: &Arc<Self>, slots: usize) -> Recorder {
        let ring = RingWriter::new(self.rings.add(Ring::new(slots)));
        let thread = self.threads.fetch_add(1, Ordering::Relaxed);
        Recorder::new(Arc::clone(self), ring, thread)
    }
}
