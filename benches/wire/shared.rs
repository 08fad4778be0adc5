//! Limits shared through Redis: their cost compared with the script alone and with memory.
//!
//! How: one Redis on the first core, one run, all candidates in turn. `redis-benchmark` and the
//! store run on the last core, each alone with Redis: each keeps four calls of 256 checks in
//! flight, of the same script with keys of the same length. Arguments contain zero bytes, which
//! `redis-benchmark` cannot send, so its script holds the arguments itself: its calls are smaller.
//! The service shares the first core with Redis, and the load generator has the last one.
//!
//! What it deliberately does not do: run with the other axes. They need no Redis.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::clock::{Clock, SystemClock};
use tollgate::metrics::Metrics;
use tollgate::store::{BatchClient, Deadline, Purpose, Setup, SharedSettings, Store as _, memory};
use tollgate::store_redis::{RedisSetup, RedisStore, SystemResolver, Target as Place, script};
use tollgate_limiter::{ALGORITHMS, Check, Hits, Key, Limit, Timestamp, Unit};
use tollgate_test_support::components::program;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::wire_bench_options::Options;

use crate::generator::{self, Expected, Keys, Shape, Target};
use crate::h2load;
use crate::requests::{OK, Workload};
use crate::servers::{Server, cpu, used_us};
use crate::statistics::Spread;

/// Name of the axis in the options.
pub(crate) const AXIS: &str = "shared";

/// Page of the figures.
pub(crate) const PAGE: &str = "docs/shared-limits.md";

/// Calls in flight, as in the store.
const CALLS: usize = 4;

/// Checks that wait for the store, so that its calls are always full.
const IN_FLIGHT: u64 = 2 * (CALLS * script::CHECKS_MAX) as u64;

/// Number of keys in cells with several.
const KEYS: u64 = 1_000;

/// A key of the same length as ours.
const KEY: &str = "tg:{5f}:000000000000000000__rand_int__";
/// The same for `INCRBY`: the script's buckets are no integers, so it needs keys of its own.
const COUNTER: &str = "in:{5f}:000000000000000000__rand_int__";

const SHAPE: Shape = Shape {
    connections: 2,
    streams: 100,
};

/// A measured candidate.
enum Candidate {
    /// `redis-benchmark` with `INCRBY`, the least that a counter costs.
    Increment,
    /// `redis-benchmark`.
    Script { sha1: String },
    /// The store of this library, driven like a worker of the service drives it.
    Store(Box<StoreDriver>),
    /// The service over gRPC.
    Service { server: Server, workload: Workload },
}

struct Cell {
    what: &'static str,
    keys: u64,
    candidate: Candidate,
    /// Index of the cell it is compared with.
    reference: usize,
}

/// The store and its runtime on this thread.
struct StoreDriver {
    runtime: Runtime,
    asking: Box<dyn BatchClient>,
    metrics: Arc<Metrics>,
    ticket: u32,
    /// Must outlive its client.
    _store: RedisStore,
}

/// One measurement.
struct Measurement {
    rate: f64,
    redis_us: f64,
    /// Redis calls per thousand checks.
    trips: f64,
}

/// Figures of a cell.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) keys: u64,
    pub(crate) rate: Spread,
    pub(crate) ratio: Spread,
    pub(crate) redis_us: Spread,
    pub(crate) trips: Spread,
}

/// Measures all of it.
pub(crate) fn run(options: &Options) -> Vec<Row> {
    let redis = RedisServer::start(&[]);
    let pinned = Command::new(program("taskset"))
        .args(["-acp", "0", &redis.id().to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.expect("taskset runs").success());
    let url = redis.url();
    let service = |workload: &Workload, mode: Option<&str>| {
        let variables = mode.map_or(Vec::new(), |mode| {
            vec![
                ("TOLLGATE_STORE", url.as_str()),
                ("TOLLGATE_STORE_MODE", mode),
                ("TOLLGATE_STORE_DEADLINE_MS", "1000"),
            ]
        });
        let server = Server::start_with(workload, 1, &variables);
        if mode.is_some() {
            // The service starts without Redis, so the measurement waits until it is connected.
            let up = || value(&server, "tollgate_store_up") > 0.0;
            until("it finds Redis", up);
        }
        let workload = workload.clone();
        Candidate::Service { server, workload }
    };
    let cell = |what, keys, candidate, reference| Cell {
        what,
        keys,
        candidate,
        reference,
    };
    let sha1 = redis.say(&["SCRIPT", "LOAD", &repeating()]);
    let (one, many) = (Workload::with_keys(1), Workload::with_keys(KEYS));
    let mut cells = vec![
        cell(
            "`redis-benchmark`, the same script",
            KEYS,
            Candidate::Script { sha1 },
            0,
        ),
        cell("`redis-benchmark`, `INCRBY`", KEYS, Candidate::Increment, 0),
        cell(
            "exact: the store alone",
            KEYS,
            Candidate::Store(Box::new(StoreDriver::start(&url))),
            0,
        ),
        cell("memory: the service", 1, service(&one, None), 3),
        cell("leased: the service", 1, service(&one, Some("leased")), 3),
        cell("exact: the service", 1, service(&one, Some("exact")), 3),
        cell("memory: the service", KEYS, service(&many, None), 6),
        cell(
            "leased: the service",
            KEYS,
            service(&many, Some("leased")),
            6,
        ),
        cell("exact: the service", KEYS, service(&many, Some("exact")), 6),
    ];
    for cell in &mut cells {
        // Warms up connections, buckets and lease sizes.
        cell.measure(&redis, options.requests / 2 + 1);
    }
    let mut rounds: Vec<Vec<Measurement>> = cells.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (cell, rounds) in cells.iter_mut().zip(&mut rounds) {
            rounds.push(cell.measure(&redis, options.requests));
        }
    }
    rows(&cells, &rounds)
}

/// Figures of the cells from the measurements of all rounds.
fn rows(cells: &[Cell], rounds: &[Vec<Measurement>]) -> Vec<Row> {
    let rows = cells.iter().zip(rounds).map(|(cell, measured)| {
        let ratios = measured.iter().zip(&rounds[cell.reference]);
        Row {
            what: cell.what,
            keys: cell.keys,
            rate: Spread::of(measured.iter().map(|one| one.rate)),
            ratio: Spread::of(ratios.map(|(one, other)| one.rate / other.rate)),
            redis_us: Spread::of(measured.iter().map(|one| one.redis_us)),
            trips: Spread::of(measured.iter().map(|one| one.trips)),
        }
    });
    rows.collect()
}

impl Cell {
    fn measure(&mut self, redis: &RedisServer, requests: u64) -> Measurement {
        // Fast candidates get more checks, so that all measurements take a similar time.
        let requests = match self.candidate {
            Candidate::Increment | Candidate::Script { .. } | Candidate::Store(_) => requests * 5,
            Candidate::Service { .. } => requests,
        };
        let (before, calls_before) = (cpu(redis.id()), calls(redis));
        let (decided, seconds) = match &mut self.candidate {
            Candidate::Increment => increments(redis.port(), requests),
            Candidate::Script { sha1 } => benchmark(redis.port(), sha1, requests),
            Candidate::Store(driven) => (requests, driven.decide(requests)),
            Candidate::Service { server, workload } if workload.keys == 1 => {
                let frame = workload.template().frame(0);
                (requests, h2load::run(server, &frame, SHAPE, requests))
            }
            Candidate::Service { server, workload } => {
                let (target, expected) = (Target::of(server), Expected::Code(OK));
                let (asking, template) = ((workload.keys, expected), workload.template());
                let asked = generator::closed_loop(&target, &template, asking, SHAPE, requests);
                (requests, generator::on_this_thread(asked))
            }
        };
        let used = used_us(&before, &cpu(redis.id()));
        let decided = decided as f64;
        Measurement {
            rate: decided / seconds,
            redis_us: used / decided,
            trips: (calls(redis) - calls_before) / decided * 1_000.0,
        }
    }
}

/// Number of scripts that Redis has run, by its own counter.
fn calls(redis: &RedisServer) -> f64 {
    let stats: String = redis.say(&["INFO", "commandstats"]);
    let of = |line: &str| {
        let calls = line
            .strip_prefix("cmdstat_evalsha:calls=")?
            .split(',')
            .next()?;
        calls.parse::<f64>().ok()
    };
    stats.lines().find_map(of).unwrap_or(0.0)
}

/// A metric of a tollgate; 0 if it is not there.
pub(crate) fn value(server: &Server, name: &str) -> f64 {
    let metrics: SocketAddr = server.metrics.expect("it has metrics");
    let (_, text) = http(metrics, "GET", "/metrics", "");
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of).unwrap_or(0.0)
}

/// A check with a limit that is never reached.
fn check(key: Key) -> Check {
    Check {
        key,
        limit: Limit::per(u32::MAX.into(), Unit::Year, std::num::NonZeroU32::MIN),
        algorithm: ALGORITHMS[0],
        operation: Hits::Take(1).into(),
        fingerprint: 0,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    }
}

/// The script with its arguments built in.
fn repeating() -> String {
    let mut argument = Vec::new();
    script::argument(
        &check(Key(0)),
        Purpose::Decide,
        Timestamp::default(),
        &mut argument,
    );
    let mut text = "local asked = '".to_owned();
    for byte in argument {
        let _ = write!(text, "\\{byte:03}");
    }
    text += "'\nlocal ARGV = { '', '\\0' .. ('\\1'):rep(#KEYS - 1), asked }\n";
    text + script::text()
}

/// Runs `redis-benchmark`; returns the number of checks and the seconds.
fn benchmark(port: u16, sha1: &str, checks: u64) -> (u64, f64) {
    let keys = script::CHECKS_MAX;
    let calls = checks.div_ceil(keys as u64);
    let mut words = vec!["EVALSHA".to_owned(), sha1.to_owned(), keys.to_string()];
    words.extend((0..keys).map(|_| KEY.to_owned()));
    let rate = run_benchmark(port, calls, 1, &words);
    (calls * keys as u64, calls as f64 / rate)
}

/// The same for `INCRBY`, as many in flight.
fn increments(port: u16, count: u64) -> (u64, f64) {
    let words = ["INCRBY", COUNTER, "1"].map(str::to_owned);
    let rate = run_benchmark(port, count, script::CHECKS_MAX, &words);
    (count, count as f64 / rate)
}

/// Runs `redis-benchmark` with this command; returns how many a second.
fn run_benchmark(port: u16, count: u64, pipeline: usize, words: &[String]) -> f64 {
    let mut command = Command::new("redis-benchmark");
    command
        .args(["-p", &port.to_string(), "-n", &count.to_string()])
        .args(["-c", &CALLS.to_string(), "-P", &pipeline.to_string()])
        .args(["-r", &KEYS.to_string(), "--csv"])
        .args(words);
    let output = command.output();
    let output = output.expect("`redis-benchmark` is missing; run `make deps`");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().last().and_then(|line| {
        let fields: Vec<_> = line.split("\",\"").collect();
        fields.get(1)?.trim_matches('"').parse::<f64>().ok()
    });
    rate.unwrap_or_else(|| panic!("redis-benchmark said {text}"))
}

// === impl StoreDriver ===

impl StoreDriver {
    fn start(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let setup = Setup {
            clock,
            metrics: Arc::clone(&metrics),
            memory: memory::MemoryLimits {
                partitions: 1,
                queue_checks_max: 1,
                memory_max: 1 << 20,
                when_full: memory::WhenFull::Error,
            },
            recorder: Some(tollgate::capture::Capture::new()),
        };
        let redis = RedisSetup {
            target: Place::of_url(url).expect("an address"),
            per_second: None,
            settings: SharedSettings {
                deadline: Duration::from_secs(10),
                queue_bytes_max: 256 << 20,
                lookup_timeout: Duration::from_secs(30),
                ..SharedSettings::default()
            },
            resolver: Arc::new(SystemResolver),
        };
        let (store, workers) = RedisStore::build(&setup, &redis).expect("a store");
        for worker in workers {
            runtime.spawn(worker);
        }
        let asking = store.batch_client();
        let up = metrics.store.up.clone();
        runtime.block_on(async {
            while up.get() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Self {
            runtime,
            asking,
            metrics,
            ticket: 0,
            _store: store,
        }
    }

    /// Decides `checks` checks; returns the seconds it took.
    fn decide(&mut self, checks: u64) -> f64 {
        let Self {
            runtime,
            asking,
            ticket,
            ..
        } = self;
        // Pseudorandom like digests, from a fixed seed.
        let mut keys = Keys::new(7, KEYS);
        let mut key = move || Key(u128::from(keys.draw() + 1).wrapping_mul(u128::MAX / 1_009));
        let (mut asked, mut answered) = (0_u64, 0_u64);
        #[allow(clippy::disallowed_methods)] // a bench measures time
        let began = Instant::now();
        runtime.block_on(poll_fn(|cx| {
            loop {
                while asked < checks && asked - answered < IN_FLIGHT {
                    let one = [check(key())];
                    let added = asking.add(*ticket, &one, Deadline::NEVER, Purpose::Decide);
                    assert_eq!(added, Ok(1));
                    *ticket = ticket.wrapping_add(1);
                    asked += 1;
                }
                asking.send();
                let before = answered;
                asking.take_replies(cx, &mut |share| {
                    for answer in share.answers {
                        assert!(answer.as_ref().expect("an outcome").allowed);
                        answered += 1;
                    }
                });
                if answered == checks {
                    return Poll::Ready(());
                }
                if answered == before {
                    return Poll::Pending;
                }
            }
        }));
        let seconds = began.elapsed().as_secs_f64();
        assert_eq!(self.metrics.store.unknown_outcomes.get(), 0);
        seconds
    }
}
