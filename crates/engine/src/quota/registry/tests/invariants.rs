//! What holds of a registry at every step. Tests and fuzz targets compile this file.
//!
//! What was sent to proxies is counted here once more, without the ledgers of buckets: a ledger
//! that forgets is found.

use std::collections::HashMap;

use crate::quota::registry::{BucketPairs, OutgoingMessage, ProxyAction, QuotaRegistry, StreamId};
use crate::quota::share::{MicroRate, Strategy};

/// An assignment as a proxy may enforce it.
#[derive(Clone, Copy)]
struct Sent {
    stream: StreamId,
    strategy: Strategy,
    expires_ms: u64,
}

/// Every assignment that was sent and may be in force, by id.
#[derive(Default)]
pub(super) struct SentAssignments {
    by_id: HashMap<BucketPairs, Vec<Sent>>,
    /// How many were sent.
    pub(super) count: u64,
}

// === impl SentAssignments ===

impl SentAssignments {
    /// Counts the assignments of a message. A message that nobody reads may still arrive.
    pub(super) fn count(
        &mut self,
        stream: StreamId,
        message: &OutgoingMessage,
        registry: &QuotaRegistry,
    ) {
        let expires_ms = message.queued_ms + registry.times.lives_ms();
        for outgoing in &message.actions {
            if let ProxyAction::Assign(strategy) = outgoing.action {
                self.count += 1;
                let of_id = self.by_id.entry(outgoing.id.clone()).or_default();
                let mut same = of_id.iter_mut();
                if let Some(same) =
                    same.find(|sent| (sent.stream, sent.strategy) == (stream, strategy))
                {
                    same.expires_ms = same.expires_ms.max(expires_ms);
                    continue;
                }
                of_id.push(Sent {
                    stream,
                    strategy,
                    expires_ms,
                });
            }
        }
    }

    /// Compares what is in force of each id with the largest limit that it had since.
    pub(super) fn check(
        &mut self,
        now_ms: u64,
        limit_of: impl Fn(&BucketPairs) -> MicroRate,
    ) -> Result<(), String> {
        let mut rates: HashMap<StreamId, MicroRate> = HashMap::new();
        for (id, sent) in &mut self.by_id {
            sent.retain(|sent| sent.expires_ms > now_ms);
            rates.clear();
            for sent in &*sent {
                // The largest: a later one may not have arrived.
                let rate = rates.entry(sent.stream).or_default();
                *rate = sent.strategy.rate().max(*rate);
            }
            let (in_force, limit) = (rates.values().sum::<MicroRate>(), limit_of(id));
            if in_force > limit {
                return Err(format!("{in_force} of {limit} are in force of {id:?}"));
            }
        }
        self.by_id.retain(|_, sent| !sent.is_empty());
        Ok(())
    }
}

/// Holds an invariant.
fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// Whether its maps agree, its bounds hold, and no bucket counts more in force than the largest
    /// limit that it had since.
    pub(super) fn check(&self, limit_of: impl Fn(&BucketPairs) -> MicroRate) -> Result<(), String> {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let state = &mut *state;
        let members: usize = state.buckets.values().map(|of| of.bucket.members()).sum();
        let counted = (members, state.members);
        ensure(counted.0 == counted.1, || {
            format!("parts that are counted once: {counted:?}")
        })?;
        ensure(members <= self.bounds.shares_max, || {
            format!("{members} parts")
        })?;
        ensure(state.buckets.len() <= members.max(1), || {
            format!("{} buckets of {members} parts", state.buckets.len())
        })?;
        for tracked in state.buckets.values_mut() {
            let (in_force, limit) = (
                tracked.bucket.figures(now_ms).in_force,
                limit_of(&tracked.id),
            );
            ensure(in_force <= limit, || {
                format!("{in_force} of {limit} are counted of {:?}", tracked.id)
            })?;
        }
        let of_streams: usize = state.streams.values().map(|of| of.parts.len()).sum();
        ensure(of_streams == state.shares.len(), || {
            format!("{} parts, {of_streams} of streams", state.shares.len())
        })?;
        for (share, of) in &state.shares {
            ensure(state.buckets.contains_key(&of.bucket), || {
                format!("part {share} of a bucket that has ended")
            })?;
            let stream = state.streams.get(&of.stream);
            let known = stream.and_then(|stream| stream.parts.get(&of.digest));
            let known = known.map(|part| (part.share, part.bucket));
            ensure(known == Some((*share, of.bucket)), || {
                format!("part {share} is not its stream's")
            })?;
        }
        let open = i64::try_from(state.streams.len()).unwrap_or(i64::MAX);
        let shown = self.metrics.quotas.streams.get();
        ensure(shown == open, || {
            format!("{open} streams, {shown} in the metric")
        })
    }

    /// Whether nothing is left, after all streams were closed and everything has expired.
    pub(super) fn check_empty(&self) -> Result<(), String> {
        let state = self.state();
        let left = (
            state.streams.len(),
            state.shares.len(),
            state.buckets.len(),
            state.members,
        );
        ensure(left == (0, 0, 0, 0), || {
            format!("streams, parts, buckets and members are left: {left:?}")
        })
    }
}
