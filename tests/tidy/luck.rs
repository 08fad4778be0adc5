//! No test depends on luck: each class of luck is forbidden by its form.
//!
//! How: it reads lines, as the other rules do. A statement is the lines from `assert` to the one
//! that ends with `;`. An exception carries its reason in a comment, on its line or shortly above:
//! `window: REASON` for a window that turns, `sleep: REASON` for a sleep.

use super::files_of;

/// Tests whose rules are read by a process with a real clock.
const REAL_CLOCKS: &[&str] = &[
    "tests/browser",
    "tests/clients",
    "tests/envoy",
    "tests/gateway",
    "tests/guides",
    "tests/hostile",
    "tests/image",
    "tests/memory",
    "tests/process",
    "tests/python.rs",
    "tests/redis",
    "tests/telemetry",
];

/// How far above a line its reason may be: a rules file in a constant is that long.
const REASON_LINES_MAX: usize = 15;

/// Names of values that were measured by a clock.
const MEASURED: &[&str] = &[
    "elapsed", "took", "longest", "slowest", "p50", "p90", "p99", "median",
];

fn has_reason(lines: &[&str], at: usize, marker: &str, above: usize) -> bool {
    let first = at.saturating_sub(above);
    lines[first..=at].iter().any(|line| line.contains(marker))
}

/// Whether a line sets a window shorter than a year, in YAML or JSON.
fn sets_a_window(line: &str) -> bool {
    let line = line.replace(['"', '\\'], "");
    line.match_indices("unit:").any(|(at, found)| {
        let unit = line[at + found.len()..].trim_start();
        let unit = unit.split(|c: char| !c.is_ascii_alphabetic()).next();
        let unit = unit.unwrap_or_default().to_ascii_lowercase();
        matches!(unit.as_str(), "second" | "minute" | "hour" | "day")
    })
}

/// The statements of a file that assert something: the line of each, and its text.
fn assertions(lines: &[&str]) -> Vec<(usize, String)> {
    let begins = |line: &str| line.trim_start().starts_with("assert");
    let starts = lines.iter().enumerate().filter(|(_, line)| begins(line));
    starts
        .map(|(at, _)| {
            let end = lines[at..].iter().position(|line| line.ends_with(';'));
            let end = end.map_or(at, |more| at + more);
            (at, lines[at..=end].join(" "))
        })
        .collect()
}

/// Whether an assertion compares a measured time. Text in quotes is a message.
fn compares_a_time(statement: &str) -> bool {
    let code: String = statement.split('"').step_by(2).collect();
    let names = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let measured = names
        .flat_map(|name| name.split('_'))
        .any(|name| MEASURED.contains(&name));
    measured
        && (code.contains(" < ")
            || code.contains(" > ")
            || code.contains("<=")
            || code.contains(">="))
}

/// What is wrong in a file of tests.
fn luck(file: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut add = |at: usize, why: &str| found.push(format!("{file}:{}: {why}", at + 1));
    let real_clock = REAL_CLOCKS
        .iter()
        .any(|folder| file == *folder || file.starts_with(&format!("{folder}/")));
    for (at, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let no_reason = |marker, above| !has_reason(&lines, at, marker, above);
        if real_clock && sets_a_window(line) && no_reason("window:", REASON_LINES_MAX) {
            add(
                at,
                "this window can turn while the test runs: use `unit: year`, or say `window: REASON`",
            );
        }
        if code.contains("sleep(") && !code.contains("fn ") && no_reason("sleep:", 3) {
            add(
                at,
                "a sleep waits for no result: use `until`, or say `sleep: REASON`",
            );
        }
        if code.trim_start().starts_with("while ") && code.contains("metric") {
            add(at, "a loop without a bound: use `until`");
        }
        if code.contains(".spawn()") {
            add(
                at,
                "a child outlives a test that is killed: use `spawn_tied`",
            );
        }
        let is_let_go = code.contains("bind(") && code.contains(".local_addr()");
        if code.contains("free_port") || is_let_go {
            add(
                at,
                "another socket may take this port: use port 0 or `reserved_port`",
            );
        }
        if code.contains("const PATIENCE") || code.contains("const RECOVERY") {
            add(at, "there is one patience: `polling::PATIENCE`");
        }
    }
    for (at, statement) in assertions(&lines) {
        if compares_a_time(&statement) {
            add(
                at,
                "an assertion on how long something took: assert a counter or an order of events",
            );
        }
    }
    found
}

#[test]
fn no_test_depends_on_luck() {
    // What waits, reserves and spawns for the others; and these rules.
    let exempt = [
        "tests/support/src/polling.rs",
        "tests/support/src/child_process.rs",
        "tests/tidy/luck.rs",
    ];
    let found: Vec<_> = files_of(&["tests"])
        .iter()
        .filter(|(file, _)| !exempt.contains(&file.as_str()))
        .flat_map(|(file, text)| luck(file, text))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_class_of_luck_is_found() {
    let planted = [
        "    rate_limit: { unit: minute, requests_per_unit: 1 }",
        r#"    {"unit": "HOUR"}"#,
        "    std::thread::sleep(Duration::from_millis(20));",
        "    while service.metric(NAME) == 0 {}",
        "    let child = command.spawn().unwrap();",
        "    let port = free_port();",
        "    let closed = TcpListener::bind(ANY).unwrap().local_addr();",
        "const PATIENCE: Duration = Duration::from_secs(5);",
        "    assert!(began.elapsed() < Duration::from_secs(1));",
        "    assert!(\n        longest_us <= 1_000_000,\n        \"slow\"\n    );",
    ];
    for text in planted {
        assert_eq!(luck("tests/redis/planted.rs", text).len(), 1, "{text}");
    }
    let allowed = [
        "    rate_limit: { unit: year, requests_per_unit: 1 }",
        "    # window: the turn is the subject\n    rate_limit: { unit: second }",
        "    // sleep: paces the load\n    sleep(PAUSE);",
        "    assert!(left < 5, \"took {took:?}\");",
        "    thread::spawn(|| work());",
    ];
    for text in allowed {
        assert!(luck("tests/redis/planted.rs", text).is_empty(), "{text}");
    }
    assert!(luck("tests/service/planted.rs", planted[0]).is_empty());
}
