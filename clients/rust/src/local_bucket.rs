//! Token buckets in this process, for `on_error: local`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::bounded_map::BoundedMap;
use crate::request::DescriptorKey;

/// Most buckets of a client.
const MAX_BUCKETS: usize = 10_000;
const NANOS: u128 = 1_000_000_000;

/// Rate and burst of the token bucket of [`OnError::Local`](crate::OnError::Local).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalLimit {
    /// Tokens that a bucket gains each second; default: 10. At least 1.
    pub per_second: u32,
    /// Most tokens of a bucket; default: 10. A new bucket has as many.
    pub burst: u32,
}

impl Default for LocalLimit {
    fn default() -> Self {
        Self {
            per_second: 10,
            burst: 10,
        }
    }
}

/// One token bucket for each list of descriptors.
#[derive(Debug)]
pub(crate) struct LocalBuckets {
    limit: LocalLimit,
    buckets: Mutex<BoundedMap<DescriptorKey, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Tokens in billionths: a nanosecond adds `per_second` of them.
    level: u128,
    at: Duration,
}

/// Result of taking tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Passed,
    /// Time until the tokens are there. `None` if the burst is smaller.
    Refused(Option<Duration>),
}

impl LocalBuckets {
    pub(crate) fn new(limit: LocalLimit) -> Self {
        Self {
            limit,
            buckets: Mutex::new(BoundedMap::new(MAX_BUCKETS)),
        }
    }

    /// Takes `hits` tokens, or none.
    pub(crate) fn take(&self, key: DescriptorKey, hits: u64, now: Duration) -> Taken {
        let full = u128::from(self.limit.burst) * NANOS;
        let rate = u128::from(self.limit.per_second);
        let wanted = u128::from(hits) * NANOS;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let level = match buckets.get_mut(&key) {
            Some(bucket) => {
                let passed = now.saturating_sub(bucket.at);
                bucket.level = full.min(bucket.level + passed.as_nanos() * rate);
                bucket.at = now;
                &mut bucket.level
            }
            None if wanted > full => return Taken::Refused(None),
            None => {
                buckets.insert(
                    key,
                    Bucket {
                        level: full - wanted,
                        at: now,
                    },
                );
                return Taken::Passed;
            }
        };
        if wanted > full {
            return Taken::Refused(None);
        }
        if wanted > *level {
            let micros = (wanted - *level).div_ceil(rate).div_ceil(1_000);
            return Taken::Refused(Some(Duration::from_micros(
                u64::try_from(micros).unwrap_or(u64::MAX),
            )));
        }
        *level -= wanted;
        Taken::Passed
    }
}
