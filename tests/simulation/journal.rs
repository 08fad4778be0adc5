//! Journal of events below the service: checks sent to the store, decisions in their order, and the
//! store's replies.
//!
//! How, without a hook in `src/`: a [`Tap`] wraps the store. It gives each check a ticket by
//! wrapping the check's algorithm ([`Wrapped`]), which records its ticket and outcome when a
//! partition decides. A refund is a check of its own with the ticket of the take that it undoes.
//! Faults are planted below the tap, so the journal records their effects.
//!
//! What it deliberately does not do: judge (`judge`), or change an answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::store::{AskFuture, BatchClient, CheckResult, Deadline, Purpose, Store, StoreError};
use tollgate_limiter::{ALGORITHMS, Algorithm, Check, Limit, Operation, Outcome, State, Timestamp};
use tollgate_test_model::Wrapped;
use tollgate_test_support::asking_store::asking_client;

/// One check of one caller.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ticket {
    pub(crate) caller: usize,
    /// Its position among the caller's checks.
    pub(crate) position: usize,
}

/// A recorded event.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The service sends checks to the store; their tickets start with this one.
    Sent {
        first: Ticket,
        checks: Vec<Check>,
        terms: Purpose,
    },
    /// A partition decides.
    Decided {
        ticket: Ticket,
        ask: Operation,
        outcome: Outcome,
    },
    /// The store has replied to the service.
    Replied {
        first: Ticket,
        count: usize,
        answers: Result<Vec<CheckResult>, StoreError>,
    },
}

#[derive(Default)]
struct Journal {
    /// The caller that is being polled.
    caller: usize,
    /// How many checks each caller has sent.
    sent: HashMap<usize, usize>,
    /// Every check that was sent.
    checks: Vec<(Ticket, Check)>,
    entries: Vec<Entry>,
}

thread_local! {
    /// A run uses one thread.
    static JOURNAL: RefCell<Journal> = RefCell::default();
}

/// Clears the journal.
pub(crate) fn clear() {
    JOURNAL.take();
}

/// Sets the caller that is polled from now on.
pub(crate) fn polling(caller: usize) {
    JOURNAL.with_borrow_mut(|journal| journal.caller = caller);
}

/// How many checks were sent so far.
pub(crate) fn sent() -> usize {
    JOURNAL.with_borrow(|journal| journal.checks.len())
}

/// A check that was sent, by its number among all, and the same check with the ticket of a reset.
pub(crate) fn to_reset(number: usize, reset: usize) -> (Ticket, Check) {
    let (ticket, check) = JOURNAL.with_borrow(|journal| journal.checks[number].clone());
    let algorithm = ticketed(check.algorithm, Ticket::of_reset(reset));
    (ticket, Check { algorithm, ..check })
}

/// Returns the events since the last call.
pub(crate) fn take() -> Vec<Entry> {
    JOURNAL.with_borrow_mut(|journal| std::mem::take(&mut journal.entries))
}

fn note(entry: Entry) {
    JOURNAL.with_borrow_mut(|journal| journal.entries.push(entry));
}

/// Wraps the store and records its calls.
pub(crate) struct Tap {
    store: Arc<dyn Store>,
}

/// Algorithms by their place in `ALGORITHMS` and a ticket.
type Ticketed = HashMap<(usize, Ticket), &'static dyn Algorithm>;

/// The algorithm, noting what it decides under that ticket. A check needs a `'static` algorithm, so
/// runs reuse these.
fn ticketed(base: &dyn Algorithm, ticket: Ticket) -> &'static dyn Algorithm {
    static KEPT: Mutex<Option<Ticketed>> = Mutex::new(None);
    let same = |known: &&dyn Algorithm| known.name() == base.name();
    let number = ALGORITHMS.iter().position(same).unwrap();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    *kept
        .get_or_insert_default()
        .entry((number, ticket))
        .or_insert_with(|| {
            let base = ALGORITHMS[number];
            let decide = move |limit: &Limit, state: &mut State, ask: Operation, now: Timestamp| {
                let outcome = base.decide(limit, state, ask, now);
                note(Entry::Decided {
                    ticket,
                    ask,
                    outcome,
                });
                outcome
            };
            Box::leak(Box::new(Wrapped { base, decide }))
        })
}

// === impl Tap ===

impl Tap {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl Store for Tap {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        let store = Arc::clone(&self.store);
        asking_client(move |checks, deadline, purpose| {
            let store = Arc::clone(&store);
            if purpose == Purpose::Reset {
                return Box::pin(async move { store.ask(checks, deadline, purpose).await });
            }
            ask_noted(store, checks, deadline, purpose)
        })
    }
}

/// Asks the store, and notes what was sent and what it replied.
fn ask_noted(
    store: Arc<dyn Store>,
    mut checks: Vec<Check>,
    deadline: Deadline,
    purpose: Purpose,
) -> AskFuture<'static> {
    let count = checks.len();
    let first = JOURNAL.with_borrow_mut(|journal| {
        let sent = journal.sent.entry(journal.caller).or_default();
        let first = Ticket {
            caller: journal.caller,
            position: *sent,
        };
        *sent += count;
        let sent = first.and_after().zip(checks.iter().cloned());
        journal.checks.extend(sent);
        journal.entries.push(Entry::Sent {
            first,
            checks: checks.clone(),
            terms: purpose,
        });
        first
    });
    for (check, ticket) in checks.iter_mut().zip(first.and_after()) {
        check.algorithm = ticketed(check.algorithm, ticket);
    }
    Box::pin(async move {
        let replied = store.ask(checks, deadline, purpose).await;
        let answers = replied.as_ref().map(|reply| reply.answers.clone());
        note(Entry::Replied {
            first,
            count,
            answers: answers.map_err(StoreError::clone),
        });
        replied
    })
}

// === impl Ticket ===

impl Ticket {
    /// The ticket of the reset of this number.
    pub(crate) fn of_reset(number: usize) -> Self {
        Self {
            caller: usize::MAX,
            position: number,
        }
    }

    /// The number of the reset that has this ticket; none for checks.
    pub(crate) fn reset(self) -> Option<usize> {
        (self.caller == usize::MAX).then_some(self.position)
    }

    /// This ticket and the following ones.
    pub(crate) fn and_after(self) -> impl Iterator<Item = Self> {
        (self.position..).map(move |position| Self { position, ..self })
    }
}
