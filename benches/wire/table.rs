//! Figures as Markdown tables: printed, and written between the markers of `docs/performance.md`.
//!
//! What it deliberately does not do: measure, or round figures selectively.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use tollgate_test_support::performance_chart::{PEERS_BEGIN, PEERS_END, axis_file, axis_subject};
use tollgate_test_support::wire_bench_options::Options;

use crate::alone;
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
| server | requests in flight | CPU µs a check, the server | CPU µs a check, Redis | checks/s | rate, to the reference |
| --- | --- | --- | --- | --- | --- |";

pub(crate) const ALONE_HEAD: &str = "\
| connections × streams | where | build | answer | user µs | kernel µs | context switches | system calls | epoll_wait | wakes of threads | CPU, to no decision |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

impl Row {
    /// Whether the generator was the bottleneck.
    pub(crate) fn generator_bound(&self) -> bool {
        self.generator_busy > BUSY
    }
}

/// A rate, with a mark if the server could do more.
pub(crate) fn rate(rate: &Spread, generator_bound: bool) -> String {
    let bound = if generator_bound { "≥ " } else { "" };
    format!("{bound}{}", grouped(rate.median))
}

/// A line of the comparison with the reference.
pub(crate) fn reference_line(row: &reference::Row) -> String {
    let reference::Row {
        what,
        shape,
        server_us,
        redis_us,
        rate,
        ratio,
        generator_bound,
    } = row;
    let in_flight = shape.connections * shape.streams;
    let rate = self::rate(rate, *generator_bound);
    let cell = |spread: &Option<Spread>| spread.map_or("–".to_owned(), |one| one.to_string());
    let (redis_us, ratio) = (cell(redis_us), cell(ratio));
    format!("| {what} | {in_flight} | {server_us} | {redis_us} | {rate} | {ratio} |")
}

/// A line of a check alone.
pub(crate) fn alone_line(row: &alone::Row) -> String {
    let alone::Row {
        shape,
        place,
        build,
        decides,
        user_us,
        kernel_us,
        switches,
        calls,
        ratio,
    } = row;
    let answer = if *decides { "a check" } else { "no decision" };
    let calls = calls.map_or_else(
        || "– | – | –".to_owned(),
        |calls| format!("{:.2} | {:.2} | {:.2}", calls.all, calls.waits, calls.wakes),
    );
    format!(
        "| {} × {} | {place} | {build} | {answer} | {user_us} | {kernel_us} | {:.2} | {calls} | {ratio} |",
        shape.connections, shape.streams, switches.median
    )
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
    let rate = self::rate(rate, row.generator_bound());
    let busy = generator_busy * 100.0;
    format!("| {axis} | {name} | {server} | {cpu_us} | {ratio} | {rate} | {busy:.0} % |")
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

/// Standard output of a program, or nothing.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

fn contents(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Processes that ran or waited on average in the minute before, and whether they were more than
/// the cores.
fn load(cores: usize) -> (String, bool) {
    let load = contents("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    let busy = load.parse().is_ok_and(|load: f64| load > cores as f64);
    (load.to_owned(), busy)
}

/// Date, commit, command and machine in one sentence.
pub(crate) fn date_and_machine(made_by: &str, cores: usize) -> String {
    let processor = contents("/proc/cpuinfo");
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    format!(
        "Measured on {} at {} by `{made_by}`: {cores} cores of an {}{}.",
        output_of("date", &["-u", "+%F"]),
        output_of("git", &["describe", "--always", "--dirty"]),
        processor.unwrap_or("unknown processor"),
        if load(cores).1 {
            " that was busy with other work"
        } else {
            ""
        }
    )
}

/// Date, machine and options of the run. Call it before the measurement: it reports the load.
pub(crate) fn circumstances(options: &Options, cores: usize, made_by: &str) -> String {
    let (load, busy) = load(cores);
    let mut text = date_and_machine(made_by, cores);
    let _ = writeln!(
        text,
        " Versions: Linux {}, {}, {}. Rounds: {} of {} requests{}. In the minute before, {load} processes ran or waited on average.{} Options: {}.",
        output_of("uname", &["-r"]),
        output_of("rustc", &["--version"]),
        output_of("h2load", &["--version"]),
        options.rounds,
        grouped(options.requests as f64),
        if options.rounds < 5 {
            ", too few for a verdict"
        } else {
            ""
        },
        if busy {
            " Compare CPU time, not rates."
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

/// Heading of an axis, before its table, with its chart if one is written.
pub(crate) fn axis_heading(axis: &str, has_chart: bool) -> String {
    let (subject, file) = (axis_subject(axis), axis_file(axis));
    let file = file.trim_start_matches("docs/");
    let image = if has_chart {
        format!("![CPU µs a check: {subject}]({file})")
    } else {
        format!("CPU µs a check: {subject}")
    };
    format!("\n### {axis}\n\n{image}\n\n{HEAD}")
}

/// Writes the figures of a command into a page.
pub(crate) fn write(folder: &Path, name: &str, made_by: &str, figures: &str) {
    write_between(
        folder,
        name,
        (&format!("{BEGIN}`{made_by}` -->\n"), END),
        figures,
    );
}

/// Writes the README's comparison with the peers.
pub(crate) fn write_readme(folder: &Path, figures: &str) {
    write_between(folder, "README.md", (PEERS_BEGIN, PEERS_END), figures);
}

/// Replaces the text between two markers of a page. A folder that lacks the page gets a copy of the
/// repository's.
fn write_between(folder: &Path, name: &str, (begin, end): (&str, &str), text: &str) {
    let path = folder.join(name);
    let source = if path.exists() {
        &path
    } else {
        Path::new(name)
    };
    let page = std::fs::read_to_string(source).expect("the page");
    let (before, rest) = page.split_once(begin).expect("where the figures begin");
    let (_, after) = rest.split_once(end).expect("where they end");
    write_file(folder, name, &format!("{before}{begin}{text}{end}{after}"));
}

/// Writes a file below a folder.
pub(crate) fn write_file(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("the file");
}
