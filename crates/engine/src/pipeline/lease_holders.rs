//! The callers that hold leases, as this process knows them: how many share the limits of a
//! request, and how many hits of theirs are not accounted for.
//!
//! Why: the first caller of a window would otherwise get a quarter of it, and the tenth a fraction
//! of that. Why not the reservations of the store: they say who holds hits now, which nobody does
//! at the beginning of a window.
//!
//! A holder is a chain of leases: each names the one before it. It is forgotten some time after its
//! last lease. Nothing depends on this table but the size of leases and the word that a caller
//! reported too much, so it is bounded, and replicas do not share it.

use std::collections::VecDeque;
use std::sync::Mutex;

use tollgate_limiter::Key;
use tollgate_system::keyed_hash::KeyMap;
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::CallerLeaseMetrics;

/// The most holders that are known. Leases of others are as large as if they were alone.
const HOLDERS_MAX: usize = 65_536;

/// How many times of holders that are gone may wait, beyond as many as there are holders.
const DUE_SPARE: usize = 1_024;

/// A holder is forgotten after so many times the longest age of a lease.
const KEPT_AGES: u64 = 4;

/// The holders of this process.
pub(super) struct Holders {
    metrics: CallerLeaseMetrics,
    kept_us: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By the token of the last lease.
    holders: KeyMap<Holder>,
    /// By the limits that they lease from.
    shared: KeyMap<SharedLimits>,
    /// When each holder is looked at next, in order.
    due: VecDeque<(u64, Key)>,
}

/// A caller with a lease.
struct Holder {
    limits: Key,
    /// Until when it is known, in uptime.
    until_us: u64,
    /// Hits that it was granted and has not accounted for.
    open_hits: u64,
}

/// Limits that holders share.
#[derive(Default)]
struct SharedLimits {
    holders: u64,
    open_hits: u64,
}

/// A call of a caller: its limits, and the token of its last lease if it names one.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderCall {
    pub(super) limits: Key,
    pub(super) last: Option<u64>,
    pub(super) now_us: u64,
}

// === impl Holders ===

impl Holders {
    /// A table without holders, where leases are valid for at most `age_max_us`.
    pub(super) fn new(age_max_us: u64, metrics: CallerLeaseMetrics) -> Self {
        Self {
            metrics,
            kept_us: age_max_us.saturating_mul(KEPT_AGES),
            table: Mutex::default(),
        }
    }

    fn with<T>(&self, now_us: u64, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = lock(&self.table);
        table.forget_due(now_us);
        let changed = change(&mut table);
        let holders = i64::try_from(table.holders.len());
        self.metrics.holders.set(holders.unwrap_or(i64::MAX));
        changed
    }

    /// How many callers share these limits, with this one.
    pub(super) fn sharers(&self, call: HolderCall) -> u64 {
        self.with(call.now_us, |table| {
            let known = table.shared.get(&call.limits);
            let known = known.map_or(0, |share| share.holders);
            known.saturating_add(u64::from(!table.is_known(call)))
        })
    }

    /// The caller accounts for hits. Returns how many more they are than it was granted: 0 where
    /// its lease is not known here. Without a lease it accounts for those of all holders.
    pub(super) fn account(&self, call: HolderCall, hits: u64) -> u64 {
        let excess = self.with(call.now_us, |table| table.account(call, hits));
        excess.unwrap_or_default()
    }

    /// The caller got a lease with this token.
    pub(super) fn granted(&self, call: HolderCall, token: u64, hits: u64) {
        let until_us = call.now_us.saturating_add(self.kept_us);
        let is_kept = self.with(call.now_us, |table| {
            let before = call.last.filter(|_| table.is_known(call));
            let before = before.map_or(0, |last| table.remove(token_key(last)));
            if table.holders.len() >= HOLDERS_MAX {
                return false;
            }
            table.add(call.limits, token, before.saturating_add(hits), until_us);
            true
        });
        if !is_kept {
            self.metrics.holders_full.inc();
        }
    }

    /// The caller got no lease, and waits for one.
    pub(super) fn refused(&self, call: HolderCall) {
        let until_us = call.now_us.saturating_add(self.kept_us);
        self.with(call.now_us, |table| {
            if let Some(last) = call.last.filter(|_| table.is_known(call))
                && let Some(holder) = table.holders.get_mut(&token_key(last))
            {
                holder.until_us = until_us;
            }
        });
    }

    /// The caller has returned its lease, and accounts for hits. As [`Holders::account`].
    pub(super) fn returned(&self, token: u64, hits: u64, now_us: u64) -> u64 {
        self.with(now_us, |table| {
            let is_known = table.holders.contains_key(&token_key(token));
            let open_hits = table.remove(token_key(token));
            hits.saturating_sub(open_hits) * u64::from(is_known)
        })
    }
}

/// The key of a token. Tokens are random.
fn token_key(token: u64) -> Key {
    Key(token.into())
}

// === impl Table ===

impl Table {
    /// Whether the caller's last lease is known, and of these limits.
    fn is_known(&self, call: HolderCall) -> bool {
        let holder = call
            .last
            .and_then(|last| self.holders.get(&token_key(last)));
        holder.is_some_and(|holder| holder.limits == call.limits)
    }

    fn account(&mut self, call: HolderCall, hits: u64) -> Option<u64> {
        let is_known = self.is_known(call);
        let share = self.shared.get_mut(&call.limits)?;
        let accounted = match call.last {
            None => hits.min(share.open_hits),
            Some(last) if is_known => {
                let holder = self.holders.get_mut(&token_key(last))?;
                let accounted = hits.min(holder.open_hits);
                holder.open_hits = holder.open_hits.saturating_sub(accounted);
                accounted
            }
            Some(_) => return None,
        };
        share.open_hits = share.open_hits.saturating_sub(accounted);
        Some(hits.saturating_sub(accounted))
    }

    fn add(&mut self, limits: Key, token: u64, open_hits: u64, until_us: u64) {
        let holder = Holder {
            limits,
            until_us,
            open_hits,
        };
        self.holders.insert(token_key(token), holder);
        if self.due.len() > 2 * self.holders.len() + DUE_SPARE {
            self.due
                .retain(|(_, token)| self.holders.contains_key(token));
        }
        self.due.push_back((until_us, token_key(token)));
        let share = self.shared.entry(limits).or_default();
        share.holders = share.holders.saturating_add(1);
        share.open_hits = share.open_hits.saturating_add(open_hits);
    }

    /// Forgets a holder. Returns the hits that it has not accounted for.
    fn remove(&mut self, token: Key) -> u64 {
        let Some(holder) = self.holders.remove(&token) else {
            return 0;
        };
        if let Some(share) = self.shared.get_mut(&holder.limits) {
            share.holders = share.holders.saturating_sub(1);
            share.open_hits = share.open_hits.saturating_sub(holder.open_hits);
            if share.holders == 0 {
                self.shared.remove(&holder.limits);
            }
        }
        holder.open_hits
    }

    /// Forgets holders whose time is over.
    fn forget_due(&mut self, now_us: u64) {
        while let Some((due_us, token)) = self.due.front().copied()
            && due_us <= now_us
        {
            self.due.pop_front();
            match self.holders.get(&token) {
                Some(holder) if holder.until_us > now_us => {
                    self.due.push_back((holder.until_us, token));
                }
                Some(_) => {
                    self.remove(token);
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_telemetry::metrics::Metrics;

    const AGE_US: u64 = 2_000_000;

    fn holders() -> Holders {
        Holders::new(AGE_US, Metrics::new().unwrap().caller_leases)
    }

    fn call(limits: u128, last: Option<u64>, now_us: u64) -> HolderCall {
        HolderCall {
            limits: Key(limits),
            last,
            now_us,
        }
    }

    #[test]
    fn a_caller_counts_once_and_is_forgotten_after_a_while() {
        let holders = holders();
        assert_eq!(holders.sharers(call(1, None, 0)), 1);
        for token in 1..=10 {
            holders.granted(call(1, None, 0), token, 5);
        }
        holders.granted(call(2, None, 0), 99, 5);
        assert_eq!(holders.sharers(call(1, None, 0)), 11);
        assert_eq!(holders.sharers(call(1, Some(3), 0)), 10);
        // A lease of other limits is none of these.
        assert_eq!(holders.sharers(call(1, Some(99), 0)), 11);
        // One goes on, one waits, one gives back.
        holders.granted(call(1, Some(1), AGE_US), 101, 5);
        holders.refused(call(1, Some(2), AGE_US));
        holders.returned(3, 0, AGE_US);
        assert_eq!(holders.sharers(call(1, Some(101), AGE_US)), 9);
        let later = KEPT_AGES * AGE_US;
        assert_eq!(holders.sharers(call(1, Some(101), later)), 2);
        assert_eq!(holders.sharers(call(1, None, later + AGE_US)), 1);
        assert_eq!(holders.metrics.holders.get(), 0);
    }

    #[test]
    fn more_holders_than_the_bound_are_not_known() {
        let holders = holders();
        for token in 0..HOLDERS_MAX as u64 + 3 {
            holders.granted(call(token.into(), None, 0), token, 1);
        }
        assert_eq!(holders.metrics.holders.get(), 65_536);
        assert_eq!(holders.metrics.holders_full.get(), 3);
    }

    #[test]
    fn a_caller_of_many_leases_leaves_nothing_behind() {
        let holders = holders();
        for token in 1..=100_000 {
            holders.granted(call(1, Some(token - 1), 0), token, 1);
        }
        let table = holders.table.lock().unwrap();
        assert_eq!((table.holders.len(), table.shared.len()), (1, 1));
        assert!(table.due.len() <= 3 + DUE_SPARE, "{}", table.due.len());
    }
}
