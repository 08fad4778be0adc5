//! Axes of comparison: along each, one parameter varies and servers take turns.
//!
//! How: an axis is a list of cells. All its servers run before the first round and idle during the
//! others' turns. A round measures every cell once, so that noise of the machine affects all alike,
//! and ratios are taken within a round. The first cell of the same name, or of the axis, is the
//! reference.
//!
//! What it deliberately does not do: print (`table`).

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::wire_bench_options::Options;

use crate::generator::{self, Expected, Shape, Target};
use crate::h2load;
use crate::requests::{Template, Workload};
use crate::servers::{Kind, Server, cpu, used_us};
use crate::statistics::{Spread, grouped};

/// Load generator of a cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LoadGenerator {
    /// h2load, with one key.
    H2load,
    /// Our generator.
    Generator,
}

pub(crate) struct Cell {
    pub(crate) name: String,
    kind: Kind,
    workload: Workload,
    cores: usize,
    /// Number of partitions; default: tollgate's choice.
    partitions: Option<usize>,
    load_generator: LoadGenerator,
    shape: Shape,
}

pub(crate) struct Axis {
    pub(crate) name: &'static str,
    cells: Vec<Cell>,
}

/// Figures of a cell.
pub(crate) struct Row {
    pub(crate) axis: &'static str,
    pub(crate) name: String,
    pub(crate) server: &'static str,
    pub(crate) cpu_us: Spread,
    /// Checks per second.
    pub(crate) rate: Spread,
    /// Ratio of CPU time to the reference's.
    pub(crate) ratio: Spread,
    /// Share of a core that the generator used.
    pub(crate) generator_busy: f64,
}

/// One measurement.
struct Measurement {
    cpu_us: f64,
    rate: f64,
    generator_busy: f64,
}

/// Defaults of all axes.
const SHAPE: Shape = Shape {
    connections: 4,
    streams: 32,
};
const KEYS: u64 = 10_000;

/// Connections × streams of axes with several shapes.
const SHAPES: [(u32, u32); 3] = [(2, 100), (8, 8), (2, 1)];

/// Enough keys that every batch has checks for every partition.
const KEYS_SPREAD: u64 = 100_000;

fn cell(name: impl Into<String>, kind: Kind, workload: Workload) -> Cell {
    Cell {
        name: name.into(),
        kind,
        workload,
        cores: 1,
        partitions: None,
        load_generator: LoadGenerator::Generator,
        shape: SHAPE,
    }
}

/// Cells with one key, asked for by h2load.
fn one_key(kinds: &[Kind], (connections, streams): (u32, u32)) -> Vec<Cell> {
    let name = format!("{connections} × {streams} streams");
    let cells = kinds.iter().map(|kind| Cell {
        load_generator: LoadGenerator::H2load,
        shape: Shape {
            connections,
            streams,
        },
        ..cell(name.clone(), *kind, Workload::with_keys(1))
    });
    cells.collect()
}

/// The first cells of `one-key`, for servers that decide in memory.
pub(crate) fn in_memory() -> Axis {
    let kinds = Kind::all();
    let decide = |kind: &Kind| matches!(kind, Kind::Throttlecrab | Kind::Tollgate);
    let kinds: Vec<_> = kinds.into_iter().filter(decide).collect();
    Axis {
        name: "in-memory",
        cells: one_key(&kinds, SHAPES[0]),
    }
}

/// Every axis, in the order of the page.
#[allow(clippy::too_many_lines)] // a table
pub(crate) fn all(options: &Options, cores_max: usize) -> Vec<Axis> {
    let usual = || Workload::with_keys(KEYS);
    let mut all = Vec::new();
    let mut axis = |name, cells| all.push(Axis { name, cells });

    let cells = SHAPES.map(|shape| one_key(&Kind::all(), shape));
    axis("one-key", cells.into_iter().flatten().collect());

    // The clients' protocol beside Envoy's.
    let kinds = [Kind::Tollgate, Kind::OwnApi];
    let cells = SHAPES.map(|shape| one_key(&kinds, shape));
    axis("own-api", cells.into_iter().flatten().collect());

    let cores = cores_max.min(2);
    let mut cells = Vec::new();
    for (connections, streams) in SHAPES {
        let name = format!("{connections} × {streams} streams");
        cells.extend(Kind::all().into_iter().map(|kind| Cell {
            cores,
            shape: Shape {
                connections,
                streams,
            },
            ..cell(name.clone(), kind, Workload::with_keys(KEYS_SPREAD))
        }));
    }
    axis("spread", cells);

    let mut cells = vec![Cell {
        cores,
        ..cell("", Kind::Bare, Workload::with_keys(KEYS_SPREAD))
    }];
    for partitions in [1, 2, 4, 16] {
        cells.push(Cell {
            cores,
            partitions: Some(partitions),
            ..cell(
                partitions.to_string(),
                Kind::Tollgate,
                Workload::with_keys(KEYS_SPREAD),
            )
        });
    }
    axis("partitions", cells);

    let mut cells = Vec::new();
    for cores in 1..=cores_max.min(2) {
        let name = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
        cells.extend(Kind::all().into_iter().map(|kind| Cell {
            cores,
            ..cell(name.clone(), kind, usual())
        }));
    }
    axis("cores", cells);

    let bare = || cell("", Kind::Bare, usual());
    let mut cells = vec![bare()];
    // The same requests with more and more other rules, and a rule for each key, so that requests
    // match different rules.
    let beside = [1, 10, 1_000, 10_000].map(|rules| {
        let workload = Workload {
            idle_rules: rules - 1,
            ..usual()
        };
        (grouped(rules as f64), workload)
    });
    let each = [1_000, 10_000].map(|rules| {
        let workload = Workload {
            rules,
            keys: rules,
            ..usual()
        };
        (
            format!("{}, all asked for", grouped(rules as f64)),
            workload,
        )
    });
    for (name, workload) in beside.into_iter().chain(each) {
        cells.push(cell(name, Kind::Tollgate, workload));
    }
    axis("rules", cells);

    let mut cells = vec![bare()];
    let mut counts = vec![1, 1_000, 10_000, 1_000_000];
    if options.full {
        counts.push(10_000_000);
    }
    for keys in counts {
        let name = grouped(keys as f64);
        cells.push(cell(name, Kind::Tollgate, Workload::with_keys(keys)));
    }
    axis("keys", cells);

    let mut cells = Vec::new();
    for descriptors in [1, 4] {
        let workload = Workload {
            descriptors,
            ..usual()
        };
        let kinds = [Kind::Bare, Kind::Tollgate];
        cells.extend(kinds.map(|kind| cell(descriptors.to_string(), kind, workload.clone())));
    }
    axis("descriptors", cells);

    let mut cells = vec![bare()];
    for (name, workload) in [("allowed", usual()), ("over limit", usual().over_limit())] {
        cells.push(cell(name, Kind::Tollgate, workload));
    }
    axis("verdict", cells);

    let by_each = ALGORITHMS
        .iter()
        .map(|algorithm| cell(algorithm.name(), Kind::Tollgate, usual().by(*algorithm)));
    axis("algorithm", [bare()].into_iter().chain(by_each).collect());
    all
}

impl Axis {
    /// Measures the axis.
    pub(crate) fn run(&self, options: &Options) -> Vec<Row> {
        let servers: Vec<Server> = self
            .cells
            .iter()
            .map(|cell| {
                let server =
                    Server::start(cell.kind, &cell.workload, (cell.cores, cell.partitions));
                cell.warm_up(&server);
                server
            })
            .collect();
        let mut rounds: Vec<Vec<Measurement>> = self.cells.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for ((cell, server), rounds) in self.cells.iter().zip(&servers).zip(&mut rounds) {
                rounds.push(cell.measure(server, options.requests));
            }
        }
        let rows = self.cells.iter().zip(&rounds).map(|(cell, measured)| {
            let reference = &rounds[self.reference(cell)];
            let ratios = measured.iter().zip(reference);
            Row {
                axis: self.name,
                name: cell.name.clone(),
                server: cell.kind.name(),
                cpu_us: Spread::of(measured.iter().map(|one| one.cpu_us)),
                rate: Spread::of(measured.iter().map(|one| one.rate)),
                ratio: Spread::of(ratios.map(|(one, other)| one.cpu_us / other.cpu_us)),
                generator_busy: Spread::of(measured.iter().map(|one| one.generator_busy)).median,
            }
        });
        rows.collect()
    }

    /// The bare service with the same requests, or without one the first cell of that name.
    fn reference(&self, cell: &Cell) -> usize {
        let bare = |other: &Cell| other.kind == Kind::Bare;
        let same = |other: &Cell| other.name == cell.name;
        let position = |found: &dyn Fn(&Cell) -> bool| self.cells.iter().position(found);
        position(&|other| bare(other) && same(other))
            .or_else(|| position(&bare))
            .or_else(|| position(&same))
            .unwrap_or(0)
    }
}

impl Cell {
    fn template(&self) -> Template {
        match self.kind {
            Kind::Throttlecrab => Template::throttle(),
            _ => self.workload.template(),
        }
    }

    /// Creates every bucket, and warms up code and caches.
    fn warm_up(&self, server: &Server) {
        let target = Target::of(server);
        if matches!(self.kind, Kind::Tollgate | Kind::OwnApi) {
            generator::on_this_thread(generator::send_all(&target, self.workload.warming()));
        }
        generator::on_this_thread(generator::closed_loop(
            &target,
            &self.template(),
            (self.workload.keys, Expected::Any.or_file(server)),
            self.shape,
            4_000,
        ));
    }

    #[allow(clippy::cast_precision_loss)] // requests
    fn measure(&self, server: &Server, requests: u64) -> Measurement {
        // One check at a time is so slow that fewer checks suffice.
        let requests = if self.shape.streams == 1 {
            requests.div_ceil(5)
        } else {
            requests
        };
        let own = || cpu(std::process::id());
        let template = self.template();
        let (decided_before, children_before) = (server.decided(), children_us());
        let (before, own_before) = (server.cpu(), own());
        let seconds = match self.load_generator {
            LoadGenerator::H2load => h2load::run(server, &template.frame(0), self.shape, requests),
            LoadGenerator::Generator => {
                let expected = generator::expected(server, self.workload.code);
                generator::on_this_thread(generator::closed_loop(
                    &Target::of(server),
                    &template,
                    (self.workload.keys, expected),
                    self.shape,
                    requests,
                ))
            }
        };
        let used = used_us(&before, &server.cpu());
        let own_used = used_us(&own_before, &own()) + children_us() - children_before;
        if let (Some(before), Some(after)) = (decided_before, server.decided()) {
            assert_eq!(after - before, requests, "{}: requests decided", self.name);
        }
        Measurement {
            cpu_us: used / requests as f64,
            rate: requests as f64 / seconds,
            generator_busy: own_used / 1e6 / seconds,
        }
    }
}

impl Expected {
    /// This, or a file if the server serves one.
    fn or_file(self, server: &Server) -> Self {
        match server.kind {
            Kind::Nghttpd => Self::File,
            _ => self,
        }
    }
}

/// CPU time of child processes that have ended (h2load), in µs. The kernel counts hundredths of a
/// second.
fn children_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    let ticks = after_name.split(' ').skip(13).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().expect("ticks"))
        .sum::<f64>()
        * 10_000.0
}
