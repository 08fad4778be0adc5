//! What a check costs that comes alone, beside an answer of the same service that needs no
//! decision.
//!
//! How: a tollgate with a limit and one whose rule is `unlimited` get the same requests in turn,
//! from two connections with one stream each up to batches. With `BEFORE=BINARY` both are also
//! measured for an earlier build, in the same rounds. User and kernel time are the process's, split
//! as the kernel's ticks say; context switches are those of its threads. System calls are counted
//! by `strace -c` in a pass of its own, because strace slows every call.
//!
//! What it deliberately does not do: compare with other servers (`axes`).

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::tollgate_binary;
use tollgate_test_support::wire_bench_options::Options;

use crate::generator::{self, Expected, Shape, Target};
use crate::h2load;
use crate::requests::{OK, Workload};
use crate::servers::{Server, used_us};
use crate::statistics::Spread;

/// Name of the axis in the options.
pub(crate) const AXIS: &str = "alone";

/// The variable that names an earlier build.
const BEFORE: &str = "BEFORE";

/// Connections × streams.
const SHAPES: [(u32, u32); 4] = [(2, 1), (64, 1), (8, 8), (2, 100)];

/// Enough keys that every batch has checks for every partition.
const KEYS_SPREAD: u64 = 100_000;

/// Requests of the pass under strace.
const TRACED_REQUESTS: u64 = 4_000;

/// System calls of the table: waiting for events, and waking another thread.
const WAIT_CALLS: [&str; 2] = ["epoll_wait", "epoll_pwait"];
const WAKE_CALL: &str = "write";

/// Where the keys are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// One core, one key: the partition belongs to the connection's core.
    OneKey,
    /// Two cores, many keys: half of the checks have their partition on the other core.
    Spread,
}

/// A build and what its rule says.
struct Candidate {
    build: &'static str,
    decides: bool,
    server: Server,
    workload: Workload,
}

/// One measurement, by request.
struct Measurement {
    user_us: f64,
    kernel_us: f64,
    switches: f64,
}

/// System calls by request, in the pass under strace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) all: f64,
    pub(crate) waits: f64,
    pub(crate) wakes: f64,
}

/// Figures of a cell.
pub(crate) struct Row {
    pub(crate) shape: Shape,
    pub(crate) place: &'static str,
    pub(crate) build: &'static str,
    pub(crate) decides: bool,
    pub(crate) user_us: Spread,
    pub(crate) kernel_us: Spread,
    pub(crate) switches: Spread,
    /// None without strace.
    pub(crate) calls: Option<Calls>,
    /// CPU time, to the answer without a decision of the same build.
    pub(crate) ratio: Spread,
}

/// Measures all of it.
pub(crate) fn run(options: &Options, cores_max: usize) -> Vec<Row> {
    let mut rows = place(options, Place::OneKey, 1);
    if cores_max > 1 {
        rows.extend(place(options, Place::Spread, 2));
    }
    rows
}

fn place(options: &Options, place: Place, cores: usize) -> Vec<Row> {
    let candidates = candidates(place, cores);
    let mut rows = Vec::new();
    for (connections, streams) in SHAPES {
        let shape = Shape {
            connections,
            streams,
        };
        let mut rounds: Vec<Vec<Measurement>> = candidates.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (candidate, rounds) in candidates.iter().zip(&mut rounds) {
                rounds.push(candidate.measure(place, shape, options.requests));
            }
        }
        for (number, (candidate, measured)) in candidates.iter().zip(&rounds).enumerate() {
            // Each build has the answer without a decision first.
            let reference = &rounds[number / 2 * 2];
            let ratios = measured.iter().zip(reference);
            rows.push(Row {
                shape,
                place: place.name(),
                build: candidate.build,
                decides: candidate.decides,
                user_us: Spread::of(measured.iter().map(|one| one.user_us)),
                kernel_us: Spread::of(measured.iter().map(|one| one.kernel_us)),
                switches: Spread::of(measured.iter().map(|one| one.switches)),
                calls: candidate.calls(place, shape),
                ratio: Spread::of(ratios.map(|(one, other)| one.cpu_us() / other.cpu_us())),
            });
        }
    }
    rows
}

/// Every build, without a decision and with one.
fn candidates(place: Place, cores: usize) -> Vec<Candidate> {
    let workload = Workload::with_keys(place.keys());
    let before = std::env::var_os(BEFORE).filter(|path| !path.is_empty());
    let mut builds = Vec::new();
    builds.extend(before.map(|path| ("before", PathBuf::from(path))));
    builds.push(("now", PathBuf::from(tollgate_binary())));
    let mut candidates = Vec::new();
    for (build, binary) in builds {
        for decides in [false, true] {
            let mut workload = workload.clone();
            if !decides {
                workload = workload.without_decision();
            }
            let server = Server::start_build(&binary, &workload, cores);
            let candidate = Candidate {
                build,
                decides,
                server,
                workload,
            };
            candidate.warm_up();
            candidates.push(candidate);
        }
    }
    candidates
}

// === impl Place ===

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::OneKey => "one core, one key",
            Self::Spread => "two cores, 100,000 keys",
        }
    }

    fn keys(self) -> u64 {
        match self {
            Self::OneKey => 1,
            Self::Spread => KEYS_SPREAD,
        }
    }
}

// === impl Candidate ===

impl Candidate {
    /// Creates every bucket, and warms up code and caches.
    fn warm_up(&self) {
        let target = Target::of(&self.server);
        generator::on_this_thread(generator::send_all(&target, self.workload.warming()));
    }

    fn send(&self, place: Place, shape: Shape, requests: u64) {
        let template = self.workload.template();
        match place {
            Place::OneKey => {
                h2load::run(&self.server, &template.frame(0), shape, requests);
            }
            Place::Spread => {
                let target = Target::of(&self.server);
                let asking = (self.workload.keys, Expected::Code(OK));
                let asked = generator::closed_loop(&target, &template, asking, shape, requests);
                generator::on_this_thread(asked);
            }
        }
    }

    fn measure(&self, place: Place, shape: Shape, requests: u64) -> Measurement {
        let process = self.server.process();
        let decided = self.server.decided();
        let (cpu, ticks, switches) = (self.server.cpu(), ticks(process), switches(process));
        self.send(place, shape, requests);
        let used_us = used_us(&cpu, &self.server.cpu()) / requests as f64;
        let (user, kernel) = self::ticks(process);
        let (user, kernel) = (user - ticks.0, kernel - ticks.1);
        let switches = (self::switches(process) - switches) as f64;
        if let (Some(before), Some(after)) = (decided, self.server.decided()) {
            assert_eq!(after - before, requests, "requests decided");
        }
        let kernel_share = kernel as f64 / (user + kernel).max(1) as f64;
        Measurement {
            user_us: used_us * (1.0 - kernel_share),
            kernel_us: used_us * kernel_share,
            switches: switches / requests as f64,
        }
    }

    /// System calls by request; none without strace.
    fn calls(&self, place: Place, shape: Shape) -> Option<Calls> {
        let strace = Strace::attach(self.server.process())?;
        self.send(place, shape, TRACED_REQUESTS);
        Some(strace.detach(TRACED_REQUESTS))
    }
}

// === impl Measurement ===

impl Measurement {
    fn cpu_us(&self) -> f64 {
        self.user_us + self.kernel_us
    }
}

/// User and kernel time of a process, in ticks.
fn ticks(process: u32) -> (u64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    let mut fields = after_name
        .split(' ')
        .skip(11)
        .map(|text| text.parse().expect("ticks"));
    let mut next = || fields.next().expect("a field");
    (next(), next())
}

/// Context switches of all threads of a process so far, voluntary and not.
fn switches(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("Linux");
    let status = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let lines = status
            .lines()
            .filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        Some(
            lines
                .map(|(_, count)| count.trim().parse::<u64>().expect("a number"))
                .sum::<u64>(),
        )
    };
    threads.filter_map(Result::ok).filter_map(status).sum()
}

/// A `strace -c` that is attached to a process.
struct Strace {
    child: Child,
    output: tempfile::NamedTempFile,
}

// === impl Strace ===

impl Strace {
    /// None if strace is missing or may not attach.
    fn attach(process: u32) -> Option<Self> {
        let output = tempfile::NamedTempFile::new().expect("a file");
        let child = Command::new("strace")
            .args(["-c", "-f", "-o"])
            .arg(output.path())
            .args(["-p", &process.to_string()])
            .stderr(Stdio::null())
            .spawn_tied();
        let mut strace = Self {
            child: child.ok()?,
            output,
        };
        let attached = until("strace attaches or ends", || {
            if strace.child.try_wait().expect("its state").is_some() {
                return Some(false);
            }
            is_traced(process).then_some(true)
        });
        attached.then_some(strace)
    }

    fn detach(mut self, requests: u64) -> Calls {
        let interrupted = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        assert!(interrupted.expect("kill runs").success());
        until("strace ends", || self.child.try_wait().expect("its state"));
        let summary = std::fs::read_to_string(self.output.path()).expect("its summary");
        let mut calls = Calls::default();
        for line in summary.lines() {
            // % time, seconds, usecs/call, calls, perhaps errors, name
            let words: Vec<_> = line.split_whitespace().collect();
            let [_, _, _, count, .., name] = words[..] else {
                continue;
            };
            let Ok(count) = count.parse::<f64>() else {
                continue;
            };
            if name == "total" {
                continue;
            }
            calls.all += count / requests as f64;
            if WAIT_CALLS.contains(&name) {
                calls.waits += count / requests as f64;
            } else if name == WAKE_CALL {
                calls.wakes += count / requests as f64;
            }
        }
        calls
    }
}

/// Whether every thread of a process has a tracer.
fn is_traced(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("Linux");
    let mut threads = threads
        .filter_map(Result::ok)
        .map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    threads.all(|status| !status.contains("TracerPid:\t0\n"))
}
