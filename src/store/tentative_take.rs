//! Hits taken for a request that is all or nothing, until the request has passed or was refused.

use std::fmt;
use std::sync::Arc;

use crate::store::CheckResult;
use tollgate_limiter::{Check, Hits, Step};

/// Receives refunds. It accepts all of them: with a bound here, hits would stay taken for requests
/// that did not pass.
pub trait RefundSink: Send + Sync {
    /// Gives back what these checks say, each a [`Hits::Undo`] or a [`Step::Withdraw`]. Does not
    /// wait.
    fn refund(&self, checks: Vec<Check>);

    /// The same for takes with these numbers, one for each check, while a recording runs.
    fn refund_recorded(&self, checks: Vec<Check>, orders: Vec<u64>) {
        drop(orders);
        self.refund(checks);
    }
}

/// Hits taken tentatively. Unless it is committed, dropping it gives them back.
pub struct TentativeTake {
    /// One refund for each take.
    refunds: Vec<Check>,
    /// The number of each take, while a recording runs. Else empty.
    orders: Vec<u64>,
    store: Arc<dyn RefundSink>,
    /// Whether the request was refused. Else its end is not known, and no bucket remembers its
    /// reservations as refused: a gateway may have let it pass, and charges it at its end.
    is_refused: bool,
    /// The takes in another store, when two stores decided one request.
    other: Option<Box<TentativeTake>>,
}

/// The refund of a check; none where it took nothing.
fn refund_of(check: &Check, answer: &CheckResult) -> Option<Check> {
    let Ok(outcome) = answer else {
        return None;
    };
    let taken_at = outcome.bucket_time;
    let hits = match check.operation.hits {
        // A denied check that was counted stays counted.
        _ if !outcome.allowed => return None,
        Hits::Take(hits) if hits > 0 => Hits::Undo { hits, taken_at },
        Hits::Reservation(Step::Reserve {
            remember_refused, ..
        }) => Hits::Reservation(Step::Withdraw {
            taken_at,
            remember_refused,
        }),
        _ => return None,
    };
    let mut refund = check.clone();
    refund.operation.hits = hits;
    Some(refund)
}

/// Keeps buckets from remembering reservations as refused.
fn forget_refused(refunds: &mut [Check]) {
    for refund in refunds {
        if let Hits::Reservation(Step::Withdraw {
            remember_refused, ..
        }) = &mut refund.operation.hits
        {
            *remember_refused = false;
        }
    }
}

// === impl TentativeTake ===

impl TentativeTake {
    /// The takes among these checks, by their results.
    pub fn new<'c>(
        store: Arc<dyn RefundSink>,
        decided: impl IntoIterator<Item = (&'c Check, &'c CheckResult)>,
    ) -> Self {
        let refunds = decided
            .into_iter()
            .filter_map(|(check, answer)| refund_of(check, answer));
        Self {
            refunds: refunds.collect(),
            orders: Vec::new(),
            store,
            is_refused: false,
            other: None,
        }
    }

    /// The same while a recording runs: the checks have numbers in a row.
    pub(crate) fn recorded<'c>(
        store: Arc<dyn RefundSink>,
        decided: impl IntoIterator<Item = (&'c Check, &'c CheckResult)>,
        first_order: u64,
    ) -> Self {
        let decided = (first_order..).zip(decided);
        let refunds = decided.filter_map(|(order, (check, answer))| {
            let refund = refund_of(check, answer)?;
            Some((refund, order))
        });
        let (refunds, orders) = refunds.unzip();
        Self {
            refunds,
            orders,
            store,
            is_refused: false,
            other: None,
        }
    }

    /// The request passed: the takes are final.
    pub fn commit(mut self) {
        self.refunds.clear();
        if let Some(other) = self.other.take() {
            other.commit();
        }
    }

    /// The request was denied: the takes are given back, except of limits that count all denied
    /// hits.
    pub fn roll_back(mut self) {
        self.is_refused = true;
        if !self.orders.is_empty() {
            let mut refunds = self.refunds.iter();
            self.orders.retain(|_| {
                let refund = refunds.next();
                refund.is_some_and(|check| !check.keeps_refused_hits())
            });
        }
        self.refunds.retain(|check| !check.keeps_refused_hits());
        if let Some(other) = self.other.take() {
            other.roll_back();
        }
    }

    /// Adds the takes of another reply to the same request.
    pub fn merge(tentative: &mut Option<Self>, more: Option<Self>) {
        match (tentative, more) {
            (Some(tentative), Some(more)) => tentative.append(more),
            (none @ None, more) => *none = more,
            (Some(_), None) => {}
        }
    }

    fn append(&mut self, mut share: Self) {
        if Arc::ptr_eq(&self.store, &share.store) {
            self.orders.resize(self.refunds.len(), 0);
            self.orders.append(&mut share.orders);
            self.refunds.append(&mut share.refunds);
            if self.orders.iter().all(|order| *order == 0) {
                self.orders.clear();
            }
            if let Some(other) = share.other.take() {
                self.append(*other);
            }
        } else {
            match &mut self.other {
                Some(other) => other.append(share),
                none @ None => *none = Some(Box::new(share)),
            }
        }
    }
}

impl Drop for TentativeTake {
    fn drop(&mut self) {
        if !self.refunds.is_empty() {
            let mut refunds = std::mem::take(&mut self.refunds);
            if !self.is_refused {
                forget_refused(&mut refunds);
            }
            if self.orders.is_empty() {
                self.store.refund(refunds);
            } else {
                let orders = std::mem::take(&mut self.orders);
                self.store.refund_recorded(refunds, orders);
            }
        }
    }
}

impl fmt::Debug for TentativeTake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TentativeTake")
            .field(&self.refunds)
            .field(&self.other)
            .finish()
    }
}
