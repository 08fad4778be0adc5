//! The admin API of the real binary: its schema, the examples of docs/admin.md, its audit lines.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::commands::tollgate;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: free
    rate_limit: { unlimited: true }
  - key: slots
    rate_limit: { algorithm: concurrency, requests_per_unit: 2, slot_seconds: 60 }
";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_committed_schema_of_the_admin_api_is_the_one_that_is_printed() {
    let path = root().join("docs/admin.schema.json");
    let (code, printed, _) = tollgate(&["schema", "--for", "admin"]);
    assert_eq!(code, 0);
    if std::env::var_os("WRITE_README").is_some() {
        fs::write(&path, &printed).unwrap();
    } else {
        assert!(
            fs::read_to_string(&path).unwrap() == printed,
            "run make readme"
        );
    }
}

/// Panics unless each value is valid by its part of the schema, and would not be with a field more.
fn assert_valid(values: &[(&str, Value)]) {
    let validate = "import json, sys, jsonschema
schema, values = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(schema)
for part, value in values:
    own = {'$schema': schema['$schema'], '$defs': schema['$defs'], '$ref': '#/$defs/' + part}
    validator = jsonschema.Draft202012Validator(own)
    for error in validator.iter_errors(value):
        print(part, list(error.absolute_path), error.message)
    assert next(validator.iter_errors({**value, 'surprise': 1}), None), part
    for name in value:
        without = {key: value[key] for key in value if key != name}
        required = name in schema['$defs'][part]['required']
        assert (next(validator.iter_errors(without), None) is not None) == required, (part, name)
";
    let (_, schema, _) = tollgate(&["schema", "--for", "admin"]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut python = Command::new(root().join("target/venv/bin/python"))
        .args(["-c", validate])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = serde_json::to_vec(&json!([schema, values])).unwrap();
    python.stdin.take().unwrap().write_all(&input).unwrap();
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{said}");
}

fn decide(tollgate: &Tollgate, key: &str, value: &str) -> u16 {
    let body = json!({
        "domain": "d",
        "descriptors": [{"entries": [{"key": key, "value": value}]}],
    });
    http(tollgate.http, "POST", "/json", &body.to_string()).0
}

fn ask(tollgate: &Tollgate, method: &str, path: &str, body: &str) -> (u16, Value) {
    let (status, text) = http(tollgate.admin, method, path, body);
    // A long response comes in chunks; those of this file are short.
    (status, serde_json::from_str(&text).expect(&text))
}

/// The first events of a stream, until one of each of these names has come.
fn events(
    tollgate: &Tollgate,
    query: &str,
    names: &[&str],
    meanwhile: impl Fn(),
) -> Vec<(String, Value)> {
    let mut stream = TcpStream::connect(tollgate.admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET /events{query} HTTP/1.0\r\nhost: localhost\r\n\r\n"
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut seen: Vec<(String, Value)> = Vec::new();
    while !names
        .iter()
        .all(|name| seen.iter().any(|(seen, _)| seen == name))
    {
        let line = lines.next().expect("another event");
        if let Some(name) = line.strip_prefix("event: ") {
            let data = lines.next().unwrap();
            let data = data.strip_prefix("data: ").expect(&data);
            seen.push((name.to_owned(), serde_json::from_str(data).unwrap()));
            meanwhile();
        }
    }
    seen
}

#[test]
fn the_schema_describes_every_response_and_event() {
    let tollgate = Tollgate::start(RULES, &[]);
    for user in ["a", "b"] {
        for _ in 0..4 {
            decide(&tollgate, "user", user);
        }
    }
    decide(&tollgate, "free", "");
    decide(&tollgate, "slots", "");
    decide(&tollgate, "unknown", "");
    let get = |path: &str| {
        let (status, value) = ask(&tollgate, "GET", path, "");
        assert_eq!(status, 200, "{path}: {value}");
        value
    };
    let shadow = json!({"domain": "d", "rule": "d.user", "for_seconds": 60});
    let reset = json!({"domain": "d", "descriptor": [{"key": "user", "value": "a"}]});
    let (status, shadowed) = ask(&tollgate, "POST", "/shadow", &shadow.to_string());
    assert_eq!(status, 200, "{shadowed}");
    let (status, forgotten) = ask(&tollgate, "POST", "/reset", &reset.to_string());
    assert_eq!(status, 200, "{forgotten}");
    let (status, error) = ask(&tollgate, "GET", "/limits?x=1", "");
    assert_eq!(status, 400);
    let top = get("/top?by=asked");
    assert!(!top["keys"].as_array().unwrap().is_empty(), "{top}");
    let decisions = get("/decisions");
    assert!(!decisions["decisions"].as_array().unwrap().is_empty());
    let until = json!({"domain": "d", "rule": "d.user", "until": "2030-01-01T00:00:00Z"});
    let mut values = vec![
        ("Limits", get("/limits")),
        ("Partitions", get("/partitions")),
        ("Top", top),
        ("Decisions", decisions),
        ("ShadowRequest", shadow),
        ("ShadowRequest", until),
        ("ShadowResponse", shadowed),
        ("ResetRequest", reset),
        ("ResetResponse", forgotten),
        ("ApiError", error),
    ];
    let names = ["state", "decision", "skipped"];
    let query = "?decisions_per_second_max=1";
    for (name, data) in events(&tollgate, query, &names, || {
        for _ in 0..5 {
            decide(&tollgate, "user", "b");
        }
    }) {
        values.push(match name.as_str() {
            "state" => ("StateEvent", data),
            "decision" => ("DecisionRecord", data),
            _ => ("SkippedEvent", data),
        });
    }
    // The parts of a shared store that is not there.
    let shared = ["--store", "redis://127.0.0.1:1", "--store-mode", "leased"];
    let other = Tollgate::start(RULES, &shared);
    values.push(("Partitions", ask(&other, "GET", "/partitions", "").1));
    values.push(("Limits", ask(&other, "GET", "/limits", "").1));
    let partitions = &values[values.len() - 2].1;
    assert_eq!(partitions["store"]["mode"], "leased");
    assert_eq!(
        partitions["store"]["leases"],
        json!({"leases": 0, "hits_held": 0})
    );
    assert!(!partitions["partitions"].as_array().unwrap().is_empty());
    assert_valid(&values);
}

#[test]
fn every_example_of_the_page_runs() {
    let page = fs::read_to_string(root().join("docs/admin.md")).unwrap();
    let rules = root().join("examples/edge.yaml");
    let tollgate = Tollgate::start_at(&rules, &[]);
    let mut examples = page.split("```sh\n").skip(1);
    let mut run = Vec::new();
    for example in &mut examples {
        let (command, _) = example.split_once("```").unwrap();
        assert_eq!(command.matches("localhost:6070").count(), 1, "{command}");
        let here = format!("localhost:{}", tollgate.admin.port());
        let output = Command::new("sh")
            .args(["-c", &command.replace("localhost:6070", &here)])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let path = command.split("localhost:6070/").nth(1).unwrap();
        let path = path.split(['?', '\'', '\n']).next().unwrap().to_owned();
        let part = match path.as_str() {
            "limits" => "Limits",
            "top" => "Top",
            "decisions" => "Decisions",
            "partitions" => "Partitions",
            "reset" => "ResetResponse",
            "shadow" => "ShadowResponse",
            "events" => {
                // It runs until the time is up.
                assert_eq!(output.status.code(), Some(28), "{output:?}");
                assert!(said.starts_with("event: state\ndata: {"), "{said}");
                run.push((path, None));
                continue;
            }
            other => panic!("{other}"),
        };
        assert!(output.status.success(), "{command}: {said}");
        let value: Value = serde_json::from_str(&said).expect(&said);
        run.push((path, Some((part, value))));
    }
    let mut paths: Vec<_> = run.iter().map(|(path, _)| path.as_str()).collect();
    paths.sort_unstable();
    let all = [
        "decisions",
        "events",
        "limits",
        "partitions",
        "reset",
        "shadow",
        "top",
    ];
    assert_eq!(paths, all);
    let values: Vec<_> = run.into_iter().filter_map(|(_, value)| value).collect();
    assert_valid(&values);
}

/// The audit lines so far, once there are `count`.
fn audit(tollgate: &Tollgate, count: usize) -> Vec<Value> {
    let lines = || {
        let said = tollgate.said();
        let lines = said.lines().filter(|line| line.contains("tollgate::audit"));
        let lines: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        (lines.len() >= count).then_some(lines)
    };
    wait_for(PATIENCE, lines).unwrap_or_else(|| panic!("{}", tollgate.said()))
}

#[test]
fn each_change_is_one_audit_line_without_values() {
    let tollgate = Tollgate::start(RULES, &["--log-format", "json"]);
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"alice@example.org"}]}"#;
    let shadow = r#"{"domain":"d","rule":"d.user","for_seconds":1}"#;
    decide(&tollgate, "user", "alice@example.org");
    ask(&tollgate, "POST", "/reset", reset);
    ask(
        &tollgate,
        "POST",
        "/reset",
        &reset.replace("user", "nobody"),
    );
    ask(&tollgate, "POST", "/reset", "{");
    ask(&tollgate, "POST", "/shadow", shadow);
    let lines = audit(&tollgate, 5);
    let field = |name: &str| -> Vec<&str> {
        let fields = lines
            .iter()
            .map(|line| line[name].as_str().unwrap_or("none"));
        fields.collect()
    };
    assert_eq!(
        field("change"),
        ["reset", "reset", "reset", "shadow", "shadow"]
    );
    assert_eq!(
        field("result"),
        ["done", "not_found", "invalid", "done", "ended"]
    );
    assert_eq!(field("level"), ["info"; 5]);
    assert_eq!(field("module"), ["tollgate::audit"; 5]);
    assert_eq!(field("@message"), ["admin change"; 5]);
    let here = "127.0.0.1";
    assert_eq!(field("who"), [here, here, here, here, "tollgate"]);
    assert!(lines[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(lines[0]["at"].as_str().unwrap().ends_with('Z'));
    let what = lines[0]["what"].as_str().unwrap();
    let hash = what.strip_prefix("d: user=#").expect(what);
    assert_eq!(hash.len(), 16, "{what}");
    assert_eq!(lines[0]["details"], "1 of 1 buckets existed");
    assert_eq!(lines[3]["what"], "d: d.user");
    assert_eq!(
        (&lines[4]["domain"], &lines[4]["rule"]),
        (&json!("d"), &json!("d.user"))
    );
    assert!(!tollgate.said().contains("alice"), "{}", tollgate.said());
    for (change, result, count) in [
        ("reset", "done", 1),
        ("reset", "not_found", 1),
        ("reset", "invalid", 1),
        ("shadow", "done", 1),
        ("shadow", "ended", 1),
    ] {
        let series =
            format!("tollgate_admin_changes_total{{change=\"{change}\",result=\"{result}\"}}");
        assert_eq!(tollgate.metric(&series), count, "{series}");
    }
    // With a token and values as sent.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "correct-horse-battery").unwrap();
    let file = file.path().display().to_string();
    let arguments = [
        "--log-format",
        "json",
        "--top-keys",
        "plain",
        "--admin-token-file",
        &file,
    ];
    let tollgate = Tollgate::start(RULES, &arguments);
    let mut stream = TcpStream::connect(tollgate.admin).unwrap();
    write!(
        stream,
        "POST /reset HTTP/1.0\r\nhost: any\r\nauthorization: Bearer correct-horse-battery\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{reset}",
        reset.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let line = &audit(&tollgate, 1)[0];
    assert_eq!(line["who"], "token");
    assert_eq!(line["what"], "d: user=alice@example.org");
    assert!(!tollgate.said().contains("horse"));
}

#[test]
fn a_hundred_streams_cost_little() {
    let tollgate = Tollgate::start_at(Path::new("examples/edge.yaml"), &[]);
    let mut streams: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(tollgate.admin).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
                .write_all(b"GET /events HTTP/1.0\r\nhost: localhost\r\n\r\n")
                .unwrap();
            BufReader::new(stream).lines().map(Result::unwrap)
        })
        .collect();
    let mut next_state = |states: usize| {
        for lines in &mut streams {
            let events = lines.filter(|line| line == "event: state");
            assert_eq!(events.take(states).count(), states);
        }
    };
    next_state(2);
    let before = tollgate.cpu_seconds();
    // A state comes each second.
    next_state(10);
    let spent = tollgate.cpu_seconds() - before;
    println!("CPU of 100 streams: {:.2} % of a core", spent * 10.0);
    // The promise is 1 % of a core. This binary is not optimised, and the clock ticks in 10 ms.
    assert!(spent < 0.5, "{spent} s of CPU in 10 s");
}
