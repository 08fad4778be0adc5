//! Floods of new keys: what the memory store evicts, what it never evicts, and what happens to keys
//! without space. `tests/memory` measures the process.

use super::{BOUNDS, Running, hourly as check, idle};
use tollgate::store::memory;
use tollgate_limiter::{Check, Limit, Unit};

/// Space for some twenty thousand buckets.
const MEMORY_MAX: usize = 1_300_000;

const EXHAUSTED: u64 = 500;
/// In an unoptimised build, a fortieth of what `make test-memory` takes.
const ONE_HIT: u64 = 50_000;

/// How many checks are sent in one call.
const AT_ONCE: u64 = 1_000;

impl Running {
    /// Checks each of these keys once; returns how many passed.
    async fn flood(&self, keys: std::ops::Range<u64>, limit: u64) -> u64 {
        let mut allowed = 0;
        let mut from = keys.start;
        while from < keys.end {
            let to = (from + AT_ONCE).min(keys.end);
            let checks = (from..to).map(|key| check(key, limit, 1)).collect();
            for answer in self.ask(checks).await.unwrap() {
                allowed += u64::from(answer.unwrap().allowed);
            }
            from = to;
        }
        allowed
    }

    /// The sum over all partitions.
    fn sum(&self, gauge: &str) -> usize {
        let of = |partition| self.metric(&format!("{gauge}{{partition=\"{partition}\"}}"));
        (0..BOUNDS.partitions)
            .map(|partition| of(partition).parse::<usize>().unwrap())
            .sum()
    }

    fn count(&self, counter: &str) -> u64 {
        self.metric(counter).parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_flood_evicts_an_exhausted_bucket() {
    let bounds = memory::MemoryLimits {
        memory_max: MEMORY_MAX,
        ..BOUNDS
    };
    for running in idle(bounds).map(Running::spawned) {
        assert_eq!(running.flood(0..EXHAUSTED, 1).await, EXHAUSTED);
        let part = ONE_HIT / 10;
        for round in 0..10 {
            let from = 1_000_000 + round * part;
            assert_eq!(running.flood(from..from + part, 10).await, part);
            let again = running.flood(0..EXHAUSTED, 1).await;
            assert_eq!(again, 0, "after {} new keys", (round + 1) * part);
            assert!(running.sum("tollgate_memory_bytes") <= MEMORY_MAX);
        }
        let kept = running.sum("tollgate_buckets") as u64;
        assert!((21_000..27_000).contains(&kept), "{kept} buckets are kept");
        let forgotten = running.count("tollgate_buckets_forgotten_total");
        assert_eq!(forgotten, EXHAUSTED + ONE_HIT - kept);

        // Keys over their limits evict the others and then share a bucket.
        let allowed = running.flood(10_000_000..10_037_500, 1).await;
        let evictable = running.sum("tollgate_buckets") as u64 - EXHAUSTED;
        assert_eq!(
            allowed, evictable,
            "one for each with a bucket, shared or its own"
        );
        assert_eq!(running.flood(20_000_000..20_012_500, 1).await, 0);
        assert_eq!(running.flood(0..EXHAUSTED, 1).await, 0);
        assert!(running.sum("tollgate_memory_bytes") <= MEMORY_MAX);
        let shared = running.count("tollgate_no_room_total{answer=\"share\"}");
        assert!(
            (23_000..31_000).contains(&shared),
            "{shared} checks found no memory"
        );

        // At the reset the store is as it was at the start.
        running.clock.advance_us(3_600_000_000);
        assert_eq!(running.flood(0..EXHAUSTED, 1).await, EXHAUSTED);
    }
}

#[tokio::test]
async fn rules_do_not_share_the_bucket_of_another() {
    let bounds = memory::MemoryLimits {
        memory_max: 64 << 10,
        ..BOUNDS
    };
    for running in idle(bounds).map(Running::spawned) {
        running.flood(0..5_000, 1).await;
        let of_rule = |key, source| Check {
            fingerprint: source,
            limit: Limit::per(1_000, Unit::Hour, std::num::NonZeroU32::MIN),
            ..check(key, 1, 1)
        };
        for source in 10..14 {
            let checks = (0..400).map(|key| of_rule(100_000 + key, source)).collect();
            let answers = running.ask(checks).await.unwrap();
            // Each partition has one per rule.
            let left = answers
                .iter()
                .map(|answer| answer.as_ref().unwrap().remaining);
            assert!(left.min().unwrap() >= 1_000 - 400, "rule {source}");
        }
        assert!(running.sum("tollgate_memory_bytes") <= 64 << 10);
    }
}
