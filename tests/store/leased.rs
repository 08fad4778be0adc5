//! Leases: replicas that hold hits of one shared store. `leased_changes` has resets and
//! reservations of leased buckets; `tests/redis` runs leases on Redis.

use tollgate::store::BatchClient;
use tollgate::store::lease::LeaseLimits;
use tollgate_limiter::{CountRefused, Operation};

use super::hourly as check;
use super::lease_replicas::{AGE_US, LEASES, Replicas, Shared, tick};
use super::*;
use tollgate_test_support::asking_store::ResetBuckets as _;

const LOST: &str = "tollgate_lease_refused_hits_lost_total";

#[tokio::test(start_paused = true)]
async fn replicas_admit_exactly_the_limit() {
    for limit in [1, 10, 1_000] {
        let replicas = Replicas::new(3, LEASES);
        let check = check(1, limit, 1);
        let mut admitted = replicas.burst(&[0, 1, 2], 64, 20, &check).await;
        assert!(admitted <= limit);
        // What one replica holds and does not need goes back, and another replica gets it.
        for _ in 0..20 {
            replicas.settle().await;
            admitted += replicas.burst(&[0, 1, 2], 1, 20, &check).await;
        }
        assert_eq!(admitted, limit);
        assert_eq!(replicas.left(&check).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn many_hits_need_few_calls() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 4_000_000, 1);
    assert_eq!(replicas.burst(&[0], 64, 1_000, &check).await, 64_000);
    let calls = *replicas.shared.calls.lock().unwrap();
    assert!(calls < 200, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_new_key_takes_only_the_requested_hits() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 3);
    assert!(replicas.ask(0, &check).await.allowed);
    assert_eq!((replicas.left(&check).await, replicas.held()), (997, 0));
}

#[tokio::test(start_paused = true)]
async fn near_the_limit_nothing_is_taken_in_advance() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 1);
    for asked in 0..1_000 {
        let outcome = replicas.ask(0, &check).await;
        assert!(outcome.allowed);
        assert_eq!(
            (outcome.used_before, outcome.remaining),
            (asked, 999 - asked)
        );
        let left = replicas.left(&check).await;
        assert_eq!(left + replicas.held(), outcome.remaining);
        assert!(
            replicas.held() <= left.max(4) * 2,
            "{asked}: {}",
            replicas.held()
        );
    }
    assert!(!replicas.ask(0, &check).await.allowed);
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_is_not_sent_again_within_a_second() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 5, 1);
    assert_eq!(replicas.burst(&[0], 1, 10, &check).await, 5);
    let calls = *replicas.shared.calls.lock().unwrap();
    let refused = replicas.ask(0, &check).await;
    assert!(!refused.allowed);
    assert_eq!(
        refused.retry_us,
        Some(3_600_000_000 - 1_700_006_410 % 3_600 * 1_000_000)
    );
    assert_eq!(*replicas.shared.calls.lock().unwrap(), calls);
    replicas.clock.advance_us(1_000_000);
    assert!(!replicas.ask(0, &check).await.allowed);
    assert!(*replicas.shared.calls.lock().unwrap() > calls);
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_does_not_count_is_not_written() {
    let replicas = Replicas::new(2, LEASES);
    let check = check(1, 10, 1);
    let check = Check {
        limit: check.limit.with_count_refused(CountRefused::None),
        ..check
    };
    let refunded = Check {
        operation: Hits::Refund(2).into(),
        ..check.clone()
    };
    replicas.burst(&[0, 1], 4, 50, &check).await;
    replicas.settle().await;
    replicas.burst(&[0, 1], 4, 50, &check).await;
    replicas.ask(0, &refunded).await;
    assert_eq!(replicas.left(&check).await, 2);
    replicas.clock.advance_us(1_000_000);
    assert_eq!(replicas.burst(&[1], 1, 10, &check).await, 2);
}

/// What a denied check leaves in the shared store, and what a look then says, are those of exact
/// mode.
#[tokio::test(start_paused = true)]
async fn denied_hits_count_as_the_limit_says() {
    for (number, (counted, asks, used)) in [
        (None, &[400, 400, 400][..], 1_200),
        (None, &[400, 400, 700, 1], 1_500),
        // Only a look passes a window that is exactly full.
        (None, &[1_000, 1, 1], 1_000),
        (None, &[0, 1_000, 1], 1_001),
        (Some(CountRefused::None), &[400, 400, 400], 800),
        (Some(CountRefused::Blocking), &[900, 500], 1_400),
        (Some(CountRefused::All), &[900, 900, 900], 2_000),
        (Some(CountRefused::InFull), &[900, 900, 900], 2_700),
        // More than the limit goes to the store as it is.
        (Some(CountRefused::All), &[5_000], 2_000),
        (Some(CountRefused::InFull), &[5_000], 5_000),
        (None, &[5_000, 1], 5_000),
    ]
    .into_iter()
    .enumerate()
    {
        for name in [
            "fixed_window",
            "sliding_window",
            "token_bucket",
            "leaky_bucket",
        ] {
            if counted.is_none() && name != "fixed_window" {
                continue;
            }
            let replicas = Replicas::new(1, LEASES);
            let of = |hits| {
                let check = check(number as u64, 1_000, hits);
                Check {
                    algorithm: tollgate_limiter::algorithm::from_name(name).unwrap(),
                    limit: counted.map_or(check.limit, |it| check.limit.with_count_refused(it)),
                    ..check
                }
            };
            for hits in asks {
                replicas.ask(0, &of(*hits)).await;
            }
            let look = replicas.ask(0, &of(0)).await;
            let found = look.used_before - replicas.held();
            assert_eq!(found, used, "{name} {counted:?} {asks:?}");
            assert_eq!(look.allowed, used <= 1_000, "{name} {counted:?} {asks:?}");
            assert_eq!(replicas.metric(LOST), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn denied_hits_of_one_bucket_share_calls() {
    let replicas = Replicas::new(1, LEASES);
    let all = |hits| {
        let check = check(1, 100, hits);
        Check {
            limit: check.limit.with_count_refused(CountRefused::All),
            ..check
        }
    };
    assert!(replicas.ask(0, &all(100)).await.allowed);
    let calls = *replicas.shared.calls.lock().unwrap();
    assert_eq!(replicas.burst(&[0], 64, 50, &all(1)).await, 0);
    let look = replicas.ask(0, &all(0)).await;
    assert_eq!(look.used_before, 200, "the debt is bounded");
    let calls = *replicas.shared.calls.lock().unwrap() - calls;
    assert!(calls < 320, "{calls} calls for 3,200 denials");
}

#[tokio::test(start_paused = true)]
async fn denied_hits_that_do_not_reach_the_store_are_counted() {
    let replicas = Replicas::new(1, LEASES);
    let all = |hits| {
        let check = check(1, 10, hits);
        Check {
            limit: check.limit.with_count_refused(CountRefused::All),
            ..check
        }
    };
    assert!(replicas.ask(0, &all(10)).await.allowed);
    assert!(!replicas.ask(0, &all(1)).await.allowed);
    assert_eq!(replicas.ask(0, &all(0)).await.used_before, 11);
    *replicas.shared.fails.lock().unwrap() = true;
    // The store denied as many a moment ago.
    assert!(!replicas.ask(0, &all(3)).await.allowed);
    tick(1_000).await;
    assert_eq!(replicas.metric(LOST), 3);
}

#[tokio::test(start_paused = true)]
async fn unspent_hits_of_a_window_are_not_spent_in_the_next() {
    let replicas = Replicas::new(3, LEASES);
    let check = Check {
        limit: Limit::per(1_000, Unit::Second, NonZeroU32::MIN),
        ..check(1, 1_000, 1)
    };
    for _ in 0..5 {
        replicas.burst(&[0, 1, 2], 8, 12, &check).await;
        assert!(replicas.held() > 0);
        // The next window, before any worker has seen it.
        replicas.clock.advance_us(1_000_000);
        let admitted = replicas.burst(&[0, 1, 2], 16, 40, &check).await;
        assert!(admitted <= 1_000, "{admitted}");
        replicas.clock.advance_us(1_000_000);
    }
}

/// A take is sent while an older lease has unspent hits, and the older lease ends (by its window or
/// by its age) before the shared store decides. The older hits, and only those, go back with the
/// time at which they were taken.
#[tokio::test(start_paused = true)]
async fn a_take_that_outlives_the_lease_before_it_keeps_what_it_was_granted() {
    let second = Limit::per(1_000, Unit::Second, NonZeroU32::MIN);
    let minute = Limit::per(1_000, Unit::Minute, NonZeroU32::MIN);
    for (name, limit, ends_us) in [
        ("fixed_window", second, 1_000_000),
        ("fixed_window", minute, AGE_US),
        ("sliding_window", minute, AGE_US),
        ("token_bucket", minute, AGE_US),
    ] {
        let replicas = Replicas::new(1, LEASES);
        let algorithm = tollgate_limiter::algorithm::from_name(name).unwrap();
        let one = Check {
            algorithm,
            limit,
            ..check(1, 1_000, 1)
        };
        assert_eq!(replicas.burst(&[0], 8, 12, &one).await, 96);
        let unspent = replicas.held();
        assert!(unspent > 0);
        let taken_at = replicas.clock.now();
        replicas.clock.advance_us(ends_us - 100_000);
        *replicas.shared.delay_us.lock().unwrap() = 200_000;
        let more = Check {
            operation: Hits::Take(unspent + 1).into(),
            ..one.clone()
        };
        assert!(replicas.ask(0, &more).await.allowed);
        // The worker sends the refunds and updates the gauge.
        tick(1_000).await;
        let given_back = replicas.shared.given_back.lock().unwrap().clone();
        assert_eq!(given_back, [(unspent, taken_at)], "{name} {limit:?}");
        if limit == second {
            let left = replicas.left(&one).await;
            assert_eq!(left + replicas.held() + unspent + 1, 1_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_replica_loses_only_the_hits_it_held() {
    let mut replicas = Replicas::new(3, LEASES);
    let check = check(1, 1_000, 1);
    let mut admitted = replicas.burst(&[0, 1, 2], 16, 10, &check).await;
    let before = replicas.held();
    for worker in replicas.workers.remove(0) {
        worker.abort();
    }
    replicas.stores[0] = None;
    for _ in 0..20 {
        replicas.settle().await;
        admitted += replicas.burst(&[1, 2], 4, 40, &check).await;
    }
    assert!(
        admitted <= 1_000 && admitted + before >= 1_000,
        "{admitted} {before}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_returns_all_leased_hits() {
    let mut replicas = Replicas::new(1, LEASES);
    let check = check(1, 100_000, 1);
    let admitted = replicas.burst(&[0], 16, 100, &check).await;
    assert!(replicas.held() > 0);
    replicas.stores[0] = None;
    for worker in replicas.workers.remove(0) {
        worker.await.unwrap();
    }
    assert_eq!(replicas.left(&check).await, 100_000 - admitted);
    assert_eq!(replicas.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn takes_of_a_denied_request_return_to_the_lease() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 100_000, 1);
    replicas.burst(&[0], 16, 100, &check).await;
    let store = replicas.store(0);
    let sum = replicas.left(&check).await + replicas.held();
    for _ in 0..10 {
        let applied = store.apply_tentatively(vec![check.clone()]);
        drop(applied.await.unwrap());
    }
    replicas.settle().await;
    assert_eq!(replicas.left(&check).await + replicas.held(), sum);
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_applies_at_once() {
    let replicas = Replicas::new(1, LEASES);
    replicas.burst(&[0], 16, 10, &check(1, 1_000, 1)).await;
    assert!(!replicas.ask(0, &check(1, 100, 1)).await.allowed);
    // What the lower limit refused no longer counts.
    assert_eq!(replicas.burst(&[0], 1, 100, &check(1, 200, 1)).await, 40);
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_admits_exactly_its_limit_through_one_replica() {
    let replicas = Replicas::new(1, LEASES);
    for (number, algorithm) in ALGORITHMS.iter().enumerate() {
        let asked = Check {
            algorithm: *algorithm,
            ..check(number as u64, 500, 1)
        };
        assert_eq!(
            replicas.burst(&[0], 16, 100, &asked).await,
            500,
            "{algorithm:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_or_panics_answers_all_waiting_callers() {
    let replicas = Replicas::new(1, LEASES);
    let Shared { fails, panics, .. } = &*replicas.shared;
    for (fault, keys) in [(fails, [1, 2]), (panics, [3, 4])] {
        *fault.lock().unwrap() = true;
        let store = replicas.store(0);
        let checks = || keys.map(|key| check(key, 10, 1)).to_vec();
        let together = store.apply_now(checks());
        assert!(matches!(together.await, Err(StoreError::Stopped)));
        for check in checks() {
            let alone = store.apply_now(vec![check]);
            assert!(matches!(alone.await, Err(StoreError::Stopped)));
        }
        *fault.lock().unwrap() = false;
        let admitted = replicas.burst(&[0], 4, 5, &checks()[0]).await;
        assert_eq!(admitted, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn without_space_for_a_lease_the_shared_store_decides() {
    let bounds = LeaseLimits {
        leases_max: 4,
        ..LEASES
    };
    let replicas = Replicas::new(1, bounds);
    for key in 0..100 {
        for hit in 0..5 {
            assert_eq!(replicas.ask(0, &check(key, 4, 1)).await.allowed, hit < 4);
        }
    }
    assert_eq!(replicas.left(&check(99, 4, 1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_are_answered_each_once() {
    let replicas = Replicas::new(1, LEASES);
    let mut asking: Box<dyn BatchClient> = replicas.store(0).batch_client();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let (mut shares, mut answered, mut allowed) = (0, 0, 0);
    for ticket in 0..300 {
        let checks = [check(1, 200, 1), check(1_000 + u64::from(ticket), 5, 1)];
        shares += asking
            .add(ticket, &checks, Deadline::NEVER, Purpose::Decide)
            .unwrap();
        if ticket % 7 == 0 {
            asking.send();
        }
    }
    asking.send();
    for _ in 0..200 {
        tick(1).await;
        asking.take_replies(&mut cx, &mut |share| {
            answered += 1;
            for (position, answer) in share.positions.iter().zip(share.answers) {
                allowed += u32::from(*position == 0 && answer.as_ref().unwrap().allowed);
            }
        });
    }
    assert_eq!((answered, allowed), (shares, 200));
}

/// For sliding windows and token buckets: every admitted hit was granted at most a lease's age
/// before. With the shared store's promise about grants, this is the promise over a span longer by
/// that age.
#[tokio::test(start_paused = true)]
async fn nothing_is_admitted_that_was_granted_longer_ago_than_an_age() {
    let mut ahead = 0;
    for (number, name) in ["sliding_window", "token_bucket", "fixed_window"]
        .iter()
        .enumerate()
    {
        for seed in 0..20_u64 {
            let replicas = Replicas::new(3, LEASES);
            let algorithm = *ALGORITHMS
                .iter()
                .find(|known| known.name() == *name)
                .unwrap();
            let mut state = seed * 7 + number as u64 + 1;
            let mut next = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % bound
            };
            let mut admitted: Vec<(u64, u64)> = Vec::new();
            for _ in 0..400 {
                let asked = Check {
                    algorithm,
                    limit: Limit::per(200, Unit::Minute, NonZeroU32::MIN),
                    operation: Operation::from(Hits::Take(1 + next(3))),
                    ..check(1, 200, 1)
                };
                let replica = usize::try_from(next(3)).unwrap();
                // A store that is far away is asked before a lease is spent.
                if next(2) == 0 {
                    *replicas.shared.delay_us.lock().unwrap() = next(100_000);
                }
                if replicas.ask(replica, &asked).await.allowed {
                    admitted.push((replicas.clock.uptime_us(), asked.operation.hits.requested()));
                }
                if next(4) == 0 {
                    replicas.clock.advance_us(next(700_000));
                    tick(200).await;
                }
            }
            let granted = replicas.shared.granted.lock().unwrap().clone();
            // Hall's condition for spans: what is admitted in a span was granted in it, or at most
            // an age before.
            for from in (0..admitted.len()).step_by(7) {
                for to in from..admitted.len() {
                    let (begin, end) = (admitted[from].0, admitted[to].0);
                    let hits: u64 = admitted[from..=to].iter().map(|(_, hits)| hits).sum();
                    let lent: u64 = granted
                        .iter()
                        .filter(|(at, _)| *at + AGE_US >= begin && *at <= end)
                        .map(|(_, hits)| hits)
                        .sum();
                    assert!(hits <= lent, "{name} {seed}: {hits} > {lent}");
                }
            }
            assert!(admitted.len() > 50);
            ahead += replicas.metric("tollgate_lease_takes_ahead_total");
        }
    }
    assert!(ahead > 20, "{ahead}");
}

/// A bucket of an hour whose lease is full, and whose takes last 80 ms.
async fn far_store() -> (Replicas, Check) {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000_000, 1);
    while replicas.held() < 500 {
        *replicas.shared.delay_us.lock().unwrap() = 80_000;
        assert_eq!(replicas.burst(&[0], 1, 50, &check).await, 50);
    }
    (replicas, check)
}

/// Asks every millisecond of the clock until a take in advance is sent.
async fn ask_until_low(replicas: &Replicas, check: &Check) {
    let sent = replicas.metric("tollgate_lease_takes_ahead_total");
    for _ in 0..4_000 {
        assert!(replicas.ask(0, check).await.allowed);
        if replicas.metric("tollgate_lease_takes_ahead_total") > sent {
            return;
        }
        replicas.clock.advance_us(1_000);
    }
    panic!("no take was sent in advance");
}

/// No check waits for a store that is far away while hits are left: the call is held, so a check
/// that waits for it would never be answered.
#[tokio::test(start_paused = true)]
async fn a_lease_is_refilled_before_it_is_spent() {
    let (replicas, check) = far_store().await;
    let [refill] = replicas.hold();
    ask_until_low(&replicas, &check).await;
    let held = replicas.held();
    assert!(held > 0);
    for _ in 0..80 {
        assert!(replicas.ask(0, &check).await.allowed);
        replicas.clock.advance_us(1_000);
    }
    assert_eq!(replicas.held(), held - 80);
    refill.send(()).unwrap();
    tick(1_000).await;
    assert!(replicas.held() > held);
    assert_eq!(
        replicas.left(&check).await + replicas.held(),
        replicas.ask(0, &check).await.remaining + 1
    );
}

/// The hits of the take in advance live for a whole age, and those before them go back alone.
#[tokio::test(start_paused = true)]
async fn a_lease_is_replaced_before_it_ends_by_its_age() {
    let (replicas, check) = far_store().await;
    let unspent_before = replicas.held();
    let taken_at = replicas.clock.now();
    replicas.clock.advance_us(AGE_US - 200_000);
    ask_until_low(&replicas, &check).await;
    tick(1_000).await;
    assert!(replicas.held() > unspent_before);
    replicas.clock.advance_us(200_000);
    let [refund] = replicas.hold();
    assert!(replicas.ask(0, &check).await.allowed);
    refund.send(()).unwrap();
    tick(1_000).await;
    let given_back = replicas.shared.given_back.lock().unwrap().clone();
    let [(hits, at)] = given_back[..] else {
        panic!("{given_back:?}");
    };
    assert!(hits < unspent_before && at <= taken_at);
    assert!(replicas.held() > 0);
}

/// A check that finds the lease spent waits for the take that is in flight, and a failed take in
/// advance is not repeated with each check.
#[tokio::test(start_paused = true)]
async fn a_spent_lease_waits_for_its_refill() {
    let (replicas, check) = far_store().await;
    let [refill] = replicas.hold();
    ask_until_low(&replicas, &check).await;
    let calls = *replicas.shared.calls.lock().unwrap();
    let all = Check {
        operation: Hits::Take(replicas.held() + 1).into(),
        ..check.clone()
    };
    let (answered, ()) = tokio::join!(replicas.ask(0, &all), async {
        tick(10).await;
        refill.send(()).unwrap();
    });
    assert!(answered.allowed);
    assert_eq!(*replicas.shared.calls.lock().unwrap(), calls);
    assert!(replicas.held() > 0);

    let (replicas, check) = far_store().await;
    *replicas.shared.fails.lock().unwrap() = true;
    ask_until_low(&replicas, &check).await;
    let calls = *replicas.shared.calls.lock().unwrap();
    for _ in 0..20 {
        assert!(replicas.ask(0, &check).await.allowed);
        tick(1).await;
    }
    assert_eq!(*replicas.shared.calls.lock().unwrap(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_reset_waits_for_a_take_in_advance() {
    let (replicas, check) = far_store().await;
    let [refill] = replicas.hold();
    ask_until_low(&replicas, &check).await;
    let store = replicas.store(0);
    let (reset, ()) = tokio::join!(store.reset(vec![check.clone()]), async {
        tick(10).await;
        refill.send(()).unwrap();
    });
    assert_eq!(reset, Ok(vec![true]));
    assert_eq!(replicas.held(), 0);
    assert_eq!(replicas.left(&check).await, 1_000_000);
}

/// A bucket of an hour whose lease has hits, a moment before the hour ends. Its next hour is due to
/// be asked for. Takes last 80 ms.
async fn far_window() -> (Replicas, Check) {
    let replicas = Replicas::new(1, LEASES);
    let check = hourly(1, 1_000_000, 1);
    let to_end_us = || {
        let now = replicas.clock.now();
        check.limit.window_at(now).end.since_us(now)
    };
    replicas.clock.advance_us(to_end_us() - 1_500_000);
    while replicas.held() < 500 {
        *replicas.shared.delay_us.lock().unwrap() = 80_000;
        assert_eq!(replicas.burst(&[0], 1, 50, &check).await, 50);
    }
    replicas.clock.advance_us(to_end_us() - 200_000);
    (replicas, check)
}

/// Asks each millisecond of the clock until the next hour is asked for.
async fn ask_until_next(replicas: &Replicas, check: &Check) {
    for _ in 0..200 {
        assert!(replicas.ask(0, check).await.allowed);
        tick(1).await;
        if *replicas.shared.ahead_calls.lock().unwrap() > 0 {
            return;
        }
        replicas.clock.advance_us(1_000);
    }
    panic!("it was not asked for");
}

/// The take of the last hits of a window is held: checks that wait for it are answered before it
/// is, in their order, as far as hits suffice.
#[tokio::test(start_paused = true)]
async fn checks_that_wait_go_on_with_hits_of_the_next_window() {
    let (replicas, check) = far_window().await;
    ask_until_next(&replicas, &check).await;
    let end = check.limit.window_at(replicas.clock.now()).end;
    // About 660 hits are held of this hour and 500 of the next.
    let [never] = replicas.hold();
    let more = |hits| Check {
        operation: Hits::Take(hits).into(),
        ..check.clone()
    };
    assert!(replicas.ask(0, &more(600)).await.allowed);
    let all = replicas.held();
    let send = |hits| {
        let (store, check) = (replicas.store(0), more(hits));
        tokio::spawn(async move { answers(store.apply_now(vec![check]).await) })
    };
    let waits = [200, 1].map(send);
    // The next window does not have so many either.
    let wait_on: Vec<_> = (0..100).map(|_| send(900)).collect();
    tick(10).await;
    replicas
        .clock
        .advance_us(end.since_us(replicas.clock.now()) - 1);
    tick(10).await;
    assert!(waits.iter().all(|check| !check.is_finished()));
    replicas.clock.advance_us(1);
    let last = send(1);
    for waited in waits {
        let outcomes = waited.await.unwrap().unwrap();
        assert!(outcomes[0].as_ref().unwrap().allowed);
    }
    tick(10).await;
    assert!(wait_on.iter().all(|check| !check.is_finished()));
    assert!(!last.is_finished());
    assert!(
        replicas.held() < all - 201,
        "the rest of the last hour ends"
    );
    never.send(()).unwrap();
    assert!(last.await.unwrap().unwrap()[0].as_ref().unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn hits_of_the_next_window_end_with_a_reset() {
    let (replicas, check) = far_window().await;
    let end = check.limit.window_at(replicas.clock.now()).end;
    let [take] = replicas.hold();
    ask_until_next(&replicas, &check).await;
    let store = replicas.store(0);
    let (reset, ()) = tokio::join!(store.reset(vec![check.clone()]), async {
        tick(10).await;
        take.send(()).unwrap();
    });
    assert_eq!(reset, Ok(vec![true]));
    tick(10).await;
    assert_eq!(replicas.held(), 0);
    let given_back = replicas.shared.given_back.lock().unwrap().clone();
    let [(hits, taken_at)] = given_back[..] else {
        panic!("{given_back:?}");
    };
    assert!(hits > 100 && taken_at == end);
}

/// A take that has no answer is not sent with each check.
#[tokio::test(start_paused = true)]
async fn the_next_window_is_asked_for_once() {
    let (replicas, check) = far_window().await;
    *replicas.shared.fails.lock().unwrap() = true;
    ask_until_next(&replicas, &check).await;
    for _ in 0..10 {
        assert!(replicas.ask(0, &check).await.allowed);
        replicas.clock.advance_us(1_000);
        tick(1).await;
    }
    assert_eq!(*replicas.shared.ahead_calls.lock().unwrap(), 1);
}
