//! `docs/replay.md`: its commands run on a recording of the test, and its tables are complete.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate::admin_api::Entry;
use tollgate::replay::report::{
    Changes, Difference, KeyCount, Minute, Point, Recorded, RecordingFacts, ReplayReport,
    ReservationFigures, RuleReport, SideReport, Undecidable,
};
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::guide::read;

/// Rules with a limit of this many requests.
fn rules(limit: u64) -> String {
    format!(
        "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: \
         {{ unit: year, requests_per_unit: {limit}, algorithm: sliding_log }}\n"
    )
}

/// The first column of the table under a heading, which begins with this title.
fn column(page: &str, title: &str) -> BTreeSet<String> {
    let (_, table) = page.split_once(&format!("\n| {title} |")).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap_or_default().to_owned())
        .collect()
}

/// Runs a command of the page in a folder with its files.
fn run(shown: &str, folder: &Path, more: &[&str]) -> String {
    let words = shown.strip_prefix("tollgate ").unwrap().split(' ');
    let mut command = Command::new(tollgate_binary());
    let output = command.args(words).args(more).current_dir(folder);
    let output = output.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{shown}: {text}");
    text
}

#[test]
fn the_commands_of_the_page_replay_a_recording() {
    let page = read("docs/replay.md");
    let blocks = page.split("```sh\n").skip(1);
    let commands: Vec<_> = blocks
        .map(|block| block.split("\n```").next().unwrap())
        .collect();
    let [record, replays @ ..] = &*commands else {
        panic!("no command");
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("rules.yaml"), rules(10)).unwrap();
    std::fs::write(folder.join("changed.yaml"), rules(4)).unwrap();
    let service = Tollgate::start_at(&folder.join("rules.yaml"), &[]);
    let words = record.strip_prefix("tollgate ").unwrap().split(' ');
    let recording = Command::new(tollgate_binary())
        .args(words)
        .args([
            "--count",
            "7",
            "--admin",
            &format!("http://{}", service.admin),
        ])
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn_tied()
        .unwrap();
    until("it records", || service.metric("tollgate_recordings") == 1);
    let entry = json!({"key": "user", "value": "</script>"});
    let body = json!({"domain": "edge", "descriptors": [{"entries": [entry]}]}).to_string();
    for _ in 0..7 {
        assert_eq!(http(service.http, "POST", "/json", &body).0, 200);
    }
    assert!(recording.wait_with_output().unwrap().status.success());

    assert_eq!(replays.len(), 3, "{replays:?}");
    let text = run(replays[0], folder, &[]);
    assert!(
        text.contains("Newly refused by --against: 3 requests"),
        "{text}"
    );
    assert!(text.contains("</script>"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    run(replays[1], folder, &[]);
    let html = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(html.contains("<bdi>&lt;/script&gt;</bdi>"), "{html}");
    assert!(html.contains("1 key is newly refused."), "{html}");
    let report: Value = serde_json::from_str(&run(replays[2], folder, &[])).unwrap();
    assert_eq!(report["newly_refused"], 3, "{report:#}");
    assert_eq!(report["recorded"]["same"], 7, "{report:#}");
}

#[test]
fn every_option_and_exit_code_of_replay_is_on_its_page() {
    let page = read("docs/replay.md");
    let help = Command::new(tollgate_binary())
        .args(["replay", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let own = help.split("\nRules").next().unwrap();
    let options = own.lines().map(str::trim_start);
    let options = options.filter(|line| line.starts_with("--"));
    let options: BTreeSet<_> = options
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let described = column(&page, "option");
    let described: BTreeSet<_> = described
        .iter()
        .filter_map(|option| option.split(' ').next())
        .collect();
    for option in &options {
        assert!(described.contains(&**option), "{option}: {described:?}");
    }
    for option in described.iter().filter(|option| option.starts_with("--")) {
        assert!(options.contains(*option), "{option}: {options:?}");
    }
    for code in ["0", "1", "2", "6"] {
        assert!(help.contains(&format!("\n  {code}  ")), "{code}: {help}");
        assert!(page.contains(&format!("\n| {code} | ")), "{code}");
    }
}

/// A report with an entry in every list and a value in every field.
fn whole_report() -> ReplayReport {
    let entries = vec![Entry::default()];
    let key = KeyCount {
        entries: entries.clone(),
        ..KeyCount::default()
    };
    let limit = RuleReport {
        smallest_limit: Some(1),
        smallest_limit_text: Some(String::new()),
        smallest_limit_unknown: Some(String::new()),
        window_seconds: Some(1),
        reservations: Some(ReservationFigures::default()),
        ..RuleReport::default()
    };
    let side = SideReport {
        by_rule: vec![limit],
        worst_minutes: vec![Minute::default()],
        ..SideReport::default()
    };
    let point = Point {
        against_admitted: Some(1),
        against_refused: Some(1),
        ..Point::default()
    };
    let difference = Difference {
        entries,
        ..Difference::default()
    };
    ReplayReport {
        recording: RecordingFacts {
            ended_by: Some(String::new()),
            sampled_by: Some(String::new()),
            sampled_one_in: Some(1),
            ..RecordingFacts::default()
        },
        base: side.clone(),
        over_time: vec![point],
        changes: Some(Changes {
            against: side,
            newly_refused: 1,
            newly_admitted: 1,
            keys_newly_refused: vec![key.clone()],
            keys_newly_refused_omitted: 1,
            keys_newly_admitted: vec![key],
            keys_newly_admitted_omitted: 1,
        }),
        recorded: Some(Recorded {
            first_differences: vec![difference],
            why_they_may_differ: vec![String::new()],
            ..Recorded::default()
        }),
        undecidable: vec![Undecidable::default()],
        ..ReplayReport::default()
    }
}

/// The paths of a JSON value's fields, as the page writes them.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                paths(field, &format!("{path}{dot}{name}"), found);
            }
        }
        Value::Array(items) => {
            found.insert(format!("{path}[]"));
            for item in items.iter().filter(|item| item.is_object()) {
                paths(item, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_json_field_of_a_replay_is_on_its_page() {
    let page = read("docs/replay.md");
    let described = column(&page, "field");
    let report = serde_json::to_value(whole_report()).unwrap();
    let mut fields = BTreeSet::new();
    paths(&report, "", &mut fields);
    // The page says of these that they have the fields of another.
    let repeated = |field: &&String| {
        let under = [
            "against.",
            "keys_newly_admitted[].",
            "recorded.first_differences[].entries[].",
        ];
        under.iter().any(|under| field.starts_with(under))
    };
    for field in fields.iter().filter(|field| !repeated(field)) {
        assert!(described.contains(field), "{field} is not on the page");
    }
    for field in &described {
        let is_object = ["against", "recorded", "by_rule[].reservations"].contains(&&**field);
        assert!(
            is_object || fields.contains(field),
            "{field} is on the page only"
        );
    }
    // Those of B are those of A.
    for field in fields
        .iter()
        .filter_map(|field| field.strip_prefix("against."))
    {
        assert!(fields.contains(field), "{field}");
    }
}
