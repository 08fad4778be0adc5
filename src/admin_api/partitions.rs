//! `GET /partitions`: what holds the buckets, and how full it is.

use serde::{Deserialize, Serialize};

/// The response of `GET /partitions`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Partitions {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// The store.
    pub store: StoreState,
    /// The partitions of this process; empty where Redis or Valkey decides every check.
    pub partitions: Vec<PartitionState>,
}

/// The store that decides.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StoreState {
    /// `memory`, or the name of the backend, such as `redis`.
    pub kind: String,
    /// `exact` or `leased`; null for the memory store.
    pub mode: Option<String>,
    /// Whether it decides.
    pub healthy: bool,
    /// Its state in words.
    pub message: String,
    /// Bytes that buckets may take; null where this process has none.
    pub memory_max_bytes: Option<u64>,
    /// Keys in the denial cache; null without a shared store.
    pub denied_keys: Option<u64>,
    /// Leases of this replica; null unless the mode is `leased`.
    pub leases: Option<LeaseState>,
    /// The servers of a shared store; empty for the memory store.
    pub nodes: Vec<NodeState>,
}

/// Leases of this replica.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LeaseState {
    /// How many leases there are.
    pub leases: u64,
    /// Hits that they hold.
    pub hits_held: u64,
}

/// One server of a shared store.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeState {
    /// Its address, without a password.
    pub address: String,
    /// Whether it answers.
    pub healthy: bool,
    /// Checks that wait for it.
    pub queue_checks: u64,
}

/// One partition.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct PartitionState {
    /// Its number, from 0.
    pub partition: u64,
    /// Buckets, or leases in leased mode.
    pub buckets: u64,
    /// Marks that its buckets have space for.
    pub marks: u64,
    /// Bytes that it uses.
    pub memory_bytes: u64,
    /// Checks in its queue.
    pub queue_checks: u64,
    /// Checks that passed since the start.
    pub admitted: u64,
    /// Checks that were over their limit since the start.
    pub refused: u64,
    /// Buckets that were removed since the start: idle ones, and those that had to make space.
    pub evicted: u64,
}
