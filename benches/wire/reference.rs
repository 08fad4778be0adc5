//! Envoy's reference service and tollgate on one Redis: cost of a check for the server and for
//! Redis.
//!
//! How: one Redis, one run, every server in turn in each round, with 1,000 random keys. Each server
//! has the first core. Redis has the second core if there are three or more, and else shares the
//! first. The load generator has the last one. CPU times of server and Redis are the kernel's.
//!
//! Servers that decide in memory follow in the same run: cells of the axis `one-key`, by h2load.
//!
//! What it deliberately does not do: run with the other axes. It needs Redis and the reference
//! (`make bench-peers`).

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use crate::axes;
use crate::generator::{self, Expected, Shape, Target};
use crate::requests::{OK, Workload};
use crate::servers::{Server, cpu, reference_service, used_us};
use crate::shared::value;
use crate::statistics::Spread;
use crate::table;
use tollgate_test_support::components::program;
use tollgate_test_support::performance_chart::PEERS_FILE;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::wire_bench_options::Options;

/// Name of the axis in the options.
pub(crate) const AXIS: &str = "reference";

const KEYS: u64 = 1_000;

/// Requests in flight, and the divisor of the number of requests for each shape.
const SHAPES: [(Shape, u64); 2] = [
    (
        Shape {
            connections: 2,
            streams: 100,
        },
        1,
    ),
    (
        Shape {
            connections: 2,
            streams: 1,
        },
        8,
    ),
];

/// A measured server: name and variables; none for the reference.
type Candidate = (
    &'static str,
    Option<&'static [(&'static str, &'static str)]>,
);

const SERVERS: [Candidate; 4] = [
    ("reference", None),
    (
        "tollgate, the reference's keys",
        Some(&[("TOLLGATE_STORE_KEYS", "reference")]),
    ),
    ("tollgate, its own keys", Some(&[])),
    (
        "tollgate, leased",
        Some(&[("TOLLGATE_STORE_MODE", "leased")]),
    ),
];

const THROTTLECRAB: &str = "throttlecrab, in memory";
const IN_MEMORY: &str = "tollgate, in memory";

/// Rows of the README, and their names there.
const README_NAMES: [(&str, &str); 5] = [
    ("reference", "envoyproxy/ratelimit, on Redis"),
    ("tollgate, its own keys", "tollgate, on the same Redis"),
    ("tollgate, leased", "tollgate, leased, on the same Redis"),
    (THROTTLECRAB, THROTTLECRAB),
    (IN_MEMORY, IN_MEMORY),
];

/// One measurement.
struct Measurement {
    rate: f64,
    server_us: f64,
    redis_us: f64,
}

/// Figures of one server and shape.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) shape: Shape,
    pub(crate) server_us: Spread,
    /// None without Redis.
    pub(crate) redis_us: Option<Spread>,
    pub(crate) rate: Spread,
    /// Ratio of the rate to the reference's in the same round, under the same load.
    pub(crate) ratio: Option<Spread>,
    /// Whether the generator was the bottleneck.
    pub(crate) generator_bound: bool,
}

/// Whether `make bench-peers` has installed the reference.
pub(crate) fn is_installed() -> bool {
    reference_service().exists()
}

/// Measures all of it.
pub(crate) fn run(options: &Options, cores: usize) -> Vec<Row> {
    let redis = RedisServer::start(&[]);
    let core = usize::from(cores > 2);
    let pinned = Command::new(program("taskset"))
        .args(["-acp", &core.to_string(), &redis.id().to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.expect("taskset runs").success());
    let workload = Workload::with_keys(KEYS);
    let template = workload.template();
    let servers: Vec<_> = SERVERS
        .iter()
        .map(|(_, own)| start(&workload, &redis, *own))
        .collect();
    let mut rows = Vec::new();
    for (shape, part) in SHAPES {
        let measure = |server: &Server, requests: u64| {
            let (before, redis_before) = (server.cpu(), cpu(redis.id()));
            let target = Target::of(server);
            let asking = (KEYS, Expected::Code(OK));
            let asked = generator::closed_loop(&target, &template, asking, shape, requests);
            let seconds = generator::on_this_thread(asked);
            let of_all = requests as f64;
            Measurement {
                rate: of_all / seconds,
                server_us: used_us(&before, &server.cpu()) / of_all,
                redis_us: used_us(&redis_before, &cpu(redis.id())) / of_all,
            }
        };
        let requests = (options.requests / part).max(1);
        for server in &servers {
            // Warms up connections, counters and lease sizes.
            measure(server, requests / 2 + 1);
        }
        let mut rounds: Vec<Vec<Measurement>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (server, rounds) in servers.iter().zip(&mut rounds) {
                rounds.push(measure(server, requests));
            }
        }
        rows.extend(SERVERS.iter().zip(&rounds).map(|((what, _), measured)| {
            let ratios = measured.iter().zip(&rounds[0]);
            Row {
                what,
                shape,
                server_us: Spread::of(measured.iter().map(|one| one.server_us)),
                redis_us: Some(Spread::of(measured.iter().map(|one| one.redis_us))),
                rate: Spread::of(measured.iter().map(|one| one.rate)),
                ratio: Some(Spread::of(
                    ratios.map(|(one, reference)| one.rate / reference.rate),
                )),
                generator_bound: false,
            }
        }));
    }
    rows
}

/// Measures the servers that decide in memory.
pub(crate) fn run_in_memory(options: &Options) -> Vec<Row> {
    let rows = axes::in_memory().run(options).into_iter();
    rows.map(|row| Row {
        what: match row.server {
            "throttlecrab" => THROTTLECRAB,
            _ => IN_MEMORY,
        },
        shape: SHAPES[0].0,
        server_us: row.cpu_us,
        redis_us: None,
        rate: row.rate,
        ratio: None,
        generator_bound: row.generator_bound(),
    })
    .collect()
}

/// The marked part of the README: the rows with the most requests in flight, and their chart.
pub(crate) fn readme(rows: &[Row], circumstances: &str) -> String {
    let mut text = "| server | CPU µs a check | checks/s |\n| --- | --- | --- |\n".to_owned();
    for (what, name) in README_NAMES {
        let row = rows
            .iter()
            .find(|row| row.what == what && row.shape.streams == SHAPES[0].0.streams);
        if let Some(row) = row {
            let rate = table::rate(&row.rate, row.generator_bound);
            let _ = writeln!(text, "| {name} | {:.2} | {rate} |", row.server_us.median);
        }
    }
    let crab = rows.iter().any(|row| row.what == THROTTLECRAB);
    let absent = if crab {
        ""
    } else {
        " throttlecrab was not installed."
    };
    let _ = write!(
        text,
        "\n![CPU time of the server for one check]({PEERS_FILE})\n\n{circumstances} 200 requests were in flight, of 1,000 keys on Redis and of one in memory. Each server had one core.{absent}\nMethods, ranges and other load are in [docs/performance.md](docs/performance.md#beside-envoys-reference-service).\n"
    );
    text
}

fn start(workload: &Workload, redis: &RedisServer, own: Option<&[(&str, &str)]>) -> Server {
    let socket = redis.socket().display().to_string();
    let shared = [
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", socket.as_str()),
        ("USE_STATSD", "false"),
    ];
    let Some(own) = own else {
        return Server::start_reference(workload, &shared);
    };
    let deadline = [("TOLLGATE_STORE_DEADLINE_MS", "1000")];
    let variables = [&shared[..], &deadline, own].concat();
    let server = Server::start_with(workload, 1, &variables);
    let up = || value(&server, "tollgate_store_up") > 0.0;
    until("it finds Redis", up);
    server
}
