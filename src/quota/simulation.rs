//! Proxies, streams and a service on one clock, at random: the promise holds at every step.
//!
//! The proxies are as Envoy 1.40 is: a report at the first request and then every 5 s, a bucket
//! that refills continuously and keeps its fill ratio when it changes, an assignment that ends
//! after its time to live, counted from its arrival. Reports are lost with their stream, messages
//! are late, and the service is replaced by one that knows nothing.

use std::collections::VecDeque;

use super::bucket::{Action, Bucket, QuotaTimes, Scratch, Usage};
use super::share::{MicroRate, ONE_PER_SECOND, Strategy};

const STEP_MS: u64 = 100;
const TTL_SECONDS: u32 = 15;
const DELIVERY_MS_MAX: u64 = 3_000;
const REPORT_MS: u64 = 5_000;

const TIMES: QuotaTimes = QuotaTimes {
    ttl_seconds: TTL_SECONDS,
    delivery_ms_max: DELIVERY_MS_MAX,
    idle_ms: 60_000,
    silent_ms: 15_000,
};

/// The lives of assignments that a service may have handed out before it was replaced.
const LEARNING_MS: u64 = TTL_SECONDS as u64 * 1_000 + DELIVERY_MS_MAX;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// A proxy. Tokens are millionths.
struct Proxy {
    offered: u64,
    stream: Option<u64>,
    strategy: Option<Strategy>,
    expires_ms: u64,
    tokens: u64,
    pending: u64,
    usage: Usage,
    knows: bool,
    next_report_ms: u64,
    arriving: VecDeque<(u64, u64, Action)>,
}

impl Proxy {
    fn new(offered: u64) -> Self {
        Self {
            offered,
            stream: None,
            strategy: None,
            expires_ms: 0,
            tokens: 0,
            pending: 0,
            usage: Usage::default(),
            knows: false,
            next_report_ms: 0,
            arriving: VecDeque::new(),
        }
    }

    fn capacity(strategy: Strategy) -> u64 {
        strategy.burst() * ONE_PER_SECOND
    }

    fn receive(&mut self, now_ms: u64) {
        while let Some(&(at, _, action)) = self.arriving.front() {
            if at > now_ms {
                return;
            }
            self.arriving.pop_front();
            match action {
                Action::Abandon => {
                    self.knows = false;
                    self.strategy = None;
                }
                Action::Assign(new) => {
                    if self.strategy != Some(new) {
                        let old = self.strategy.map_or(0, Self::capacity);
                        // A new bucket is full, a changed one keeps its ratio.
                        self.tokens = if old == 0 {
                            Self::capacity(new)
                        } else {
                            let ratio = u128::from(self.tokens) * u128::from(Self::capacity(new));
                            u64::try_from(ratio / u128::from(old)).unwrap()
                        };
                        self.strategy = Some(new);
                    }
                    self.expires_ms = now_ms + u64::from(TTL_SECONDS) * 1_000;
                }
            }
        }
    }

    /// Requests of one step; how many passed. Without an assignment nothing does.
    fn step(&mut self, now_ms: u64) -> u64 {
        self.receive(now_ms);
        if self.expires_ms <= now_ms {
            self.strategy = None;
        }
        if let Some(strategy) = self.strategy {
            let refill = strategy.rate() * STEP_MS / 1_000;
            self.tokens = (self.tokens + refill).min(Self::capacity(strategy));
        }
        self.pending += self.offered * STEP_MS;
        let requests = self.pending / 1_000;
        self.pending %= 1_000;
        let passed = if self.strategy.is_some() {
            requests.min(self.tokens / ONE_PER_SECOND)
        } else {
            0
        };
        self.tokens -= if self.strategy.is_some() {
            passed * ONE_PER_SECOND
        } else {
            0
        };
        self.usage.allowed += passed;
        self.usage.denied += requests - passed;
        passed
    }

    fn rate(&self) -> MicroRate {
        self.strategy.map_or(0, Strategy::rate)
    }
}

/// What happens in a run, beside offers that change.
#[derive(Clone, Copy)]
struct Scenario {
    proxies: u64,
    limit: MicroRate,
    seconds: u64,
    times: QuotaTimes,
    learning_ms: u64,
    faults: bool,
}

/// The first broken promise of a run.
fn run(seed: u64, scenario: Scenario) -> Result<(), String> {
    let mut random = Random(seed);
    let limit = scenario.limit;
    let mut bucket = Bucket::new(limit, 0);
    let mut proxies: Vec<_> = (0..scenario.proxies)
        .map(|_| Proxy::new(random.below(2 * limit / ONE_PER_SECOND / scenario.proxies.min(4) + 2)))
        .collect();
    let (mut scratch, mut actions) = (Scratch::default(), Vec::new());
    let mut streams = 0;
    let mut last: VecDeque<u64> = VecDeque::new();
    let mut passed_in_ten: u64 = 0;
    for step in 0..scenario.seconds * 1_000 / STEP_MS {
        let now_ms = 1_000_000 + step * STEP_MS;
        let mut passed = 0;
        for proxy in &mut proxies {
            passed += proxy.step(now_ms);
            let used = proxy.usage.allowed + proxy.usage.denied > 0;
            if proxy.stream.is_none() && used && now_ms >= proxy.next_report_ms {
                streams += 1;
                proxy.stream = Some(streams);
                proxy.next_report_ms = now_ms;
            }
            let Some(stream) = proxy.stream else { continue };
            let first = !proxy.knows && used;
            if first || (proxy.knows && now_ms >= proxy.next_report_ms) {
                let usage = std::mem::take(&mut proxy.usage);
                proxy.knows = true;
                proxy.next_report_ms = now_ms + REPORT_MS;
                // A stream that is cut loses this report, and what was on the way to the proxy.
                if scenario.faults && random.below(100) == 0 {
                    bucket.close(stream);
                    proxy.arriving.clear();
                    proxy.stream = None;
                    proxy.knows = false;
                    continue;
                }
                if let Some(strategy) = bucket.report(stream, 1, usage, now_ms, &scenario.times) {
                    send(
                        proxy,
                        stream,
                        Action::Assign(strategy),
                        now_ms,
                        &mut random,
                        scenario.faults,
                    );
                }
            }
            if scenario.faults && random.below(3_000) == 0 {
                proxy.offered = random.below(2 * limit / ONE_PER_SECOND + 2);
            }
        }
        if scenario.faults && random.below(2_000) == 0 {
            // Another replica takes over: it knows no stream, and every proxy connects anew.
            bucket = Bucket::new(limit, now_ms + scenario.learning_ms);
            for proxy in &mut proxies {
                proxy.stream = None;
                proxy.knows = false;
                proxy.next_report_ms = now_ms + random.below(REPORT_MS);
            }
        }
        if step % 10 == 0 {
            actions.clear();
            bucket.plan(now_ms, &scenario.times, &mut scratch, &mut actions);
            for &(stream, action) in &actions {
                if let Some(proxy) = proxies
                    .iter_mut()
                    .find(|proxy| proxy.stream == Some(stream))
                {
                    send(proxy, stream, action, now_ms, &mut random, scenario.faults);
                }
            }
        }
        let figures = bucket.figures(now_ms);
        if figures.in_force > limit {
            return Err(format!("at {now_ms} the service counts {figures:?}"));
        }
        let enforced: MicroRate = proxies.iter().map(Proxy::rate).sum();
        if enforced > limit {
            return Err(format!(
                "at {now_ms} the proxies enforce {enforced} of {limit}"
            ));
        }
        last.push_back(passed);
        passed_in_ten += passed;
        if last.len() as u64 > 10_000 / STEP_MS {
            passed_in_ten -= last.pop_front().unwrap();
        }
        // Half a second of the limit is held by buckets, and changes of buckets add as much again.
        let burst = limit / ONE_PER_SECOND + 2 * scenario.proxies;
        if passed_in_ten > 10 * limit / ONE_PER_SECOND + burst {
            return Err(format!(
                "{passed_in_ten} passed in the ten seconds before {now_ms}"
            ));
        }
    }
    Ok(())
}

fn send(
    proxy: &mut Proxy,
    stream: u64,
    action: Action,
    now_ms: u64,
    random: &mut Random,
    faults: bool,
) {
    let late = if faults {
        random.below(DELIVERY_MS_MAX)
    } else {
        20
    };
    // A stream delivers in order.
    let before = proxy.arriving.back().map_or(0, |&(at, _, _)| at);
    proxy
        .arriving
        .push_back(((now_ms + late).max(before), stream, action));
}

const USUAL: Scenario = Scenario {
    proxies: 5,
    limit: 300 * ONE_PER_SECOND,
    seconds: 300,
    times: TIMES,
    learning_ms: LEARNING_MS,
    faults: true,
};

fn seeds() -> u64 {
    std::env::var("SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200)
        .min(200)
}

fn first_failure(scenario: Scenario) -> Option<String> {
    (0..seeds()).find_map(|seed| {
        run(seed, scenario)
            .err()
            .map(|error| format!("seed {seed}: {error}"))
    })
}

#[test]
fn the_sum_of_assignments_never_exceeds_the_limit() {
    assert_eq!(first_failure(USUAL), None);
    let slow = Scenario {
        limit: ONE_PER_SECOND / 2,
        ..USUAL
    };
    assert_eq!(first_failure(slow), None);
}

#[test]
fn nor_with_a_thousand_streams() {
    for seed in 0..3 {
        let many = Scenario {
            proxies: 1_000,
            limit: 5_000 * ONE_PER_SECOND,
            seconds: 60,
            ..USUAL
        };
        assert_eq!(run(seed, many), Ok(()));
    }
}

#[test]
fn a_planted_fault_is_found() {
    // Raises before the lowered assignment has expired, and forgets expiry: the service counts an
    // assignment for a second only.
    let early = Scenario {
        times: QuotaTimes {
            ttl_seconds: 1,
            delivery_ms_max: 0,
            ..TIMES
        },
        ..USUAL
    };
    assert!(first_failure(early).is_some());
    // Counts the time to live from when it was sent, and not from when it may arrive.
    let undelayed = Scenario {
        times: QuotaTimes {
            delivery_ms_max: 0,
            ..TIMES
        },
        ..USUAL
    };
    assert!(first_failure(undelayed).is_some());
    // Assigns the whole limit after a takeover.
    assert!(
        first_failure(Scenario {
            learning_ms: 0,
            ..USUAL
        })
        .is_some()
    );
}

#[test]
fn shares_follow_the_demand_within_a_time_to_live_and_two_reports() {
    let mut bucket = Bucket::new(300 * ONE_PER_SECOND, 0);
    let mut proxies = [Proxy::new(400), Proxy::new(50), Proxy::new(10)];
    let times = QuotaTimes {
        delivery_ms_max: 1_000,
        ..TIMES
    };
    let (mut scratch, mut actions, mut random) = (Scratch::default(), Vec::new(), Random(1));
    let mut admitted = Vec::new();
    for step in 0..800 {
        let now_ms = 1_000_000 + step * STEP_MS;
        if step == 400 {
            proxies[0].offered = 10;
            proxies[2].offered = 400;
        }
        let mut of_step = [0; 3];
        for (at, proxy) in proxies.iter_mut().enumerate() {
            of_step[at] = proxy.step(now_ms);
            proxy.stream = Some(at as u64);
            if !proxy.knows || now_ms >= proxy.next_report_ms {
                proxy.knows = true;
                proxy.next_report_ms = now_ms + REPORT_MS;
                let usage = std::mem::take(&mut proxy.usage);
                if let Some(strategy) = bucket.report(at as u64, 1, usage, now_ms, &times) {
                    send(
                        proxy,
                        at as u64,
                        Action::Assign(strategy),
                        now_ms,
                        &mut random,
                        false,
                    );
                }
            }
        }
        admitted.push(of_step);
        if step % 10 == 0 {
            actions.clear();
            bucket.plan(now_ms, &times, &mut scratch, &mut actions);
            for &(stream, action) in &actions {
                send(
                    &mut proxies[usize::try_from(stream).unwrap()],
                    stream,
                    action,
                    now_ms,
                    &mut random,
                    false,
                );
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
