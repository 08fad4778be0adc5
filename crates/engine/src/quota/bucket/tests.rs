//! A lowered limit holds as soon as the assignments of the larger one have expired.

use super::{Bucket, QuotaTimes, Scratch, Usage};
use crate::quota::share::{MicroRate, ONE_PER_SECOND};

const TIMES: QuotaTimes = QuotaTimes {
    ttl_seconds: 15,
    delivery_ms_max: 2_000,
    idle_ms: 60_000,
    silent_ms: 30_000,
};

/// Two streams report these rates for some seconds, with a plan in each.
fn go_on(bucket: &mut Bucket, from_s: u64, seconds: u64, rates: [u64; 2]) -> Vec<MicroRate> {
    let (mut scratch, mut actions) = (Scratch::default(), Vec::new());
    let mut in_force = Vec::new();
    for second in from_s..from_s + seconds {
        let now_ms = second * 1_000;
        for (stream, allowed) in (1..).zip(rates) {
            let usage = Usage { allowed, denied: 0 };
            bucket.report(stream, 1, usage, now_ms, &TIMES);
        }
        bucket.plan(now_ms, &TIMES, &mut scratch, &mut actions);
        in_force.push(bucket.figures(now_ms).in_force);
    }
    in_force
}

#[test]
fn a_limit_that_is_a_little_lower_is_kept_too() {
    let mut bucket = Bucket::new(310 * ONE_PER_SECOND, 0);
    let before = go_on(&mut bucket, 0, 60, [1_000, 1_000]);
    assert!(before[59] > 300 * ONE_PER_SECOND, "{before:?}");
    bucket.set_limit(300 * ONE_PER_SECOND);
    let after = go_on(&mut bucket, 60, 60, [1_000, 1_000]);
    let kept = &after[18..];
    assert!(
        kept.iter()
            .all(|in_force| *in_force <= 300 * ONE_PER_SECOND),
        "{kept:?}"
    );
}

#[test]
fn what_the_larger_limit_allowed_is_not_assigned_again() {
    for moved_s in 1..17 {
        let mut bucket = Bucket::new(10_000 * ONE_PER_SECOND, 0);
        go_on(&mut bucket, 0, 60, [9_000, 150]);
        bucket.set_limit(300 * ONE_PER_SECOND);
        go_on(&mut bucket, 60, moved_s, [9_000, 1]);
        // The demand moves before the larger assignments have expired.
        let after = go_on(&mut bucket, 60 + moved_s, 40, [9_000, 9_000]);
        let kept = &after[usize::try_from(18 - moved_s).unwrap()..];
        assert!(
            kept.iter()
                .all(|in_force| *in_force <= 300 * ONE_PER_SECOND),
            "{moved_s}: {kept:?}"
        );
        assert!(*kept.last().unwrap() > 280 * ONE_PER_SECOND, "{kept:?}");
    }
}
