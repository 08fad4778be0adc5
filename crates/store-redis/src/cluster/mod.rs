//! A Redis cluster: which node serves which bucket.
//!
//! A bucket's hash tag, one of 256, has a slot, and the slot has a master. A master is assigned to
//! a *node slot*, which has a queue, a worker and a [`Node`](super::node::Node). All node slots are
//! made at start and sleep while no node is assigned. So a node that joins or leaves changes a
//! number in a table, and no task ends. Number 0 has no node: the topology task answers the checks
//! that are routed there.
//!
//! A wrong route does no harm: a node knows its own slots and runs nothing for others.
//!
//! Redis replicas are not used, and a call that may have run is not sent again.

mod topology;

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::{Notify, watch};
use tollgate_system::per_thread::lock;

pub(super) use self::topology::Topology;
use super::connection::Connection;
use super::key;
use super::target::Address;
use tollgate_limiter::{Check, Key};
use tollgate_store::{Refund, RefundSink, StoreFault};

/// How many node slots a cluster has: as many as there are hash tags.
pub(super) const NODES_MAX: usize = 256;

/// The route of the set of replicas, after those of the hash tags.
const REPLICAS_ROUTE: usize = 256;

/// The route of leases of rates.
const RATE_LEASE_ROUTE: usize = 257;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// How many redirects of a run are followed: nodes whose views of the cluster differ may redirect
/// to each other for a while.
pub(super) const REDIRECTS_MAX: u32 = 24;

/// The longest pause before a redirected run is sent again, in milliseconds.
const PAUSE_MS_MAX: u64 = 64;

/// How long a redirect target keeps its node slot, in microseconds.
const REDIRECT_TARGET_KEPT_US: u64 = 30_000_000;

/// One cluster, as all its nodes see it.
pub(super) struct Cluster {
    /// The slot of each route: one route per hash tag, one for the set of replicas, and a last one
    /// for leases of rates.
    slots: Vec<u16>,
    /// The node slot of each route; 0 is none.
    routes: Vec<AtomicU16>,
    /// Numbered from 1.
    node_slots: Vec<NodeSlot>,
    /// The state of each node slot. The lock is held for short look-ups only.
    taken: Mutex<Vec<SlotState>>,
    /// A new topology is wanted.
    pub(super) wanted: Notify,
    /// Takes refunds for nodes that serve the slot by now. Set once, when the store is built; weak,
    /// so that workers end when no caller is left.
    pub(super) refund_sink: OnceLock<Weak<dyn RefundSink>>,
}

/// A place for one node.
#[derive(Default)]
struct NodeSlot {
    /// The assigned node; none when it should leave.
    assigned: watch::Sender<Option<Address>>,
    link: watch::Sender<Link>,
    /// Whether one script run works over all slots of the node and refuses those of others.
    spreads: AtomicBool,
}

/// The state of a node slot in the assignment table.
#[derive(Clone, Debug, Eq, PartialEq)]
enum SlotState {
    Free,
    Assigned(Address, u64),
    /// It can be assigned again to the same node.
    Draining(Address),
}

/// The connection to a node, for calls that were redirected to it.
#[derive(Clone, Default)]
pub(super) enum Link {
    /// It is being made.
    #[default]
    Connecting,
    /// It is connected.
    Up(Connection),
    /// It cannot be reached.
    Down(StoreFault),
}

/// Where to send a call instead: its slot belongs, or will belong, to another node. Nothing has
/// run, so the call may be sent again. An unserved slot (`CLUSTERDOWN`) is not a redirect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Redirect {
    /// Another node serves the slot from now on; none when the node did not name it.
    Moved(Option<(u16, Address)>),
    /// The slot migrates to another node, which has this key or will create it.
    Ask(Option<Address>),
    /// The slot migrates, and the call's keys are on both nodes.
    TryAgain,
}

/// The place of a [`Node`](super::node::Node) in a cluster.
#[derive(Clone)]
pub(super) struct ClusterMember {
    pub(super) cluster: Arc<Cluster>,
    /// The number of its node slot; 0 is the topology task's.
    pub(super) node_slot: usize,
}

/// The steps of a probe of a node. No route leads to a node where there are none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ProbeSteps {
    /// Registers the replica and counts replicas.
    pub(super) counts_replicas: bool,
    /// Decides a check under this hash tag.
    pub(super) tag: Option<u8>,
}

// === impl ProbeSteps ===

impl ProbeSteps {
    /// Those at a server outside clusters.
    pub(super) const SINGLE_SERVER: Self = Self {
        counts_replicas: true,
        tag: Some(0),
    };
}

// === impl Cluster ===

impl Cluster {
    /// A cluster of which no node is known.
    pub(super) fn new(prefix: &str) -> Self {
        let mut slots = slots_of_tags();
        slots.push(slot_of(key::replicas(prefix).as_bytes()));
        slots.push(slot_of(key::RATE_LEASE_TAG.as_bytes()));
        Self {
            routes: slots.iter().map(|_| AtomicU16::new(0)).collect(),
            slots,
            node_slots: (0..NODES_MAX).map(|_| NodeSlot::default()).collect(),
            taken: Mutex::new(vec![SlotState::Free; NODES_MAX]),
            wanted: Notify::new(),
            refund_sink: OnceLock::new(),
        }
    }

    /// The node slot of a bucket; 0 when no node serves it.
    pub(super) fn node_slot_of(&self, key: Key) -> usize {
        self.node_slot_of_route(usize::from(tag_of(key)))
    }

    /// The node slot of all leases of rates; 0 when no node serves it.
    pub(super) fn node_slot_of_rate_leases(&self) -> usize {
        self.node_slot_of_route(RATE_LEASE_ROUTE)
    }

    fn node_slot_of_route(&self, route: usize) -> usize {
        let node_slot = self.routes.get(route);
        node_slot.map_or(0, |node_slot| node_slot.load(Ordering::Acquire).into())
    }

    /// The steps of a probe of this slot's node.
    pub(super) fn probe_steps(&self, node_slot: usize) -> ProbeSteps {
        let serves = |route: &usize| self.node_slot_of_route(*route) == node_slot;
        let tag = (0..REPLICAS_ROUTE).find(serves);
        ProbeSteps {
            counts_replicas: serves(&REPLICAS_ROUTE),
            tag: tag.and_then(|tag| u8::try_from(tag).ok()),
        }
    }

    /// Two hash tags that the node of this slot serves, and one that another node serves, if there
    /// is one; none when the node serves fewer.
    pub(super) fn spread_probe_tags(&self, node_slot: usize) -> Option<(u8, u8, Option<u8>)> {
        let (mut own, mut foreign) = (Vec::new(), None);
        for tag in 0..=u8::MAX {
            let its = self.node_slot_of_route(usize::from(tag));
            if its == node_slot {
                own.push(tag);
            } else if its > 0 {
                foreign = Some(tag);
            }
        }
        let [one, .., other] = own.as_slice() else {
            return None;
        };
        Some((*one, *other, foreign))
    }

    /// Whether one script run may have checks of all slots of this node.
    pub(super) fn spreads(&self, node_slot: usize) -> bool {
        let node_slot = self.node_slot(node_slot);
        node_slot.is_some_and(|node_slot| node_slot.spreads.load(Ordering::Acquire))
    }

    /// Records what a probe found.
    pub(super) fn set_spreads(&self, node_slot: usize, spreads: bool) {
        if let Some(node_slot) = self.node_slot(node_slot) {
            node_slot.spreads.store(spreads, Ordering::Release);
        }
    }

    /// Asks for a new topology soon.
    pub(super) fn refresh(&self) {
        self.wanted.notify_one();
    }

    /// The node that is assigned to this slot, and later ones.
    pub(super) fn assignment(&self, node_slot: usize) -> Option<watch::Receiver<Option<Address>>> {
        Some(self.node_slot(node_slot)?.assigned.subscribe())
    }

    /// The address of the node that is assigned to this slot now.
    pub(super) fn address_of(&self, node_slot: usize) -> Option<Address> {
        self.node_slot(node_slot)?.assigned.borrow().clone()
    }

    /// The link to the node of this slot.
    pub(super) fn link(&self, node_slot: usize) -> Option<watch::Receiver<Link>> {
        Some(self.node_slot(node_slot)?.link.subscribe())
    }

    /// Publishes the link to the node of this slot.
    pub(super) fn publish(&self, node_slot: usize, link: Link) {
        if let Some(node_slot) = self.node_slot(node_slot) {
            node_slot.link.send_replace(link);
        }
    }

    fn node_slot(&self, number: usize) -> Option<&NodeSlot> {
        self.node_slots.get(number.checked_sub(1)?)
    }

    /// A redirect said that this node serves the slot. Returns its node slot, if there is a free
    /// one.
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

    /// The node slot of a redirect target.
    pub(super) fn assign_redirect_target(&self, address: &Address, now_us: u64) -> Option<usize> {
        let until_us = now_us.saturating_add(REDIRECT_TARGET_KEPT_US);
        self.assign(&mut lock(&self.taken), address, until_us)
    }

    /// The node slot of a node; a free one if it has none.
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
                node_slot.spreads.store(false, Ordering::Release);
                *taken = SlotState::Assigned(address.clone(), until_us);
                node_slot.assigned.send_replace(Some(address.clone()));
            }
        }
        place.checked_add(1)
    }

    /// Takes over a topology. Returns the first slot in use that no node serves, and how many there
    /// are.
    pub(super) fn adopt(&self, topology: &Topology, now_us: u64) -> (Option<u16>, usize) {
        let mut taken = lock(&self.taken);
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
                node_slot.assigned.send_replace(None);
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

    /// Frees the node slot of a node that has left. Returns false when a node was assigned to it
    /// meanwhile.
    pub(super) fn release(&self, node_slot: usize) -> bool {
        let mut taken = lock(&self.taken);
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

    /// The assigned nodes and their node slots.
    pub(super) fn assigned(&self) -> Vec<(usize, Address)> {
        let taken = lock(&self.taken);
        let numbered = (1..).zip(taken.iter());
        let assigned = numbered.filter_map(|(node_slot, state)| match state {
            SlotState::Assigned(address, _) => Some((node_slot, address.clone())),
            SlotState::Free | SlotState::Draining(_) => None,
        });
        assigned.collect()
    }

    /// How many nodes are assigned.
    pub(super) fn nodes(&self) -> usize {
        self.assigned().len()
    }

    /// Sends refunds to the nodes that serve their slots by now. Returns false when the store is
    /// gone.
    pub(super) fn refund(&self, checks: Vec<Check>) -> bool {
        let Some(sink) = self.refund_sink.get().and_then(Weak::upgrade) else {
            return false;
        };
        let refunds = checks.into_iter().map(|check| Refund { check, order: 0 });
        sink.refund(refunds.collect());
        true
    }
}

/// The number of a bucket's hash tag.
pub(super) fn tag_of(key: Key) -> u8 {
    let [tag, ..] = key.0.to_be_bytes();
    tag
}

/// The slot of a hash tag, or of a key without one: the CRC16 (XMODEM) of its text. The callers
/// know their hash tags, so no key is searched for one.
fn slot_of(text: &[u8]) -> u16 {
    let crc = text.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    });
    crc % SLOTS
}

/// The slot of each hash tag, `00` to `ff`.
fn slots_of_tags() -> Vec<u16> {
    let slots = (0..=u8::MAX).map(|tag| slot_of(format!("{tag:02x}").as_bytes()));
    slots.collect()
}

/// The connection of a link, as soon as it is made.
pub(super) async fn connected(mut link: watch::Receiver<Link>) -> Result<Connection, StoreFault> {
    let ready = link.wait_for(|link| !matches!(link, Link::Connecting));
    match ready.await.as_deref() {
        Ok(Link::Up(connection)) => Ok(connection.clone()),
        // A timeout concerns what was sent. What waits here was not.
        Ok(Link::Down(fault)) => Err(fault.while_breaker_open()),
        Ok(Link::Connecting) | Err(_) => Err(StoreFault::NotConnected),
    }
}

/// Waits before what was redirected so often is sent again. The first redirect is followed at once:
/// that finds a slot that has moved.
pub(super) async fn pause_after_redirects(redirects: u32) {
    if let Some(doublings) = redirects.checked_sub(2) {
        let pause_ms = 1_u64.checked_shl(doublings).unwrap_or(PAUSE_MS_MAX);
        tokio::time::sleep(Duration::from_millis(pause_ms.min(PAUSE_MS_MAX))).await;
    }
}

// === impl Redirect ===

impl Redirect {
    /// The redirect in an error of the node at `asked`; none when it is another error.
    pub(super) fn of(error: &RedisError, asked: &Address) -> Option<Self> {
        Self::of_code(error.code()?, error.detail().unwrap_or_default(), asked)
    }

    fn of_code(code: &str, detail: &str, asked: &Address) -> Option<Self> {
        let named = || {
            let mut words = detail.split_ascii_whitespace();
            let slot = words.next()?.parse().ok()?;
            Some((slot, Address::reported_by(words.next()?, asked)?))
        };
        match code {
            "MOVED" => Some(Self::Moved(named())),
            "ASK" => Some(Self::Ask(named().map(|(_, address)| address))),
            "TRYAGAIN" => Some(Self::TryAgain),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
