//! `tollgate top --once`, `tap`, `reset` and `shadow` with real services.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tollgate_test_support::child_process::KillOnDrop;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::commands::tollgate;

pub(crate) const LIMITS: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: team
    rate_limit: {unit: hour, requests_per_unit: 1}
";

const PLAIN: [&str; 2] = ["--top-keys", "plain"];

pub(crate) fn admin(service: &Tollgate) -> String {
    format!("http://{}", service.admin)
}

/// Sends hits of one descriptor, one after the other, and returns the last exit code.
pub(crate) fn hit(service: &Tollgate, descriptor: &str, times: u32) -> i32 {
    let (grpc, times) = (service.grpc.to_string(), times.to_string());
    tollgate(&["hit", &grpc, "edge", descriptor, "--repeat", &times]).0
}

fn services(count: usize) -> (Vec<Tollgate>, String) {
    let services: Vec<_> = (0..count)
        .map(|_| Tollgate::start(LIMITS, &PLAIN))
        .collect();
    let urls: Vec<_> = services.iter().map(admin).collect();
    let urls = urls.join(",");
    (services, urls)
}

/// The URL of a port where nothing listens.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Checks values against a definition of the schema of the admin listener, by Python's jsonschema.
fn validate(definition: &str, values: &[Value]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let validate = "import json, sys, jsonschema
schema, definition, values = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(schema)
schema = {**schema, '$ref': '#/$defs/' + definition}
validator = jsonschema.Draft202012Validator(schema)
for value in values:
    for error in validator.iter_errors(value):
        print(list(error.absolute_path), error.message)
# A validator that accepts anything would be no test.
values[0]['keys'] = 'nonsense'
assert next(validator.iter_errors(values[0]), None)
";
    let mut python = Command::new(root.join("target/venv/bin/python"))
        .args(["-c", validate])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn_tied()
        .unwrap();
    let (_, schema, _) = tollgate(&["schema", "--for", "admin"]);
    let mut schema: Value = serde_json::from_str(&schema).unwrap();
    // The definition takes the place of "any of them".
    schema.as_object_mut().unwrap().remove("anyOf");
    let input = serde_json::to_vec(&serde_json::json!([schema, definition, values])).unwrap();
    python.stdin.take().unwrap().write_all(&input).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

fn once(urls: &str, arguments: &[&str]) -> (i32, Value, String) {
    let (code, stdout, stderr) = tollgate(
        &[
            &["top", "--once", "--format", "json", "--admin", urls],
            arguments,
        ]
        .concat(),
    );
    let value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    (code, value, stderr)
}

#[test]
fn top_once_merges_two_replicas_and_fits_the_schema() {
    let (services, urls) = services(2);
    // 5 hits of which 3 are refused on one, 4 and 2 on the other.
    hit(&services[0], "user=a", 5);
    hit(&services[1], "user=a", 4);
    hit(&services[1], "team=b", 2);
    // The counts of a core are joined when they are read.
    let (code, top, stderr) = once(&urls, &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(top["instances"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&top["by"], &top["window"], &top["values"]),
        (&"refused".into(), &"1m".into(), &"plain".into())
    );
    assert_eq!((&top["asked"], &top["refused"]), (&11.into(), &6.into()));
    let keys = top["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2, "{top:#}");
    assert_eq!(keys[0]["descriptor"][0]["value"], "a");
    assert_eq!(
        (&keys[0]["asked"], &keys[0]["refused"]),
        (&9.into(), &5.into())
    );
    assert_eq!(
        (&keys[1]["rule"], &keys[1]["refused"]),
        (&"edge.team".into(), &1.into())
    );
    let (_, hour, _) = once(&urls, &["--by", "asked", "--window", "1h", "--n", "1"]);
    assert_eq!(
        (&hour["by"], &hour["window"]),
        (&"asked".into(), &"1h".into())
    );
    assert_eq!(hour["keys"].as_array().unwrap().len(), 1);
    assert_eq!(hour["keys"][0]["asked"], 9);
    let (_, team, _) = once(&urls, &["--domain", "edge", "--rule", "edge.team"]);
    assert_eq!(team["keys"].as_array().unwrap().len(), 1);
    assert_eq!(team["keys"][0]["rule"], "edge.team");
    // One replica does not answer.
    let (code, partial, stderr) = once(&format!("{urls},{}", closed()), &[]);
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("cannot connect"), "{stderr}");
    assert_eq!(partial["failed"].as_array().unwrap().len(), 1);
    assert_eq!(partial["keys"], top["keys"]);
    let (code, none, _) = once(&closed(), &[]);
    assert_eq!(code, 4);
    assert_eq!(none["keys"].as_array().unwrap().len(), 0);
    validate("MergedTop", &[top, hour, team, partial, none]);
    let (code, text, _) = tollgate(&["top", "--once", "--admin", &urls]);
    assert_eq!(code, 0);
    assert!(
        text.starts_with("6 refused of 11 asked in the last minute"),
        "{text}"
    );
    assert!(text.contains("user=a  edge.user\n"), "{text}");
}

#[test]
fn hashed_keys_of_replicas_with_secrets_of_their_own_are_rows_of_their_own() {
    let services: Vec<_> = (0..2).map(|_| Tollgate::start(LIMITS, &[])).collect();
    for service in &services {
        hit(service, "user=a", 3);
    }
    let urls: Vec<_> = services.iter().map(admin).collect();
    let (code, top, stderr) = once(&urls.join(","), &[]);
    assert_eq!(code, 0);
    assert_eq!(top["values"], "hashed");
    let keys = top["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2, "{top:#}");
    for key in keys {
        let value = key["descriptor"][0]["value"].as_str().unwrap();
        assert!(value.starts_with('#') && value.len() == 17, "{value}");
    }
    assert!(stderr.contains("set --value-hash-key-file"), "{stderr}");
    // With one key file it is one row.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
    let file = file.display().to_string();
    let services: Vec<_> = (0..2)
        .map(|_| Tollgate::start(LIMITS, &["--value-hash-key-file", &file]))
        .collect();
    for service in &services {
        hit(service, "user=a", 3);
    }
    let urls: Vec<_> = services.iter().map(admin).collect();
    let (_, top, stderr) = once(&urls.join(","), &[]);
    assert_eq!(top["keys"].as_array().unwrap().len(), 1, "{top:#}");
    assert_eq!(top["keys"][0]["refused"], 2);
    assert_eq!(stderr, "");
}

#[test]
fn a_token_is_needed_sent_and_named_in_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let right = file("right", "0123456789abcdef0123\n");
    let wrong = file("wrong", "another-token-entirely");
    let service = Tollgate::start(LIMITS, &["--admin-token-file", &right]);
    let url = admin(&service);
    let top = |token: Option<&str>| {
        let mut arguments = vec!["top", "--once", "--admin", &url];
        arguments.extend(token.iter().flat_map(|file| ["--admin-token-file", file]));
        let (code, _, stderr) = tollgate(&arguments);
        (code, stderr)
    };
    assert_eq!(top(Some(&right)).0, 0);
    let (code, stderr) = top(None);
    assert_eq!(code, 4);
    assert!(
        stderr.contains(&format!("error: {url}: the service answered 401")),
        "{stderr}"
    );
    assert!(stderr.contains("set --admin-token-file"), "{stderr}");
    let (code, stderr) = top(Some(&wrong));
    assert_eq!(code, 4);
    assert!(stderr.contains("does not accept the token"), "{stderr}");
    let (code, stderr) = top(Some("/no/such/file"));
    assert_eq!(code, 4);
    assert!(
        stderr.contains("/no/such/file") && !stderr.contains("0123456789abcdef"),
        "{stderr}"
    );
}

#[test]
fn errors_name_the_replica_and_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let answers = [
            "HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{28}",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{",
        ];
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let url = format!("http://{address}");
    for words in [
        "302: a redirect, which is not followed",
        "not one of tollgate's admin listener",
        "404: it has no such path",
        "answers with TLS; write https://",
        "longer than 67108864 bytes",
    ] {
        let (code, _, stderr) = tollgate(&["top", "--once", "--admin", &url]);
        assert_eq!(code, 4, "{stderr}");
        assert!(stderr.starts_with(&format!("error: {url}: ")), "{stderr}");
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    let service = Tollgate::start(LIMITS, &[]);
    let https = format!("https://{}", service.admin);
    let (_, _, stderr) = tollgate(&["top", "--once", "--admin", &https]);
    assert!(
        stderr.contains("does not answer with TLS; write http://"),
        "{stderr}"
    );
    let (code, _, stderr) = tollgate(&["top", "--once", "--admin", "http://no.such.host.invalid"]);
    assert_eq!(code, 4);
    assert!(stderr.contains("does not resolve"), "{stderr}");
    let (code, _, stderr) = tollgate(&["top", "--once", "--admin", "ftp://x"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("write a URL such as"), "{stderr}");
    let (code, _, stderr) = tollgate(&["top", "--once", "--tls", "--admin", "http://edge:1"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("write --admin https://edge:1"), "{stderr}");
}

#[test]
fn a_reset_reaches_three_replicas_and_an_error_of_one_stops_no_other() {
    let (services, urls) = services(3);
    for service in &services {
        assert_eq!(hit(service, "user=a", 3), 3);
        assert_eq!(hit(service, "user=b", 3), 3);
    }
    let (code, stdout, stderr) = tollgate(&["reset", "--admin", &urls, "edge", "user=a"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let expected = services
        .iter()
        .map(|it| format!("{}: reset: edge.user\n", admin(it)));
    assert_eq!(stdout, expected.collect::<String>());
    for service in &services {
        assert_eq!(hit(service, "user=a", 2), 0, "it passes again");
        assert_eq!(hit(service, "user=b", 1), 3, "no other key changes");
    }
    let dead = closed();
    let some = format!("{dead},{urls}");
    let (code, stdout, stderr) = tollgate(&["reset", "--admin", &some, "edge", "user=a"]);
    assert_eq!(code, 6);
    assert!(
        stderr.starts_with(&format!("error: {dead}: cannot connect")),
        "{stderr}"
    );
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
    for service in &services {
        assert_eq!(hit(service, "user=a", 1), 0);
    }
    let (code, stdout, stderr) = tollgate(&["reset", "--admin", &urls, "edge", "none=a"]);
    assert_eq!((code, stdout.as_str()), (4, ""));
    assert_eq!(stderr.matches("answered 404: ").count(), 3, "{stderr}");
    let (code, ..) = tollgate(&["reset", "--admin", &urls, "edge", "none"]);
    assert_eq!(code, 2);
}

#[test]
fn shadow_mode_begins_and_ends_on_three_replicas() {
    let (services, urls) = services(3);
    for service in &services {
        assert_eq!(hit(service, "user=a", 3), 3);
    }
    let shadow = |more: &[&str]| {
        tollgate(&[&["shadow", "--admin", &urls, "edge", "edge.user"], more].concat())
    };
    let (code, stdout, stderr) = shadow(&["--for", "10m"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert_eq!(
        stdout
            .matches(": edge.user is in shadow mode until 2")
            .count(),
        3,
        "{stdout}"
    );
    for service in &services {
        assert_eq!(hit(service, "user=a", 1), 0, "shadow mode refuses nothing");
    }
    let (code, stdout, _) = shadow(&["--end"]);
    assert_eq!(code, 0);
    assert_eq!(
        stdout
            .matches(": edge.user is in the mode of its file")
            .count(),
        3,
        "{stdout}"
    );
    for service in &services {
        assert_eq!(hit(service, "user=a", 1), 3);
    }
    assert_eq!(shadow(&[]).0, 2);
    assert_eq!(shadow(&["--for", "10m", "--end"]).0, 2);
    assert_eq!(shadow(&["--until", "tomorrow"]).0, 2);
    let (code, _, stderr) = shadow(&["--until", "2020-01-01T00:00:00Z"]);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("answered 400"), "{stderr}");
}

/// A running `tollgate tap`, and its lines.
struct Tap {
    child: KillOnDrop,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Tap {
    fn start(urls: &str, arguments: &[&str]) -> Self {
        let mut child: Child = Command::new(tollgate_binary())
            .args(["tap", "--admin", urls])
            .args(arguments)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn_tied()
            .unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            child: KillOnDrop(child),
            lines,
        }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    fn exit(&mut self) -> Option<i32> {
        wait_for(PATIENCE, || self.child.0.try_wait().unwrap()).and_then(|status| status.code())
    }
}

/// Waits until every service has an open stream of events.
fn wait_for_streams(services: &[Tollgate], count: u64) {
    for service in services {
        let open = || (service.metric("tollgate_event_streams") == count).then_some(());
        wait_for(PATIENCE, open).expect("an open stream");
    }
}

#[test]
fn tap_prints_decisions_of_two_replicas_that_match() {
    let (services, urls) = services(2);
    let mut tap = Tap::start(
        &urls,
        &["--key", "user=a", "--verdict", "over_limit", "--count", "2"],
    );
    wait_for_streams(&services, 1);
    hit(&services[0], "user=b", 4);
    hit(&services[0], "team=a", 4);
    hit(&services[0], "user=a", 3);
    let line = tap.line();
    let url = admin(&services[0]);
    let time = line.split(' ').next().unwrap();
    assert_eq!(time.len(), "20:01:02.003".len(), "{line}");
    assert_eq!(
        line.strip_prefix(time).unwrap(),
        format!(
            " OVER_LIMIT over_limit edge user=a rule=edge.user remaining=0 limit=\"2 per hour\" from {url}"
        )
    );
    hit(&services[1], "user=a", 3);
    let line = tap.line();
    assert!(
        line.ends_with(&format!("from {}", admin(&services[1]))),
        "{line}"
    );
    assert_eq!(tap.exit(), Some(0), "--count ends it");
}

#[test]
fn tap_says_how_many_were_skipped_and_ends_at_ctrl_c() {
    let (services, urls) = services(1);
    let mut tap = Tap::start(&urls, &["--per-second-max", "1", "--format", "json"]);
    wait_for_streams(&services, 1);
    let mut printed = 0;
    let mut skipped = 0;
    for round in 0_u32.. {
        assert!(round < 60, "no decision was skipped");
        hit(&services[0], "user=a", 20);
        while let Ok(line) = tap.lines.recv_timeout(Duration::from_millis(100)) {
            let value: Value = serde_json::from_str(&line).unwrap();
            if let Some(more) = value["skipped"].as_u64() {
                skipped += more;
            } else {
                assert_eq!(value["descriptors"][0]["rule"], "edge.user");
                assert!(value["admin"].as_str().unwrap().starts_with("http://"));
                printed += 1;
            }
        }
        if skipped > 0 && printed > 0 {
            break;
        }
    }
    let id = tap.child.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", "INT", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(tap.exit(), Some(0));
}

#[test]
fn tap_ends_without_a_replica_and_with_its_reader() {
    let mut tap_ends = Tap::start(&closed(), &[]);
    assert_eq!(tap_ends.exit(), Some(4), "no replica can be reached");
    let (services, urls) = services(1);
    // `head` closes the pipe after the first line.
    let pipe = format!("{} tap --admin {urls} | head -n 1", tollgate_binary());
    let shell = Command::new("bash")
        .args(["-o", "pipefail", "-c", &pipe])
        .stdout(Stdio::piped())
        .spawn_tied()
        .unwrap();
    let mut shell = KillOnDrop(shell);
    wait_for_streams(&services, 1);
    let status = wait_for(PATIENCE, || {
        hit(&services[0], "user=a", 1);
        shell.0.try_wait().unwrap()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}
