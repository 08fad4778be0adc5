//! Requests of one task that wait for a store, in slots that are used again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Waker};

use crate::pipeline::pending::PendingRequest;
use tollgate_store::{BatchClient, Ticket};

/// The requests, and the client that asks the store about them.
pub(super) struct InFlight<S> {
    client: Box<dyn BatchClient>,
    /// A ticket is an index into this vector.
    slots: Vec<S>,
    /// Free slots. Those at the end still have the memory of their last request.
    free: Vec<Ticket>,
    /// Slots whose checks have all been answered.
    pub(super) complete: VecDeque<Ticket>,
}

/// A request in flight, or the memory of one.
pub(super) trait Slot: Default {
    fn pending(&mut self) -> &mut PendingRequest;
}

// === impl InFlight ===

impl<S: Slot> InFlight<S> {
    pub(super) fn new(client: Box<dyn BatchClient>) -> Self {
        Self {
            client,
            slots: Vec::new(),
            free: Vec::new(),
            complete: VecDeque::new(),
        }
    }

    /// A slot for one more request; none if there are `slots_max`.
    #[inline]
    pub(super) fn take_slot(&mut self, slots_max: usize) -> Option<Ticket> {
        if let Some(ticket) = self.free.pop() {
            return Some(ticket);
        }
        self.add_slot(slots_max)
    }

    /// A slot for a request that takes the slot's memory with its answer, as calls of the API do.
    pub(super) fn take_bare_slot(&mut self) -> Option<Ticket> {
        if self.free.is_empty() {
            return self.add_slot(usize::MAX);
        }
        Some(self.free.remove(0))
    }

    #[cold]
    fn add_slot(&mut self, slots_max: usize) -> Option<Ticket> {
        let ticket = Ticket::try_from(self.slots.len()).ok()?;
        (self.slots.len() < slots_max).then(|| {
            self.slots.push(S::default());
            ticket
        })
    }

    /// The slot of a request.
    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut S> {
        self.slots.get_mut(ticket as usize)
    }

    /// The slot is free. It keeps its memory.
    pub(super) fn free(&mut self, ticket: Ticket) {
        self.free.push(ticket);
    }

    /// The slot is free, and has lost its memory to its request.
    pub(super) fn free_bare(&mut self, ticket: Ticket) {
        self.free.insert(0, ticket);
    }

    /// Adds the checks of a request to the next batch: all of them, or those of its next round.
    #[inline]
    pub(super) fn ask(&mut self, ticket: Ticket) {
        let Some(slot) = self.slots.get_mut(ticket as usize) else {
            return;
        };
        let pending = slot.pending();
        (pending.is_asked, pending.replies_due) = (true, 0);
        let of_round: Vec<_>;
        let mut checks = pending.checks();
        if let Some(round) = pending.round() {
            let asked = round.iter().filter_map(|position| checks.get(*position));
            of_round = asked.cloned().collect();
            checks = &of_round;
        }
        if !checks.is_empty() {
            let (deadline, purpose) = (pending.deadline, pending.purpose);
            match self.client.add(ticket, checks, deadline, purpose) {
                Ok(replies) => pending.replies_due = replies,
                Err(error) => pending.results.fail(error),
            }
        }
        if pending.replies_due == 0 {
            self.complete.push_back(ticket);
        }
    }

    /// Sends the batch.
    pub(super) fn send(&mut self) {
        self.client.send();
    }

    /// Records the replies that have come. The task is woken when there are more.
    #[inline]
    pub(super) fn take_replies(&mut self, cx: &mut Context<'_>) {
        let (slots, complete) = (&mut self.slots, &mut self.complete);
        self.client.take_replies(cx, &mut |reply| {
            let ticket = reply.ticket;
            let Some(slot) = slots.get_mut(ticket as usize) else {
                return;
            };
            let pending = slot.pending();
            pending.record(reply);
            pending.replies_due = pending.replies_due.saturating_sub(1);
            if pending.replies_due == 0 {
                complete.push_back(ticket);
            }
        });
    }
}

/// Keeps the waker of a task.
pub(super) fn register(waker: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    let mut waker = waker.borrow_mut();
    if !waker
        .as_ref()
        .is_some_and(|known| known.will_wake(cx.waker()))
    {
        *waker = Some(cx.waker().clone());
    }
}
