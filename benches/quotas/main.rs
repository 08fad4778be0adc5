//! What the quota service costs with many streams and buckets, and whether checks beside it are
//! slowed.
//!
//! How: the service is a process of its own on the first core, and the load runs on the last one.
//! Rounds with and without the streams of proxies alternate. In each, checks of a few connections
//! measure their latency at a modest rate.
//!
//! | file | content |
//! | --- | --- |
//! | `proxies` | streams that report, each on its own connection |
//! | `checks` | checks beside them, and their latency |
//!
//! `make bench-quota-load` runs it; `docs/quotas.md` explains the figures.
//!
//! What it deliberately does not do: gate anything. Machines are shared and noisy.
// A program: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::disallowed_methods
)]

mod checks;
mod proxies;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tollgate_test_support::components::program;
use tollgate_test_support::tollgate_process::Tollgate;

use checks::Latency;
use proxies::{Load, Shape};

/// Variable that says that this program runs on its own core.
const ON_ITS_CORE: &str = "BENCH_QUOTAS_ON_ITS_CORE";

const RULES: &str = "
domain: edge
descriptors:
- key: user
  rate_limit: {unit: second, requests_per_unit: 1000, algorithm: token_bucket, rlqs: true}
- key: path
  rate_limit: {unit: second, requests_per_unit: 1000000}
";

/// Seconds after a start in which nothing is assigned, and after which assignments have expired.
const LIFE: Duration = Duration::from_secs(18);

/// The usual shape, and what the arguments change of it.
struct Options {
    shape: Shape,
    seconds: u64,
    rounds: usize,
    shares_max: u64,
}

/// One round.
struct Round {
    cpu: f64,
    actions: u64,
    resident: u64,
    latency: Latency,
    check_cpu_us: f64,
}

impl Options {
    fn read() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let number = |name: &str, usual: u64| {
            let at = arguments.iter().position(|argument| argument == name);
            at.map_or(usual, |at| arguments[at + 1].parse().expect("a number"))
        };
        Self {
            shape: Shape {
                streams: number("--streams", 1_000),
                buckets: number("--buckets", 10_000),
                each: number("--each", 1_000),
            },
            seconds: number("--seconds", 15),
            rounds: usize::try_from(number("--rounds", 3)).unwrap(),
            shares_max: number("--shares-max", 1_000_000),
        }
    }
}

fn main() {
    if std::env::var_os(ON_ITS_CORE).is_none() {
        let last = std::thread::available_parallelism().unwrap().get() - 1;
        let ended = Command::new(program("taskset"))
            .args(["-c", &last.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(std::env::args().skip(1))
            .env(ON_ITS_CORE, "1")
            .status()
            .unwrap();
        assert!(ended.success(), "the measurement failed");
        return;
    }
    let options = Options::read();
    let shares_max = options.shares_max.to_string();
    let service = Tollgate::start(
        RULES,
        &[
            "--cores",
            "1",
            "--quota-ttl-seconds",
            "15",
            "--quota-shares-max",
            &shares_max,
            "--message-size-max",
            "4MiB",
        ],
    );
    let pinned = Command::new(program("taskset"))
        .args(["-a", "-c", "-p", "0", &service.id().to_string()])
        .output();
    assert!(pinned.unwrap().status.success(), "taskset");
    let Shape {
        streams,
        buckets,
        each,
    } = options.shape;
    println!("{streams} streams, {buckets} buckets, {each} a stream, a report each 5 s");
    let empty = service.status_bytes("VmRSS");
    sleep(LIFE);
    println!(
        "| streams | cores | resident MiB | shares | bytes a share | actions/s | p50 µs | p99 | p99.9 | CPU µs a check |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for _ in 0..options.rounds {
        let load = Load::start(service.grpc, options.shape);
        load.wait_for_reports(3);
        let round = measure(&service, options.seconds);
        let shares = service.metric("tollgate_quota_shares");
        let a_share = round.resident.saturating_sub(empty) as f64 / shares.max(1) as f64;
        print_round(&round, streams, shares, a_share);
        println!(
            "received {} MiB; closed streams {}",
            load.received() >> 20,
            load.closed()
        );
        drop(load);
        sleep(LIFE);
        print_round(&measure(&service, options.seconds), 0, 0, 0.0);
    }
    for line in service.get("/metrics").lines() {
        if line.starts_with("tollgate_quota_") {
            println!("{line}");
        }
    }
}

/// Checks for so many seconds, and what the service used meanwhile.
fn measure(service: &Tollgate, seconds: u64) -> Round {
    const ACTIONS: &str = "tollgate_quota_actions_total{action=\"assigned\"}";
    let actions = service.metric(ACTIONS);
    let idle_cpu = cpu_over(service, seconds / 2);
    let (began, before) = (Instant::now(), service.cpu_seconds());
    let latency = checks::run(service.grpc, Duration::from_secs(seconds));
    let (cpu, elapsed) = (
        service.cpu_seconds() - before,
        began.elapsed().as_secs_f64(),
    );
    let all_seconds = elapsed + (seconds / 2) as f64;
    Round {
        cpu: idle_cpu,
        actions: ((service.metric(ACTIONS) - actions) as f64 / all_seconds) as u64,
        resident: service.status_bytes("VmRSS"),
        check_cpu_us: (cpu - idle_cpu * elapsed) * 1e6 / latency.checks as f64,
        latency,
    }
}

/// CPU seconds a second while nothing is checked.
fn cpu_over(service: &Tollgate, seconds: u64) -> f64 {
    let (began, before) = (Instant::now(), service.cpu_seconds());
    sleep(Duration::from_secs(seconds.max(5)));
    (service.cpu_seconds() - before) / began.elapsed().as_secs_f64()
}

fn print_round(round: &Round, streams: u64, shares: u64, a_share: f64) {
    let Latency { p50, p99, p999, .. } = round.latency;
    println!(
        "| {streams} | {:.3} | {} | {shares} | {a_share:.0} | {} | {p50} | {p99} | {p999} | {:.1} |",
        round.cpu,
        round.resident >> 20,
        round.actions,
        round.check_cpu_us
    );
}
