//! Regions that share a limit by leases on a Redis that is far away: what they admit, and the
//! latency of their checks; `make bench-regions` prints both.
//!
//! A relay between a region and Redis delays bytes by half a round trip in each direction. Callers
//! send at a fixed rate, whether or not answers have come.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{CheckRequest, Descriptor, Entry, Verdict};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::relay::{Relay, Way};
use tollgate_test_support::tollgate_process::Tollgate;

const ROUND_TRIPS_MS: [u64; 5] = [0, 5, 20, 80, 200];
const RUN_S: u64 = 20;
/// A region is cut off after a third of the run, for so long.
const CUT_S: u64 = 10;
/// Seconds that are left out at the beginning: a bucket's takes grow to its rate.
const WARM_UP_S: u64 = 2;
const LIMIT: u64 = 10_000;

/// Both regions send more than the limit together.
const OVER: u64 = 6_000;
/// Hits are always left.
const UNDER: u64 = 4_000;

// window: a bench; what is admitted is printed.
const RULES: &str = "
domain: d
descriptors:
- key: fixed_window
  rate_limit: { unit: second, requests_per_unit: 10000 }
- key: token_bucket
  rate_limit: { unit: second, requests_per_unit: 10000, algorithm: token_bucket }
";

/// One check.
struct Sample {
    /// The second of the run in which it was sent.
    second: u64,
    latency_us: u64,
    allowed: bool,
    /// The second of the clock in which its window ends.
    window: u64,
    /// The second of the clock in which it was answered.
    answered: u64,
    /// Whether it was sent in the first half of a second of the clock.
    is_early: bool,
}

/// Checks at this rate for the length of a run.
#[allow(clippy::disallowed_methods)] // latencies are measured
async fn load(region: SocketAddr, algorithm: &'static str, rate: u64) -> Vec<Sample> {
    let client = RateLimitsClient::new(channel(region).await);
    let asked = CheckRequest {
        domain: "d".to_owned(),
        descriptors: vec![Descriptor {
            entries: vec![Entry {
                key: algorithm.to_owned(),
                value: "all".to_owned(),
            }],
            hits: None,
        }],
        hits: None,
    };
    let (samples, mut taken) = mpsc::unbounded_channel();
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for tick in 0..RUN_S * 1_000 {
        let due = ticks.tick().await.into_std();
        for _ in 0..rate / 1_000 {
            let (mut client, asked, samples) = (client.clone(), asked.clone(), samples.clone());
            tokio::spawn(async move {
                let answer = client.check(asked).await.unwrap().into_inner();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                let reset = answer.reset.unwrap_or_default();
                let reset = Duration::new(
                    u64::try_from(reset.seconds).unwrap(),
                    u32::try_from(reset.nanos).unwrap(),
                );
                let sample = Sample {
                    second: tick / 1_000,
                    latency_us: u64::try_from(due.elapsed().as_micros()).unwrap(),
                    allowed: answer.verdict == i32::from(Verdict::Ok),
                    // The answer is much less than half a second old.
                    window: (now + reset + Duration::from_millis(500)).as_secs(),
                    answered: now.as_secs(),
                    is_early: now.saturating_sub(due.elapsed()).subsec_millis() < 500,
                };
                let _ = samples.send(sample);
            });
        }
    }
    drop(samples);
    let mut all = Vec::new();
    while let Some(sample) = taken.recv().await {
        all.push(sample);
    }
    all
}

/// Two regions of a Redis at this round trip, and the relay of the first.
fn regions(redis: &RedisServer, round_trip_ms: u64) -> ([Tollgate; 2], Relay) {
    let delay = Duration::from_micros(round_trip_ms * 500);
    let near = |relay: &Relay| {
        let store = format!("redis://{}", relay.address);
        let deadline_ms = (3 * round_trip_ms).max(20).to_string();
        let flags = [
            ("--store", &*store),
            ("--store-mode", "leased"),
            ("--store-deadline-ms", &*deadline_ms),
            ("--lease-hits-max", "4000"),
            ("--on-store-failure", "local"),
        ];
        let flags: Vec<_> = flags
            .iter()
            .flat_map(|(name, value)| [*name, *value])
            .collect();
        Tollgate::start(RULES, &flags)
    };
    let redis = SocketAddr::from(([127, 0, 0, 1], redis.port()));
    let relays = [(); 2].map(|()| Relay::delayed(redis, delay));
    let services = [near(&relays[0]), near(&relays[1])];
    let [first, _] = relays;
    (services, first)
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// The samples of both regions, which send at once.
async fn run(services: &[Tollgate; 2], algorithm: &'static str, rate: u64) -> Vec<Sample> {
    let [one, other] = [0, 1].map(|at| tokio::spawn(load(services[at].grpc, algorithm, rate)));
    let mut samples = one.await.unwrap();
    samples.extend(other.await.unwrap());
    samples
}

/// Latencies at these shares, in milliseconds.
#[allow(clippy::cast_precision_loss)]
fn latencies_ms<'s>(
    samples: impl IntoIterator<Item = &'s Sample>,
    permille: [usize; 2],
) -> [f64; 2] {
    let samples = samples.into_iter();
    let warm = samples.filter(|sample| sample.second >= WARM_UP_S);
    let mut latencies: Vec<_> = warm.map(|sample| sample.latency_us).collect();
    latencies.sort_unstable();
    permille.map(|share| latencies[latencies.len() * share / 1_000] as f64 / 1_000.0)
}

/// How many were admitted, by what a sample belongs to.
fn admitted_by(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> Vec<(u64, u64)> {
    let mut admitted = std::collections::BTreeMap::new();
    for sample in samples {
        *admitted.entry(of(sample)).or_default() += u64::from(sample.allowed);
    }
    admitted.into_iter().collect()
}

#[test]
fn two_regions_share_a_limit() {
    let runtime = runtime();
    for round_trip_ms in ROUND_TRIPS_MS {
        let redis = RedisServer::start(&[]);
        let (services, _relay) = regions(&redis, round_trip_ms);
        let calls = || -> u64 {
            let calls = services.iter();
            calls
                .map(|one| one.metric("tollgate_store_call_checks_count"))
                .sum()
        };
        let before = calls();
        let under = runtime.block_on(run(&services, "token_bucket", UNDER));
        let checks = under.len() as u64;
        let [middle, high] = latencies_ms(&under, [500, 990]);
        println!(
            "{round_trip_ms} ms, token_bucket, 2 x {UNDER}/s: p50 {middle:.2} ms, p99 {high:.2} ms, {} calls to Redis of {checks} checks, {} refused",
            calls() - before,
            under.iter().filter(|sample| !sample.allowed).count(),
        );
        let over = runtime.block_on(run(&services, "fixed_window", OVER));
        let [middle, high] = latencies_ms(&over, [500, 990]);
        let early = over.iter().filter(|sample| sample.is_early);
        let [_, high_early] = latencies_ms(early, [500, 990]);
        println!(
            "{round_trip_ms} ms, fixed_window, 2 x {OVER}/s: p50 {middle:.2} ms, p99 {high:.2} ms, in the first half {high_early:.2} ms"
        );
        let by_window = admitted_by(&over, |sample| sample.window);
        let by_clock = admitted_by(&over, |sample| sample.answered);
        for (of, seconds) in [("a window", by_window), ("a second of the clock", by_clock)] {
            // The first and the last one are not whole.
            let whole = seconds[1..seconds.len() - 1].iter();
            let mut whole: Vec<_> = whole.map(|(_, admitted)| *admitted).collect();
            whole.sort_unstable();
            let [least, median, most] = [0, whole.len() / 2, whole.len() - 1].map(|at| whole[at]);
            println!("  admitted in {of}: {least} to {most}, median {median}, of {LIMIT}");
        }
    }
}

/// The first region is cut off, and back.
#[test]
#[allow(clippy::disallowed_methods)] // the run has a length
fn a_region_is_cut_off_and_comes_back() {
    let runtime = runtime();
    let redis = RedisServer::start(&[]);
    let (services, relay) = regions(&redis, 80);
    let samples = runtime.block_on(async {
        let cut = tokio::spawn(async move {
            let begin = Instant::now() + Duration::from_secs((RUN_S - CUT_S) / 2);
            // sleep: the cut begins at this time
            sleep_until(begin.into()).await;
            relay.hold(Way::ToService);
            relay.hold(Way::ToCaller);
            // sleep: the cut ends at this time
            sleep_until((begin + Duration::from_secs(CUT_S)).into()).await;
            relay.release();
            relay
        });
        let samples = run(&services, "token_bucket", OVER).await;
        cut.await.unwrap();
        samples
    });
    for (second, admitted) in admitted_by(&samples, |sample| sample.second) {
        println!(
            "second {second}: {admitted} of {} admitted, limit {LIMIT}",
            2 * OVER
        );
    }
    let [middle, high] = latencies_ms(&samples, [500, 990]);
    println!("p50 {middle:.2} ms, p99 {high:.2} ms");
}
