//! `tollgate top --once` and `tap` with real services; `reset` and `shadow` are in
//! `sessions/admin.txt`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::commands::tollgate;
use crate::process::python::schema_errors;
use crate::process::running::Running;

pub(crate) const LIMITS: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: team
    rate_limit: {unit: year, requests_per_unit: 1}
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
    format!("http://127.0.0.1:{}", reserved_port())
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
    let (_, by_default, _) = once(&urls, &[]);
    assert_eq!(by_default["window"], "1m");
    // A minute may be over before the last call on a busy machine.
    let hour = ["--window", "1h"];
    let (code, top, stderr) = once(&urls, &hour);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(top["instances"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&top["by"], &top["window"], &top["values"]),
        (&"refused".into(), &"1h".into(), &"plain".into())
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
    let (_, asked, _) = once(&urls, &["--by", "asked", "--window", "1h", "--n", "1"]);
    assert_eq!(asked["by"], "asked");
    assert_eq!(asked["keys"].as_array().unwrap().len(), 1);
    assert_eq!(asked["keys"][0]["asked"], 9);
    let rule = ["--domain", "edge", "--rule", "edge.team", "--window", "1h"];
    let (_, team, _) = once(&urls, &rule);
    assert_eq!(team["keys"].as_array().unwrap().len(), 1);
    assert_eq!(team["keys"][0]["rule"], "edge.team");
    // One replica does not answer.
    let (code, partial, stderr) = once(&format!("{urls},{}", closed()), &hour);
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("cannot connect"), "{stderr}");
    assert_eq!(partial["failed"].as_array().unwrap().len(), 1);
    assert_eq!(partial["keys"], top["keys"]);
    let (code, none, _) = once(&closed(), &[]);
    assert_eq!(code, 4);
    assert_eq!(none["keys"].as_array().unwrap().len(), 0);
    let merged = [top, asked, team, partial, none].map(|value| ("MergedTop", value));
    assert_eq!(schema_errors("admin", &merged), "");
    let (code, text, _) = tollgate(&["top", "--once", "--window", "1h", "--admin", &urls]);
    assert_eq!(code, 0);
    assert!(
        text.starts_with("6 refused, 0 would be refused, of 11 asked in the last hour"),
        "{text}"
    );
    assert!(text.contains("user=a  edge.user\n"), "{text}");
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
}

fn tap(urls: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(tollgate_binary());
    command.args(["tap", "--admin", urls]).args(arguments);
    Running::with_stdout(command.env_clear())
}

/// Waits until every service has an open stream of events.
fn wait_for_streams(services: &[Tollgate]) {
    for service in services {
        until("a stream of events is open", || {
            service.metric("tollgate_event_streams") == 1
        });
    }
}

#[test]
fn tap_prints_decisions_of_two_replicas_that_match() {
    let (services, urls) = services(2);
    let arguments = ["--key", "user=a", "--verdict", "over_limit", "--count", "2"];
    let mut tap = tap(&urls, &arguments);
    wait_for_streams(&services);
    hit(&services[0], "user=b", 4);
    hit(&services[0], "team=a", 4);
    hit(&services[0], "user=a", 3);
    let line = tap.next_line().expect("a line");
    let url = admin(&services[0]);
    let time = line.split(' ').next().unwrap();
    assert_eq!(time.len(), "20:01:02.003Z".len(), "{line}");
    assert_eq!(
        line.strip_prefix(time).unwrap(),
        format!(
            " OVER_LIMIT over_limit edge user=a rule=edge.user remaining=0 limit=\"2 per year\" from {url}"
        )
    );
    hit(&services[1], "user=a", 3);
    let line = tap.next_line().expect("a line");
    assert!(
        line.ends_with(&format!("from {}", admin(&services[1]))),
        "{line}"
    );
    assert!(tap.exit().success(), "--count ends it");
}

#[test]
fn tap_says_how_many_were_skipped_and_ends_at_ctrl_c() {
    let (services, urls) = services(1);
    let mut tap = tap(&urls, &["--per-second-max", "1", "--format", "json"]);
    wait_for_streams(&services);
    let mut printed = 0;
    let mut skipped = 0;
    until("decisions are printed and skipped", || {
        hit(&services[0], "user=a", 20);
        while let Some(line) = tap.line_if_any() {
            let value: Value = serde_json::from_str(&line).unwrap();
            if let Some(more) = value["skipped"].as_u64() {
                skipped += more;
            } else {
                assert_eq!(value["descriptors"][0]["rule"], "edge.user");
                assert!(value["admin"].as_str().unwrap().starts_with("http://"));
                printed += 1;
            }
        }
        let both = skipped > 0 && printed > 0;
        both.then_some(()).ok_or((printed, skipped))
    });
    tap.signal("INT");
    assert!(tap.exit().success());
}

#[test]
fn tap_ends_without_a_replica_and_with_its_reader() {
    let mut ended = tap(&closed(), &[]);
    assert_eq!(ended.exit().code(), Some(4), "no replica can be reached");
    let (services, urls) = services(1);
    // `head` closes the pipe after the first line.
    let pipe = format!("{} tap --admin {urls} | head -n 1", tollgate_binary());
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", &pipe]);
    let mut shell = Running::with_stdout(&mut shell);
    wait_for_streams(&services);
    // The second is written to a closed pipe.
    until("the reader ends it", || {
        hit(&services[0], "user=a", 1);
        shell.ended()
    });
    assert!(shell.exit().success());
}
