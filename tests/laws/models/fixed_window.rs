//! Fixed window, naively: a map from the window's number to what was counted in it.
//!
//! What it deliberately does not do: throw a window away.

use std::collections::HashMap;

use tollgate::limiter::algorithm::REGISTER_MAX;
use tollgate::limiter::{Hits, Outcome};

use super::{Model, Terms, told};

#[derive(Default)]
pub(super) struct FixedWindow {
    newest: i128,
    counts: HashMap<i128, i128>,
}

impl Model for FixedWindow {
    fn ask(&mut self, terms: &Terms, hits: Hits, asked_at: i128) -> Outcome {
        let number_of = |time: i128| time.div_euclid(terms.window_us);
        if self.newest - asked_at > terms.window_us {
            // Law 2: the count comes along, the window does not.
            let count = self.counts.remove(&number_of(self.newest)).unwrap_or(0);
            self.counts = HashMap::from([(number_of(asked_at), count)]);
            self.newest = asked_at;
        }
        // Law 1.
        let now = asked_at.max(self.newest);
        self.newest = now;

        let count = self.counts.entry(number_of(now)).or_default();
        let before = *count;
        let allowed = match hits {
            Hits::Take(hits) => {
                *count = (before + i128::from(hits)).min(i128::from(REGISTER_MAX));
                *count <= terms.requests
            }
            Hits::Refund(hits) => {
                *count = (before - i128::from(hits)).max(0);
                true
            }
        };
        let edge = (number_of(now) + 1) * terms.window_us;
        Outcome {
            allowed,
            used_before: told(before),
            remaining: told((terms.requests - *count).max(0)),
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
