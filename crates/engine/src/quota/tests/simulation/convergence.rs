//! How soon shares follow the demand, without faults.

use super::scenario::{LIMIT, STEP_MS, TIMES, proxy};
use crate::quota::bucket::{Action, Bucket, QuotaTimes, Scratch};
use crate::quota::registry::action_of;

#[test]
fn shares_follow_the_demand_within_a_time_to_live_and_two_reports() {
    let mut bucket = Bucket::new(LIMIT, 0);
    let mut proxies = [proxy(400), proxy(50), proxy(10)];
    let times = QuotaTimes {
        delivery_ms_max: 1_000,
        ..TIMES
    };
    let (mut scratch, mut actions) = (Scratch::default(), Vec::new());
    let mut admitted = Vec::new();
    // An action arrives before the next step.
    let mut arriving: Vec<(usize, Action)> = Vec::new();
    for step in 0..800 {
        let now_ms = 1_000_000 + step * STEP_MS;
        if step == 400 {
            proxies[0].offered = 10_000;
            proxies[2].offered = 400_000;
        }
        for (at, action) in arriving.drain(..) {
            proxies[at].receive(now_ms, action_of(action, false));
        }
        let mut of_step = [0; 3];
        for (at, proxy) in proxies.iter_mut().enumerate() {
            of_step[at] = proxy.step(now_ms, STEP_MS);
            if proxy.needs_stream(now_ms) {
                proxy.connect(at as u64);
            }
            if let Some(usage) = proxy.take_report(now_ms)
                && let Some(strategy) = bucket.report(at as u64, 1, usage, now_ms, &times)
            {
                arriving.push((at, Action::Assign(strategy)));
            }
        }
        admitted.push(of_step);
        if step % 10 == 0 {
            actions.clear();
            bucket.plan(now_ms, &times, &mut scratch, &mut actions);
            for &(stream, action) in &actions {
                arriving.push((usize::try_from(stream).unwrap(), action));
            }
        }
    }
    let rates = |from: usize| -> Vec<u64> {
        (0..3)
            .map(|at| {
                admitted[from..from + 100]
                    .iter()
                    .map(|step| step[at])
                    .sum::<u64>()
                    / 10
            })
            .collect()
    };
    // Two reports (10 s), the time to live (15 s), the delivery (1 s) and two plans after the
    // change.
    for (from, expected) in [(280, [240, 50, 10]), (680, [10, 50, 240])] {
        for (rate, expected) in rates(from).into_iter().zip(expected) {
            assert!(
                rate.abs_diff(expected) * 10 <= expected,
                "{:?}",
                rates(from)
            );
        }
    }
}
