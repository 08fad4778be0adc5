//! The gRPC services of the real binary, called from Python by what reflection says of them.

use std::path::Path;
use std::process::Command;

use tollgate_test_support::tollgate_process::Tollgate;

use crate::process::testing_rules::{blocks, of_a_year};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000 }
";

/// Runs Python with these arguments, and gives what it prints.
fn python(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(root.join("target/venv/bin/python"));
    let output = python.args(arguments).current_dir(root).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_python_client_calls_every_rpc_of_both_services() {
    let service = Tollgate::start(RULES, &[]);
    let printed = python(&["tests/process/grpc_api.py", &service.grpc.to_string()]);
    assert!(printed.ends_with(" RPCs\n"), "{printed}");
}

#[test]
fn the_python_program_of_the_page_prints_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/api.md")).unwrap();
    let rules = of_a_year(&blocks(&page, "yaml")[0]);
    let service = Tollgate::start(&rules, &[]);
    let program = &blocks(&page, "python")[0];
    let program = program.replace("localhost:8081", &service.grpc.to_string());
    let printed = python(&["-c", &program]);
    assert!(
        page.contains(&format!("It prints `{}`", printed.trim())),
        "{printed}"
    );
}
