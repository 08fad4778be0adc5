//! What one worker thread does to keep and pass on its decisions.
//!
//! [`Recorder::begin`] says before a decision which readers may want it, so that its request is
//! kept until then. In most cases that is a comparison and an atomic load.
//! [`Recorder::choose`] counts what is skipped, and [`Recorder::keep`] makes one [`KeptDecision`]
//! for all readers.

use std::sync::Arc;

use tollgate_limiter::{Request, Timestamp};

use super::Shared;
use super::kept_decision::KeptDecision;
use super::ring::RingWriter;
use crate::ended::Ended;
use tollgate_admin_api::Verdict;

/// Keeps the decisions of one thread.
pub struct Recorder {
    shared: Arc<Shared>,
    ring: RingWriter,
    /// The number of the thread.
    thread: usize,
}

/// Which readers may want a decision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Whether any does.
    pub(crate) any: bool,
    ring: bool,
    log: bool,
    /// A bit for each tap, of the list with this version.
    taps: u64,
    taps_version: u64,
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>, ring: RingWriter, thread: usize) -> Self {
        Self {
            shared,
            ring,
            thread,
        }
    }

    /// Which readers may want the decision of this request.
    #[inline]
    pub(crate) fn begin(&mut self, request: &Request<'_>, now_us: u64) -> Wanted {
        let ring = self.ring.admit(now_us);
        let mut wanted = Wanted {
            any: ring,
            ring,
            ..Wanted::default()
        };
        if self.shared.has_readers() {
            self.look_for_readers(request, &mut wanted);
        }
        wanted
    }

    #[cold]
    fn look_for_readers(&self, request: &Request<'_>, wanted: &mut Wanted) {
        wanted.log = self.shared.setup.log.is_some();
        if self.shared.taps.any() {
            let taps = self.shared.taps.load();
            wanted.taps = taps.can_match(request, &self.shared.setup.values);
            wanted.taps_version = taps.version;
        }
        wanted.any = wanted.ring || wanted.log || wanted.taps != 0;
    }

    /// Leaves out readers that surely do not get this decision, and counts what they miss. None if
    /// no reader is left.
    pub(crate) fn choose(&mut self, mut wanted: Wanted, verdict: Verdict) -> Option<Wanted> {
        if wanted.log || wanted.taps != 0 {
            let now = self.shared.setup.clock.now();
            wanted.log = wanted.log
                && self
                    .shared
                    .setup
                    .log
                    .as_ref()
                    .is_some_and(|log| log.may_pass(verdict, now));
            self.choose_taps(&mut wanted, verdict, now);
        }
        wanted.any = wanted.ring || wanted.log || wanted.taps != 0;
        wanted.any.then_some(wanted)
    }

    fn choose_taps(&self, wanted: &mut Wanted, verdict: Verdict, now: Timestamp) {
        if wanted.taps == 0 {
            return;
        }
        let taps = self.shared.taps.load();
        if taps.version != wanted.taps_version {
            // A filter came or went meanwhile.
            wanted.taps = 0;
            return;
        }
        for (bit, tap) in taps.of(wanted.taps) {
            let filter = &tap.filter;
            let other_verdict = filter.verdict.is_some_and(|asked| asked != verdict);
            let is_closed = filter.is_known_before() && tap.rate.is_closed(now);
            if is_closed && !other_verdict {
                tap.skip(self.thread);
            }
            if is_closed || other_verdict {
                wanted.taps &= !bit;
            }
        }
    }

    /// Keeps a decision and passes it to the readers that [`Recorder::choose`] has left.
    #[cold]
    pub(crate) fn keep(&mut self, wanted: Wanted, ended: &Ended<'_>) {
        let mut decision = self.ring.blank();
        let Some(blank) = Arc::get_mut(&mut decision) else {
            return;
        };
        let clock = &self.shared.setup.clock;
        blank.fill(ended, clock.now());
        if wanted.log
            && let Some(log) = &self.shared.setup.log
            && log.covers(blank)
            && let Some(at) = log.admit(&**clock)
        {
            blank.at = at;
            log.send(&decision);
        }
        if wanted.taps != 0 {
            self.pass_to_taps(wanted, &decision);
        }
        if wanted.ring {
            self.ring.put(decision);
        }
    }

    /// Passes a candidate's decision to the subscriptions that want it. It is not kept and not
    /// logged: a reader of those would take it for an answer.
    #[cold]
    pub(crate) fn pass_candidate(&mut self, ended: &Ended<'_>) {
        let mut wanted = Wanted::default();
        let taps = self.shared.taps.load();
        wanted.taps = taps.can_match(ended.request, &self.shared.setup.values);
        wanted.taps_version = taps.version;
        drop(taps);
        let verdict = ended.end.verdict();
        self.choose_taps(&mut wanted, verdict, self.shared.setup.clock.now());
        if wanted.taps != 0 {
            let mut decision = KeptDecision::default();
            decision.fill(ended, self.shared.setup.clock.now());
            self.pass_to_taps(wanted, &Arc::new(decision));
        }
    }

    fn pass_to_taps(&self, wanted: Wanted, decision: &Arc<KeptDecision>) {
        let taps = self.shared.taps.load();
        if taps.version != wanted.taps_version {
            return;
        }
        for (_, tap) in taps.of(wanted.taps) {
            if !tap.filter.matches(decision, &self.shared.setup.values) {
                continue;
            }
            match tap.rate.admit(|| self.shared.setup.clock.now()) {
                Ok(_) => tap.publish(decision),
                Err(_) => tap.skip(self.thread),
            }
        }
    }

    /// Shows readers what was counted.
    #[inline]
    pub(crate) fn flush(&mut self) {
        self.ring.flush();
    }
}
