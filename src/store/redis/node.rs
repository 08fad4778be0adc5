//! What everybody knows of one server: whether it is asked, and where to count.
//!
//! Why apart from its worker: whoever asks must be refused at once while the breaker is open, without a message to anybody.
//!
//! What it deliberately does not do: change by itself. The worker says what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use crate::clock::Clock;
use crate::metrics::{Counter, PartitionLevels, StoreMetrics};
use crate::store::StoreFault;
use crate::store::redis::cluster::{ClusterMember, Link};
use crate::store::redis::denial_cache::DenialCache;

/// One server, as all see it.
pub(crate) struct Node {
    /// Where it is, for people; in a cluster whoever sits there.
    place: ArcSwap<String>,
    /// What it is of a cluster; none of a server by itself.
    pub(crate) member: Option<ClusterMember>,
    /// What every key begins with.
    pub(crate) prefix: Arc<str>,
    /// How long an answer may take.
    pub(crate) deadline_us: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: StoreMetrics,
    pub(crate) shed_deadline: Counter,
    pub(crate) shed_caller_gone: Counter,
    pub(crate) given_back: Counter,
    pub(crate) levels: Arc<PartitionLevels>,
    pub(crate) refused: Arc<DenialCache>,
    /// How many of the store's servers are not asked.
    closed: Arc<AtomicUsize>,
    /// Checks that were not decided, by the number of the fault.
    undecided: Vec<Counter>,
    /// 0 while it is asked, else why not: its place among all fault, and 1.
    fault: AtomicU8,
    /// What it or the system said when that began, word for word.
    words: ArcSwap<String>,
}

// === impl Node ===

impl Node {
    #[allow(clippy::too_many_arguments)] // one of each
    pub(crate) fn new(
        place: String,
        member: Option<ClusterMember>,
        prefix: Arc<str>,
        deadline_us: u64,
        clock: Arc<dyn Clock>,
        metrics: &crate::metrics::Metrics,
        levels: Arc<PartitionLevels>,
        refused: Arc<DenialCache>,
        closed: Arc<AtomicUsize>,
    ) -> Self {
        let node = Self {
            place: ArcSwap::from_pointee(place),
            member,
            prefix,
            deadline_us,
            clock,
            metrics: metrics.store.clone(),
            shed_deadline: metrics.buckets.shed_deadline.clone(),
            shed_caller_gone: metrics.buckets.shed_caller_gone.clone(),
            given_back: metrics.buckets.given_back.clone(),
            levels,
            refused,
            closed,
            undecided: StoreFault::ALL
                .iter()
                .map(|fault| metrics.store.undecided(fault.name()))
                .collect(),
            fault: AtomicU8::new(0),
            words: ArcSwap::from_pointee("not tried yet".to_owned()),
        };
        // Where nobody sits nobody is missed.
        if node
            .member
            .as_ref()
            .is_none_or(|member| member.node_slot == 0)
        {
            node.close(StoreFault::NotConnected);
        }
        node
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> Arc<String> {
        self.place.load_full()
    }

    /// Somebody else sits there.
    pub(crate) fn rename(&self, place: String) {
        self.place.store(Arc::new(place));
    }

    /// Has a cluster's other nodes know the way to it.
    pub(crate) fn publish(&self, link: Link) {
        if let Some(ClusterMember { cluster, node_slot }) = &self.member {
            cluster.publish(*node_slot, link);
        }
    }

    /// Has a cluster's topology be read soon.
    pub(crate) fn refresh(&self) {
        if let Some(member) = &self.member {
            member.cluster.refresh();
        }
    }

    /// Why it is not asked; none when it is.
    pub(crate) fn fault(&self) -> Option<StoreFault> {
        let number = self.fault.load(Ordering::Acquire).checked_sub(1)?;
        StoreFault::ALL.get(usize::from(number)).copied()
    }

    /// It is asked from now on. Says whether it was not.
    pub(crate) fn open(&self) -> bool {
        let was_not = self.fault.swap(0, Ordering::AcqRel) != 0;
        if was_not && self.closed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.metrics.up.set(1);
        }
        was_not
    }

    /// It is not asked from now on. Says whether it was.
    pub(crate) fn close(&self, why: StoreFault) -> bool {
        let number = u8::try_from(why.number().saturating_add(1)).unwrap_or(1);
        let was = self.fault.swap(number, Ordering::AcqRel) == 0;
        if was {
            self.closed.fetch_add(1, Ordering::AcqRel);
            self.metrics.up.set(0);
        }
        was
    }

    /// Counts checks that were not decided.
    pub(crate) fn count_undecided(&self, fault: StoreFault, checks: usize) {
        if let Some(counter) = self.undecided.get(fault.number()) {
            counter.inc_by(checks as u64);
        }
    }

    /// Keeps what was said last.
    pub(crate) fn remember(&self, words: String) {
        self.words.store(Arc::new(words));
    }

    /// How it is, for people.
    pub(crate) fn words(&self) -> String {
        match self.fault() {
            None => format!("{} answers", self.place()),
            Some(fault) => format!("{}: {fault} ({})", self.place(), self.words.load()),
        }
    }
}
