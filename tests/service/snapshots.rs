//! Buckets in memory survive a restart by `--snapshot`, whatever the clock does meanwhile.
//!
//! What it deliberately does not do: test files that cannot be read (`snapshots_refused`), a crash
//! or a full disk (`tests/process/snapshot.rs`).

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate_limiter::{ALGORITHMS, Timestamp};
use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor};
use tollgate_test_support::in_process::{START, Service, limit_of};

const HOUR_US: u64 = 3_600_000_000;

/// A folder for a snapshot.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The snapshot.
    pub(super) fn snapshot(&self) -> PathBuf {
        self.0.path().join("buckets.snapshot")
    }

    /// Files in it, by name, without that of the lock.
    pub(super) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names =
            names.filter(|name: &String| Path::new(name).extension() != Some("lock".as_ref()));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// A service with this snapshot, which it does not write at intervals.
    pub(super) async fn start(&self, rules: &str, further: &[&str], now: Timestamp) -> Service {
        let snapshot = self.snapshot();
        let path = snapshot.to_str().unwrap();
        let flags = ["--snapshot", path, "--snapshot-interval-seconds", "86400"];
        Service::start_at(rules, &[&flags, further].concat(), now).await
    }
}

/// A limit of ten in every algorithm, each for a key of its own.
pub(super) fn ten_of_each() -> String {
    let limits = ALGORITHMS.iter().map(|algorithm| {
        let limit = limit_of(10, *algorithm);
        format!("{{key: {}, rate_limit: {limit}}}", algorithm.name())
    });
    let limits: Vec<_> = limits.collect();
    format!("{{domain: d, descriptors: [{}]}}", limits.join(", "))
}

/// How many of `count` requests pass, in each algorithm.
pub(super) async fn admitted(service: &mut Service, count: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for algorithm in ALGORITHMS {
        let mut passed = 0;
        for _ in 0..count {
            let asked = descriptor(&[(algorithm.name(), "v")]);
            let status = service.status("d", asked).await;
            passed += u32::from(status.code() == Code::Ok);
        }
        all.push(passed);
    }
    all
}

#[tokio::test]
async fn exactly_the_limit_passes_across_a_restart_in_every_algorithm() {
    let (folder, rules) = (Folder::new(), ten_of_each());
    let mut service = folder.start(&rules, &["--partitions", "3"], START).await;
    assert_eq!(admitted(&mut service, 6).await, [6; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    assert_eq!(folder.files(), ["buckets.snapshot"]);
    let mode = folder.snapshot().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "only its owner may read the hash key");

    // Another number of partitions, and a second later.
    let later = START.plus_us(1_000_000);
    let mut service = folder.start(&rules, &["--partitions", "7"], later).await;
    assert_eq!(
        service.metric("tollgate_snapshot_loaded_buckets_total{result=\"loaded\"}"),
        ALGORITHMS.len() as u64
    );
    assert_eq!(admitted(&mut service, 10).await, [4; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    // Exhausted buckets stay so.
    let mut service = folder.start(&rules, &["--partitions", "1"], later).await;
    assert_eq!(admitted(&mut service, 2).await, [0; ALGORITHMS.len()]);
}

#[tokio::test]
async fn a_clock_that_was_set_back_admits_nothing_more() {
    for back_us in [1, HOUR_US, 30 * HOUR_US, START.as_us()] {
        let (folder, rules) = (Folder::new(), ten_of_each());
        let mut service = folder.start(&rules, &[], START).await;
        assert_eq!(admitted(&mut service, 6).await, [6; ALGORITHMS.len()]);
        service.stop().await.unwrap();
        let mut service = folder.start(&rules, &[], START.minus_us(back_us)).await;
        let after = admitted(&mut service, 10).await;
        assert_eq!(after, [4; ALGORITHMS.len()], "{back_us} µs back");
    }
}

#[tokio::test]
async fn buckets_that_have_reset_meanwhile_are_dropped() {
    let (folder, rules) = (Folder::new(), ten_of_each());
    let mut service = folder.start(&rules, &[], START).await;
    assert_eq!(admitted(&mut service, 10).await, [10; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    let later = START.plus_us(24 * HOUR_US);
    let mut service = folder.start(&rules, &[], later).await;
    let of = |result| format!("tollgate_snapshot_loaded_buckets_total{{result=\"{result}\"}}");
    assert_eq!(service.metric(&of("loaded")), 0);
    assert_eq!(service.metric(&of("expired")), ALGORITHMS.len() as u64);
    assert_eq!(admitted(&mut service, 11).await, [10; ALGORITHMS.len()]);
}

#[tokio::test]
async fn open_reservations_are_settled_after_a_restart() {
    let rules = "domain: d
descriptors:
  - {key: charged, rate_limit: {unit: hour, requests_per_unit: 100, reserve: {key: id, amount: 40, expires: 30s}}}
  - {key: released, rate_limit: {unit: hour, requests_per_unit: 100, reserve: {key: id, amount: 40, expires: 30s, on_expiry: release}}}
";
    let step = |key: &str, id: &str, hits| Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(key, "v"), ("id", id)])
    };
    let look = |key: &str| Descriptor {
        hits_addend: Some(0),
        ..descriptor(&[(key, "v")])
    };
    let folder = Folder::new();
    let mut service = folder.start(rules, &[], START).await;
    for key in ["charged", "released"] {
        for id in ["one", "two"] {
            let status = service.status("d", step(key, id, 0)).await;
            assert_eq!(status.code(), Code::Ok);
        }
    }
    service.stop().await.unwrap();

    let later = START.plus_us(1_000_000);
    let mut service = folder.start(rules, &[], later).await;
    for key in ["charged", "released"] {
        let refused = service.status("d", step(key, "three", 0)).await;
        assert_eq!(refused.code(), Code::OverLimit, "80 of 100 are reserved");
        service.status("d", step(key, "one", 5)).await;
        let left = service.status("d", look(key)).await;
        assert_eq!(left.limit_remaining, 55, "5 settled, 40 reserved, {key}");
    }
    // The other reservation expires, as it would have in one process.
    service.clock.advance_us(40_000_000);
    for (key, left) in [("charged", 55), ("released", 95)] {
        let status = service.status("d", look(key)).await;
        assert_eq!(status.limit_remaining, left, "{key}");
    }
}

#[tokio::test]
async fn a_configured_hash_key_must_be_that_of_the_snapshot() {
    let (folder, rules) = (Folder::new(), ten_of_each());
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, format!("a secret of the key {name}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, two) = (key("one"), key("two"));
    let flag = "--store-hash-key-file";
    let mut service = folder.start(&rules, &[flag, &one], START).await;
    assert_eq!(admitted(&mut service, 6).await, [6; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    let mut service = folder.start(&rules, &[flag, &one], START).await;
    assert_eq!(admitted(&mut service, 1).await, [1; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    let mut service = folder.start(&rules, &[flag, &two], START).await;
    let cause = "tollgate_snapshot_load_failures_total{cause=\"hash_key\"}";
    assert_eq!(service.metric(cause), 1);
    assert_eq!(admitted(&mut service, 11).await, [10; ALGORITHMS.len()]);
    assert_eq!(folder.files(), ["buckets.snapshot.refused"]);
}

#[tokio::test]
async fn the_rules_may_have_changed_meanwhile() {
    let folder = Folder::new();
    let rules = |limits: &[(&str, u32)]| {
        let limits: Vec<_> = limits
            .iter()
            .map(|(key, limit)| {
                format!("{{key: {key}, rate_limit: {{unit: hour, requests_per_unit: {limit}}}}}")
            })
            .collect();
        format!("{{domain: d, descriptors: [{}]}}", limits.join(", "))
    };
    let mut service = folder
        .start(&rules(&[("kept", 5), ("gone", 5)]), &[], START)
        .await;
    for key in ["kept", "gone"] {
        for _ in 0..3 {
            service.status("d", descriptor(&[(key, "v")])).await;
        }
    }
    service.stop().await.unwrap();
    let mut service = folder
        .start(&rules(&[("kept", 7), ("new", 5)]), &[], START)
        .await;
    for (key, left) in [("kept", 3), ("new", 4)] {
        let status = service.status("d", descriptor(&[(key, "v")])).await;
        assert_eq!(status.limit_remaining, left, "{key}");
    }
}
