//! The promise of reservations, from the requests and outcomes alone.
//!
//! At any moment, what was committed and what is reserved are together at most the limit, plus
//! the sum of what commits exceeded their reservations. In windows this holds for each window: a
//! reservation counts in that of its start, an excess in that of its commit. In buckets that refill
//! the limit is one burst and the refill.
//!
//! The hits of a request that passes must fit beside every excess so far, too: later requests pay
//! it.
//!
//! Why reloads, refunds, undos and clocks that return from more than a window ahead are left out:
//! each of them rightly lets more pass.
//!
//! What it deliberately does not do: check refusals.

use tollgate_limiter::algorithm::REGISTER_MAX;
use tollgate_limiter::{
    Algorithm, Expiry, Hits, Holder, OnExpiry, Operation, Outcome, ReservationOutcome, Step,
};
use tollgate_test_model::bucket_histories::{Question, Terms};

use super::{Bucket, History, Verdict, Walk, ensure};

/// Everything that counted, oldest first.
#[derive(Default)]
struct Books(Vec<Entry>);

#[derive(Clone, Copy)]
struct Entry {
    time: i128,
    kind: Kind,
    hits: i128,
}

#[derive(Clone, Copy)]
enum Kind {
    /// A take that passed.
    Taken,
    Reserved {
        id: Option<Holder>,
        until: i128,
        on_expiry: OnExpiry,
        is_open: bool,
    },
    /// Hits of an earlier reservation of that time that came back.
    Back(i128),
    /// What a commit exceeded its reservation, or a charge without one.
    Excess,
}

pub(super) fn hold(
    algorithm: &dyn Algorithm,
    bucket: &mut dyn Bucket,
    history: &History,
) -> Verdict {
    let mut walk = Walk::new(history, algorithm);
    let mut books = Books::default();
    let mut number = 0;
    let mut newest_us = 0;
    while let Some(question) = walk.question(number, false) {
        number += 1;
        let asked_us = i128::from(question.now.as_us());
        let leaves_out = matches!(question.ask.hits, Hits::Refund(_) | Hits::Undo { .. });
        if leaves_out || newest_us - asked_us > question.terms.window_us {
            continue;
        }
        let outcome = bucket.ask(algorithm, &question.limit, question.ask, question.now);
        let now = i128::from(outcome.bucket_time.as_us());
        newest_us = newest_us.max(now);
        walk.answered(&question, &outcome);
        let passed = books.enter(&question, &outcome);
        let kept = match algorithm.name() {
            "fixed_window" => books.fixed_window(&question.terms, now, passed),
            "sliding_window" => books.sliding_window(&question.terms, now, passed),
            "token_bucket" | "leaky_bucket" => {
                let refill = |terms: &Terms, from: i128| terms.requests * (now - from);
                books.refilled(&question.terms, question.terms.window_us, passed, refill)
            }
            "token_bucket_interval" => {
                let edges =
                    |terms: &Terms, from: i128| terms.number_of(now) - terms.number_of(from);
                let refill = |terms: &Terms, from: i128| terms.requests * edges(terms, from);
                books.refilled(&question.terms, 1, passed, refill)
            }
            other => panic!("{other} has no promise of reservations here"),
        };
        ensure(kept, || format!("{question:?} was too much: {outcome:?}"))?;
    }
    Ok(())
}

/// Whether later requests pay all of it: a bucket holds no more than a register.
fn is_owed(terms: &Terms, excess: i128) -> bool {
    terms.requests.max(terms.burst) + excess <= REGISTER_MAX.into()
}

// === impl Books ===

impl Books {
    /// Enters an operation. Whether it asked for hits and got them.
    fn enter(&mut self, question: &Question, outcome: &Outcome) -> bool {
        let Operation { hits, holder } = question.ask;
        let now = i128::from(outcome.bucket_time.as_us());
        self.expire(now, matches!(hits, Hits::Reservation(_)));
        let mut add = |kind, hits: u64| {
            self.0.push(Entry {
                time: now,
                kind,
                hits: hits.into(),
            });
        };
        match (hits, outcome.reservation) {
            // A peek is not written, and later ones can be earlier.
            (Hits::Take(hits), _) if outcome.allowed && hits > 0 => {
                add(Kind::Taken, hits);
                return true;
            }
            (Hits::Charge(hits), _) => add(Kind::Excess, hits),
            (
                Hits::Reservation(Step::Reserve { hits, expiry, .. }),
                ReservationOutcome::Reserved,
            ) => {
                add(Kind::reserved(holder, expiry, outcome), hits);
                return true;
            }
            (Hits::Reservation(step), ReservationOutcome::Charged) => {
                add(Kind::Excess, step.hits());
            }
            (Hits::Reservation(step), ReservationOutcome::Settled) => {
                let place = self.0.iter().position(|entry| entry.is_open_of(holder));
                self.close(place, step.hits(), now);
            }
            (Hits::Reservation(Step::Withdraw { taken_at, .. }), ReservationOutcome::Withdrawn) => {
                let taken = i128::from(taken_at.as_us());
                let that = |entry: &Entry| entry.is_open_of(holder) && entry.time == taken;
                let place = self.0.iter().rposition(that);
                self.close(place, 0, now);
            }
            (Hits::Reservation(Step::Extend(ms)), ReservationOutcome::Extended) => {
                let to = i128::from(Expiry::after(outcome.bucket_time, ms).as_us());
                for entry in &mut self.0 {
                    if entry.is_open_of(holder)
                        && let Kind::Reserved { until, .. } = &mut entry.kind
                    {
                        *until = to;
                    }
                }
            }
            _ => {}
        }
        false
    }

    /// Ends the reservations that are due: those whose hits come back, and at a step all.
    fn expire(&mut self, now: i128, is_step: bool) {
        for place in 0..self.0.len() {
            let Entry { hits, kind, .. } = self.0[place];
            let Kind::Reserved {
                until,
                on_expiry,
                is_open: true,
                ..
            } = kind
            else {
                continue;
            };
            let committed = match on_expiry {
                OnExpiry::Release => 0,
                OnExpiry::Charge if is_step => hits,
                OnExpiry::Charge => continue,
            };
            if until <= now {
                self.close(Some(place), u64::try_from(committed).unwrap(), now);
            }
        }
    }

    /// Settles the reservation at this place, if there is one.
    fn close(&mut self, place: Option<usize>, committed: u64, now: i128) {
        let Some(entry) = place.and_then(|place| self.0.get_mut(place)) else {
            return;
        };
        if let Kind::Reserved { is_open, .. } = &mut entry.kind {
            *is_open = false;
        }
        let more = i128::from(committed) - entry.hits;
        let kind = match more {
            0.. => Kind::Excess,
            _ => Kind::Back(entry.time),
        };
        self.0.push(Entry {
            time: now,
            kind,
            hits: more.abs(),
        });
    }

    /// The hits of the window of that number: those within the limit, and the excess.
    fn window(&self, terms: &Terms, number: i128) -> (i128, i128) {
        let (mut within, mut excess) = (0, 0);
        for entry in &self.0 {
            let counts_in = |time: i128| terms.number_of(time) == number;
            match entry.kind {
                Kind::Taken | Kind::Reserved { .. } if counts_in(entry.time) => {
                    within += entry.hits;
                }
                Kind::Back(taken_at) if counts_in(taken_at) => within -= entry.hits,
                Kind::Excess if counts_in(entry.time) => excess += entry.hits,
                _ => {}
            }
        }
        (within, excess)
    }

    fn fixed_window(&self, terms: &Terms, now: i128, passed: bool) -> bool {
        let (within, excess) = self.window(terms, terms.number_of(now));
        let pays = passed && is_owed(terms, excess);
        within <= terms.requests && (!pays || within + excess <= terms.requests)
    }

    fn sliding_window(&self, terms: &Terms, now: i128, passed: bool) -> bool {
        let number = terms.number_of(now);
        let left_us = terms.window_us - now.rem_euclid(terms.window_us);
        let (present, present_excess) = self.window(terms, number);
        let (previous, previous_excess) = self.window(terms, number - 1);
        let fits = |previous: i128, present: i128| {
            previous * left_us + present * terms.window_us <= terms.requests * terms.window_us
        };
        let pays = passed && is_owed(terms, previous_excess) && is_owed(terms, present_excess);
        fits(previous, present)
            && (!pays || fits(previous + previous_excess, present + present_excess))
    }

    /// In every interval that ends now and begins at a request that passed: what passed and was
    /// charged in it, less what came back in it, is at most one burst and the refill. The refill
    /// is in parts of a hit, of which `parts` are one.
    fn refilled(
        &self,
        terms: &Terms,
        parts: i128,
        passed: bool,
        refill: impl Fn(&Terms, i128) -> i128,
    ) -> bool {
        let (mut within, mut excess) = (0, 0);
        self.0.iter().rev().all(|entry| {
            match entry.kind {
                Kind::Taken | Kind::Reserved { .. } => within += entry.hits,
                Kind::Back(_) => within -= entry.hits,
                Kind::Excess => {
                    excess += entry.hits;
                    return true;
                }
            }
            let most = terms.burst * parts + refill(terms, entry.time);
            let fits = |hits: i128| hits * parts <= most;
            fits(within) && (!passed || !is_owed(terms, excess) || fits(within + excess))
        })
    }
}

// === impl Kind ===

impl Kind {
    fn reserved(id: Option<Holder>, expiry: Expiry, outcome: &Outcome) -> Self {
        Self::Reserved {
            id,
            until: expiry.from(outcome.bucket_time).as_us().into(),
            on_expiry: expiry.on_expiry,
            is_open: true,
        }
    }
}

// === impl Entry ===

impl Entry {
    fn is_open_of(&self, holder: Option<Holder>) -> bool {
        matches!(self.kind, Kind::Reserved { id, is_open: true, .. } if id == holder)
    }
}
