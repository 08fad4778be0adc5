//! `--snapshot` with the real binary: SIGTERM, `kill -9`, a full disk, what is no regular file.
//!
//! What it deliberately does not do: move the clock (`tests/service/snapshots.rs`).

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::limit_of;
use tollgate_test_support::namespaces::run_test_again;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::process::commands::tollgate;

/// A limit of each algorithm, whose window does not turn within the test.
fn rules() -> String {
    let limits = ALGORITHMS.iter().map(|algorithm| {
        // window: `limit_of` counts in hours, for a clock that a test sets.
        let limit = limit_of(10, *algorithm).replace("unit: hour", "unit: year");
        format!("{{key: {}, rate_limit: {limit}}}", algorithm.name())
    });
    let limits: Vec<_> = limits.collect();
    format!("{{domain: d, descriptors: [{}]}}", limits.join(", "))
}

/// How many of `count` requests pass, over all algorithms.
fn admitted(service: SocketAddr, count: usize) -> usize {
    let passes = |name: &str| {
        let entry = format!("{{\"key\":\"{name}\",\"value\":\"v\"}}");
        let asked = format!("{{\"domain\":\"d\",\"descriptors\":[{{\"entries\":[{entry}]}}]}}");
        let (status, body) = http(service, "POST", "/json", &asked);
        assert!(status == 200 || status == 429, "{status} {body}");
        status == 200
    };
    let names = ALGORITHMS.iter().map(|algorithm| algorithm.name());
    names
        .map(|name| (0..count).filter(|_| passes(name)).count())
        .sum()
}

fn start(rules: &Path, snapshot: &Path, interval: &str) -> Tollgate {
    let flags = [
        "--drain-delay",
        "0s",
        "--snapshot-interval-seconds",
        interval,
    ];
    let flags = [&flags[..], &["--snapshot", snapshot.to_str().unwrap()]].concat();
    Tollgate::start_at(rules, &flags)
}

/// A folder with rules, and the path of a snapshot in it.
fn folder() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules()).unwrap();
    let snapshot = folder.path().join("buckets.snapshot");
    (folder, file, snapshot)
}

#[test]
fn exactly_the_limit_passes_across_a_sigterm() {
    let (_folder, rules, snapshot) = folder();
    let mut service = start(&rules, &snapshot, "86400");
    assert_eq!(admitted(service.http, 6), 6 * ALGORITHMS.len());
    service.signal("TERM");
    assert!(service.wait().success());
    let service = start(&rules, &snapshot, "86400");
    assert_eq!(admitted(service.http, 10), 4 * ALGORITHMS.len());
}

#[test]
fn a_kill_loses_at_most_what_was_counted_since_the_last_snapshot() {
    let (folder, rules, snapshot) = folder();
    let mut service = start(&rules, &snapshot, "1");
    let before = admitted(service.http, 6);
    // A snapshot that began after these requests: the second from here.
    let writes = || service.metric("tollgate_snapshot_writes_total");
    for _ in 0..2 {
        // On a busy machine each may wait ten seconds for an idle core.
        let now = writes();
        until("one more snapshot is written", || writes() > now);
    }
    let since = admitted(service.http, 2);
    service.signal("KILL");
    service.wait();
    let incomplete = folder.path().join("buckets.snapshot.tmp");
    std::fs::write(&incomplete, b"as a kill in the middle of a write leaves it").unwrap();
    let service = start(&rules, &snapshot, "86400");
    assert!(!incomplete.exists());
    let after = admitted(service.http, 10);
    let limit = 10 * ALGORITHMS.len();
    assert!(before + after <= limit, "{before} were in the snapshot");
    assert!(before + since + after <= limit + since);
}

#[test]
fn a_full_disk_keeps_the_snapshot_before_it() {
    const SETUP: &str =
        "ip link set lo up; mount -t tmpfs -o size=16k tollgate /mnt; exec \"$0\" \"$@\"";
    if std::env::var_os("SMALL_DISK").is_none() {
        let name = "process::snapshot::a_full_disk_keeps_the_snapshot_before_it";
        let status = run_test_again(name, SETUP, |command| command.env("SMALL_DISK", "1"));
        assert!(status.success());
        return;
    }
    let (_folder, rules, _) = folder();
    let snapshot = Path::new("/mnt/buckets.snapshot");
    let mut service = start(&rules, snapshot, "86400");
    assert_eq!(admitted(service.http, 6), 6 * ALGORITHMS.len());
    service.signal("TERM");
    assert!(service.wait().success());
    let good = std::fs::read(snapshot).unwrap();

    // All but a few bytes of the disk; the error is that of the writer.
    let _ = std::fs::write("/mnt/rest", [1; 16 << 10]);
    let mut service = start(&rules, snapshot, "1");
    let full = "tollgate_snapshot_write_failures_total{cause=\"disk_full\"}";
    until("the disk is full", || service.metric(full) > 0);
    service.signal("TERM");
    assert!(service.wait().success());
    assert_eq!(std::fs::read(snapshot).unwrap(), good);
    assert!(!Path::new("/mnt/buckets.snapshot.tmp").exists());
    let service = start(&rules, snapshot, "86400");
    assert_eq!(admitted(service.http, 10), 4 * ALGORITHMS.len());
}

/// Runs a start that fails, and gives what it says.
fn refusal(rules: &Path, snapshot: &Path) -> String {
    let [rules, snapshot] = [rules, snapshot].map(|path| path.to_str().unwrap());
    let (code, _, said) = tollgate(&["serve", rules, "--snapshot", snapshot]);
    assert_eq!(code, 1, "{said}");
    said
}

#[test]
fn only_a_regular_file_is_replaced_or_renamed() {
    let (folder, rules, snapshot) = folder();
    let beside = |end: &str| folder.path().join(format!("buckets.snapshot{end}"));
    let make_fifo = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    let is_refused = |path: &Path, why: &str| {
        let before = std::fs::symlink_metadata(path).unwrap();
        let said = refusal(&rules, &snapshot);
        assert!(said.contains(why), "{said}");
        let after = std::fs::symlink_metadata(path).unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
        assert!(!beside(".refused").exists());
    };
    // A device by a link: without the check the link would be renamed, and not the device.
    symlink("/dev/null", &snapshot).unwrap();
    is_refused(&snapshot, "/dev/null: a device, not a regular file");
    std::fs::remove_file(&snapshot).unwrap();
    symlink(&snapshot, &snapshot).unwrap();
    is_refused(&snapshot, "Too many levels of symbolic links");
    std::fs::remove_file(&snapshot).unwrap();
    std::fs::create_dir(&snapshot).unwrap();
    is_refused(&snapshot, "is a directory");
    std::fs::remove_dir(&snapshot).unwrap();
    let socket = UnixListener::bind(&snapshot).unwrap();
    is_refused(&snapshot, "a socket, not a regular file");
    drop(socket);
    std::fs::remove_file(&snapshot).unwrap();
    for end in ["", ".tmp", ".lock"] {
        make_fifo(&beside(end));
        is_refused(&beside(end), "a FIFO, not a regular file");
        std::fs::remove_file(beside(end)).unwrap();
    }

    // What a link names is written or replaced, and the link stays.
    let target = folder.path().join("volume");
    symlink(&target, &snapshot).unwrap();
    for before in [None, Some("")] {
        if let Some(before) = before {
            std::fs::write(&target, before).unwrap();
        }
        let mut service = start(&rules, &snapshot, "86400");
        service.signal("TERM");
        assert!(service.wait().success());
        assert!(snapshot.is_symlink());
        let written = std::fs::read(&target).unwrap();
        assert!(written.starts_with(b"tollgate-buckets"), "{before:?}");
    }
}

#[test]
fn two_processes_do_not_use_one_file() {
    let (_folder, rules, snapshot) = folder();
    let mut first = start(&rules, &snapshot, "86400");
    let said = refusal(&rules, &snapshot);
    assert!(
        said.contains("another process uses this snapshot"),
        "{said}"
    );
    first.signal("KILL");
    first.wait();
    start(&rules, &snapshot, "86400");
}

/// The signal of the limit would end the process.
#[test]
fn a_limit_of_the_size_of_files_is_a_failed_snapshot() {
    let (_folder, rules, snapshot) = folder();
    let mut service = start(&rules, &snapshot, "1");
    let limit = format!("--fsize=16 --pid={}", service.id());
    let limited = Command::new("prlimit").args(limit.split(' ')).status();
    assert!(limited.unwrap().success());
    let failures = "tollgate_snapshot_write_failures_total{cause=\"disk_full\"}";
    until("a snapshot has failed", || service.metric(failures) > 0);
    service.signal("TERM");
    assert!(service.wait().success());
}
