//! The denial cache: refusals that are repeated without a call.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::bounded_map::BoundedMap;
use crate::request::{Check, DescriptorKey, hits_by_descriptor, is_rememberable};
use crate::{Decision, Source};

/// Longest time for which a refusal is repeated, so that resets and refunds are seen.
const LONGEST: Duration = Duration::from_secs(1);

/// Refusals of the service by domain and descriptors.
#[derive(Debug)]
pub(crate) struct DenialCache {
    refusals: Mutex<BoundedMap<DescriptorKey, Refusal>>,
}

#[derive(Debug)]
struct Refusal {
    hits: Vec<u64>,
    decision: Decision,
    at: Duration,
    lasts: Duration,
}

/// Whether a check can be in the cache.
pub(crate) fn is_cacheable(check: &Check) -> bool {
    is_rememberable(&check.descriptors) && hits_by_descriptor(check).any(|hits| hits > 0)
}

/// How long a refusal is repeated.
pub(crate) fn lifetime(refused: &Decision) -> Duration {
    refused
        .retry_after
        .map_or(LONGEST, |wait| wait.min(LONGEST))
}

impl DenialCache {
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            refusals: Mutex::new(BoundedMap::new(entries)),
        }
    }

    /// The remembered refusal of a check, with at least the remembered hits of each descriptor.
    pub(crate) fn find(
        &self,
        key: &DescriptorKey,
        check: &Check,
        now: Duration,
    ) -> Option<Decision> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = refusals.get_mut(key)?;
        let passed = now.saturating_sub(refusal.at);
        if passed >= refusal.lasts {
            refusals.remove(key);
            return None;
        }
        let enough = refusal
            .hits
            .iter()
            .zip(hits_by_descriptor(check))
            .all(|(refused, asked)| asked >= *refused);
        enough.then(|| refusal.decision.after(passed))
    }

    /// Remembers a refusal of the service.
    pub(crate) fn remember(
        &self,
        key: DescriptorKey,
        check: &Check,
        refused: &Decision,
        now: Duration,
    ) {
        let lasts = lifetime(refused);
        if lasts.is_zero() {
            return;
        }
        let decision = Decision {
            source: Source::Cache,
            ..refused.clone()
        };
        let refusal = Refusal {
            hits: hits_by_descriptor(check).collect(),
            decision,
            at: now,
            lasts,
        };
        self.refusals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, refusal);
    }

    /// Number of remembered refusals.
    pub(crate) fn len(&self) -> usize {
        self.refusals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::DenialCache;
    use crate::request::{Check, Descriptor, DescriptorKey};
    use crate::{Decision, Source};

    #[test]
    fn it_is_bounded() {
        let cache = DenialCache::new(10_000);
        let key = |number: u32| {
            let value = number.to_string();
            DescriptorKey::new("edge", &[Descriptor::new([("user", value.as_str())])])
        };
        let now = Duration::ZERO;
        let check = Check::from(Descriptor::default());
        for number in 0..100_000 {
            cache.remember(key(number), &check, &Decision::default(), now);
        }
        assert_eq!(cache.len(), 10_000);
        assert!(cache.find(&key(89_999), &check, now).is_none());
        let found = cache.find(&key(90_000), &check, now);
        assert_eq!(found.map(|found| found.source), Some(Source::Cache));
    }
}
