//! Rules change under load: every request is decided by one complete version of them.
//!
//! How: clients that send constantly check two descriptors at once, and the limits of both, which
//! Envoy writes into one header, must be of the same version. Meanwhile the rules change from valid
//! to invalid and back, as Kubernetes changes a volume, and each step is awaited in tollgate's
//! metrics.
//!
//! What it deliberately does not do: change files in other ways (`tests/rules/watching.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tollgate_test_support::background_clients::{
    Answers, CLIENTS, statuses, wait_for_decisions, with_background_load,
};
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

const GENERATION: &str = "tollgate_rules_generation";
const TAKEN: &str = "ratelimit_service_config_load_success";
const REFUSED: &str = "ratelimit_service_config_load_error";

/// Decisions between two changes: more than the limits of all clients, so that some are refused.
const DECISIONS: u64 = CLIENTS as u64 * 12 + 1;

/// Versions of the rules, in order. The first is in use at start.
const STEPS: [Version; 9] = [
    Version::One,
    Version::Two,
    Version::Bad("descriptors: ["),
    Version::One,
    Version::Bad("{domain: edge, descriptors: [{key: day, rate_limit: {unit: dya}}]}"),
    Version::Large,
    Version::Bad(""),
    Version::Bad("{domain: edge"),
    Version::One,
];

/// Rules that only the large version has.
const LARGE_RULES: usize = 4_000;

/// Rules for two descriptors, both of which name their version.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// 11 and 21 a year.
    One,
    /// 12 and 22 a year.
    Two,
    /// The same, and many rules more.
    Large,
    /// No rules at all.
    Bad(&'static str),
}

/// A tollgate, an Envoy in front of it, and the directory of the rules.
struct Reloaded {
    tollgate: Tollgate,
    envoy: Envoy,
    volume: PathBuf,
    _directory: TempDir,
}

#[test]
fn a_kubernetes_volume_swap_is_applied_or_rejected_as_a_whole_under_load() {
    let reloaded = Reloaded::start();
    let mut in_use = STEPS[0];
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        for version in STEPS.into_iter().skip(1) {
            let counter = if matches!(version, Version::Bad(_)) {
                REFUSED
            } else {
                in_use = version;
                TAKEN
            };
            reloaded.counts(counter, || swap(&reloaded.volume, version));
            reloaded.shows(in_use);
        }
        // A signal reads them also without a change.
        reloaded.counts(TAKEN, || reloaded.tollgate.signal("HUP"));
        reloaded.shows(in_use);
    });
    reloaded.assert_whole(&answers);
    // Once each, and not again by a later poll, of which there are five a second.
    let counted = [REFUSED, TAKEN].map(|metric| reloaded.tollgate.metric(metric));
    assert_eq!(counted, [4, 6]);
}

#[test]
fn a_swap_during_constant_reloads_never_mixes_versions() {
    let reloaded = Reloaded::start();
    let answers = with_background_load(&reloaded.envoy, "/two", || {
        let next = |version: Version| {
            reloaded.tollgate.signal("HUP");
            swap(&reloaded.volume, version);
            reloaded.tollgate.signal("HUP");
            reloaded.becomes(version);
        };
        for _ in 0..20 {
            next(Version::Two);
            next(Version::One);
        }
        reloaded.shows(Version::One);
        next(Version::Two);
        reloaded.shows(Version::Two);
    });
    reloaded.assert_whole(&answers);
}

#[test]
fn rules_that_become_a_fifo_delay_no_request_and_no_later_rules() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [rules, pipe] = ["rules.yaml", "pipe"].map(|name| directory.path().join(name));
    fs::write(&rules, file("day", 11)).expect("the rules");
    let mut tollgate = Tollgate::start_at(&rules, &[]);
    let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    fs::rename(&pipe, &rules).expect("the rename");
    until("it is refused", || {
        tollgate.said().contains("a FIFO, not a regular file")
    });

    let mut caller = HttpConnection::open(envoy.edge);
    for remaining in (0..11).rev() {
        let answer = caller.get("/day", b"a");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
    }
    fs::write(&pipe, file("day", 12)).expect("the rules");
    fs::rename(&pipe, &rules).expect("the rename");
    until("the next rules are used", || {
        tollgate.metric("ratelimit_service_config_load_success") == 2
    });
    let answer = caller.get("/day", b"a");
    assert_eq!((answer.status, answer.remaining()), (200, Some(0)));
    tollgate.signal("TERM");
    assert!(tollgate.wait().success());
    assert_eq!(envoy.counts().error, 0);
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
    fs::write(directory.join("first.yaml"), version.first()).expect("rules");
    fs::write(directory.join("second.yaml"), version.second()).expect("rules");
    symlink(&name, volume.join("..data_tmp")).expect("a link");
    fs::rename(volume.join("..data_tmp"), &data).expect("the swap");
    if let Some(before) = before {
        fs::remove_dir_all(volume.join(before)).expect("the directory before");
    }
}

// === impl Version ===

impl Version {
    /// The file with the rule of the key `day`.
    fn first(self) -> String {
        let text = match self {
            Self::Bad(text) => return text.to_owned(),
            Self::One => file("day", 11),
            Self::Two | Self::Large => file("day", 12),
        };
        let more = if matches!(self, Self::Large) {
            LARGE_RULES
        } else {
            0
        };
        let rules = (0..more).map(|number| {
            let limit = format!("{{ unit: year, requests_per_unit: {number} }}");
            format!("  - {{ key: another, value: value-{number}, rate_limit: {limit} }}\n")
        });
        text + rules.collect::<String>().as_str()
    }

    /// The file with the rule of the key `year`. It is valid even in the invalid version.
    fn second(self) -> String {
        match self {
            Self::One => file("year", 21),
            Self::Two | Self::Large => file("year", 22),
            Self::Bad(_) => file("year", 29),
        }
    }

    /// Both limits in Envoy's header.
    fn header(self) -> &'static str {
        match self {
            Self::One => "11;w=31536000, 21;w=31536000",
            Self::Two | Self::Large => "12;w=31536000, 22;w=31536000",
            Self::Bad(_) => "bad rules limit nothing",
        }
    }
}

fn file(key: &str, requests: u64) -> String {
    format!(
        "domain: edge\ndescriptors:\n  \
         - {{ key: {key}, rate_limit: {{ unit: year, requests_per_unit: {requests} }} }}\n"
    )
}

// === impl Reloaded ===

impl Reloaded {
    /// Writes the two rules into two files, both links through `..data`.
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let volume = directory.path().join("volume");
        fs::create_dir(&volume).expect("a directory");
        swap(&volume, Version::One);
        for name in ["first.yaml", "second.yaml"] {
            symlink(Path::new("..data").join(name), volume.join(name)).expect("a link");
        }
        let tollgate = Tollgate::start_at(&volume, &["--merge-domain-config", "true"]);
        let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
        Self {
            tollgate,
            envoy,
            volume,
            _directory: directory,
        }
    }

    /// Waits until one version more is applied or rejected, as `metric` says, and nothing else is.
    fn counts(&self, metric: &str, happens: impl FnOnce()) {
        let counts = || [TAKEN, REFUSED, GENERATION].map(|metric| self.tollgate.metric(metric));
        let [taken, refused, generation] = counts();
        let expected = if metric == TAKEN {
            [taken + 1, refused, generation + 1]
        } else {
            [taken, refused + 1, generation]
        };
        happens();
        until(metric, || match counts() {
            counts if counts == expected => Ok(()),
            counts => Err(format!("{counts:?}, not {expected:?}")),
        });
    }

    /// Limits of a new request, from Envoy's header.
    fn version(&self) -> String {
        let answer = HttpConnection::open(self.envoy.edge).get("/two", b"looks");
        let limits = answer.header("x-ratelimit-limit").expect("limits");
        let (_, both) = limits.split_once(", ").expect("both limits");
        both.to_owned()
    }

    /// Waits until new requests are decided by this version.
    fn becomes(&self, version: Version) {
        until(version.header(), || match self.version() {
            limits if limits == version.header() => Ok(()),
            limits => Err(limits),
        });
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
        let limits = answers.keys().map(|(_, limits)| {
            let limits = limits.as_deref().expect("limits");
            limits.split_once(", ").expect("both limits").1
        });
        let versions: BTreeSet<_> = limits.collect();
        let whole = [Version::One, Version::Two].map(Version::header);
        assert_eq!(versions, BTreeSet::from(whole), "{answers:?}");
    }
}
