//! A cluster of Redis servers: who serves which bucket, and how that changes while nobody waits for it.
//!
//! | file | what |
//! | --- | --- |
//! | `slot` | which slot a hash tag lies in |
//! | `topology` | who serves which slots, as a server says |
//! | `topology_task` | the task that asks for it |
//! | `redirect` | where a server sends whoever asks the wrong one |
//! | `spread` | the checks of a call, slot by slot, followed to wherever their slots have gone |
//!
//! How: a bucket's hash tag, one of 256, has a slot, and the slot a master. Masters have *node_slots*: a queue, a worker and a
//! node each, made once for as many as there may be and asleep while nobody sits there. So a server that comes or goes changes
//! a number in a table and no task ever ends. Number 0 is nobody's: who is routed there is told why by the topology_task.
//!
//! A wrong route harms nobody: every server knows which slots are its own and runs nothing for others.
//!
//! What it deliberately does not do: reach for replicas, try again what may have run.

mod redirect;
mod slot;
mod topology;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};

pub(super) use self::redirect::Redirect;
use self::slot::{slot_of, slots_of_tags};
pub(super) use self::topology::Topology;
use super::key;
use super::target::Address;
use crate::store::{RefundSink, StoreFault};
use tollgate_limiter::{Check, Key};

/// How many servers of a cluster have a node_slot: as many as there are hash tags.
pub(super) const NODES_MAX: usize = 256;

/// For how long a server that was only pointed at keeps its node_slot, in microseconds.
const REDIRECT_TARGET_KEPT_US: u64 = 30_000_000;

/// One cluster, as all its nodes see it.
pub(super) struct Cluster {
    /// The slot of each route: one a hash tag, and the last of where replicas are counted.
    slots: Vec<u16>,
    /// The node_slot of each; 0 is nobody's.
    routes: Vec<AtomicU16>,
    /// From number 1.
    node_slots: Vec<NodeSlot>,
    /// Who sits where; held for as long as it takes to look.
    taken: Mutex<Vec<SlotState>>,
    wanted: Notify,
    /// Where a give-back goes that nobody here can carry out.
    back: OnceLock<Weak<dyn RefundSink>>,
}

/// Room for one server.
struct NodeSlot {
    /// Who is to sit there; none when whoever does is to leave.
    told: watch::Sender<Option<Address>>,
    link: watch::Sender<Link>,
}

/// What a node_slot is to those who decide who sits there.
#[derive(Clone, Debug, Eq, PartialEq)]
enum SlotState {
    Free,
    Assigned(Address, u64),
    /// It may be had again by the same.
    Draining(Address),
}

/// The way to a server, for calls that were sent there by another.
#[derive(Clone)]
pub(super) enum Link {
    /// It is being made.
    Connecting,
    /// This.
    Up(MultiplexedConnection),
    /// There is none.
    Down(StoreFault),
}

/// What a node of a cluster is.
#[derive(Clone)]
pub(super) struct ClusterMember {
    pub(super) cluster: Arc<Cluster>,
    /// Which node_slot; 0 is the topology_task's.
    pub(super) node_slot: usize,
}

/// How a server shows that it would decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProbeKind {
    /// By counting replicas.
    CountReplicas,
    /// By writing something under this tag.
    Write(u8),
    /// Nothing of ours is written there.
    Ping,
}

// === impl Cluster ===

impl Cluster {
    /// Nobody is known yet.
    pub(super) fn new(prefix: &str) -> Self {
        let mut slots = slots_of_tags();
        slots.push(slot_of(key::replicas(prefix).as_bytes()));
        Self {
            routes: slots.iter().map(|_| AtomicU16::new(0)).collect(),
            slots,
            node_slots: (0..NODES_MAX).map(|_| NodeSlot::new()).collect(),
            taken: Mutex::new(vec![SlotState::Free; NODES_MAX]),
            wanted: Notify::new(),
            back: OnceLock::new(),
        }
    }

    /// The node_slot of a bucket; 0 when nobody serves it.
    pub(super) fn node_slot_of(&self, key: Key) -> usize {
        self.node_slot_of_route(usize::from(tag_of(key)))
    }

    fn node_slot_of_route(&self, route: usize) -> usize {
        let node_slot = self.routes.get(route);
        node_slot.map_or(0, |node_slot| {
            usize::from(node_slot.load(Ordering::Acquire))
        })
    }

    /// How whoever sits there shows that it would decide.
    pub(super) fn probe_kind(&self, node_slot: usize) -> ProbeKind {
        let serves = |route: &usize| self.node_slot_of_route(*route) == node_slot;
        let tags = usize::from(u8::MAX).saturating_add(1);
        if serves(&tags) {
            return ProbeKind::CountReplicas;
        }
        let tag = (0..tags)
            .find(serves)
            .and_then(|tag| u8::try_from(tag).ok());
        tag.map_or(ProbeKind::Ping, ProbeKind::Write)
    }

    /// Has the topology be read soon.
    pub(super) fn refresh(&self) {
        self.wanted.notify_one();
    }

    /// Ends when the topology is to be read.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Who is told to sit there, and then whoever is told next.
    pub(super) fn assignment(&self, node_slot: usize) -> Option<watch::Receiver<Option<Address>>> {
        Some(self.node_slot(node_slot)?.told.subscribe())
    }

    /// The way to whoever sits there.
    pub(super) fn link(&self, node_slot: usize) -> Option<watch::Receiver<Link>> {
        Some(self.node_slot(node_slot)?.link.subscribe())
    }

    /// Has everybody know the way to whoever sits there.
    pub(super) fn publish(&self, node_slot: usize, link: Link) {
        if let Some(node_slot) = self.node_slot(node_slot) {
            node_slot.link.send_replace(link);
        }
    }

    fn node_slot(&self, number: usize) -> Option<&NodeSlot> {
        self.node_slots.get(number.checked_sub(1)?)
    }

    /// A server said that the slot is this one's. Gives its node_slot, if there is one.
    pub(super) fn moved(&self, slot: u16, to: &Address, now_us: u64) -> Option<usize> {
        let node_slot = self.assign_redirect_target(to, now_us)?;
        self.route(slot, node_slot);
        self.refresh();
        Some(node_slot)
    }

    fn route(&self, slot: u16, node_slot: usize) {
        let node_slot = u16::try_from(node_slot).unwrap_or_default();
        for (route, its) in self.routes.iter().zip(&self.slots) {
            if *its == slot {
                route.store(node_slot, Ordering::Release);
            }
        }
    }

    /// The node_slot of a server that another one pointed at.
    pub(super) fn assign_redirect_target(&self, address: &Address, now_us: u64) -> Option<usize> {
        let until_us = now_us.saturating_add(REDIRECT_TARGET_KEPT_US);
        self.assign(&mut self.taken(), address, until_us)
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Vec<SlotState>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node_slot of a server, a free one if it has none.
    fn assign(&self, taken: &mut [SlotState], address: &Address, until_us: u64) -> Option<usize> {
        let its = taken.iter().position(|taken| match taken {
            SlotState::Assigned(who, _) | SlotState::Draining(who) => who == address,
            SlotState::Free => false,
        });
        let place = its.or_else(|| taken.iter().position(|taken| *taken == SlotState::Free))?;
        let node_slot = self.node_slots.get(place)?;
        let taken = taken.get_mut(place)?;
        match taken {
            SlotState::Assigned(_, known_us) => *known_us = until_us.max(*known_us),
            SlotState::Free | SlotState::Draining(_) => {
                if *taken == SlotState::Free {
                    node_slot.link.send_replace(Link::Connecting);
                }
                *taken = SlotState::Assigned(address.clone(), until_us);
                node_slot.told.send_replace(Some(address.clone()));
            }
        }
        place.checked_add(1)
    }

    /// Takes over what a server said of who serves what. Gives the first slot of ours that nobody serves, and how many those
    /// are.
    pub(super) fn adopt(&self, topology: &Topology, now_us: u64) -> (Option<u16>, usize) {
        let mut taken = self.taken();
        let mut serving = vec![false; NODES_MAX];
        let (mut first, mut count) = (None, 0_usize);
        for (route, slot) in self.routes.iter().zip(&self.slots) {
            let master = topology.master_of(*slot);
            let node_slot = master.and_then(|master| self.assign(&mut taken, master, 0));
            if let Some(node_slot) = node_slot {
                if let Some(serves) = serving.get_mut(node_slot.saturating_sub(1)) {
                    *serves = true;
                }
            } else {
                first = first.or(Some(*slot));
                count = count.saturating_add(1);
            }
            let node_slot = node_slot.and_then(|node_slot| u16::try_from(node_slot).ok());
            route.store(node_slot.unwrap_or_default(), Ordering::Release);
        }
        for ((taken, node_slot), serves) in taken.iter_mut().zip(&self.node_slots).zip(serving) {
            if let SlotState::Assigned(address, until_us) = taken
                && !serves
                && *until_us <= now_us
            {
                *taken = SlotState::Draining(std::mem::replace(address, Address::nowhere()));
                node_slot.told.send_replace(None);
            }
        }
        (first, count)
    }

    /// Whether a topology has a master for every slot in use.
    pub(super) fn is_covered_by(&self, topology: &Topology) -> bool {
        self.slots
            .iter()
            .all(|slot| topology.master_of(*slot).is_some())
    }

    /// Whoever sat there has left. Says whether the node_slot is free; else somebody was told to sit there meanwhile.
    pub(super) fn release(&self, node_slot: usize) -> bool {
        let mut taken = self.taken();
        match node_slot
            .checked_sub(1)
            .and_then(|place| taken.get_mut(place))
        {
            Some(taken @ SlotState::Draining(_)) => {
                *taken = SlotState::Free;
                true
            }
            _ => false,
        }
    }

    /// Who sits somewhere, and the number of the node_slot.
    pub(super) fn assigned(&self) -> Vec<(usize, Address)> {
        let taken = self.taken();
        let seated = taken
            .iter()
            .zip(1_usize..)
            .filter_map(|(taken, node_slot)| {
                let SlotState::Assigned(address, _) = taken else {
                    return None;
                };
                Some((node_slot, address.clone()))
            });
        seated.collect()
    }

    /// How many servers have a node_slot.
    pub(super) fn nodes(&self) -> usize {
        self.assigned().len()
    }

    /// Says where a give-back goes that nobody here can carry out.
    pub(super) fn set_refund_sink(&self, way: Weak<dyn RefundSink>) {
        // ErrorClass once, when the store is made.
        let _ = self.back.set(way);
    }

    /// Sends on what is to be given back, to whoever serves it by now. Says whether there is anybody to send it.
    pub(super) fn give_back(&self, checks: Vec<Check>) -> bool {
        let Some(back) = self.back.get().and_then(Weak::upgrade) else {
            return false;
        };
        back.refund(checks);
        true
    }
}

/// The number that a bucket's hash tag spells.
pub(super) fn tag_of(key: Key) -> u8 {
    let [tag, ..] = key.0.to_be_bytes();
    tag
}

// === impl NodeSlot ===

impl NodeSlot {
    fn new() -> Self {
        Self {
            told: watch::Sender::new(None),
            link: watch::Sender::new(Link::Connecting),
        }
    }
}

#[cfg(test)]
mod tests;
