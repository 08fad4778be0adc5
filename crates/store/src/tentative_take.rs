//! Hits taken for a request that is all or nothing, until the request has passed or was refused.

use std::fmt;
use std::sync::Arc;

use crate::CheckResult;
use tollgate_limiter::{Check, Hits, Step};

/// Hits that go back.
#[derive(Clone, Debug)]
pub struct Refund {
    /// A [`Hits::Undo`] or a [`Step::Withdraw`].
    pub check: Check,
    /// The number of the check that took them; 0 where no recording ran.
    pub order: u64,
}

/// Receives refunds. It accepts all of them: with a bound here, hits would stay taken for requests
/// that did not pass.
pub trait RefundSink: Send + Sync {
    /// Carries out these refunds. Does not wait.
    fn refund(&self, refunds: Vec<Refund>);
}

/// Hits taken tentatively. Unless it is committed, dropping it gives them back.
pub struct TentativeTake {
    /// One refund for each take.
    refunds: Vec<Refund>,
    sink: Arc<dyn RefundSink>,
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

// === impl TentativeTake ===

impl TentativeTake {
    /// The takes among these checks, by their results. While a recording runs, the checks have
    /// numbers from `first_order` on; else it is 0.
    pub fn new<'c>(
        sink: Arc<dyn RefundSink>,
        decided: impl IntoIterator<Item = (&'c Check, &'c CheckResult)>,
        first_order: u64,
    ) -> Self {
        let step = u64::from(first_order > 0);
        let mut order = first_order;
        let mut refunds = Vec::new();
        for (check, answer) in decided {
            let check = refund_of(check, answer);
            refunds.extend(check.map(|check| Refund { check, order }));
            order += step;
        }
        Self {
            refunds,
            sink,
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
        self.refunds
            .retain(|refund| !refund.check.keeps_refused_hits());
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

    fn append(&mut self, mut more: Self) {
        if Arc::ptr_eq(&self.sink, &more.sink) {
            self.refunds.append(&mut more.refunds);
            if let Some(other) = more.other.take() {
                self.append(*other);
            }
        } else {
            match &mut self.other {
                Some(other) => other.append(more),
                none @ None => *none = Some(Box::new(more)),
            }
        }
    }
}

impl Drop for TentativeTake {
    fn drop(&mut self) {
        if self.refunds.is_empty() {
            return;
        }
        let mut refunds = std::mem::take(&mut self.refunds);
        if !self.is_refused {
            for refund in &mut refunds {
                if let Hits::Reservation(Step::Withdraw {
                    remember_refused, ..
                }) = &mut refund.check.operation.hits
                {
                    *remember_refused = false;
                }
            }
        }
        self.sink.refund(refunds);
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
