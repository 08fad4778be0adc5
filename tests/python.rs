//! The Python example, run against a real tollgate: a client written with another gRPC library gets
//! the same answers.
//!
//! What it deliberately does not do: test Python, or gRPC itself.

use std::path::Path;
use std::process::{Command, Output};

use tollgate_test_support::components::component;
use tollgate_test_support::tollgate_process::Tollgate;

const RULES: &str = "{domain: edge, descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 10}}, {key: plan, descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 5}}]}]}";

#[test]
fn python_is_told_ten_times_ok_and_then_over_limit() {
    let tollgate = Tollgate::start(RULES, &[]);
    let output = ask(&[
        &tollgate.grpc.to_string(),
        "edge",
        "user=a",
        "--repeat",
        "11",
    ]);
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 11, "{output:?}");
    for (left, line) in (0..10).rev().zip(&lines) {
        let words = format!("OK          {left} left of 10 per year, resets in ");
        assert!(line.starts_with(&words), "{line}");
    }
    let words = "OVER LIMIT  0 left of 10 per year, try again in ";
    assert!(lines[10].starts_with(words), "{}", lines[10]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn python_asks_for_several_entries_as_hit_does() {
    let tollgate = Tollgate::start(RULES, &[]);
    let output = ask(&[&tollgate.grpc.to_string(), "edge", "plan=free,user=bob"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.starts_with("OK          4 left of 5 per year, "),
        "{said}"
    );
}

#[test]
fn python_is_told_why_there_is_no_answer() {
    let tollgate = Tollgate::start(RULES, &[]);
    let output = ask(&[&tollgate.grpc.to_string(), "", "user=a"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let words = "the service answered INVALID_ARGUMENT: rate limit domain must not be empty\n";
    assert_eq!(said, words);
    assert_eq!(output.status.code(), Some(4));
}

fn ask(arguments: &[&str]) -> Output {
    Command::new(component("venv/bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/python/ask.py"))
        .args(arguments)
        .output()
        .expect("Python starts")
}
