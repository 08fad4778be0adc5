//! The steps of reservations in a plan, and the checks of one request that share a budget.
//!
//! A descriptor whose last entry is the id of a reservation starts it with explicit 0 hits, and
//! ends it with more. Without explicit hits it takes one hit, as any descriptor does. Its order
//! among requests means nothing, because clients may choose ids.
//!
//! Output of 0 tokens is an end, too: where a request ends a reservation, its explicit 0 hits
//! under the same id are ends.
//!
//! Limits of one budget have one bucket. What a request takes of it is one operation, so that the
//! sum of its prices is rounded up once. The first check has the sum. The others only look, and
//! have the result of the first.
//!
//! What it deliberately does not do: decide, or learn amounts (`Plan::starts_mut` sets them).

use super::check::Check;
use super::descriptor::{Descriptor, Entry, Hits, Holder, Operation};
use super::key::{KeyHasher, hash_holder};
use super::reservation::{Cost, Otherwise, ReserveRule, Step};
use super::rule::Rule;

/// What a plan knows of its reservations and budgets. Empty for most requests.
#[derive(Debug, Default)]
pub(super) struct PlannedSteps {
    has_starts: bool,
    has_ends: bool,
    /// The checks of budgets: the position of each, and its exact price in millionths.
    prices: Vec<(usize, u128)>,
    /// The checks that only look: the position of each, and the one that has their hits.
    merged: Vec<(usize, usize)>,
    /// The ids that the request ends.
    ended: Vec<Holder>,
}

// === impl PlannedSteps ===

impl PlannedSteps {
    pub(super) fn clear(&mut self) {
        self.has_starts = false;
        self.has_ends = false;
        self.prices.clear();
        self.merged.clear();
    }

    /// Whether nothing was planned.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.has_starts && !self.has_ends && self.prices.is_empty()
    }

    /// Whether a check starts a reservation.
    #[inline]
    pub(super) fn has_starts(&self) -> bool {
        self.has_starts
    }

    /// The position of the check whose outcome decides this one.
    #[inline]
    pub(super) fn deciding(&self, position: usize) -> usize {
        if self.merged.is_empty() {
            return position;
        }
        let merged = self.merged.iter().find(|(looking, _)| *looking == position);
        merged.map_or(position, |(_, deciding)| *deciding)
    }

    /// The operation of a descriptor on a bucket whose rule has reservations. `id` is its last
    /// entry, if that is one.
    #[cold]
    pub(super) fn operation(
        &mut self,
        (rule, reserve): (&Rule, &ReserveRule),
        descriptor: &Descriptor<'_, '_>,
        id: Option<&Entry<'_>>,
        hasher: &impl KeyHasher,
    ) -> Operation {
        let plain = Operation::from(descriptor.hits.priced(rule.cost));
        let (Some(id), Hits::Take(hits), true) =
            (id, descriptor.hits, descriptor.has_explicit_hits)
        else {
            return plain;
        };
        let step = match (hits, reserve.amount) {
            (0, None) => return plain,
            (0, Some(amount)) => {
                self.has_starts = true;
                Step::Reserve {
                    hits: amount.at_first(),
                    expiry: reserve.expiry,
                    // Refusals of these need not refuse the request.
                    remember_refused: !rule.shadow_mode && !rule.quota_mode,
                }
            }
            (hits, _) => {
                self.has_ends = true;
                Step::Commit {
                    hits: rule.cost.of(hits),
                    otherwise: Otherwise::Charge,
                }
            }
        };
        Operation {
            hits: Hits::Reservation(step),
            holder: Some(hash_holder(id.value, hasher)),
        }
    }

    /// Notes that the check at a position draws on a budget.
    #[cold]
    pub(super) fn add_price(&mut self, position: usize, hits: Hits, cost: Cost) {
        self.prices
            .push((position, cost.millionths_of(hits.count())));
    }

    /// Makes the checks final once all are planned.
    #[inline]
    pub(super) fn finish(&mut self, checks: &mut [Check]) {
        if self.has_starts && self.has_ends {
            self.end_with_nothing(checks);
        }
        if self.prices.len() > 1 {
            self.merge(checks, set_hits);
        }
    }

    /// Merges the checks of each budget by their new operations, which have the sum of their prices
    /// if `adds_prices`, else the hits of the first.
    #[cold]
    pub(super) fn merge_again(&mut self, checks: &mut [Check], adds_prices: bool) {
        self.has_starts = false;
        self.has_ends = false;
        self.merged.clear();
        let set: fn(&mut Hits, u64) = if adds_prices { set_all_hits } else { |_, _| {} };
        self.merge(checks, set);
    }

    /// Makes starts under an id that the request ends ends of 0 hits.
    #[cold]
    fn end_with_nothing(&mut self, checks: &mut [Check]) {
        self.ended.clear();
        let ends = checks.iter().filter(|check| {
            let hits = check.operation.hits;
            matches!(hits, Hits::Reservation(Step::Commit { .. }))
        });
        self.ended
            .extend(ends.filter_map(|check| check.operation.holder));
        self.ended.sort_unstable();
        self.has_starts = false;
        for Check { operation, .. } in checks {
            if !matches!(operation.hits, Hits::Reservation(Step::Reserve { .. })) {
                continue;
            }
            let id = operation.holder;
            if id.is_some_and(|id| self.ended.binary_search(&id).is_ok()) {
                operation.hits = Hits::Reservation(Step::Commit {
                    hits: 0,
                    otherwise: Otherwise::Charge,
                });
            } else {
                self.has_starts = true;
            }
        }
    }

    /// Merges the checks of each budget.
    #[cold]
    fn merge(&mut self, checks: &mut [Check], set_hits: fn(&mut Hits, u64)) {
        // Checks that can be one are then neighbours, the first of the request first.
        self.prices.sort_unstable_by_key(|(position, _)| {
            let check = checks.get(*position);
            (
                check.map(|check| (check.key, kind(check.operation))),
                *position,
            )
        });
        let mut first: Option<(usize, u128)> = None;
        for (position, millionths) in &self.prices {
            let same = first.filter(|(first, _)| {
                let both = checks.get(*first).zip(checks.get(*position));
                both.is_some_and(|(one, other)| {
                    let kinds = (kind(one.operation), kind(other.operation));
                    one.key == other.key && kinds.0 == kinds.1
                })
            });
            let Some((deciding, sum)) = same else {
                first = Some((*position, *millionths));
                continue;
            };
            let sum = sum.saturating_add(*millionths);
            first = Some((deciding, sum));
            self.merged.push((*position, deciding));
            if let Some(check) = checks.get_mut(*position) {
                check.operation = Hits::PEEK.into();
            }
            if let Some(check) = checks.get_mut(deciding) {
                set_hits(&mut check.operation.hits, Cost::rounded_up(sum));
            }
        }
    }
}

/// What two operations on a bucket must have in common to be one: what they do, and for whom.
fn kind(operation: Operation) -> (u8, Option<Holder>) {
    match operation.hits {
        Hits::Take(_) => (0, None),
        Hits::Refund(_) => (1, None),
        Hits::Reservation(Step::Reserve { .. }) => (2, operation.holder),
        Hits::Reservation(Step::Commit { .. }) => (3, operation.holder),
        // A plan has none of these.
        Hits::Undo { .. } | Hits::Charge(_) | Hits::Reservation(_) => (4, operation.holder),
    }
}

/// Sets the hits of a merged operation, those of a start and a charge, too.
fn set_all_hits(operation: &mut Hits, sum: u64) {
    match operation {
        Hits::Charge(hits) | Hits::Reservation(Step::Reserve { hits, .. }) => *hits = sum,
        other => set_hits(other, sum),
    }
}

/// Sets the hits of a merged operation. A start reserves its amount once.
fn set_hits(operation: &mut Hits, sum: u64) {
    if let Hits::Take(hits) | Hits::Refund(hits) | Hits::Reservation(Step::Commit { hits, .. }) =
        operation
    {
        *hits = sum;
    }
}
