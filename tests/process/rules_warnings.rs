//! Warnings of rules in the log, at the start and at each reload, and `check` of a file of another
//! program.
//!
//! What it deliberately does not do: test each warning (`tests/rules/warnings.rs`).

use std::fs;
use std::process::Command;

use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

/// Rules with this many limits that have no number.
fn rules(count: usize) -> String {
    let limit = "rate_limit: {unit: hour}";
    let descriptors = (0..count).map(|n| format!("  - {{key: k{n}, {limit}}}\n"));
    format!(
        "domain: d\ndescriptors:\n{}",
        descriptors.collect::<String>()
    )
}

fn logged(text: &str) -> usize {
    text.matches("requests_per_unit is missing").count()
}

#[test]
fn warnings_are_logged_at_the_start_and_at_a_reload_up_to_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    fs::write(&file, rules(2)).unwrap();
    let running = Tollgate::start_at(&file, &[]);
    let start = running.said_at_start();
    assert_eq!(logged(&start), 2, "{start}");
    let report = http(running.admin, "GET", "/readyz?verbose", "").1;
    assert!(
        report.contains("[+] warnings of the rules: 2\n"),
        "{report}"
    );
    assert_eq!(logged(&report), 2, "{report}");
    assert!(!start.contains("more warnings"), "{start}");
    fs::write(&file, rules(150)).unwrap();
    let told = wait_for(PATIENCE, || {
        let said = running.said();
        said.contains("the rules have more warnings")
            .then_some(said)
    });
    let told = told.expect("the reload's warnings");
    assert_eq!(logged(&told), 2 + 10, "{told}");
    assert!(told.contains("140"), "{told}");
    let report = wait_for(PATIENCE, || {
        let report = http(running.admin, "GET", "/readyz?verbose", "").1;
        report
            .contains("[+] warnings of the rules: 150\n")
            .then_some(report)
    });
    assert_eq!(logged(&report.expect("the new rules")), 10);
}

#[test]
fn check_says_what_a_file_of_another_program_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("appsettings.json");
    fs::write(&file, "{\"ClientRateLimiting\": {}}").unwrap();
    let output = Command::new(tollgate_binary())
        .arg("check")
        .arg(&file)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error[foreign-file]: "), "{stderr}");
    assert!(stderr.contains("AspNetCoreRateLimit"), "{stderr}");
}
