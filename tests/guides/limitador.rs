//! `docs/guides/from-limitador.md`: the example's rules against a model of limitador, and the
//! script that migrates counters.
//!
//! How: the model follows limitador's documentation and its in-memory store for one request at a
//! time: find the limits whose conditions hold and whose variables exist, and count in all of them
//! or in none. Both run at one instant, since the page documents different window starts.
//!
//! What it deliberately does not do: run limitador, or evaluate CEL beyond the example.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_test_support::components::component;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guide::{Guide, yaml};

const PAGE: &str = "from-limitador.md";

/// A request: entries by key.
type RequestFields<'a> = BTreeMap<&'a str, &'a str>;

/// Model of limitador with the page's limits file.
struct Model {
    limits: Vec<Value>,
    counters: BTreeMap<(usize, Vec<String>), u64>,
}

fn texts<'v>(limit: &'v Value, field: &str) -> Vec<&'v str> {
    let list = limit[field].as_array().expect(field);
    list.iter()
        .map(|text| text.as_str().expect("a text"))
        .collect()
}

/// Key that an expression reads.
fn key(expression: &str) -> &str {
    let rest = expression
        .strip_prefix("descriptors[0].")
        .expect("a descriptor");
    rest.split([' ', '.']).next().expect("a key")
}

fn holds(condition: &str, asked: &RequestFields<'_>) -> bool {
    let value = asked.get(key(condition));
    let literal = condition.split('\'').nth(1).expect("a literal");
    value.is_some_and(|value| {
        if condition.contains(".startsWith(") {
            value.starts_with(literal)
        } else {
            assert!(condition.contains(" == "), "{condition}");
            *value == literal
        }
    })
}

impl Model {
    fn passes(&mut self, asked: &RequestFields<'_>) -> bool {
        let mut counters = Vec::new();
        for (at, limit) in self.limits.iter().enumerate() {
            let variables = texts(limit, "variables");
            let values: Option<Vec<_>> = variables
                .iter()
                .map(|variable| asked.get(key(variable)).map(ToString::to_string))
                .collect();
            let applies = texts(limit, "conditions")
                .iter()
                .all(|condition| holds(condition, asked));
            if let (true, Some(values)) = (applies, values) {
                counters.push(((at, values), limit["max_value"].as_u64().expect("a number")));
            }
        }
        let used = |counter| self.counters.get(counter).copied().unwrap_or_default();
        let passes = counters.iter().all(|(counter, max)| used(counter) < *max);
        if passes {
            for (counter, _) in counters {
                *self.counters.entry(counter).or_default() += 1;
            }
        }
        passes
    }
}

/// Descriptors that Envoy builds from a request with the page's actions: one where all its headers
/// exist.
fn descriptors(actions: &Value, asked: &RequestFields<'_>) -> Vec<Vec<(String, String)>> {
    let limits = actions["rate_limits"].as_array().expect("a list");
    let entries = |limit: &Value| -> Option<Vec<_>> {
        let actions = limit["actions"].as_array().expect("actions");
        let entry = |action: &Value| {
            let action = &action["request_headers"];
            let header = action["header_name"].as_str().expect("a header");
            let value = asked.get(header.trim_start_matches(':').trim_start_matches("x-"))?;
            let key = action["descriptor_key"].as_str().expect("a key");
            Some((key.to_owned(), value.to_string()))
        };
        actions.iter().map(entry).collect()
    };
    limits.iter().filter_map(entries).collect()
}

#[test]
fn the_commands_print_the_page_s_rules_and_actions() {
    let guide = Guide::of(PAGE);
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

#[tokio::test]
async fn the_rules_decide_like_limitador() {
    let guide = Guide::of(PAGE);
    let limits = yaml(&guide.only("Limits of limitador", "yaml")).remove(0);
    let actions = yaml(&guide.only("What Envoy sends", "yaml")).remove(0);
    let mut model = Model {
        limits: limits.as_array().expect("limits").clone(),
        counters: BTreeMap::new(),
    };
    let mut service = Service::start(&guide.only("Rules of tollgate", "yaml"), &[]).await;
    // Random choices from a fixed seed.
    let mut seed: u64 = 1;
    let mut draw = |of: &[&'static str]| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        of[usize::try_from(seed >> 33).expect("small") % of.len()]
    };
    let mut refused = 0;
    for number in 0..6000 {
        let mut asked = RequestFields::new();
        asked.insert("method", draw(&["GET", "GET", "GET", "POST"]));
        asked.insert(
            "path",
            draw(&["/", "/orders", "/orders/1", "/search", "/searching?q=a"]),
        );
        if let user @ ("bob" | "eve") = draw(&["bob", "bob", "eve", ""]) {
            asked.insert("user", user);
        }
        let descriptors = descriptors(&actions, &asked);
        let asks = descriptors
            .iter()
            .map(|entries| descriptor(entries))
            .collect();
        let answer = service.ask(request("shop", asks)).await;
        let passed = answer.overall_code == i32::from(Code::Ok);
        assert_eq!(passed, model.passes(&asked), "request {number}: {asked:?}");
        refused += u32::from(!passed);
    }
    // All three limits were reached, the daily one last.
    assert!(refused > 1000, "{refused}");
    let full = |at: usize, max: u64| {
        model
            .counters
            .iter()
            .any(|((limit, _), used)| *limit == at && *used == max)
    };
    assert!(
        full(0, 5) && full(1, 1000) && full(2, 20),
        "{:?}",
        model.counters
    );
    service.stop().await.expect("a good end");
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
    let guide = Guide::of(PAGE);
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
    // No window may turn during the test.
    let rules = guide
        .only("Rules of tollgate", "yaml")
        .replace("unit: day", "unit: year");
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
    let guide = Guide::of(PAGE);
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
                assert_eq!(crate::exposed_metrics::unknown(expression), [""; 0]);
            } else {
                let name = name.trim_start_matches("1 - ");
                let shown = crate::exposed_metrics::SHOWN
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
