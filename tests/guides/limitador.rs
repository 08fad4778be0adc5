//! `docs/guides/from-limitador.md`: the commands print the page's rules and actions, and the script
//! migrates counters.
//!
//! What it deliberately does not do: decide by the rules. `tests/rules/convert` compares converted
//! rules with a model of limitador.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_test_support::components::component;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::guide::{Page, of_a_year, yaml};

const PAGE: &str = "from-limitador.md";

#[test]
fn the_commands_print_the_page_s_rules_and_actions() {
    let guide = Page::guide(PAGE);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let limits = guide.only("Limits of limitador", "yaml");
    std::fs::write(directory.path().join("limits.yaml"), limits).expect("the limits");
    let commands = guide.under("Convert a limits file", "text").remove(0);
    let mut printed = Vec::new();
    for command in commands.lines() {
        let (command, file) = command.split_once(" > ").expect("a file for the output");
        let arguments = command.strip_prefix("tollgate ").expect("a command");
        let output = Command::new(tollgate_binary())
            .args(arguments.split(' '))
            .current_dir(&directory)
            .output()
            .expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command}");
        assert!(output.status.success(), "{command}");
        std::fs::write(directory.path().join(file), &output.stdout).expect("its output");
        printed.push(String::from_utf8(output.stdout).expect("text"));
    }
    assert_eq!(printed[0], guide.only("Rules of tollgate", "yaml"));
    assert_eq!(printed[1], guide.only("What Envoy sends", "yaml"));
}

/// Serves one answer of limitador's HTTP port; returns its address.
fn counters_of_limitador(counters: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let body = counters.to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the script");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut head = [0; 1024];
        let read = stream.read(&mut head).expect("a request");
        assert!(head[..read].starts_with(b"GET /counters/shop "));
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).expect("it reads");
    });
    url
}

#[test]
fn the_script_carries_spent_hits_over() {
    let guide = Page::guide(PAGE);
    let limits = yaml(&guide.only("Limits of limitador", "yaml")).remove(0);
    let counter = |limit: usize, user: &str, remaining: u64| {
        json!({
            "limit": limits[limit],
            "set_variables": { "descriptors[0].user": user },
            "remaining": remaining,
            "expires_in_seconds": 4000,
        })
    };
    let url = counters_of_limitador(&json!([
        counter(1, "bob", 0),
        counter(1, "eve", 999),
        json!({ "limit": limits[2], "set_variables": {}, "remaining": 3, "expires_in_seconds": 1 }),
    ]));
    let rules = of_a_year(&guide.only("Rules of tollgate", "yaml"));
    let tollgate = Tollgate::start(&rules, &[]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = directory.path().join("carry_over.py");
    std::fs::write(&script, guide.only("Carry over used hits", "python")).expect("the script");
    let output = Command::new(component("venv/bin/python"))
        .arg(&script)
        .args([url, format!("http://{}", tollgate.http)])
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.contains("1000 of 1000 spent") && said.contains("1 of 1000 spent"),
        "{said}"
    );
    let asked = |user: &str| {
        let body = format!(
            r#"{{"domain":"shop","descriptors":[{{"entries":[{{"key":"user","value":"{user}"}}]}}]}}"#
        );
        http(tollgate.http, "POST", "/json", &body)
    };
    assert_eq!(asked("bob").0, 429);
    let (status, body) = asked("eve");
    assert_eq!(status, 200);
    assert!(body.contains("\"limitRemaining\":998"), "{body}");
}

#[test]
fn every_replacement_of_limitadors_metrics_exists() {
    let guide = Page::guide(PAGE);
    let (_, table) = guide
        .text()
        .split_once("| metric | in tollgate |")
        .expect("the table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    for row in rows {
        let cell = row.trim_matches('|').split('|').nth(1).expect("a cell");
        for expression in cell.split('`').skip(1).step_by(2) {
            // Labels without a value, as the page writes them, only name the label.
            let (name, labels) = expression.split_once('{').unwrap_or((expression, ""));
            if labels.contains('=') {
                assert_eq!(crate::guides::exposed_metrics::unknown(expression), [""; 0]);
            } else {
                let name = name.trim_start_matches("1 - ");
                let shown = crate::guides::exposed_metrics::SHOWN
                    .get(name)
                    .unwrap_or_else(|| panic!("no {name}"));
                let named: Vec<_> = labels
                    .trim_end_matches('}')
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .collect();
                assert!(
                    named.iter().all(|label| shown.contains_key(*label)),
                    "{expression}"
                );
            }
        }
    }
}
