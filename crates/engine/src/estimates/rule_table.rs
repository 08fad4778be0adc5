//! The histograms of rules, found by fingerprint, in a table of fixed size.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::histogram::Histogram;

/// Commits of a rule before its estimate is used.
pub(super) const RULE_COMMITS_MIN: u32 = 16;

/// A rule can have one of so many places.
const PLACES: usize = 8;

#[derive(Debug)]
pub(super) struct RuleTable {
    slots: Box<[Slot]>,
}

/// One rule.
#[derive(Debug, Default)]
struct Slot {
    /// The fingerprint, which is never 0 here; 0 for none.
    rule: AtomicU64,
    /// Whether it was used since another rule looked for a place.
    used: AtomicBool,
    /// Made for the first rule that has the slot.
    histogram: OnceLock<Box<Histogram>>,
}

// === impl RuleTable ===

impl RuleTable {
    /// As many rules as fit in this many bytes, at least [`PLACES`].
    pub(super) fn new(bytes: usize) -> Self {
        let slots = (bytes / (size_of::<Slot>() + size_of::<Histogram>())).max(PLACES);
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
        }
    }

    /// The most bytes that it uses: histograms are made when they are needed.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * (size_of::<Slot>() + size_of::<Histogram>())
    }

    /// The quantile of a rule that has enough commits.
    pub(super) fn amount(&self, rule: u64, percent: u8) -> Option<u64> {
        let rule = rule.max(1);
        let slot = self
            .places(rule)
            .find(|slot| slot.rule.load(Relaxed) == rule)?;
        let histogram = slot.histogram.get()?;
        slot.mark_used();
        (histogram.total() >= RULE_COMMITS_MIN).then(|| histogram.quantile(percent))
    }

    /// Adds an amount. True if another rule lost its place.
    pub(super) fn learn(&self, rule: u64, amount: u64) -> bool {
        let rule = rule.max(1);
        let (slot, replaced) = match self
            .places(rule)
            .find(|slot| slot.rule.load(Relaxed) == rule)
        {
            Some(slot) => (Some(slot), false),
            None => self.insert(rule),
        };
        // Another thread took the place at the same time: this amount is lost.
        let Some(slot) = slot else { return false };
        slot.mark_used();
        slot.histogram
            .get_or_init(|| Box::new(Histogram::new()))
            .learn(amount);
        replaced
    }

    /// Gives a rule a place: a free one, else that of a rule that was not used recently.
    #[cold]
    fn insert(&self, rule: u64) -> (Option<&Slot>, bool) {
        let free = self.places(rule).find(|slot| slot.rule.load(Relaxed) == 0);
        let idle = || self.places(rule).find(|slot| !slot.used.load(Relaxed));
        let place = free.or_else(idle).or_else(|| {
            for slot in self.places(rule) {
                slot.used.store(false, Relaxed);
            }
            self.places(rule).next()
        });
        let Some(slot) = place else {
            return (None, false);
        };
        let was = slot.rule.load(Relaxed);
        if slot
            .rule
            .compare_exchange(was, rule, Relaxed, Relaxed)
            .is_err()
        {
            return (None, false);
        }
        // A thread that still has the old rule's slot can add one of its amounts.
        if let Some(histogram) = slot.histogram.get() {
            histogram.clear();
        }
        (Some(slot), was != 0)
    }

    fn places(&self, rule: u64) -> impl Iterator<Item = &Slot> {
        let count = self.slots.len();
        let start = usize::try_from(rule % count as u64).unwrap_or_default();
        (0..PLACES).filter_map(move |at| self.slots.get((start + at) % count))
    }
}

// === impl Slot ===

impl Slot {
    fn mark_used(&self) {
        // Without the write the cache line stays shared by all cores.
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }
}
