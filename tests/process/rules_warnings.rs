//! Warnings of rules in the log, at the start and at each reload.
//!
//! What it deliberately does not do: test each warning (`tests/rules/warnings.rs`).

use std::fs;

use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

/// Rules with this many limits that have no number.
fn rules(count: usize) -> String {
    let limit = "rate_limit: {unit: year}";
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
    let told = until("the reload's warnings are logged", || {
        let said = running.said();
        let are_logged = said.contains("the rules have more warnings");
        are_logged.then(|| said.clone()).ok_or(said)
    });
    assert_eq!(logged(&told), 2 + 10, "{told}");
    assert!(told.contains("140"), "{told}");
    let report = until("the new rules are in use", || {
        let report = http(running.admin, "GET", "/readyz?verbose", "").1;
        let are_new = report.contains("[+] warnings of the rules: 150\n");
        are_new.then(|| report.clone()).ok_or(report)
    });
    assert_eq!(logged(&report), 10);
}
