//! A naive model of fixed windows: a map from the window's number to its count.
//!
//! What it deliberately does not do: remove a window.

use std::collections::HashMap;

use tollgate_limiter::algorithm::REGISTER_MAX;
use tollgate_limiter::{CountRefused, Hits, Operation, Outcome, Timestamp};

use super::{Counter, Terms, charged, in_the_present, instant, owed, told};

#[derive(Clone, Default, PartialEq)]
pub(super) struct FixedWindow {
    newest: i128,
    counts: HashMap<i128, i128>,
    /// The count at which a window was full, where hits were refused since.
    full: HashMap<i128, i128>,
}

impl Counter for FixedWindow {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        if self.newest - asked_at > terms.window_us {
            // Law 2: the count moves, the window does not.
            let count = self
                .counts
                .remove(&terms.number_of(self.newest))
                .unwrap_or(0);
            self.counts = HashMap::from([(terms.number_of(asked_at), count)]);
            let full = self.full.remove(&terms.number_of(self.newest));
            self.full = full
                .map(|full| (terms.number_of(asked_at), full))
                .into_iter()
                .collect();
            self.newest = asked_at;
        }
        // Law 1.
        let now = asked_at.max(self.newest);
        self.newest = now;

        let hits = in_the_present(ask, now).hits;
        let number = terms.number_of(now);
        // What only a lower limit refused does not count.
        if let Some(full) = self.full.get(&number).copied()
            && full < terms.requests
        {
            self.counts.insert(number, full);
            self.full.remove(&number);
        }
        let before = *self.counts.entry(number).or_default();
        let mut add = |time: i128, hits: i128| {
            let count = self.counts.entry(terms.number_of(time)).or_default();
            *count = (*count + hits).clamp(0, REGISTER_MAX.into());
        };
        let allowed = match hits {
            Hits::Take(taken) => {
                let taken = i128::from(taken);
                let allowed = before + taken <= terms.requests;
                add(
                    now,
                    match terms.count_refused {
                        _ if allowed => taken,
                        None | Some(CountRefused::Blocking) => taken,
                        Some(_) => owed(terms, before, taken),
                    },
                );
                allowed
            }
            Hits::Refund(refunded) => {
                add(now, -i128::from(refunded));
                true
            }
            Hits::Undo { hits, taken_at } => {
                // For a window that has ended, where it makes no difference.
                add(taken_at.as_us().into(), -i128::from(hits));
                true
            }
            Hits::Charge(hits) => {
                add(now, charged(terms, before, hits.into()));
                true
            }
            Hits::Reservation(_) => unreachable!("`Bucket` decides steps"),
        };
        let after = self.counts[&number];
        match hits {
            Hits::Take(_)
                if !allowed
                    && matches!(terms.count_refused, None | Some(CountRefused::Blocking)) =>
            {
                let full = self.full.entry(number).or_insert(before);
                *full = terms.requests.max(*full);
            }
            Hits::Charge(_) => {
                if let Some(full) = self.full.get_mut(&number) {
                    *full += after - before;
                }
            }
            _ => {}
        }
        // Windows that have ended no longer count.
        self.counts.retain(|other, _| *other == number);
        self.full
            .retain(|other, full| *other == number && *full < after);
        let mut edge = terms.edge(terms.number_of(now) + 1);
        if terms.edges.is_some() {
            // A calendar ends with the last timestamp, but no bucket resets before the next
            // microsecond.
            edge = edge.min(Timestamp::MAX_US.into()).max(now + 1);
        }
        Outcome {
            blocked: false,
            reservation: tollgate_limiter::ReservationOutcome::None,
            bucket_time: instant(now),
            allowed,
            used_before: told(before),
            remaining: told((terms.requests - after).max(0)),
            reset_us: told(edge - asked_at),
            retry_us: match hits {
                _ if allowed => Some(0),
                Hits::Take(hits) if i128::from(hits) <= terms.requests => {
                    Some(told(edge - asked_at))
                }
                _ => None,
            },
        }
    }
}
