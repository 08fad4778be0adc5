//! Redis's CPU a check on one server and on clusters of 1, 3 and 6 masters; `make
//! bench-redis-cluster` prints it as a table.
//!
//! Every service has a Redis of its own, and all are measured in turn, round by round. The requests
//! have 50 descriptors. Four are in flight for each master, so that each has as much to do, and
//! then 24 whatever the masters. `NOW` and `BEFORE` name other tollgate binaries, such as an
//! optimised one and an earlier version's. `INCRBY` by `redis-benchmark` is the least that a
//! counter costs.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::{
    Code, RateLimitRequest, RateLimitServiceClient, channel, descriptor, request,
};
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::RedisCluster;
use tollgate_test_support::seeded_rng::SeededRng;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 1000000000 }
";

const DESCRIPTORS: usize = 50;
/// Requests of a stream in a round.
const REQUESTS: usize = 40;
/// Requests in flight: so many for each master, or so many in all.
const FOR_EACH_MASTER: usize = 4;
const IN_ALL: usize = 24;
const ROUNDS: usize = 5;

enum Redis {
    Server(RedisServer),
    Cluster(RedisCluster),
}

/// One service and its Redis.
struct Cell {
    what: String,
    keys: usize,
    redis: Redis,
    tollgate: Tollgate,
}

/// Microseconds of CPU of all servers a check, checks a second, and checks in a script run.
type Measurement = [f64; 3];

impl Redis {
    fn start(masters: usize) -> Self {
        match masters {
            0 => Self::Server(RedisServer::start(&[])),
            masters => Self::Cluster(RedisCluster::start_masters(masters)),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Server(server) => vec![server],
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| &node.server).collect(),
        }
    }

    /// The sum of these fields of `INFO` over all servers.
    fn sum(&self, section: &str, fields: &[&str]) -> f64 {
        let servers = self.servers().into_iter();
        let each = servers.map(|server| {
            let info: String = server.say(&["INFO", section]);
            let of = |field: &&str| {
                let line = info.lines().find_map(|line| line.strip_prefix(*field));
                let number = line.and_then(|rest| rest.split(',').next()?.parse::<f64>().ok());
                number.unwrap_or(0.0)
            };
            fields.iter().map(of).sum::<f64>()
        });
        each.sum()
    }

    fn cpu(&self) -> f64 {
        self.sum("cpu", &["used_cpu_user:", "used_cpu_sys:"])
    }

    fn runs(&self) -> f64 {
        self.sum("commandstats", &["cmdstat_evalsha:calls="])
    }
}

impl Cell {
    fn start(binary: &(String, PathBuf), masters: usize, keys: usize) -> Self {
        let redis = Redis::start(masters);
        let url = redis.url();
        let arguments = ["--store", &url, "--store-deadline-ms", "20000"];
        let tollgate = Tollgate::start_binary(&binary.1, RULES, &arguments);
        until("the store decides", || {
            tollgate.metric("tollgate_store_up") == 1
        });
        let place = match masters {
            0 => "one server".to_owned(),
            1 => "cluster, 1 master".to_owned(),
            masters => format!("cluster, {masters} masters"),
        };
        Self {
            what: format!("{place} | {}", binary.0),
            keys,
            redis,
            tollgate,
        }
    }

    fn in_flight(&self, for_each_master: bool) -> usize {
        if for_each_master {
            FOR_EACH_MASTER * self.redis.servers().len()
        } else {
            IN_ALL
        }
    }

    /// The CPU of the first server for `INCRBY` on as many counters, µs each.
    fn increments(&self) -> f64 {
        let server = self.redis.servers()[0];
        let (port, count) = (server.port().to_string(), 200_000);
        let cpu = self.redis.cpu();
        let sent = Command::new("redis-benchmark")
            .args([
                "-p",
                &port,
                "-n",
                &count.to_string(),
                "-c",
                "4",
                "-P",
                "256",
            ])
            .args(["-r", &self.keys.to_string(), "-q"])
            .args(["INCRBY", "in:{5f}:000000000000000000__rand_int__", "1"])
            .stdout(Stdio::null())
            .status();
        assert!(sent.unwrap().success());
        (self.redis.cpu() - cpu) * 1e6 / f64::from(count)
    }

    /// Requests in flight, each stream's next when the last is answered.
    #[allow(clippy::disallowed_methods)] // a measurement of time
    async fn measure(&self, in_flight: usize) -> Measurement {
        let streams: Vec<_> = (0..in_flight).map(|first| self.requests(first)).collect();
        let requests: usize = streams.iter().map(Vec::len).sum();
        let client = RateLimitServiceClient::new(channel(self.tollgate.grpc).await);
        let (cpu, runs, began) = (self.redis.cpu(), self.redis.runs(), Instant::now());
        let mut tasks = JoinSet::new();
        for stream in streams {
            let mut client = client.clone();
            tasks.spawn(async move {
                for request in stream {
                    let answer = client.should_rate_limit(request).await.unwrap();
                    assert_eq!(answer.into_inner().overall_code, i32::from(Code::Ok));
                }
            });
        }
        tasks.join_all().await;
        let checks = f64::from(u32::try_from(requests * DESCRIPTORS).unwrap());
        [
            (self.redis.cpu() - cpu) * 1e6 / checks,
            checks / began.elapsed().as_secs_f64(),
            checks / (self.redis.runs() - runs),
        ]
    }

    /// The requests of one stream, with random keys.
    fn requests(&self, first: usize) -> Vec<RateLimitRequest> {
        let mut random = SeededRng::of_seed(first as u64);
        let one = |_| {
            let descriptors = (0..DESCRIPTORS).map(|_| {
                let key = random.position(self.keys);
                descriptor(&[("k", &format!("v{key}"))])
            });
            request("d", descriptors.collect())
        };
        (0..REQUESTS).map(one).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cpu_a_check() {
    let path = |name: &str| std::env::var(name).ok().filter(|path| !path.is_empty());
    let now = path("NOW").unwrap_or_else(|| tollgate_binary().to_owned());
    let mut binaries = vec![("now".to_owned(), PathBuf::from(now))];
    if let Some(path) = path("BEFORE") {
        binaries.insert(0, ("before".to_owned(), path.into()));
    }
    println!(
        "| Redis | tollgate | keys | in flight | CPU of Redis, µs a check | to one server | checks/s | checks in a script run |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for keys in [50, 10_000] {
        let mut cells = Vec::new();
        for masters in [0, 1, 3, 6] {
            for binary in &binaries {
                cells.push(Cell::start(binary, masters, keys));
            }
        }
        let loads = [true, false];
        let mut measured = vec![vec![Vec::new(); cells.len()]; loads.len()];
        let mut increments = Vec::new();
        for round in 0..=ROUNDS {
            increments.push(cells[0].increments());
            for (load, measured) in loads.iter().zip(&mut measured) {
                for (cell, measured) in cells.iter().zip(measured) {
                    let one = cell.measure(cell.in_flight(*load)).await;
                    // The first round makes the buckets.
                    if round > 0 {
                        measured.push(one);
                    }
                }
            }
        }
        increments.remove(0);
        increments.sort_by(f64::total_cmp);
        let (lowest, median) = (increments[0], increments[ROUNDS / 2]);
        let highest = increments[ROUNDS - 1];
        println!(
            "| one server | `redis-benchmark`, `INCRBY` | {keys} | | {median:.2} ({lowest:.2} to {highest:.2}) | | | |"
        );
        for (load, measured) in loads.iter().zip(&measured) {
            for (number, cell) in cells.iter().enumerate() {
                let median = |of: &dyn Fn(usize) -> f64| {
                    let mut figures: Vec<_> = (0..ROUNDS).map(of).collect();
                    figures.sort_by(f64::total_cmp);
                    (figures[0], figures[ROUNDS / 2], figures[ROUNDS - 1])
                };
                let its = |figure: usize| median(&|round| measured[number][round][figure]);
                let server = number % binaries.len();
                let (_, ratio, _) =
                    median(&|round| measured[number][round][0] / measured[server][round][0]);
                let ((lowest, cpu, highest), (_, rate, _), (_, together, _)) =
                    (its(0), its(1), its(2));
                println!(
                    "| {} | {} | {} | {cpu:.2} ({lowest:.2} to {highest:.2}) | {ratio:.2} | {rate:.0} | {together:.1} |",
                    cell.what,
                    cell.keys,
                    cell.in_flight(*load)
                );
            }
        }
    }
}
