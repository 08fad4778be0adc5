//! Cost of a check, compared with the cost of the network alone.
//!
//! Servers are processes of their own, release builds, and take turns: nghttpd with a static file
//! (HTTP/2 in C, without decisions), a bare tonic service that answers a constant, and tollgate.
//! The steadiest figure on a shared machine is CPU: user and system time of the server's process
//! from the kernel, divided by its decisions. Medians are given with the lowest and the highest
//! round, so that a reader sees whether two figures differ.
//!
//! | file | content |
//! | --- | --- |
//! | `axes` | axes of comparison and their rounds |
//! | `latency` | the open loop of requests |
//! | `alone` | a check alone beside an answer without a decision |
//! | `shared` | limits shared through Redis |
//! | `reference` | Envoy's reference service and tollgate on one Redis |
//! | `requests` | rules, and requests encoded in advance |
//! | `servers`, `bare_tonic` | the measured servers |
//! | `generator`, `h2load` | load generators |
//! | `statistics`, `table` | the output |
//!
//! `make bench` runs it; `docs/performance.md` explains the figures.
//!
//! What it deliberately does not do: gate anything (`tests/instructions` does). Machines are shared
//! and noisy.
// A program: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

mod alone;
mod axes;
mod bare_tonic;
mod generator;
mod h2load;
mod latency;
mod reference;
mod requests;
mod servers;
mod shared;
mod statistics;
mod table;

use std::process::{Command, ExitCode};

use tollgate_test_support::components::program;
use tollgate_test_support::performance_chart::{self, Bar, Peer};
use tollgate_test_support::wire_bench_options::Options;

/// Variable that says that this program runs on its own core, and the number of cores.
const CORES: &str = "BENCH_CORES";

fn main() -> ExitCode {
    // cargo adds an argument of its own.
    let arguments = std::env::args().skip(1);
    let arguments: Vec<String> = arguments.filter(|argument| argument != "--bench").collect();
    if arguments
        .first()
        .is_some_and(|argument| argument == bare_tonic::ARGUMENT)
    {
        bare_tonic::serve();
        return ExitCode::SUCCESS;
    }
    let options = match Options::read(&arguments) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let Some(cores) = std::env::var(CORES).ok().and_then(|text| text.parse().ok()) else {
        return on_the_last_core(&arguments);
    };
    if measure(&options, cores) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    }
}

/// Runs this program again on the last core, apart from the servers.
fn on_the_last_core(arguments: &[String]) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let ended = Command::new(program("taskset"))
        .args(["-c", &(cores - 1).to_string()])
        .arg(std::env::current_exe().expect("this program"))
        .args(arguments)
        .env(CORES, cores.to_string())
        .status()
        .expect("it starts again");
    if ended.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Measures limits shared through Redis, for their own page.
fn shared(options: &Options, cores: usize) {
    let mut figures = format!(
        "{}\n{}\n",
        table::circumstances(options, cores, "make bench-redis"),
        table::SHARED_HEAD
    );
    for row in shared::run(options) {
        figures += &table::shared_line(&row);
        figures.push('\n');
    }
    print!("{figures}");
    if let Some(folder) = &options.write {
        table::write(folder, shared::PAGE, "make bench-redis", &figures);
    }
}

/// Measures a check alone beside an answer without a decision.
fn alone(options: &Options, cores: usize) {
    const COMMAND: &str = "make bench-alone";
    let circumstances = table::circumstances(options, cores, COMMAND);
    let mut figures = format!("{circumstances}\n{}\n", table::ALONE_HEAD);
    for row in alone::run(options, cores) {
        figures += &table::alone_line(&row);
        figures.push('\n');
    }
    print!("{figures}");
    if let Some(folder) = &options.write {
        table::write(folder, table::PAGE, COMMAND, &figures);
    }
}

/// Measures Envoy's reference service and tollgate on one Redis, then the peers in memory.
fn beside_the_reference(options: &Options, cores: usize) -> bool {
    const COMMAND: &str = "make bench-peers";
    if !reference::is_installed() {
        eprintln!("Envoy's reference service is missing; install Go and run `make deps`");
        return false;
    }
    let date_and_machine = table::date_and_machine(COMMAND, cores);
    let circumstances = table::circumstances(options, cores, COMMAND);
    let mut figures = format!("{circumstances}\n{}\n", table::REFERENCE_HEAD);
    let mut rows = reference::run(options, cores);
    rows.extend(reference::run_in_memory(options));
    for row in &rows {
        figures += &table::reference_line(row);
        figures.push('\n');
    }
    let readme = reference::readme(&rows, &date_and_machine);
    print!("{figures}\n{readme}");
    if let Some(folder) = &options.write {
        table::write(folder, table::PAGE, COMMAND, &figures);
        table::write_readme(folder, &readme);
        let peers: Vec<_> = readme.lines().filter_map(Peer::read).collect();
        let chart = performance_chart::draw_peers(&peers);
        table::write_file(folder, performance_chart::PEERS_FILE, &chart);
    }
    true
}

/// Measures all axes; returns whether there were any.
fn measure(options: &Options, cores: usize) -> bool {
    if options.axis.as_deref() == Some(shared::AXIS) {
        shared(options, cores);
        return true;
    }
    if options.axis.as_deref() == Some(alone::AXIS) {
        alone(options, cores);
        return true;
    }
    if options.axis.as_deref() == Some(reference::AXIS) {
        return beside_the_reference(options, cores);
    }
    let all = axes::all(options, cores);
    let names: Vec<_> = all
        .iter()
        .map(|axis| axis.name)
        .chain(["latency", alone::AXIS, shared::AXIS, reference::AXIS])
        .collect();
    if let Some(axis) = &options.axis
        && !names.contains(&axis.as_str())
    {
        eprintln!("no axis {axis}; there are {}", names.join(", "));
        return false;
    }
    let wanted = |name: &str| options.axis.as_ref().is_none_or(|axis| axis == name);
    let mut figures = String::new();
    let mut show = |line: &str| {
        println!("{line}");
        figures.push_str(line);
        figures.push('\n');
    };
    let circumstances = table::circumstances(options, cores, "make bench");
    show(circumstances.trim_end());
    let mut bars = Vec::new();
    for axis in all {
        if wanted(axis.name) {
            show(&table::axis_heading(axis.name, options.write.is_some()));
            for row in axis.run(options) {
                let line = table::line(&row);
                bars.extend(Bar::read(&line));
                show(&line);
            }
        }
    }
    if wanted("latency") {
        show(&format!("\n### latency\n\n{}", table::LATENCY_HEAD));
        for row in latency::run(options) {
            show(&table::latency_line(&row));
        }
    }
    if let Some(folder) = &options.write {
        table::write(folder, table::PAGE, "make bench", &figures);
        for (file, chart) in performance_chart::axis_charts(&bars) {
            table::write_file(folder, &file, &chart);
        }
    }
    true
}
