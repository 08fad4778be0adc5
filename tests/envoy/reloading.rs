//! Rules change under load: every request is decided by one complete version of them.
//!
//! Why: operators reload rules every day, in whatever way their tools do it: a rename, a write in
//! place, the symlink that Kubernetes swaps. How: clients that send constantly check two
//! descriptors at once, and the limits of both, which Envoy writes into one header, must be of the
//! same version. Meanwhile the rules change from valid to invalid and back, and each step is
//! awaited in tollgate's metrics.
//!
//! What it deliberately does not do: require a speed. The time of each change is printed.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_test_support::background_clients::{
    Answers, statuses, wait_for_decisions, with_background_load,
};
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::Tollgate;

const GENERATION: &str = "tollgate_rules_generation";
const TAKEN: &str = "ratelimit_service_config_load_success";
const REFUSED: &str = "ratelimit_service_config_load_error";

/// Decisions between two changes.
const DECISIONS: u64 = 150;

/// Longest shutdown with default settings.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Versions of the rules, in order. The first is in use at start.
const STEPS: [Version; 9] = [
    Version::One,
    Version::Two,
    Version::Bad("descriptors: ["),
    Version::One,
    Version::Bad("{domain: edge, descriptors: [{key: day, rate_limit: {unit: dya}}]}"),
    Version::Two,
    Version::Bad(""),
    Version::Bad("{domain: edge"),
    Version::One,
];

/// Rules for two descriptors, both of which name their version.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// 101 a day and 201 a year.
    One,
    /// 102 a day and 202 a year.
    Two,
    /// No rules at all.
    Bad(&'static str),
}

/// A tollgate, an Envoy in front of it, and the path of the rules.
struct Reloaded {
    tollgate: Tollgate,
    envoy: Envoy,
    rules: PathBuf,
    directory: TempDir,
}

#[test]
fn a_renamed_rules_file_is_applied_or_rejected_as_a_whole_under_load() {
    let reloaded = Reloaded::start();
    reloaded.goes_through_the_steps(|version| reloaded.rename_over(version.text()));
}

#[test]
fn rules_written_in_place_are_applied_or_rejected_as_a_whole_under_load() {
    let reloaded = Reloaded::start();
    reloaded.goes_through_the_steps(|version| {
        fs::write(&reloaded.rules, version.text()).expect("the rules");
    });
}

#[test]
fn a_kubernetes_volume_swap_is_applied_or_rejected_as_a_whole_under_load() {
    let reloaded = Reloaded::start_on_a_config_map();
    reloaded.goes_through_the_steps(|version| swap(&reloaded.rules, version));
}

#[test]
fn a_swap_during_constant_reloads_never_mixes_versions() {
    let reloaded = Reloaded::start_on_a_config_map();
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        for version in [Version::Two, Version::One].repeat(60) {
            reloaded.tollgate.signal("HUP");
            swap(&reloaded.rules, version);
            reloaded.tollgate.signal("HUP");
            wait_for_decisions(&reloaded.envoy, 10);
        }
    });
    reloaded.assert_whole(&answers);
    assert_eq!(reloaded.tollgate.metric(REFUSED), 0);
}

#[test]
fn sighup_reloads_at_once_with_or_without_a_change() {
    let reloaded = Reloaded::start();
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        reloaded.counts(TAKEN, 1, || reloaded.tollgate.signal("HUP"));
        reloaded.shows(Version::One);
        // An invalid file is rejected by the next poll, by the signal, or by both.
        let refused = reloaded.tollgate.metric(REFUSED);
        reloaded.rename_over("{domain: edge");
        for _ in 0..5 {
            let before = reloaded.tollgate.metric(REFUSED);
            reloaded.tollgate.signal("HUP");
            reloaded.wait_for(REFUSED, before + 1);
            reloaded.shows(Version::One);
        }
        assert!(reloaded.tollgate.metric(REFUSED) >= refused + 5);
        reloaded.rename_over(Version::Two.text());
        let taken = reloaded.tollgate.metric(TAKEN);
        reloaded.tollgate.signal("HUP");
        reloaded.wait_for(TAKEN, taken + 1);
        reloaded.shows(Version::Two);
    });
    reloaded.assert_whole(&answers);
}

#[test]
fn consumed_hits_stay_consumed_when_the_limit_changes() {
    let rules = |requests: u64| {
        format!(
            "{{domain: edge, descriptors: [{{key: day, rate_limit: {{unit: day, requests_per_unit: {requests}}}}}]}}"
        )
    };
    let reloaded = Reloaded::start_with(&rules(10));
    let mut caller = HttpConnection::open(reloaded.envoy.edge);
    let mut ask = || {
        let answer = caller.get("/day", b"a");
        (answer.status, answer.remaining())
    };
    for remaining in [9, 8, 7] {
        assert_eq!(ask(), (200, Some(remaining)));
    }
    reloaded.counts(TAKEN, 1, || reloaded.rename_over(rules(12)));
    assert_eq!(ask(), (200, Some(8)));
    reloaded.counts(REFUSED, 1, || reloaded.rename_over("{"));
    assert_eq!(ask(), (200, Some(7)));
    reloaded.counts(TAKEN, 1, || reloaded.rename_over(rules(4)));
    assert_eq!(ask(), (429, Some(0)));
    reloaded.counts(TAKEN, 1, || reloaded.rename_over(rules(10)));
    assert_eq!(ask().0, 200);
    assert_eq!(reloaded.envoy.counts().error, 0);
}

#[test]
fn missing_or_unreadable_rules_leave_the_old_ones_in_use() {
    let reloaded = Reloaded::start();
    let rules = &reloaded.rules;
    let remove = || fs::remove_file(rules).expect("the rules");
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        let mut next = [Version::Two, Version::One].into_iter().cycle();
        let mut survives = |what: &str, happens: &dyn Fn(), undo: &dyn Fn()| {
            let before = reloaded.version();
            reloaded.counts(REFUSED, 1, happens);
            assert_eq!(reloaded.version(), before, "{what}");
            undo();
            let version = next.next().expect("a cycle");
            // In one step: on a busy disk, a file written in place may be empty for longer than two
            // polls.
            reloaded.counts(TAKEN, 1, || reloaded.rename_over(version.text()));
            reloaded.shows(version);
        };
        survives("deleted", &remove, &|| ());
        survives(
            "a link that leads to itself",
            &|| {
                remove();
                symlink(rules, rules).expect("a link");
            },
            &remove,
        );
        survives(
            "a directory with nothing in it",
            &|| {
                remove();
                fs::create_dir(rules).expect("a directory");
            },
            &|| fs::remove_dir(rules).expect("the directory"),
        );
        survives(
            "bytes that are no text",
            &|| reloaded.rename_over(b"domain: \xff\xfe"),
            &|| (),
        );
        survives(
            "larger than a file may be",
            &|| reloaded.rename_over("#".repeat((16 << 20) + 1)),
            &|| (),
        );
    });
    reloaded.assert_whole(&answers);
}

#[test]
fn an_emptied_directory_leaves_the_rules_in_use() {
    let reloaded = Reloaded::start_on_a_config_map();
    let day = reloaded.rules.join("day.yaml");
    let year = reloaded.rules.join("year.yaml");
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        reloaded.counts(REFUSED, 1, || {
            // Both in one visible step: a directory without links is renamed into place.
            let aside = reloaded.directory.path().join("aside");
            fs::rename(&reloaded.rules, aside).expect("the rules");
            fs::create_dir(&reloaded.rules).expect("a directory");
        });
        reloaded.shows(Version::One);
        reloaded.counts(TAKEN, 1, || {
            let ready = reloaded.directory.path().join("ready");
            fs::create_dir(&ready).expect("a directory");
            fs::write(ready.join("day.yaml"), Version::Two.day()).expect("rules");
            fs::write(ready.join("year.yaml"), Version::Two.year()).expect("rules");
            fs::rename(&ready, &reloaded.rules).expect("the rules");
        });
        reloaded.shows(Version::Two);
        assert!(day.is_file() && year.is_file());
    });
    reloaded.assert_whole(&answers);
}

#[test]
fn loading_five_mebibytes_of_rules_under_load_costs_no_request() {
    let reloaded = Reloaded::start();
    let mut large = Version::Two.text();
    for number in 0.. {
        if large.len() > 5 << 20 {
            break;
        }
        let requests = number % 1_000;
        let limit = format!("{{ unit: hour, requests_per_unit: {requests} }}");
        let rule = format!("{{ key: another, value: value-{number}, rate_limit: {limit} }}");
        large.extend(["  - ", rule.as_str(), "\n"]);
    }
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        for _ in 0..2 {
            reloaded.counts(TAKEN, 1, || reloaded.rename_over(&large));
            reloaded.shows(Version::Two);
            reloaded.counts(TAKEN, 1, || reloaded.rename_over(Version::One.text()));
            reloaded.shows(Version::One);
        }
    });
    reloaded.assert_whole(&answers);
}

#[test]
fn rules_that_block_on_read_delay_neither_requests_nor_shutdown() {
    let mut reloaded = Reloaded::start();
    let pipe = reloaded.directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    fs::rename(&pipe, &reloaded.rules).expect("the rename");
    // Opening the pipe for writing blocks until it is read; while it is open, the reader waits for
    // more.
    let (opened, open) = mpsc::channel();
    let rules = reloaded.rules.clone();
    thread::spawn(move || opened.send(File::options().write(true).open(rules)));
    let open = open.recv_timeout(PATIENCE).expect("someone reads");

    let mut caller = HttpConnection::open(reloaded.envoy.edge);
    for _ in 0..10 {
        assert_eq!(caller.get("/two", b"a").status, 200);
    }
    assert_eq!(reloaded.version(), Version::One.header());
    reloaded.tollgate.signal("TERM");
    let status = reloaded.tollgate.wait(STOP_WITHIN);
    assert!(status.expect("it stops in time").success());
    assert_eq!(reloaded.envoy.counts().error, 0);
    drop(open);
}

/// Updates a volume like kubelet: a new directory, a new link beside the old one, and one rename.
fn swap(volume: &Path, version: Version) {
    let data = volume.join("..data");
    let before = fs::read_link(&data).ok();
    let number = before.as_ref().map_or(0, |name| {
        let name = name.to_str().expect("a name of text");
        let number = name.trim_start_matches("..2026_");
        number.parse::<u64>().expect("a number") + 1
    });
    let name = format!("..2026_{number}");
    let directory = volume.join(&name);
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("day.yaml"), version.day()).expect("rules");
    fs::write(directory.join("year.yaml"), version.year()).expect("rules");
    symlink(&name, volume.join("..data_tmp")).expect("a link");
    fs::rename(volume.join("..data_tmp"), &data).expect("the swap");
    if let Some(before) = before {
        fs::remove_dir_all(volume.join(before)).expect("the directory before");
    }
}

// === impl Version ===

impl Version {
    /// Both rules in one file.
    fn text(self) -> String {
        let (Some(day), Some(year)) = self.limits() else {
            return self.day();
        };
        format!(
            "domain: edge\ndescriptors:\n  - {{ key: day, rate_limit: {{ unit: day, requests_per_unit: {day} }} }}\n  \
             - {{ key: year, rate_limit: {{ unit: year, requests_per_unit: {year} }} }}\n"
        )
    }

    /// The file with the day's rule.
    fn day(self) -> String {
        match self {
            Self::Bad(text) => text.to_owned(),
            Self::One | Self::Two => file("day", self.limits().0.unwrap_or_default()),
        }
    }

    /// The other file. It is valid even in the invalid version.
    fn year(self) -> String {
        file("year", self.limits().1.unwrap_or(299))
    }

    fn limits(self) -> (Option<u64>, Option<u64>) {
        match self {
            Self::One => (Some(101), Some(201)),
            Self::Two => (Some(102), Some(202)),
            Self::Bad(_) => (None, None),
        }
    }

    /// Both limits in Envoy's header.
    fn header(self) -> &'static str {
        match self {
            Self::One => "101;w=86400, 201;w=31536000",
            Self::Two => "102;w=86400, 202;w=31536000",
            Self::Bad(_) => "bad rules limit nothing",
        }
    }
}

fn file(unit: &str, requests: u64) -> String {
    format!(
        "{{domain: edge, descriptors: [{{key: {unit}, rate_limit: {{unit: {unit}, requests_per_unit: {requests}}}}}]}}"
    )
}

// === impl Reloaded ===

impl Reloaded {
    fn start() -> Self {
        Self::start_with(&Version::One.text())
    }

    fn start_with(rules: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules).expect("the rules");
        Self::asking(directory, path, &[])
    }

    /// Writes the two rules into two files, both links through `..data`.
    fn start_on_a_config_map() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let volume = directory.path().join("volume");
        fs::create_dir(&volume).expect("a directory");
        swap(&volume, Version::One);
        for name in ["day.yaml", "year.yaml"] {
            symlink(Path::new("..data").join(name), volume.join(name)).expect("a link");
        }
        Self::asking(directory, volume, &["--merge-domain-config", "true"])
    }

    fn asking(directory: TempDir, rules: PathBuf, arguments: &[&str]) -> Self {
        let tollgate = Tollgate::start_at(&rules, arguments);
        let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
        Self {
            tollgate,
            envoy,
            rules,
            directory,
        }
    }

    /// Installs every version with `put` under load; each must be applied or rejected, once.
    fn goes_through_the_steps(&self, put: impl Fn(Version)) {
        let mut in_use = STEPS[0];
        let answers = with_background_load(&self.envoy, "/two", || {
            for version in STEPS.into_iter().skip(1) {
                if matches!(version, Version::Bad(_)) {
                    self.counts(REFUSED, 1, || put(version));
                } else {
                    self.counts(TAKEN, 1, || put(version));
                    in_use = version;
                }
                self.shows(in_use);
            }
        });
        self.assert_whole(&answers);
        // Once each, and not again by a later poll, of which there are five a second.
        let bad = |version: &Version| matches!(version, Version::Bad(_));
        let refused = STEPS.iter().filter(|version| bad(version)).count();
        let counted = [REFUSED, TAKEN].map(|metric| self.tollgate.metric(metric));
        assert_eq!(counted, [refused, STEPS.len() - refused].map(|n| n as u64));
    }

    fn rename_over(&self, text: impl AsRef<[u8]>) {
        let written = self.directory.path().join("written");
        fs::write(&written, text).expect("the rules");
        fs::rename(written, &self.rules).expect("the rename");
    }

    /// Asserts that reloads are applied or rejected as often as `metric` counts, and that nothing
    /// else is.
    #[allow(clippy::disallowed_methods)] // printed, not required
    fn counts(&self, metric: &str, times: u64, happens: impl FnOnce()) {
        let counts = || [TAKEN, REFUSED].map(|metric| self.tollgate.metric(metric));
        let mut expected = counts();
        expected[usize::from(metric == REFUSED)] += times;
        let generation = self.tollgate.metric(GENERATION);
        let began = Instant::now();
        happens();
        let counted = wait_for(PATIENCE, || (counts() == expected).then_some(()));
        println!("{metric} after {:?}", began.elapsed());
        assert!(counted.is_some(), "{expected:?}, not {:?}", counts());
        let newer = if metric == TAKEN { times } else { 0 };
        assert_eq!(self.tollgate.metric(GENERATION), generation + newer);
    }

    fn wait_for(&self, metric: &str, value_min: u64) {
        let value = || self.tollgate.metric(metric);
        let grown = wait_for(PATIENCE, || (value() >= value_min).then_some(()));
        assert!(grown.is_some(), "{metric}: {} of {value_min}", value());
    }

    /// Limits of a new request, from Envoy's header.
    fn version(&self) -> String {
        let answer = HttpConnection::open(self.envoy.edge).get("/two", b"looks");
        let limits = answer.header("x-ratelimit-limit").expect("limits");
        let (_, both) = limits.split_once(", ").expect("both limits");
        both.to_owned()
    }

    /// Asserts that new requests are decided by this version.
    fn shows(&self, version: Version) {
        assert_eq!(self.version(), version.header(), "{version:?}");
        wait_for_decisions(&self.envoy, DECISIONS);
        assert_eq!(self.version(), version.header(), "{version:?}");
    }

    /// Asserts that every answer was a decision by one of the two versions, and that all kinds of
    /// answers occurred.
    fn assert_whole(&self, answers: &Answers) {
        assert_eq!(self.envoy.counts().error, 0, "{}", self.tollgate.said());
        assert_eq!(statuses(answers), [200, 429], "{answers:?}");
        for version in [Version::One, Version::Two] {
            let of_version = |limits: &str| limits.ends_with(&format!(", {}", version.header()));
            assert!(
                answers
                    .keys()
                    .any(|(_, limits)| limits.as_deref().is_some_and(of_version)),
                "{answers:?}"
            );
        }
        for (_, limits) in answers.keys() {
            let limits = limits.as_deref().expect("limits");
            let (_, both) = limits.split_once(", ").expect("both limits");
            let whole = [Version::One, Version::Two].map(Version::header);
            assert!(whole.contains(&both), "mixed: {limits}");
        }
    }
}
