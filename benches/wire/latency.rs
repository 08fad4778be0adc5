//! Latency under an open loop of requests.
//!
//! Why not a closed loop: it waits while the server is slow, and so omits the requests that would
//! have waited (coordinated omission). How: requests have fixed, evenly spread send times. Each is
//! sent at its time, whatever happens to the others, and its latency counts from that time, not
//! from when it was sent. The generator spins on its own core, since a timer has a resolution of a
//! millisecond; its own delay is reported as well.
//!
//! Capacity is the rate of a closed loop, measured just before on the same server.
//!
//! What it deliberately does not do: bursts. Where generator and server share a core, the figures
//! say nothing about the server.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, yield_now};
use tollgate_test_support::wire_bench_options::Options;

use crate::generator::{self, Keys, Shape, Target};
use crate::requests::Workload;
use crate::servers::{Kind, Server};
use crate::statistics::{Spread, quantile};

const CAPACITY_PERCENT: [u64; 3] = [25, 50, 75];
const KEYS: u64 = 10_000;
const SHAPE: Shape = Shape {
    connections: 8,
    streams: 16,
};

/// Most requests sent before answers are read.
const BURST: usize = 64;

/// Latencies of one server at one load, in µs.
pub(crate) struct Row {
    pub(crate) server: &'static str,
    pub(crate) percent: u64,
    /// Requests per second.
    pub(crate) rate: Spread,
    pub(crate) p50: Spread,
    pub(crate) p99: Spread,
    pub(crate) p999: Spread,
    /// Delay of the generator, p99.
    pub(crate) late_p99: Spread,
}

/// Sorted latencies of one run, in µs.
struct Run {
    latencies: Vec<u32>,
    late: Vec<u32>,
}

/// Measures bare tonic and every tollgate in turn, round by round.
#[allow(clippy::cast_precision_loss)] // rates
pub(crate) fn run(options: &Options) -> Vec<Row> {
    let workload = Workload::with_keys(KEYS);
    let kinds = [Kind::Bare, Kind::Tollgate];
    let servers: Vec<Server> = kinds
        .iter()
        .map(|kind| {
            let server = Server::start(*kind, &workload, (1, None));
            let target = Target::of(&server);
            generator::on_this_thread(generator::send_all(&target, workload.warming()));
            server
        })
        .collect();
    let mut runs: Vec<Vec<(f64, Run)>> = Vec::new();
    runs.resize_with(kinds.len() * CAPACITY_PERCENT.len(), Vec::new);
    for _ in 0..options.rounds {
        for (server, runs) in servers.iter().zip(runs.chunks_mut(CAPACITY_PERCENT.len())) {
            let capacity = capacity(server, &workload, options.requests);
            for (percent, runs) in CAPACITY_PERCENT.iter().zip(runs) {
                let rate = capacity * *percent as f64 / 100.0;
                let requests = (rate * options.latency_seconds as f64) as u64;
                let run = generator::on_this_thread(open_loop(server, &workload, rate, requests));
                runs.push((rate, run));
            }
        }
    }
    let loads = kinds
        .iter()
        .flat_map(|kind| CAPACITY_PERCENT.map(|percent| (kind, percent)));
    loads
        .zip(runs)
        .map(|((kind, percent), runs)| {
            let of = |thousandths| {
                let each = runs.iter();
                Spread::of(each.map(|(_, run)| quantile(&run.latencies, thousandths)))
            };
            Row {
                server: kind.name(),
                percent,
                rate: Spread::of(runs.iter().map(|(rate, _)| *rate)),
                p50: of(500),
                p99: of(990),
                p999: of(999),
                late_p99: Spread::of(runs.iter().map(|(_, run)| quantile(&run.late, 990))),
            }
        })
        .collect()
}

#[allow(clippy::cast_precision_loss)] // requests
fn capacity(server: &Server, workload: &Workload, requests: u64) -> f64 {
    let seconds = generator::on_this_thread(generator::closed_loop(
        &Target::of(server),
        &workload.template(),
        (workload.keys, generator::expected(server, workload.code)),
        SHAPE,
        requests,
    ));
    requests as f64 / seconds
}

/// Sends `requests` requests, each at its time.
#[allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a bench measures time
async fn open_loop(server: &Server, workload: &Workload, rate: f64, requests: u64) -> Run {
    let (target, template) = (Target::of(server), workload.template());
    let expected = generator::expected(server, workload.code);
    let mut connections = Vec::new();
    for _ in 0..SHAPE.connections {
        connections.push(generator::connect(&target).await);
    }
    let run = Rc::new(RefCell::new(Run {
        latencies: Vec::new(),
        late: Vec::new(),
    }));
    let mut keys = Keys::new(1, workload.keys);
    let mut under_way = JoinSet::new();
    let mut read_at = BURST;
    let began = Instant::now();
    for number in 0..requests {
        let scheduled = began + Duration::from_secs_f64(number as f64 / rate);
        // A late generator sends many at once, and reads answers in between.
        while Instant::now() < scheduled || under_way.len() > read_at {
            read_at = under_way.len() + BURST;
            yield_now().await;
        }
        let at = usize::try_from(number).unwrap_or_default() % connections.len();
        let (mut sender, target) = (connections[at].clone(), target.clone());
        let (body, run) = (template.frame(keys.draw()), Rc::clone(&run));
        under_way.spawn_local(async move {
            let late = scheduled.elapsed();
            let asked = generator::ask(&mut sender, &target, body, expected).await;
            asked.expect("the answer that was expected");
            let latency = scheduled.elapsed();
            let mut run = run.borrow_mut();
            run.late.push(us(late));
            run.latencies.push(us(latency));
        });
        while under_way.try_join_next().is_some() {}
    }
    while let Some(ended) = under_way.join_next().await {
        ended.expect("an answer");
    }
    let mut run = run.replace(Run {
        latencies: Vec::new(),
        late: Vec::new(),
    });
    run.latencies.sort_unstable();
    run.late.sort_unstable();
    run
}

fn us(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
