//! A process that stood still for longer than its assignments live: nothing expired is renewed
//! beyond what is free.
//!
//! What it deliberately does not do: play proxies (`simulation`).

use crate::quota::bucket::{Bucket, QuotaTimes, Scratch, Usage};
use crate::quota::share::ONE_PER_SECOND;

const TIMES: QuotaTimes = QuotaTimes {
    ttl_seconds: 15,
    delivery_ms_max: 2_000,
    idle_ms: 300_000,
    silent_ms: 20_000,
};

#[test]
fn what_expired_is_renewed_only_where_it_is_free() {
    let mut bucket = Bucket::new(300 * ONE_PER_SECOND, 0);
    let (mut scratch, mut actions) = (Scratch::default(), Vec::new());
    let busy = Usage {
        allowed: 1_000,
        denied: 1_000,
    };
    for now_ms in (0..20_000).step_by(500) {
        if now_ms % 5_000 == 0 {
            bucket.report(1, 1, busy, now_ms, &TIMES);
        }
        bucket.plan(now_ms, &TIMES, &mut scratch, &mut actions);
    }
    assert!(bucket.figures(20_000).in_force > 200 * ONE_PER_SECOND);
    // The process stands still. Then reports arrive before the next plan.
    let now_ms = 60_000;
    bucket.report(1, 1, busy, now_ms, &TIMES);
    for newcomer in 2..6 {
        bucket.report(newcomer, 1, busy, now_ms, &TIMES);
    }
    for now_ms in (now_ms..now_ms + 5_000).step_by(500) {
        bucket.plan(now_ms, &TIMES, &mut scratch, &mut actions);
        let figures = bucket.figures(now_ms);
        assert!(figures.in_force <= figures.limit, "{figures:?}");
    }
}
