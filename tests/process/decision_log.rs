//! The decision log of a real process under real load: its rate, its counts, and destinations that
//! fail or stall.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tollgate_limiter::Timestamp;
use tollgate_test_support::grpc_client::{Code, hits, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
";

/// How many lines a second the log may have under load.
const PER_SECOND: usize = 20;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Sends this many requests one after the other; returns how many were refused.
async fn send(running: &Tollgate, key: &str, count: usize) -> usize {
    let mut client = Service::connect(running.grpc).await;
    let mut refused = 0;
    for _ in 0..count {
        let answer = client.should_rate_limit(request("d", vec![hits(key, "x", 1)]));
        let answer = answer.await.expect("an answer").into_inner();
        refused += usize::from(answer.overall_code() == Code::OverLimit);
    }
    refused
}

fn written(running: &Tollgate) -> u64 {
    running.metric("tollgate_decision_log_written_total")
}

fn skipped(running: &Tollgate, reason: &str) -> u64 {
    running.metric(&format!(
        "tollgate_decision_log_skipped_total{{reason=\"{reason}\"}}"
    ))
}

/// Waits until every chosen decision is counted, and checks that none is counted twice.
fn expect_counts(running: &Tollgate, chosen: usize) {
    let sum = || {
        let skips = ["rate", "queue_full", "write_failed"];
        written(running) + skips.iter().map(|why| skipped(running, why)).sum::<u64>()
    };
    let chosen = chosen as u64;
    until("every chosen decision is counted", || {
        let counted = sum();
        (counted >= chosen).then_some(()).ok_or(counted)
    });
    assert_eq!(sum(), chosen);
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn time(line: &Value) -> Timestamp {
    let at = line["at"].as_str().expect("a time");
    tollgate::admin_api::parse_time(at).expect(at)
}

#[test]
fn no_second_has_more_lines_than_the_bound_and_the_counts_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("decisions.jsonl");
    let rate = PER_SECOND.to_string();
    let running = Tollgate::start(
        RULES,
        &[
            "--cores",
            "3",
            "--decision-log",
            file.to_str().unwrap(),
            "--decision-log-per-second-max",
            &rate,
        ],
    );
    let enough = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    runtime().block_on(async {
                        let mut refused = 0;
                        while !enough.load(Ordering::Relaxed) {
                            refused += send(&running, "user", 200).await;
                        }
                        refused
                    })
                })
            })
            .collect();
        until("lines of several seconds are written", || {
            let lines = usize::try_from(written(&running)).unwrap();
            (lines > 3 * PER_SECOND).then_some(()).ok_or(lines)
        });
        enough.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum::<usize>()
    });
    expect_counts(&running, refused);
    assert!(skipped(&running, "rate") > 0);
    let lines = lines(&file);
    assert_eq!(lines.len() as u64, written(&running));
    // Lines are sent outside the lock that gives them their times.
    let mut times: Vec<_> = lines.iter().map(time).collect();
    times.sort_unstable();
    for (first, next) in times.iter().zip(times.iter().skip(PER_SECOND)) {
        let apart_us = next.since_us(*first);
        assert!(
            apart_us >= 1_000_000,
            "{apart_us} µs for {PER_SECOND} lines"
        );
    }
    let one = &lines[0];
    assert_eq!(one["verdict"], "OVER_LIMIT");
    assert_eq!(one["descriptors"][0]["rule"], "d.user");
    assert!(one["instance"].is_string());
    let shown = &one["descriptors"][0]["entries"][0]["value"];
    assert!(shown.as_str().unwrap().starts_with('#'), "{shown}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn verdicts_rules_and_values_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("decisions.jsonl");
    let running = Tollgate::start(
        RULES,
        &[
            "--decision-log",
            file.to_str().unwrap(),
            "--decision-log-verdicts",
            "all",
            "--decision-log-rules",
            "d.watched",
            "--decision-log-values",
            "plain",
        ],
    );
    runtime().block_on(async {
        assert_eq!(send(&running, "user", 3).await, 2);
        assert_eq!(send(&running, "watched", 3).await, 0);
    });
    expect_counts(&running, 3);
    let lines = lines(&file);
    let reasons: Vec<_> = lines.iter().map(|line| &line["reason"]).collect();
    assert_eq!(reasons, ["within_limit", "shadow_mode", "shadow_mode"]);
    assert_eq!(lines[0]["descriptors"][0]["entries"][0]["value"], "x");
}

#[test]
fn a_full_disk_a_closed_pipe_and_a_fifo_without_reader_cost_lines_and_no_decision() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let missing = directory.path().join("missing").join("file");
    let log = |to: &str| Tollgate::start(RULES, &["--decision-log", to]);
    for (running, why) in [
        (log("/dev/full"), "No space left"),
        (log(fifo.to_str().unwrap()), "no process reads this FIFO"),
        (log(missing.to_str().unwrap()), "No such file"),
        (
            Tollgate::start_with_closed_stdout(RULES, &["--decision-log", "stdout"]),
            "Broken pipe",
        ),
    ] {
        let refused = runtime().block_on(send(&running, "user", 60));
        assert_eq!(refused, 59, "{why}");
        expect_counts(&running, refused);
        assert_eq!(written(&running), 0, "{why}");
        assert_eq!(skipped(&running, "write_failed"), 59, "{why}");
        let said = until("the failure is logged", || {
            let said = running.said();
            said.contains(why).then(|| said.clone()).ok_or(said)
        });
        // Once, and not for each line.
        let complaints = said.matches("cannot write the decision log").count();
        assert_eq!(complaints, 1, "{said}");
    }
    // Once the directory is there, lines are written again, and the log says so.
    let running = log(missing.to_str().unwrap());
    assert_eq!(runtime().block_on(send(&running, "user", 3)), 2);
    expect_counts(&running, 2);
    fs::create_dir(missing.parent().unwrap()).unwrap();
    assert_eq!(runtime().block_on(send(&running, "user", 1)), 1);
    expect_counts(&running, 3);
    assert_eq!((lines(&missing).len(), written(&running)), (1, 1));
    until("the recovery is logged", || {
        let said = running.said();
        let is_logged = said.contains("written again");
        is_logged.then_some(()).ok_or(said)
    });
}

#[test]
fn a_reader_that_stalls_slows_no_decision_and_loses_what_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    // Opened for both, so that opening does not wait for a writer.
    let reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(0)
        .open(&fifo)
        .unwrap();
    let to = fifo.to_str().unwrap();
    let most = ["--decision-log-per-second-max", "10000"];
    let running = Tollgate::start(RULES, &[&["--decision-log", to], &most[..]].concat());
    // More than the pipe and the queue hold. Nothing reads, and all are answered.
    let refused = runtime().block_on(send(&running, "user", 3_000));
    assert_eq!(refused, 2_999);
    assert!(skipped(&running, "queue_full") > 0);
    let counting = std::thread::spawn(move || {
        let mut read = 0_u64;
        for line in BufReader::new(reader).lines() {
            let line = line.unwrap();
            if line == "end" {
                break;
            }
            let _: Value = serde_json::from_str(&line).expect(&line);
            read += 1;
        }
        read
    });
    expect_counts(&running, refused);
    fs::write(&fifo, "end\n").unwrap();
    assert_eq!(counting.join().unwrap(), written(&running));
}

#[test]
fn a_renamed_file_is_followed_by_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("decisions.jsonl");
    let rotated = directory.path().join("decisions.jsonl.1");
    let running = Tollgate::start(RULES, &["--decision-log", file.to_str().unwrap()]);
    assert_eq!(runtime().block_on(send(&running, "user", 11)), 10);
    expect_counts(&running, 10);
    fs::rename(&file, &rotated).unwrap();
    assert_eq!(runtime().block_on(send(&running, "user", 5)), 5);
    expect_counts(&running, 15);
    assert_eq!((lines(&rotated).len(), lines(&file).len()), (10, 5));
}
