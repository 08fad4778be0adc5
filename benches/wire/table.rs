//! Figures as Markdown tables: printed, and written between the markers of `docs/performance.md`.
//!
//! What it deliberately does not do: measure, or round figures selectively.

use std::fmt::Write as _;
use std::process::Command;

use tollgate_test_support::wire_bench_options::Options;

use crate::axes::Row;
use crate::latency;
use crate::reference;
use crate::shared;
use crate::statistics::{Spread, grouped};

pub(crate) const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- /figures -->\n";

/// Share of a core from which on the generator is reported as the bottleneck.
const BUSY: f64 = 0.9;

pub(crate) const HEAD: &str = "\
| axis | what | server | CPU µs a check | to bare tonic | checks/s | generator |
| --- | --- | --- | --- | --- | --- | --- |";

pub(crate) const LATENCY_HEAD: &str = "\
| server | of capacity | requests/s | p50 µs | p99 µs | p99.9 µs | sent late, p99 µs |
| --- | --- | --- | --- | --- | --- | --- |";

pub(crate) const SHARED_HEAD: &str = "\
| what | keys | checks/s | rate, to the line at 1.00 above | Redis CPU µs a check | round trips a thousand checks |
| --- | --- | --- | --- | --- | --- |";

pub(crate) const REFERENCE_HEAD: &str = "\
| server | requests under way | CPU µs a check, the server | CPU µs a check, Redis | checks/s | rate, to the reference |
| --- | --- | --- | --- | --- | --- |";

/// A line of the comparison with the reference.
pub(crate) fn reference_line(row: &reference::Row) -> String {
    let reference::Row {
        what,
        shape,
        server_us,
        redis_us,
        rate,
        ratio,
    } = row;
    let under_way = shape.connections * shape.streams;
    let rate = grouped(rate.median);
    format!("| {what} | {under_way} | {server_us} | {redis_us} | {rate} | {ratio} |")
}

/// A line of the shared limits.
pub(crate) fn shared_line(row: &shared::Row) -> String {
    let shared::Row {
        what,
        keys,
        rate,
        ratio,
        redis_us,
        trips,
    } = row;
    let (keys, rate) = (grouped(*keys as f64), grouped(rate.median));
    format!(
        "| {what} | {keys} | {rate} | {ratio} | {redis_us} | {:.1} |",
        trips.median
    )
}

/// A line of a cell.
pub(crate) fn line(row: &Row) -> String {
    let Row {
        axis,
        name,
        server,
        cpu_us,
        rate,
        ratio,
        generator_busy,
    } = row;
    let bound = if *generator_busy > BUSY { "≥ " } else { "" };
    let rate = grouped(rate.median);
    let busy = generator_busy * 100.0;
    format!("| {axis} | {name} | {server} | {cpu_us} | {ratio} | {bound}{rate} | {busy:.0} % |")
}

/// A line of a load.
pub(crate) fn latency_line(row: &latency::Row) -> String {
    let whole = |spread: &Spread| {
        let Spread {
            median,
            lowest,
            highest,
        } = spread;
        format!("{median:.0} ({lowest:.0} to {highest:.0})")
    };
    let latency::Row {
        server,
        percent,
        rate,
        p50,
        p99,
        p999,
        late_p99,
    } = row;
    format!(
        "| {server} | {percent} % | {} | {} | {} | {} | {:.0} |",
        grouped(rate.median),
        whole(p50),
        whole(p99),
        whole(p999),
        late_p99.median
    )
}

/// Date, machine and options of the run.
pub(crate) fn circumstances(options: &Options, cores: usize) -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = file("/proc/cpuinfo");
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let load = file("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    let busy = load.parse().is_ok_and(|load: f64| load > cores as f64);
    let mut text = format!(
        "Measurement on {} at {}: {cores} cores of an {}, Linux {}, {}, {}. ",
        said("date", &["-u", "+%F"]),
        said("git", &["describe", "--always", "--dirty"]),
        processor.unwrap_or("unknown processor"),
        said("uname", &["-r"]),
        said("rustc", &["--version"]),
        said("h2load", &["--version"]),
    );
    let _ = writeln!(
        text,
        "Rounds: {}, of {} requests{}; {load} processes ran or waited on average in the minute before{}. Options: {}.",
        options.rounds,
        grouped(options.requests as f64),
        if options.rounds < 5 {
            ", too few for a verdict"
        } else {
            ""
        },
        if busy {
            ", so the machine was busy with other work: compare CPU time, not rates"
        } else {
            ""
        },
        if options.called.is_empty() {
            "none".to_owned()
        } else {
            format!("`{}`", options.called)
        }
    );
    text
}

/// Writes the figures of a command into a page.
pub(crate) fn write(name: &str, made_by: &str, figures: &str) {
    let page = std::fs::read_to_string(name).expect("the page");
    let begin = format!("{BEGIN}`{made_by}` -->\n");
    let (before, rest) = page.split_once(&begin).expect("where the figures begin");
    let (_, after) = rest.split_once(END).expect("where they end");
    let page = format!("{before}{begin}{figures}{END}{after}");
    std::fs::write(name, page).expect("the page");
}
