//! The buckets of a call without keys, each different one once.
//!
//! Why: reading a bucket costs Redis more in such a call than in one `MGET`, and the checks of a
//! busy service often share buckets.

use std::collections::HashMap;

use tollgate_limiter::Key;

/// Which checks of a call share buckets.
#[derive(Debug, Default)]
pub struct CallBuckets {
    /// The number of the first check of each bucket, from 1.
    first: HashMap<Key, u8>,
    places: Vec<u8>,
}

// === impl CallBuckets ===

impl CallBuckets {
    /// Adds the bucket of the next check.
    pub fn push(&mut self, bucket: Key) {
        let first = self.first.get(&bucket).copied();
        if first.is_none()
            && let Ok(number) = u8::try_from(self.places.len().saturating_add(1))
        {
            self.first.insert(bucket, number);
        }
        self.places.push(first.unwrap_or(0));
    }

    /// One byte per check: the number of the first check of its bucket, or 0 for a bucket that is
    /// sent. A bucket may be sent twice.
    pub fn places(&self) -> &[u8] {
        &self.places
    }
}
