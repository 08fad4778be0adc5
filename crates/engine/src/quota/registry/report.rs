//! Takes the reports of streams.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_limiter::{Digest as _, Key, KeyHasher as _};

use super::{
    BucketPairs, Outgoing, ProxyAction, QuotaRegistry, ReportedUsage, State, StreamBucket,
    StreamEnd, StreamId, StreamPart, Tracked, action_of,
};
use crate::pipeline::{QuotaRule, find_quota};
use crate::quota::bucket::{Action, Bucket};
use crate::quota::share::MicroRate;

/// Bytes of an id: all its keys and values. The bound is on what a part may hold.
const ID_BYTES_MAX: usize = 4_096;

/// The pairs in the order of their keys.
fn sorted(mut pairs: Vec<(Bytes, Bytes)>) -> Vec<(Bytes, Bytes)> {
    pairs.sort_unstable();
    // As a map has it: the last value of a key counts.
    pairs.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
    pairs
}

/// The bytes of an id.
fn bytes_of(id: &[(Bytes, Bytes)]) -> usize {
    let bytes = id.iter().map(|(key, value)| key.len() + value.len());
    bytes.sum()
}

/// The same id in memory of its own: the parts of a message hold the whole message.
fn kept(id: &[(Bytes, Bytes)]) -> BucketPairs {
    let mut all = Vec::with_capacity(bytes_of(id));
    for (key, value) in id {
        all.extend_from_slice(key);
        all.extend_from_slice(value);
    }
    let mut all = Bytes::from(all);
    id.iter()
        .map(|(key, value)| (all.split_to(key.len()), all.split_to(value.len())))
        .collect()
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// Takes a part of a report, and answers buckets that it names for the first time.
    ///
    /// The lock is held for all of these usages: the caller bounds them.
    ///
    /// # Errors
    ///
    /// When the stream is to end.
    pub fn report(
        &self,
        stream: StreamId,
        domain: &Bytes,
        usages: Vec<ReportedUsage>,
    ) -> Result<(), StreamEnd> {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let state = &mut *state;
        self.follow_rules(state);
        let Some(reporting) = state.streams.get_mut(&stream) else {
            return Err(StreamEnd::Closed);
        };
        let domain = match &reporting.domain {
            None => reporting
                .domain
                .insert(Bytes::copy_from_slice(domain))
                .clone(),
            Some(first) if domain.is_empty() || first == domain => first.clone(),
            Some(_) => {
                self.metrics.quotas.closed_changed_domain.inc();
                self.close_in(state, stream);
                return Err(StreamEnd::ChangedDomain);
            }
        };
        let mut answers = Vec::new();
        for usage in usages {
            let answer = self.take_usage(state, (stream, &domain), usage, now_ms);
            answers.extend(answer);
        }
        self.send(state, stream, answers, now_ms);
        self.gauge(state);
        Ok(())
    }

    /// What is answered at once to one usage.
    fn take_usage(
        &self,
        state: &mut State,
        (stream, domain): (StreamId, &Bytes),
        reported: ReportedUsage,
        now_ms: u64,
    ) -> Option<Outgoing> {
        let id = sorted(reported.id);
        let mut digest = self.hash.start();
        for part in id.iter().flat_map(|(key, value)| [key, value]) {
            digest.write(&(part.len() as u64).to_le_bytes());
            digest.write(part);
        }
        let digest = Key(digest.finish());
        let reporting = state.streams.get(&stream)?;
        let weight = reporting.weight;
        if let Some(part) = reporting.parts.get(&digest) {
            let tracked = state.buckets.get_mut(&part.bucket)?;
            let usage = reported.usage;
            let answer = tracked
                .bucket
                .report(part.share, weight, usage, now_ms, &self.times)?;
            let action = action_of(Action::Assign(answer), tracked.shadow);
            let id = Arc::clone(&part.id);
            self.metrics.quotas.assigned.inc();
            return Some(Outgoing { id, action });
        }
        if self.is_full(state) {
            // No answer: an abandoned bucket would be reported anew with its next request.
            self.metrics.quotas.too_many.inc();
            return None;
        }
        if bytes_of(&id) > ID_BYTES_MAX {
            self.metrics.quotas.too_long.inc();
            return None;
        }
        let id = kept(&id);
        let Some(found) = self.find(state, domain, &id) else {
            self.metrics.quotas.abandoned.inc();
            return Some(Outgoing {
                id,
                action: ProxyAction::Abandon,
            });
        };
        state.last_share += 1;
        state.members += 1;
        let share = state.last_share;
        let tracked = state.buckets.entry(found.key).or_insert_with(|| Tracked {
            bucket: self.new_bucket(found.rate),
            asked_ms: None,
            domain: domain.clone(),
            id: Arc::clone(&id),
            rule: found.rule,
            shadow: found.shadow,
        });
        let answer = tracked
            .bucket
            .report(share, weight, reported.usage, now_ms, &self.times);
        let shadow = tracked.shadow;
        // Streams of one bucket mostly have the same id.
        let id = if tracked.id == id {
            Arc::clone(&tracked.id)
        } else {
            id
        };
        let new = StreamBucket {
            stream,
            digest,
            id: Arc::clone(&id),
            bucket: found.key,
        };
        state.shares.insert(share, new);
        if let Some(stream) = state.streams.get_mut(&stream) {
            let part = StreamPart {
                share,
                bucket: found.key,
                id: Arc::clone(&id),
            };
            stream.parts.insert(digest, part);
        }
        let action = action_of(Action::Assign(answer?), shadow);
        self.metrics.quotas.assigned.inc();
        Some(Outgoing { id, action })
    }

    fn new_bucket(&self, limit: MicroRate) -> Bucket {
        let Some(shared) = &self.leases else {
            return Bucket::new(limit, self.learning_until_ms);
        };
        shared.wake();
        Bucket::leased(limit)
    }

    /// Whether a bound on parts or on leased buckets is met.
    fn is_full(&self, state: &State) -> bool {
        let leased = self.leases.is_some();
        state.members >= self.bounds.shares_max
            || leased && state.buckets.len() >= self.bounds.leased_buckets_max
    }

    /// The rule of an id; none is counted.
    fn find(&self, state: &State, domain: &Bytes, id: &BucketPairs) -> Option<QuotaRule> {
        let ignored = &self.metrics.quotas;
        let generation = state.generation.as_ref()?;
        if !generation.has_quotas(domain) {
            ignored.unknown_domain.inc();
            return None;
        }
        let found = find_quota(generation, domain, id, &self.hash);
        if found.is_none() {
            ignored.unknown_id.inc();
        }
        found
    }
}
