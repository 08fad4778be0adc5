//! A 64 MiB container under endless new keys: the process is never killed and never forgets an
//! exhausted key.
//!
//! How: the test creates a memory control group (version 2 or 1) with that limit and removes it
//! afterwards. The process starts in it and finds the limit itself. Without root no group can be
//! created; then the process gets the same limit by a flag. In both cases its peak resident memory
//! must stay below the limit.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

const LIMIT: u64 = 64 << 20;

/// Half of the limit: the default share of buckets.
const SHARE: u64 = LIMIT / 2;

/// Keys that are over their limits during the whole test.
const KEPT: u64 = 1_000;

// window: keys of a flood are asked for once, and nothing is asserted of them.
const RULES: &str = "
domain: memory
descriptors:
  - key: kept
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: one_hit
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: exhausted
    rate_limit: { unit: second, requests_per_unit: 1 }
  - key: bucket
    rate_limit: { unit: hour, requests_per_unit: 10, algorithm: token_bucket }
  - key: log
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_log }
  - key: slots
    rate_limit: { requests_per_unit: 10, algorithm: concurrency, slot_seconds: 600 }
";

/// Requests of one flood before the next one's turn.
const TURN: u64 = 50;

const FLOODS: [&str; 5] = ["one_hit", "exhausted", "bucket", "log", "slots"];

/// A control group limited to [`LIMIT`] bytes, removed when dropped.
struct Group {
    directory: PathBuf,
}

impl Group {
    /// Creates a group in whichever version has the memory controller; none without permission.
    fn new() -> Option<Self> {
        let name = format!("tollgate-test-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        for (parent, limit) in [
            (root.to_owned(), "memory.max"),
            (root.join("memory"), "memory.limit_in_bytes"),
        ] {
            if !parent.join("cgroup.procs").exists() {
                continue;
            }
            let directory = parent.join(&name);
            if fs::create_dir(&directory).is_err() {
                continue;
            }
            let group = Self { directory };
            if fs::write(group.directory.join(limit), LIMIT.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Number of processes killed in the group, if the system counts them.
    fn kills(&self) -> u64 {
        let counts = ["memory.events", "memory.oom_control"].into_iter();
        let texts = counts.filter_map(|file| fs::read_to_string(self.directory.join(file)).ok());
        let kills = |text: String| {
            let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            line.map(|count| count.trim().parse::<u64>().unwrap())
        };
        texts.filter_map(kills).sum()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended leaves its group with a delay.
        if !std::thread::panicking() {
            until("the group is removed", || fs::remove_dir(&self.directory));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_new_keys_in_a_64_mib_container_stay_within_memory_and_keep_exhausted_keys() {
    let flood = std::env::var("MEMORY_FLOOD").map_or(500_000, |text| text.parse().unwrap());
    let group = Group::new();
    let info = ["--log-level", "info"];
    let mut running = if let Some(group) = &group {
        Tollgate::start_within(&group.directory.join("cgroup.procs"), RULES, &info)
    } else {
        println!(
            "cannot make a control group here: --memory-max sets the bound and the process is measured"
        );
        let arguments = [info.as_slice(), &["--memory-max", "32MiB"]].concat();
        Tollgate::start(RULES, &arguments)
    };
    assert_eq!(running.metric("tollgate_memory_max_bytes"), SHARE);
    assert!(
        running
            .said()
            .contains(&format!("memory limit of buckets bytes={SHARE} "))
    );

    let mut client = Service::connect(running.grpc).await;
    ask_for_each(&running, "kept", 0..KEPT).await;
    let mut tasks = JoinSet::new();
    for number in 0..UNDER_WAY as u64 {
        let mut client = Service::connect(running.grpc).await;
        tasks.spawn(async move {
            for asked in 0..flood / AT_ONCE / UNDER_WAY as u64 {
                // Floods take turns, with keys that were not used before.
                let rule = FLOODS[(asked / TURN) as usize % FLOODS.len()];
                let from = (number << 40) + asked * AT_ONCE;
                let flood = request("memory", descriptors(rule, from..from + AT_ONCE));
                client.should_rate_limit(flood).await.expect("an answer");
            }
        });
    }
    let (mut looks, mut most) = (0, 0);
    while tasks.try_join_next().is_some() || !tasks.is_empty() {
        for from in (0..KEPT).step_by(AT_ONCE as usize) {
            let asked: RateLimitRequest = request(
                "memory",
                descriptors("kept", from..(from + AT_ONCE).min(KEPT)),
            );
            let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
            let codes = answer.statuses.iter().map(DescriptorStatus::code);
            assert!(
                codes.into_iter().all(|code| code == Code::OverLimit),
                "a kept key began anew"
            );
            looks += answer.statuses.len();
        }
        assert!(running.metric_sum("tollgate_memory_bytes{") <= SHARE);
        // Pages of the binary are not counted: the kernel reclaims those under pressure.
        most = running.status_bytes("RssAnon").max(most);
        // sleep: the interval between two readings.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    assert!(running.running(), "it was killed: {}", running.said());
    let forgotten = running.metric("tollgate_buckets_forgotten_total");
    let mapped = running.status_bytes("VmHWM");
    let kills = group.as_ref().map(Group::kills);
    println!(
        "{flood} new keys, {looks} looks at kept ones, at most {most} bytes of its own resident of {LIMIT} ({mapped} with the binary's), {forgotten} forgotten, kills: {kills:?}"
    );
    assert!(most < LIMIT, "{most} bytes were resident");
    assert_eq!(kills.unwrap_or_default(), 0);
    assert!(looks > 0 && forgotten > 0, "{looks} {forgotten}");
}
