//! The keys with the most hits of a stream, in bounded memory, with a bound on the error.
//!
//! The algorithm is that of Misra and Gries with decrements in batches: Anderson, Bevin, Lang,
//! Liberty, Rhodes, Thaler, "A High-Performance Algorithm for Identifying Frequent Items in Data
//! Streams", IMC 2017. It is isomorphic to Space-Saving (Agarwal et al., "Mergeable Summaries",
//! PODS 2012). Each key in the table has a count. When the table is full, a number is subtracted
//! from all counts, and keys without a count are dropped. A count is thus never too large, and too
//! small by at most the sum of all numbers subtracted: the error.
//!
//! Each key has two counts, of hits asked for and of hits refused, and a key stays while one of
//! them is above 0. Each kind has a number of its own that is subtracted, so each keeps its
//! guarantee. A third count, of hits that would have been refused, goes with its key: it is too
//! small by at most the error of hits asked for, which they are a part of.
//!
//! With a capacity of C, at least 3C/16 counts of a kind lose that number each time, so its error
//! is at most 16/3C of the hits of that kind. Skewed traffic has a far smaller error.

use super::key_table::{Budget, KeyTable};
use tollgate_telemetry::metrics::HitOutcome;

/// Stands for the rule of limits that came with requests.
pub const OVERRIDE: u64 = 0;

/// A pair of numbers: of hits asked for, and of hits refused.
pub(super) type Pair = [u64; 2];

/// All hits that were counted: asked for, refused, and over a limit that did not refuse them.
pub(super) type Totals = [u64; 3];

/// The counts of one key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The fingerprint of its rule; [`OVERRIDE`] for limits that came with requests.
    pub(super) rule: u64,
    /// Hits.
    pub(super) hits: Pair,
    /// Hits over a limit that did not refuse them.
    pub(super) would_refuse: u64,
    /// When the first and the last hit were refused, in tenths of a second of uptime, plus one; 0
    /// for never.
    pub(super) refused_at: [u32; 2],
}

/// Hits of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) rule: u64,
    pub(crate) key: u128,
    pub(crate) hits: u64,
    /// When they were refused, in tenths of a second of uptime, plus one; 0 if they were not.
    pub(crate) refused_at: u32,
    /// Whether they were over a limit that did not refuse them.
    pub(crate) would_refuse: bool,
}

/// The heaviest keys of a stream.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) table: KeyTable<Counts>,
    capacity_max: usize,
    /// By how much a count can be too small.
    pub(super) error: Pair,
    /// Hits that were counted and are in no count any more.
    gone: Totals,
}

/// A part of a summary that is no longer changed: its heaviest keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Extract {
    pub(super) entries: Vec<(u128, Counts)>,
    /// By how much a count can be too small.
    pub(super) error: Pair,
    /// The largest counts of keys that were left out.
    pub(super) left_out: Pair,
    /// All hits that were counted.
    pub(super) total: Totals,
}

/// The keys that an extract keeps, at most.
pub(super) const EXTRACT_KEYS_MAX: usize = 256;

/// The keys that every extract has space for.
const EXTRACT_KEYS_MIN: usize = 8;

/// The keys up to which a summary and an extract grow while a quarter of the bytes is left; beyond
/// them, while half is left. So a few rules with many keys leave space for others.
const MODEST_KEYS: usize = 192;
const MODEST_EXTRACT_KEYS: usize = 32;

// === impl Counts ===

impl Counts {
    /// Adds the counts of the same key.
    pub(super) fn add(&mut self, other: &Self) {
        self.hits = plus(self.hits, other.hits);
        self.would_refuse = self.would_refuse.saturating_add(other.would_refuse);
        let [since, last] = &mut self.refused_at;
        let [other_since, other_last] = other.refused_at;
        *since = match (*since, other_since) {
            (0, at) | (at, 0) => at,
            (one, two) => one.min(two),
        };
        *last = (*last).max(other_last);
    }

    /// As totals.
    pub(super) fn totals(&self) -> Totals {
        let [asked, refused] = self.hits;
        [asked, refused, self.would_refuse]
    }
}

/// The sum of both, for each number.
pub(super) fn plus<const N: usize>(mut one: [u64; N], two: [u64; N]) -> [u64; N] {
    for (sum, more) in one.iter_mut().zip(two) {
        *sum = sum.saturating_add(more);
    }
    one
}

// === impl Hit ===

impl Hit {
    /// Hits at this uptime, and what became of them.
    #[inline]
    pub(crate) fn new(now_us: u64, rule: u64, key: u128, hits: u64, outcome: HitOutcome) -> Self {
        let tenths = u32::try_from(now_us / 100_000).unwrap_or(u32::MAX);
        Self {
            rule,
            key,
            hits,
            refused_at: match outcome {
                HitOutcome::Refused => tenths.saturating_add(1),
                _ => 0,
            },
            would_refuse: outcome == HitOutcome::WouldRefuse,
        }
    }
}

// === impl Summary ===

impl Summary {
    /// Empty, for at most this many keys, and without space yet.
    pub(super) fn new(capacity_max: usize) -> Self {
        Self {
            table: KeyTable::new(),
            capacity_max,
            error: [0; 2],
            gone: [0; 3],
        }
    }

    /// All hits that were counted.
    fn total(&self) -> Totals {
        let counts = self.table.entries().iter();
        counts.fold(self.gone, |sum, (_, counts)| plus(sum, counts.totals()))
    }

    /// Counts hits. `scratch` is memory for a while.
    #[inline]
    pub(super) fn record(&mut self, hit: &Hit, budget: &mut Budget, scratch: &mut Vec<u64>) {
        let (hits, refused_at) = (hit.hits, hit.refused_at);
        let Some(known) = self.table.get_mut(hit.key) else {
            let refused = if refused_at == 0 { 0 } else { hits };
            let counts = Counts {
                rule: hit.rule,
                hits: [hits, refused],
                would_refuse: if hit.would_refuse { hits } else { 0 },
                refused_at: [refused_at; 2],
            };
            self.insert(hit.key, &counts, budget, scratch);
            return;
        };
        let [known_asked, known_refused] = &mut known.hits;
        *known_asked = known_asked.saturating_add(hits);
        if refused_at != 0 {
            *known_refused = known_refused.saturating_add(hits);
            let [since, last] = &mut known.refused_at;
            if *since == 0 {
                *since = refused_at;
            }
            *last = refused_at;
        } else if hit.would_refuse {
            known.would_refuse = known.would_refuse.saturating_add(hits);
        }
    }

    #[cold]
    fn insert(&mut self, key: u128, counts: &Counts, budget: &mut Budget, scratch: &mut Vec<u64>) {
        if self.table.is_full() && !self.grow(budget) {
            self.purge(scratch);
        }
        if self.table.is_full() {
            // There is no space at all.
            self.error = plus(self.error, counts.hits);
            self.gone = plus(self.gone, counts.totals());
        } else {
            self.table.insert(key, *counts);
        }
    }

    fn grow(&mut self, budget: &mut Budget) -> bool {
        let next = self.table.next_capacity();
        let more = KeyTable::<Counts>::bytes_of(next).saturating_sub(self.table.bytes());
        let quarters = if next <= MODEST_KEYS { 3 } else { 2 };
        next <= self.capacity_max && budget.has_within(quarters, more) && self.table.grow(budget)
    }

    /// Makes space for all keys at once.
    pub(super) fn grow_to_the_end(&mut self, budget: &mut Budget) {
        while self.table.next_capacity() <= self.capacity_max && self.table.grow(budget) {}
    }

    /// Subtracts from all counts until at least a quarter of the keys are gone.
    fn purge(&mut self, scratch: &mut Vec<u64>) {
        let before = self.table.len();
        self.subtract(before / 2, scratch);
        if self.table.len() > before / 4 * 3 {
            // Of what is left, at most a quarter can have more of either.
            self.subtract(self.table.len() / 4, scratch);
        }
    }

    /// Subtracts from each kind of hits the count of the key with that rank, from the largest.
    fn subtract(&mut self, rank: usize, scratch: &mut Vec<u64>) {
        let [asked, refused] = [0, 1].map(|kind| self.count_at(rank, kind, scratch));
        self.error = plus(self.error, [asked, refused]);
        let gone = &mut self.gone;
        self.table.retain(|_, counts| {
            let [own_asked, own_refused] = &mut counts.hits;
            let less = [asked.min(*own_asked), refused.min(*own_refused)];
            let [less_asked, less_refused] = less;
            *own_asked = own_asked.saturating_sub(asked);
            *own_refused = own_refused.saturating_sub(refused);
            let stays = *own_asked > 0 || *own_refused > 0;
            let would_refuse = if stays { 0 } else { counts.would_refuse };
            *gone = plus(*gone, [less_asked, less_refused, would_refuse]);
            stays
        });
    }

    /// The count of the key with that rank, from the largest, which has rank 0.
    fn count_at(&self, rank: usize, kind: usize, scratch: &mut Vec<u64>) -> u64 {
        scratch.clear();
        let counts = self.table.entries().iter();
        scratch.extend(counts.filter_map(|(_, counts)| counts.hits.get(kind)));
        if rank >= scratch.len() {
            return 0;
        }
        let (_, count, _) = scratch.select_nth_unstable_by(rank, |one, two| two.cmp(one));
        *count
    }

    /// Adds all that another summary counted.
    pub(super) fn merge(&mut self, other: &Self, budget: &mut Budget, scratch: &mut Vec<u64>) {
        for (key, counts) in other.table.entries() {
            match self.table.get_mut(*key) {
                Some(known) => known.add(counts),
                None => self.insert(*key, counts, budget, scratch),
            }
        }
        self.error = plus(self.error, other.error);
        self.gone = plus(self.gone, other.gone);
    }

    /// Forgets everything and keeps the space.
    pub(super) fn clear(&mut self) {
        self.table.clear();
        (self.error, self.gone) = ([0; 2], [0; 3]);
    }

    /// Writes its heaviest keys of both kinds into `into`, whose memory is used again.
    pub(super) fn extract(&self, into: &mut Extract, budget: &mut Budget, scratch: &mut Vec<u64>) {
        into.entries.clear();
        (into.error, into.total) = (self.error, self.total());
        into.left_out = [0; 2];
        let wanted = self.table.len().min(EXTRACT_KEYS_MAX);
        into.reserve(wanted, budget);
        let space = into.entries.capacity().min(wanted);
        let entries = self.table.entries();
        if space >= entries.len() {
            into.entries.extend_from_slice(entries);
            return;
        }
        let marks = [0, 1].map(|kind| self.count_at(space / 2, kind, scratch));
        let any = |counts: &Counts, is: fn(&u64, &u64) -> bool| {
            let mut both = counts.hits.iter().zip(&marks);
            both.any(|(hits, mark)| is(hits, mark))
        };
        // At most half of the space for those above the mark of each kind, then those at a mark.
        for first in [true, false] {
            for (key, counts) in entries {
                if any(counts, u64::gt) != first {
                    continue;
                }
                let at_mark = || any(counts, |hits, mark| hits == mark && *hits > 0);
                if into.entries.len() < space && (first || at_mark()) {
                    into.entries.push((*key, *counts));
                } else {
                    for (left_out, hits) in into.left_out.iter_mut().zip(counts.hits) {
                        *left_out = (*left_out).max(hits);
                    }
                }
            }
        }
    }

    /// A copy of everything in it.
    pub(super) fn copy(&self) -> Extract {
        Extract {
            entries: self.table.entries().to_vec(),
            error: self.error,
            left_out: [0; 2],
            total: self.total(),
        }
    }
}

// === impl Extract ===

impl Extract {
    /// Makes space for the fewest keys.
    pub(super) fn open(&mut self, budget: &mut Budget) -> bool {
        self.grow_to(EXTRACT_KEYS_MIN, budget)
    }

    /// Makes space for the most keys.
    pub(super) fn grow_to_the_end(&mut self, budget: &mut Budget) {
        self.grow_to(EXTRACT_KEYS_MAX, budget);
    }

    /// Makes space for so many keys, or for fewer as the budget allows.
    fn reserve(&mut self, keys: usize, budget: &mut Budget) {
        if keys <= self.entries.capacity() {
            return;
        }
        // In steps, so that one key more now and then does not allocate each time.
        let keys = keys.next_power_of_two();
        for (keys, quarters) in [(keys, 2), (keys.min(MODEST_EXTRACT_KEYS), 3)] {
            if budget.has_within(quarters, self.missing_bytes(keys)) && self.grow_to(keys, budget) {
                return;
            }
        }
    }

    fn missing_bytes(&self, keys: usize) -> usize {
        Self::bytes_of(keys).saturating_sub(self.bytes())
    }

    fn grow_to(&mut self, keys: usize, budget: &mut Budget) -> bool {
        let has_space = budget.take(self.missing_bytes(keys));
        if has_space {
            let more = keys.saturating_sub(self.entries.len());
            self.entries.reserve_exact(more);
        }
        has_space
    }

    fn bytes_of(capacity: usize) -> usize {
        capacity.saturating_mul(size_of::<(u128, Counts)>())
    }

    /// The bytes that are to be given back when it is dropped.
    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(self.entries.capacity())
    }
}
