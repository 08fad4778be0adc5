//! `tollgate replay`: a recording of a real service, and files that are wrong.
//!
//! What it deliberately does not do: decide by every algorithm (`src/replay/tests.rs`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate::proto::tollgate::recording::v1::{End, Header, Item};
use tollgate::recording::{Events as _, Reader, Writer};
use tollgate_test_support::child_process::KillOnDrop;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::admin_commands::{LIMITS, admin, hit};
use crate::commands::tollgate;

/// The limit of `user` is 1 instead of 2.
const CHANGED: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: team
    rate_limit: {unit: year, requests_per_unit: 1}
";

/// Writes a recording of these items.
fn write(path: &Path, items: Vec<Kind>) {
    let mut writer = Writer::new(fs::File::create(path).unwrap());
    for item in items {
        writer.write(&Item { item: Some(item) }).unwrap();
    }
    writer.finish().unwrap();
}

fn header(version: u32) -> Kind {
    Kind::Header(Header {
        version,
        ..Header::default()
    })
}

/// How many requests are in a recording that is written.
fn written(path: &Path) -> u64 {
    let Ok(mut reader) = fs::File::open(path)
        .map_err(Into::into)
        .and_then(Reader::new)
    else {
        return 0;
    };
    let mut count = 0;
    while let Ok(Some(_)) = reader.next_event() {
        count += 1;
    }
    count
}

/// Records what this does at the service. The recording ends after this many requests, or is cut
/// off after `cut_off_after` where there are fewer.
fn record(
    service: &Tollgate,
    out: &Path,
    requests: u32,
    cut_off_after: Option<u64>,
    act: impl FnOnce(),
) {
    let client = Command::new(tollgate_binary())
        .args(["record", "--count", &requests.to_string(), "--for", "10m"])
        .args(["--out", out.to_str().unwrap(), "--admin", &admin(service)])
        .env_clear()
        .stderr(Stdio::null())
        .spawn_tied()
        .unwrap();
    let mut client = KillOnDrop(client);
    until("it records", || service.metric("tollgate_recordings") == 1);
    act();
    match cut_off_after {
        None => {
            until("the recording ends", || client.0.try_wait().unwrap());
        }
        Some(count) => until("the requests are in the file", || {
            let written = written(out);
            (written == count).then_some(()).ok_or(written)
        }),
    }
}

#[test]
fn a_recording_of_a_service_gives_its_verdicts_and_the_keys_that_a_change_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("rules.yaml"), LIMITS).unwrap();
    fs::write(path("changed.yaml"), CHANGED).unwrap();
    let service = Tollgate::start(LIMITS, &[]);
    let recording = path("run.tgrec");
    record(&service, Path::new(&recording), 6, None, || {
        hit(&service, "user=ada", 3);
        hit(&service, "user=bob", 1);
        hit(&service, "team=red", 2);
    });
    let rules = ["replay", &recording, "--rules", &path("rules.yaml")];
    let changed = ["--against", &path("changed.yaml")];
    let (code, json, stderr) = tollgate(&[&rules[..], &changed, &["--format", "json"]].concat());
    assert_eq!((code, &*stderr), (0, ""), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["admitted"], &json["refused"]),
        (&4.into(), &2.into())
    );
    assert_eq!(json["recorded"]["same"], 6);
    assert_eq!(json["recorded"]["different"], 0);
    assert_eq!(
        json["recorded"]["why_they_may_differ"],
        Value::Array(Vec::new())
    );
    assert_eq!(
        (&json["newly_refused"], &json["newly_admitted"]),
        (&1.into(), &0.into())
    );
    let keys = json["keys_newly_refused"].as_array().unwrap();
    assert_eq!(
        (keys.len(), &keys[0]["entries"][0]["value"]),
        (1, &"ada".into())
    );

    let (code, text, _) = tollgate(&[&rules[..], &changed].concat());
    assert_eq!(code, 0);
    assert!(
        text.contains("Newly refused by --against: 1 requests"),
        "{text}"
    );
    assert!(text.contains("user=ada"), "{text}");
    let page = path("report.html");
    let (code, stdout, _) = tollgate(&[&rules[..], &["--format", "html", "--out", &page]].concat());
    assert_eq!((code, &*stdout), (0, ""));
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .starts_with("<!doctype html>")
    );
}

#[test]
fn a_recording_whose_client_was_killed_is_replayed_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, LIMITS).unwrap();
    let service = Tollgate::start(LIMITS, &[]);
    let recording = folder.path().join("run.tgrec");
    record(&service, &recording, 1_000_000, Some(3), || {
        hit(&service, "user=ada", 3);
    });
    let (recording, rules) = (recording.to_str().unwrap(), rules.to_str().unwrap());
    let (code, text, stderr) = tollgate(&["replay", recording, "--rules", rules]);
    assert_eq!(code, 6, "{stderr}");
    assert!(
        stderr.contains("was cut off; the report is about the 3 requests before"),
        "{stderr}"
    );
    assert!(
        text.contains("it was cut off: its end is missing"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_recording_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, LIMITS).unwrap();
    let replay = |path: &Path| {
        tollgate(&[
            "replay",
            path.to_str().unwrap(),
            "--rules",
            rules.to_str().unwrap(),
        ])
    };
    let path = folder.path().join("file");
    let mut answers = Vec::new();
    for bytes in [&b""[..], b"\x28\xb5\x2f\xfd odd bytes", b"domain: edge\n"] {
        fs::write(&path, bytes).unwrap();
        answers.push(replay(&path));
    }
    write(&path, vec![header(99)]);
    answers.push(replay(&path));
    answers.push(replay(Path::new("/nonexistent/recording")));
    for (code, stdout, stderr) in &answers {
        assert_eq!((*code, &**stdout), (1, ""), "{stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
    assert!(answers[3].2.contains("version 99"), "{}", answers[3].2);

    // A recording without requests is one.
    let end = Kind::End(End::default());
    write(&path, vec![header(1), end]);
    let (code, text, stderr) = replay(&path);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(text.contains("0 requests"), "{text}");
    let (code, ..) = tollgate(&["replay", path.to_str().unwrap()]);
    assert_eq!(code, 2);
}

/// A report never replaces what it is made of, also under another name of the file.
#[test]
fn a_report_is_not_written_over_its_recording_or_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (recording, rules) = (path("a.tgrec"), path("rules.yaml"));
    fs::write(&rules, LIMITS).unwrap();
    write(
        Path::new(&recording),
        vec![header(1), Kind::End(End::default())],
    );
    std::os::unix::fs::symlink(&recording, path("link")).unwrap();
    let before = fs::read(&recording).unwrap();
    for out in [&recording, &rules, &path("link")] {
        let replay = ["replay", &recording, "--rules", &rules, "--out", out];
        let (code, _, stderr) = tollgate(&replay);
        assert_eq!(code, 1, "{out}: {stderr}");
        assert!(stderr.contains("choose another name"), "{stderr}");
        assert_eq!(fs::read(&recording).unwrap(), before);
        assert_eq!(fs::read_to_string(&rules).unwrap(), LIMITS);
    }
    let new = path("report.html");
    let replay = [
        "replay", &recording, "--rules", &rules, "--format", "html", "--out", &new,
    ];
    assert_eq!(tollgate(&replay).0, 0);
    assert!(
        fs::read_to_string(&new)
            .unwrap()
            .starts_with("<!doctype html>")
    );
}
