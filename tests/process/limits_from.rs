//! `check`, `explain`, `test` and `top` with limits by value from a file (`limits_from`).

use serde_json::Value;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::admin_commands::{admin, hit};
use crate::commands::tollgate;
use crate::top::Terminal;

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    limits_from: users.csv
    rate_limit: {unit: hour, requests_per_unit: 7}
";

const USERS: &str = "value,unit,requests_per_unit,algorithm,burst,shadow_mode
ann,hour,2,,,
bob,minute,60,token_bucket,90,true
";

const TESTS: &str = "rules: edge.yaml
tests:
  - name: each user has a limit
    start: 2026-01-05T12:00:00Z
    steps:
      - { ask: \"edge user=ann\", times: 3, expect: { admitted: 2 } }
      - { ask: \"edge user=bob\", times: 91, expect: { admitted: 91 } }
      - { ask: \"edge user=cid\", times: 8, expect: { admitted: 7 } }
";

/// A folder with the rules, the file of limits, and tests.
fn folder(users: &str, tests: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("edge.yaml", RULES),
        ("users.csv", users),
        ("edge.test.yaml", tests),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// What a command printed about this folder, and its exit code. `DIR` stands for the folder.
fn run(folder: &tempfile::TempDir, arguments: &[&str]) -> (i32, String, String) {
    let path = folder.path().to_str().unwrap();
    let arguments: Vec<_> = arguments
        .iter()
        .map(|argument| argument.replace("DIR", path))
        .collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (code, stdout, stderr) = tollgate(&arguments);
    (
        code,
        stdout.replace(path, "DIR"),
        stderr.replace(path, "DIR"),
    )
}

#[test]
fn check_counts_the_values_of_the_file() {
    let folder = folder(USERS, TESTS);
    let (code, stdout, stderr) = run(&folder, &["check", "DIR"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("1 limit in 1 domain; 2 limits from DIR/users.csv"),
        "{stdout}"
    );
    let (code, stdout, _) = run(&folder, &["check", "--format", "json", "DIR"]);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &json["limits"]), (0, &Value::from(1)));
    assert_eq!(json["limits_from"][0]["file"], "DIR/users.csv");
    assert_eq!(json["limits_from"][0]["limits"], 2);
}

#[test]
fn check_shows_a_hundred_bad_lines_with_their_numbers() {
    let lines = (0..100).map(|line| format!("good{line},hour,1,,,\nbad{line},hour,x,,,\n"));
    let header = USERS.lines().next().unwrap();
    let folder = folder(&format!("{header}\n{}", lines.collect::<String>()), TESTS);
    let (code, _, stderr) = run(&folder, &["check", "DIR"]);
    assert_eq!(code, 1);
    for line in 0..100 {
        let place = format!("--> DIR/users.csv:{}:1\n", 3 + 2 * line);
        assert!(stderr.contains(&place), "{place}{stderr}");
    }
    assert!(!stderr.contains("more errors"), "{stderr}");
}

#[test]
fn explain_names_the_line_of_a_value() {
    let folder = folder(USERS, TESTS);
    let explain = |descriptor: &str| {
        let (code, stdout, stderr) = run(&folder, &["explain", "DIR", "edge", descriptor]);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let bob = explain("user=bob");
    assert!(bob.contains("rule edge.user\n"), "{bob}");
    assert!(bob.contains("limit: 60 in 1 minute, token_bucket"), "{bob}");
    assert!(bob.contains("  burst: 90\n"), "{bob}");
    assert!(
        bob.contains("limit of this value: DIR/users.csv:3\n"),
        "{bob}"
    );
    assert!(bob.contains("shadow_mode"), "{bob}");
    let other = explain("user=*");
    assert!(
        other.contains("limit: 7 in 1 hour, fixed_window"),
        "{other}"
    );
    assert!(
        other.contains(
            "DIR/users.csv has 2 values, and not this one; the rate_limit of the rule applies"
        ),
        "{other}"
    );
}

#[test]
fn tests_read_the_file_and_explain_a_failure_by_its_line() {
    let (code, stdout, stderr) = run(&folder(USERS, TESTS), &["test", "DIR"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    // The rule and all lines of the file.
    assert!(
        stdout.contains("coverage: 2 of 2 rules reached"),
        "{stdout}"
    );
    let wrong = TESTS.replace("admitted: 2 }", "admitted: 3 }");
    let (code, stdout, stderr) = run(&folder(USERS, &wrong), &["test", "DIR"]);
    assert_eq!(code, 1);
    let all = stdout + &stderr;
    assert!(
        all.contains("limit of this value: DIR/users.csv:2"),
        "{all}"
    );
}

#[test]
fn top_shows_the_rule_of_the_file_and_the_values_with_the_most_hits() {
    let folder = folder(USERS, TESTS);
    let rules = folder.path().join("edge.yaml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let users = folder.path().join("users.csv");
    let rules = rules.replace("users.csv", users.to_str().unwrap());
    let service = Tollgate::start(&rules, &["--top-keys", "plain"]);
    hit(&service, "user=ann", 5);
    hit(&service, "user=cid", 1);
    let terminal = Terminal::top(&admin(&service), "", "");
    let screen = terminal.wait(&["edge.user"]).join("\n");
    assert!(screen.contains("by value"), "{screen}");
    terminal.press(&["Enter"]);
    let screen = terminal.wait(&["others"]).join("\n");
    assert!(screen.contains("limit     by value, 2 in /"), "{screen}");
    assert!(
        screen.contains("others    7 per hour, fixed_window"),
        "{screen}"
    );
    terminal.press(&["Escape"]);
    terminal.press(&["Tab"]);
    terminal.wait(&["[2 Keys]", "user=ann"]);
    let (code, stdout, _) = tollgate(&["top", "--once", "--admin", &admin(&service)]);
    assert_eq!(code, 0);
    assert!(stdout.contains("user=ann"), "{stdout}");
    let metrics = service.get("/metrics");
    assert!(metrics.contains("key1=\"user\""), "{metrics}");
    assert!(!metrics.contains("ann"), "no value is a label");
}
