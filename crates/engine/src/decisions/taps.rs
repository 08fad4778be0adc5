//! Subscriptions: decisions as they are made, filtered and sampled.
//!
//! Subscriptions with the same filter share one sampling: a hundred open pages cost as much as one.
//! A decision that passes the filter and the rate is put into a bounded channel, once. A reader
//! that is too slow loses the oldest, which count as skipped; it never slows a decision.
//!
//! Without a subscription a request costs one atomic load.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tollgate_limiter::Request;

use super::filter::DecisionFilter;
use super::kept_decision::KeptDecision;
use crate::value_hash::ShownValues;
use tollgate_admin_api::DecisionRecord;
use tollgate_system::event_rate::EventRate;
use tollgate_system::per_thread::lock;

/// How many filters can be subscribed to at once. A bit of a `u64` stands for each.
pub const FILTERS_MAX: usize = 64;

/// How many subscriptions there can be at once.
pub const SUBSCRIPTIONS_MAX: usize = 1_024;

/// The most decisions a second that a subscription can ask for.
pub const PER_SECOND_MAX: u32 = 1_000;

/// How many decisions wait for a reader.
const WAITING_MAX: usize = 256;

/// How many counters of skipped decisions a filter has, so that threads do not share one.
const COUNTERS: usize = 16;

/// All subscriptions.
#[derive(Debug, Default)]
pub(super) struct Taps {
    current: ArcSwap<TapList>,
    /// How many filters there are.
    count: AtomicUsize,
    /// Held while the list changes.
    changing: Mutex<()>,
}

/// The filters that are subscribed to. A new list replaces it at each change.
#[derive(Debug, Default)]
pub(super) struct TapList {
    /// Differs from list to list.
    pub(super) version: u64,
    taps: Vec<Arc<Tap>>,
}

/// One filter and its subscriptions.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) filter: DecisionFilter,
    /// The largest rate that a subscription asks for.
    pub(super) rate: EventRate,
    sender: Sender<Arc<KeptDecision>>,
    skipped: [PaddedCounter; COUNTERS],
    members: Mutex<Vec<NonZeroU32>>,
}

/// A counter in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

/// Decisions that match a filter, as they are made.
#[derive(Debug)]
pub struct Subscription {
    taps: Arc<Taps>,
    tap: Arc<Tap>,
    receiver: Receiver<Arc<KeptDecision>>,
    per_second_max: NonZeroU32,
    rate: EventRate,
    values: ShownValues,
    /// Skipped decisions of the tap that this subscription has reported or that came before it.
    seen: u64,
    /// Skipped decisions of this subscription alone that were not reported yet.
    own: u64,
}

/// Why there is no subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubscribeError {
    /// There are as many filters as there can be.
    #[error("there are {FILTERS_MAX} different filters already; end a tap, or use the same filter")]
    TooManyFilters,
    /// There are as many subscriptions as there can be.
    #[error("there are {SUBSCRIPTIONS_MAX} subscriptions already; close a page or a tap")]
    TooManySubscriptions,
}

// === impl Taps ===

impl Taps {
    /// Whether there is a subscription.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The filters now.
    pub(super) fn load(&self) -> Guard<Arc<TapList>> {
        self.current.load()
    }

    /// Subscribes.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        filter: DecisionFilter,
        per_second_max: NonZeroU32,
        values: ShownValues,
    ) -> Result<Subscription, SubscribeError> {
        let per_second_max = per_second_max.get().min(PER_SECOND_MAX);
        let per_second_max = NonZeroU32::new(per_second_max).unwrap_or(NonZeroU32::MIN);
        let _changing = lock(&self.changing);
        let list = self.current.load_full();
        let members = list.taps.iter().map(|tap| tap.members().len());
        if members.sum::<usize>() >= SUBSCRIPTIONS_MAX {
            return Err(SubscribeError::TooManySubscriptions);
        }
        let known = list.taps.iter().find(|tap| tap.filter == filter);
        let tap = match known {
            Some(tap) => Arc::clone(tap),
            None if list.taps.len() >= FILTERS_MAX => return Err(SubscribeError::TooManyFilters),
            None => {
                let tap = Arc::new(Tap::new(filter, per_second_max));
                let taps = list.taps.iter().chain([&tap]).cloned().collect();
                self.replace(&list, taps);
                tap
            }
        };
        tap.join(per_second_max);
        Ok(Subscription {
            taps: Arc::clone(self),
            receiver: tap.sender.subscribe(),
            seen: tap.skipped(),
            tap,
            per_second_max,
            rate: EventRate::new(per_second_max),
            values,
            own: 0,
        })
    }

    /// Ends a subscription.
    fn leave(&self, tap: &Arc<Tap>, per_second_max: NonZeroU32) {
        let _changing = lock(&self.changing);
        if tap.leave(per_second_max) > 0 {
            return;
        }
        let list = self.current.load_full();
        let others = list.taps.iter().filter(|other| !Arc::ptr_eq(other, tap));
        self.replace(&list, others.cloned().collect());
    }

    fn replace(&self, list: &TapList, taps: Vec<Arc<Tap>>) {
        let count = taps.len();
        let version = list.version.wrapping_add(1);
        self.current.store(Arc::new(TapList { version, taps }));
        self.count.store(count, Ordering::Relaxed);
    }
}

// === impl TapList ===

impl TapList {
    /// The taps that the decision of this request can match, one bit each.
    pub(super) fn can_match(&self, request: &Request<'_>, values: &ShownValues) -> u64 {
        let matching = self.of(u64::MAX);
        let matching = matching.filter(|(_, tap)| tap.filter.can_match(request, values));
        matching.fold(0, |bits, (bit, _)| bits | bit)
    }

    /// The taps of these bits.
    pub(super) fn of(&self, bits: u64) -> impl Iterator<Item = (u64, &Tap)> {
        let each = std::iter::successors(Some(1_u64), |bit| bit.checked_mul(2));
        let taps = each.zip(self.taps.iter().map(|tap| &**tap));
        taps.filter(move |(bit, _)| bits & bit != 0)
    }
}

// === impl Tap ===

impl Tap {
    fn new(filter: DecisionFilter, per_second_max: NonZeroU32) -> Self {
        Self {
            filter,
            rate: EventRate::new(per_second_max),
            sender: broadcast::channel(WAITING_MAX).0,
            skipped: Default::default(),
            members: Mutex::default(),
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<NonZeroU32>> {
        lock(&self.members)
    }

    fn join(&self, per_second_max: NonZeroU32) {
        let mut members = self.members();
        members.push(per_second_max);
        self.rate
            .set(members.iter().copied().max().unwrap_or(per_second_max));
    }

    fn leave(&self, per_second_max: NonZeroU32) -> usize {
        let mut members = self.members();
        let place = members.iter().position(|one| *one == per_second_max);
        if let Some(place) = place {
            members.swap_remove(place);
        }
        if let Some(largest) = members.iter().copied().max() {
            self.rate.set(largest);
        }
        members.len()
    }

    /// Passes a decision to the subscriptions.
    pub(super) fn publish(&self, decision: &Arc<KeptDecision>) {
        // Without a receiver the last subscription has just ended.
        let _ = self.sender.send(Arc::clone(decision));
    }

    /// Counts a decision that matched and is not published, on behalf of a thread.
    pub(super) fn skip(&self, thread: usize) {
        let counter = thread.checked_rem(COUNTERS).unwrap_or_default();
        if let Some(counter) = self.skipped.get(counter) {
            counter.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn skipped(&self) -> u64 {
        let counters = self.skipped.iter();
        counters.fold(0, |sum: u64, counter| {
            sum.wrapping_add(counter.0.load(Ordering::Relaxed))
        })
    }
}

// === impl Subscription ===

impl Subscription {
    /// The next decision; none when the service has stopped. A future that is dropped loses
    /// nothing.
    pub async fn next(&mut self) -> Option<DecisionRecord> {
        let decision = self.next_kept().await?;
        Some(decision.record(&self.values))
    }

    /// The next decision as JSON, which all subscriptions share.
    pub async fn next_json(&mut self) -> Option<Arc<str>> {
        let decision = self.next_kept().await?;
        Some(decision.json(&self.values))
    }

    async fn next_kept(&mut self) -> Option<Arc<KeptDecision>> {
        loop {
            match self.receiver.recv().await {
                Ok(decision) => {
                    if self.rate.admit(|| decision.at).is_ok() {
                        return Some(decision);
                    }
                    self.own = self.own.saturating_add(1);
                }
                Err(RecvError::Lagged(lost)) => self.own = self.own.saturating_add(lost),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// How many decisions matched and were skipped since the last call.
    pub fn take_skipped(&mut self) -> u64 {
        let skipped = self.tap.skipped();
        let shared = skipped.wrapping_sub(std::mem::replace(&mut self.seen, skipped));
        shared.saturating_add(std::mem::take(&mut self.own))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.taps.leave(&self.tap, self.per_second_max);
    }
}
