//! What happens below the service, written down as it happens: what was sent to the store, in which
//! order checks were really decided, and what the store told.
//!
//! How, without a hook in `src/`: a [`Tap`] stands between the service and its store. It gives
//! every check a ticket by putting a [`Ticketed`] algorithm in place of the check's own; that one
//! delegates, and writes its number and its outcome down at the very moment at which a partition
//! decides. What goes back is a check of its own with the ticket of the take that it undoes. Bugs
//! are planted below the tap, so what they do to a check is seen.
//!
//! What it deliberately does not do: judge (`judge`), or change an answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::store::{ApplyFuture, CheckResult, CommitMode, Deadline, Store, StoreError};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, AlgorithmOption, Check, CountRefused, Limit, Operation, Outcome, State,
    Timestamp,
};

/// One check of one caller.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ticket {
    pub(crate) caller: usize,
    /// Its position among the caller's checks.
    pub(crate) position: usize,
}

/// What was seen.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The service asks the store; the tickets begin with this one.
    Sent {
        first: Ticket,
        checks: Vec<Check>,
        terms: CommitMode,
    },
    /// A partition decides.
    Decided {
        ticket: Ticket,
        ask: Operation,
        outcome: Outcome,
    },
    /// The store has answered the service.
    Told {
        first: Ticket,
        count: usize,
        answers: Result<Vec<CheckResult>, StoreError>,
    },
}

#[derive(Default)]
struct Journal {
    /// Who is being polled.
    caller: usize,
    /// How many checks each caller has sent.
    sent: HashMap<usize, usize>,
    entries: Vec<Entry>,
}

thread_local! {
    /// A run stays on its thread.
    static JOURNAL: RefCell<Journal> = RefCell::default();
}

/// Begins anew.
pub(crate) fn clear() {
    JOURNAL.take();
}

/// Who is polled from now on.
pub(crate) fn polling(caller: usize) {
    JOURNAL.with_borrow_mut(|journal| journal.caller = caller);
}

/// What was seen since the last time.
pub(crate) fn take() -> Vec<Entry> {
    JOURNAL.with_borrow_mut(|journal| std::mem::take(&mut journal.entries))
}

fn note(entry: Entry) {
    JOURNAL.with_borrow_mut(|journal| journal.entries.push(entry));
}

/// Stands between the service and the store.
pub(crate) struct Tap {
    store: Arc<dyn Store>,
}

/// An algorithm that says which check it decides.
struct Ticketed {
    base: &'static dyn Algorithm,
    ticket: Ticket,
}

/// The algorithm with that ticket. A check wants one that lives for ever; runs use the same ones
/// again.
fn ticketed(base: &dyn Algorithm, ticket: Ticket) -> &'static dyn Algorithm {
    static KEPT: Mutex<Option<HashMap<(usize, Ticket), &'static Ticketed>>> = Mutex::new(None);
    let same = |known: &&dyn Algorithm| known.name() == base.name();
    let number = ALGORITHMS.iter().position(same).unwrap();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    *kept
        .get_or_insert_default()
        .entry((number, ticket))
        .or_insert_with(|| {
            let base = ALGORITHMS[number];
            Box::leak(Box::new(Ticketed { base, ticket }))
        })
}

// === impl Tap ===

impl Tap {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl Store for Tap {
    fn apply(
        &self,
        mut checks: Vec<Check>,
        deadline: Deadline,
        terms: CommitMode,
    ) -> ApplyFuture<'_> {
        let count = checks.len();
        let first = JOURNAL.with_borrow_mut(|journal| {
            let sent = journal.sent.entry(journal.caller).or_default();
            let first = Ticket {
                caller: journal.caller,
                position: *sent,
            };
            *sent += count;
            journal.entries.push(Entry::Sent {
                first,
                checks: checks.clone(),
                terms,
            });
            first
        });
        for (check, ticket) in checks.iter_mut().zip(first.following()) {
            check.algorithm = ticketed(check.algorithm, ticket);
        }
        Box::pin(async move {
            let applied = self.store.apply(checks, deadline, terms).await;
            let answers = applied.as_ref().map(|applied| applied.answers.clone());
            note(Entry::Told {
                first,
                count,
                answers: answers.map_err(StoreError::clone),
            });
            applied
        })
    }
}

// === impl Ticket ===

impl Ticket {
    /// This one and those after it.
    pub(crate) fn following(self) -> impl Iterator<Item = Self> {
        (self.position..).map(move |position| Self { position, ..self })
    }
}

// === impl Ticketed ===

impl Algorithm for Ticketed {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn promise(&self) -> &'static str {
        self.base.promise()
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        self.base.options()
    }

    fn has_marks(&self) -> bool {
        self.base.has_marks()
    }

    fn default_count_refused(&self) -> CountRefused {
        self.base.default_count_refused()
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        let outcome = self.base.decide(limit, state, ask, now);
        note(Entry::Decided {
            ticket: self.ticket,
            ask,
            outcome,
        });
        outcome
    }

    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        self.base.changed(limit, was, state, ask, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        self.base.ttl_us(limit)
    }
}
