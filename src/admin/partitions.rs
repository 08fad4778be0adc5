//! `GET /partitions`: the store and the partitions of this process.

use std::sync::atomic::Ordering::Relaxed;

use ::http::StatusCode;
use axum::extract::{RawQuery, State};
use axum::response::Response;

use super::AdminState;
use super::failure::{ApiFailure, json_response};
use super::query::Query;
use crate::admin_api::{LeaseState, NodeState, PartitionState, Partitions, StoreState, time_text};
use crate::metrics::PartitionLevels;
use crate::store::{StoreInspection, StoreNode};

pub(super) async fn partitions(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    Query::parse(query.as_deref(), &[])?;
    Ok(json_response(StatusCode::OK, &partitions_of(&state)))
}

/// The store and the partitions now.
pub(super) fn partitions_of(state: &AdminState) -> Partitions {
    let api = &state.api;
    let store = api.store.inspect();
    let partitions = (0..).zip(&store.partitions);
    Partitions {
        instance: api.instance.to_string(),
        at: time_text(api.clock.now()),
        partitions: partitions
            .map(|(number, levels)| partition_state(number, levels))
            .collect(),
        store: store_state(state, store),
    }
}

fn store_state(state: &AdminState, store: StoreInspection) -> StoreState {
    let health = state.api.store.health();
    let gauge = |value: i64| u64::try_from(value).unwrap_or_default();
    let is_shared = health.is_some();
    let leases = store.is_leased.then(|| LeaseState {
        leases: sum(&store, |levels| levels.buckets.load(Relaxed)),
        hits_held: gauge(state.metrics.leases.hits_held.get()),
    });
    StoreState {
        kind: store.kind.to_owned(),
        mode: is_shared.then(|| {
            let mode = if store.is_leased { "leased" } else { "exact" };
            mode.to_owned()
        }),
        healthy: health.as_ref().is_none_or(|health| health.healthy),
        message: health.map_or_else(
            || "buckets are in memory".to_owned(),
            |health| health.message,
        ),
        memory_max_bytes: (!is_shared).then(|| gauge(state.metrics.buckets.memory_max_bytes.get())),
        denied_keys: store.denied_keys.map(|keys| keys as u64),
        leases,
        nodes: store.nodes.into_iter().map(node_state).collect(),
    }
}

fn sum(store: &StoreInspection, level: impl Fn(&PartitionLevels) -> usize) -> u64 {
    let levels = store.partitions.iter();
    levels.map(|levels| level(levels) as u64).sum()
}

fn node_state(node: StoreNode) -> NodeState {
    NodeState {
        address: node.address,
        healthy: node.healthy,
        queue_checks: node.queue_checks as u64,
    }
}

fn partition_state(partition: u64, levels: &PartitionLevels) -> PartitionState {
    PartitionState {
        partition,
        buckets: levels.buckets.load(Relaxed) as u64,
        marks: levels.marks.load(Relaxed) as u64,
        memory_bytes: levels.bytes.load(Relaxed) as u64,
        queue_checks: levels.waiting.load(Relaxed) as u64,
        admitted: levels.admitted.load(Relaxed),
        refused: levels.refused.load(Relaxed),
        evicted: levels.evicted.load(Relaxed),
    }
}
