//! `tollgate record`: the file, how a recording ends, and what it prints; logs in its place.
//!
//! What it deliberately does not do: compare verdicts (`tests/envoy/record.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tollgate::recording::{Events as _, Reader, Summary};
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::repository;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::admin_commands::{LIMITS, admin, hit};
use crate::process::commands::tollgate;

/// Starts a recording that ends by itself only after an hour.
fn start(service: &Tollgate, out: &Path, more: &[&str]) -> Child {
    let child = Command::new(tollgate_binary())
        .args(["record", "--for", "1h", "--out", out.to_str().unwrap()])
        .args(["--admin", &admin(service)])
        .args(more)
        .env_clear()
        .stderr(Stdio::piped())
        .spawn_tied()
        .unwrap();
    until("it records", || service.metric("tollgate_recordings") == 1);
    child
}

/// Sends hits, and waits until the file has so many requests and so many that were not sampled.
///
/// The file and not the service's counter: what the service has sent, a command that is stopped may
/// not have read.
fn hit_recorded(service: &Tollgate, descriptor: &str, times: u32, file: &Path, has: (u64, u64)) {
    hit(service, descriptor, times);
    until("the requests are in the file", || {
        let (requests, summary) = read(file);
        (requests, summary.skipped.without_entry) == has
    });
}

/// Sends a signal to a recording, and gives its exit code and stderr.
fn end(child: Child, signal: Option<&str>) -> (i32, String) {
    if let Some(signal) = signal {
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

/// The requests of a file, up to where a command that still runs has written it.
fn read(file: &Path) -> (u64, Summary) {
    let mut requests = 0;
    let Ok(mut reader) = Reader::new(fs::File::open(file).unwrap()) else {
        return (requests, Summary::default());
    };
    while let Ok(Some(_)) = reader.next_event() {
        requests += 1;
    }
    (requests, reader.summary().clone())
}

#[test]
fn a_recording_that_is_stopped_is_a_whole_file_for_its_owner_alone() {
    let service = Tollgate::start(LIMITS, &[]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run.tgrec");
    let child = start(&service, &out, &[]);
    hit_recorded(&service, "user=ann", 3, &out, (3, 0));
    let (code, said) = end(child, Some("-INT"));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("requests in"), "{said}");
    assert!(said.trim_end().ends_with("it was stopped"), "{said}");
    // Nothing is drawn where stderr is no terminal.
    assert!(!said.contains('\r') && !said.contains('\u{1b}'), "{said:?}");
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o777, 0o600);
    let (requests, summary) = read(&out);
    assert_eq!((requests, summary.ended.as_deref()), (3, Some("stopped")));
    until("it records no more", || {
        service.metric("tollgate_recordings") == 0
    });
}

#[test]
fn a_lost_service_leaves_a_file_that_can_be_replayed() {
    let mut service = Tollgate::start(LIMITS, &[]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run.tgrec");
    let child = start(&service, &out, &[]);
    hit_recorded(&service, "user=ann", 3, &out, (3, 0));
    service.signal("KILL");
    service.wait();
    let (code, said) = end(child, None);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("it is incomplete"), "{said}");
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, LIMITS).unwrap();
    let (out, rules) = (out.to_str().unwrap(), rules.to_str().unwrap());
    let (code, text, said) = tollgate(&["replay", out, "--rules", rules]);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("was cut off; the report is about"), "{said}");
    assert!(
        text.contains("it was cut off: its end is missing"),
        "{text}"
    );
}

#[test]
fn what_is_skipped_and_what_stays_plain_is_named() {
    const COMPARED: &str = "
domain: edge
descriptors:
  - key: user
    values: [ann, bob]
    rate_limit: {unit: year, requests_per_unit: 2}
";
    let service = Tollgate::start(COMPARED, &[]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run.tgrec");
    let child = start(
        &service,
        &out,
        &["--hash", "--sample-by", "user", "--sample", "1"],
    );
    // No rule has it: hit peeks once to say why.
    hit(&service, "team=red", 2);
    hit_recorded(&service, "user=ann", 1, &out, (1, 3));
    let (code, said) = end(child, Some("-INT"));
    assert_eq!(code, 0, "{said}");
    for line in [
        "not recorded: 3 requests that do not have the entry of --sample-by",
        "not hashed: values of user in edge that rules name",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    until("it records no more", || {
        service.metric("tollgate_recordings") == 0
    });
    let (url, file) = (admin(&service), folder.path().join("none.tgrec"));
    let refuse = [
        "record",
        "--hash",
        "--hash-refuse-compared",
        "--admin",
        &url,
    ];
    let (code, _, said) = tollgate(&[&refuse[..], &["--out", file.to_str().unwrap()]].concat());
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("rules compare values"), "{said}");
    assert!(!file.exists());
}

#[test]
fn a_terminal_shows_progress() {
    let service = Tollgate::start(LIMITS, &[]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run.tgrec");
    let command = format!(
        "{} record --for 2s --out {} --admin {}",
        tollgate_binary(),
        out.display(),
        admin(&service)
    );
    let shown = on_a_terminal(&command);
    assert!(shown.contains("of 2 seconds"), "{shown:?}");
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, LIMITS).unwrap();
    let command = format!(
        "{} replay {} --rules {}",
        tollgate_binary(),
        out.display(),
        rules.display()
    );
    assert!(on_a_terminal(&command).contains("requests replayed"));
    let limits = "- {namespace: edge, max_value: 10, seconds: 60, conditions: [], variables: []}\n";
    let other = folder.path().join("limits.yaml");
    fs::write(&other, limits).unwrap();
    let command = format!(
        "{} convert --from limitador {}",
        tollgate_binary(),
        other.display()
    );
    let shown = on_a_terminal(&command);
    assert!(shown.contains("converting"), "{shown:?}");
}

/// What a successful command shows on a terminal.
fn on_a_terminal(command: &str) -> String {
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    shown.into_owned()
}

/// The first block of this kind on the page that contains a text.
fn block<'p>(page: &'p str, kind: &str, with: &str) -> &'p str {
    let fence = format!("```{kind}\n");
    let blocks = page.split(&fence).skip(1);
    let mut blocks = blocks.map(|block| block.split("```").next().unwrap());
    blocks.find(|block| block.contains(with)).unwrap()
}

#[test]
fn the_pages_access_log_is_replayed_as_it_says() {
    let page = fs::read_to_string(repository().join("docs/recording.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("access.log", block(&page, "json", "start_time"));
    write("mapping.yaml", block(&page, "yaml", "verdict"));
    write(
        "rules.yaml",
        // window: a replay decides at the times of the log.
        "domain: edge\ndescriptors:\n- key: service\n  descriptors:\n  - key: user\n    \
         rate_limit: {unit: minute, requests_per_unit: 2}\n",
    );
    let session = block(&page, "console", "--mapping");
    let mut lines = session.lines();
    let arguments = lines.next().unwrap().strip_prefix("$ tollgate ").unwrap();
    let output = Command::new(tollgate_binary())
        .args(arguments.split(' '))
        .current_dir(folder.path())
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.lines().collect::<Vec<_>>(), lines.collect::<Vec<_>>());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["recording"]["format"], "access log");
    assert_eq!(
        (&report["admitted"], &report["refused"]),
        (&3.into(), &1.into())
    );
    assert_eq!(report["recorded"]["same"], 4, "{report}");
    // A mistake in the mapping file has a place.
    write("mapping.yaml", "time: {feild: a}\n");
    let output = Command::new(tollgate_binary())
        .args(arguments.split(' '))
        .current_dir(folder.path())
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("mapping.yaml:1:8"), "{said}");
}
