//! The admin API of the real binary: the schema of its responses, the examples of docs/admin.md,
//! its audit lines.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_test_support::components::repository;
use tollgate_test_support::http_client::http;
use tollgate_test_support::metrics_text::series_value;
use tollgate_test_support::polling::{PATIENCE, until};
use tollgate_test_support::quota_client::{Id, QuotaStream};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::process::logs::parsed;
use crate::process::python::schema_errors;
use crate::process::running::Running;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: free
    rate_limit: { unlimited: true }
  - key: slots
    rate_limit: { algorithm: concurrency, requests_per_unit: 2, slot_seconds: 60 }
";

// window: the quota is only reported, and no hit is counted against it.
const QUOTA: &str = "{ unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true }";

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
pub(crate) fn events(
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
        // A state comes each second, so a missing event would be waited for without end.
        assert!(seen.len() < 100, "{names:?}: {seen:?}");
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

/// The responses of a service with a quota, while it learns.
fn parts_of_a_quota() -> Vec<(&'static str, Value)> {
    let mut values = Vec::new();
    let quota = format!("{RULES}  - key: name\n    rate_limit: {QUOTA}\n");
    let apportioned = Tollgate::start(&quota, &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stream = runtime.block_on(async {
        let stream = QuotaStream::open(apportioned.grpc).await;
        let id: Id<'_> = &[("name", "a")];
        stream.report("d", &[(id, 1, 0)]).await;
        stream
    });
    let quotas = until("the bucket has a stream", || {
        let quotas = ask(&apportioned, "GET", "/quotas?id=name=a", "").1;
        let has_stream = quotas["buckets"][0]["figures"]["streams"] == 1;
        has_stream.then(|| quotas.clone()).ok_or(quotas)
    });
    assert_eq!(quotas["buckets"][0]["streams"][0]["weight"], 1, "{quotas}");
    assert!(quotas["learning_seconds"].as_f64() > Some(0.0), "{quotas}");
    values.push(("Quotas", quotas));
    let limits = ask(&apportioned, "GET", "/limits?rule=d.name", "").1;
    assert!(limits["limits"][0]["rlqs"].is_object(), "{limits}");
    values.push(("Limits", limits));
    for (name, data) in events(&apportioned, "", &["state"], || ()) {
        if name == "state" {
            assert_eq!(data["quotas"]["buckets"][0]["rule"], "d.name", "{data}");
            values.push(("StateEvent", data));
        }
    }
    drop(stream);
    values
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
        ("Quotas", get("/quotas")),
        ("Top", top),
        ("Decisions", decisions),
        ("ShadowRequest", shadow),
        ("ShadowRequest", until),
        ("ShadowResponse", shadowed),
        ("ResetRequest", reset),
        ("ResetResponse", forgotten),
        ("ApiError", error),
    ];
    let names = ["history", "state", "decision", "skipped"];
    let query = "?decisions_per_second_max=1";
    for (name, data) in events(&tollgate, query, &names, || {
        for _ in 0..5 {
            decide(&tollgate, "user", "b");
        }
    }) {
        values.push(match name.as_str() {
            "history" => ("HistoryEvent", data),
            "state" => ("StateEvent", data),
            "decision" => ("DecisionRecord", data),
            _ => ("SkippedEvent", data),
        });
    }
    // The parts of a candidate: the state, its decisions and its limits.
    let plain = "{ unit: year, requests_per_unit: 2 }";
    let candidate =
        "{ unit: year, requests_per_unit: 2, candidate: { unit: year, requests_per_unit: 1 } }";
    let tried = Tollgate::start(&RULES.replace(plain, candidate), &[]);
    let query = "?candidates=only";
    for (name, data) in events(&tried, query, &["state", "decision"], || {
        decide(&tried, "user", "c");
    }) {
        values.push(match name.as_str() {
            "history" => ("HistoryEvent", data),
            "state" => ("StateEvent", data),
            _ => {
                assert_eq!(data["candidate"], true);
                ("DecisionRecord", data)
            }
        });
    }
    let limits = ask(&tried, "GET", "/limits", "").1;
    assert!(limits["candidate"].is_object() && limits["limits"][0]["candidate"].is_object());
    values.push(("Limits", limits));
    values.extend(parts_of_a_quota());
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
    assert_eq!(schema_errors("admin", &values), "");
}

#[test]
fn every_example_of_the_page_runs() {
    let page = fs::read_to_string(repository().join("docs/admin.md")).unwrap();
    let rules = repository().join("examples/edge.yaml");
    let tollgate = Tollgate::start_at(&rules, &[]);
    let folder = tempfile::tempdir().unwrap();
    let mut examples = page.split("```sh\n").skip(1);
    let mut run = Vec::new();
    for example in &mut examples {
        let (command, _) = example.split_once("```").unwrap();
        assert_eq!(command.matches("localhost:6070").count(), 1, "{command}");
        let here = format!("localhost:{}", tollgate.admin.port());
        // On a busy machine the first state may take longer than the page reads.
        let here = command
            .replace("localhost:6070", &here)
            .replace("--max-time 3", "--max-time 25");
        let output = Command::new("sh")
            .args(["-c", &here])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let path = command.split("localhost:6070/").nth(1).unwrap();
        let path = path.split(['?', '\'', '\n']).next().unwrap().to_owned();
        let part = match path.as_str() {
            "limits" => "Limits",
            "top" => "Top",
            "decisions" => "Decisions",
            "partitions" => "Partitions",
            "quotas" => "Quotas",
            "overrides" => "OverrideResponse",
            "reset" => "ResetResponse",
            "shadow" => "ShadowResponse",
            "events" => {
                // It runs until the time is up.
                assert_eq!(output.status.code(), Some(28), "{output:?}");
                assert!(said.starts_with("event: history\ndata: {"), "{said}");
                assert!(said.contains("\n\nevent: state\ndata: {"), "{said}");
                run.push((path, None));
                continue;
            }
            "record" => {
                assert!(output.status.success(), "{output:?}");
                let recording = fs::read(folder.path().join("requests.bin")).unwrap();
                // The first item is a header: field 1, after its length.
                let head: Vec<_> = recording.iter().skip_while(|byte| **byte >= 0x80).collect();
                assert_eq!(head[1], &0x0a, "{:?}", &recording[..8]);
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
        "overrides",
        "partitions",
        "quotas",
        "record",
        "reset",
        "shadow",
        "top",
    ];
    assert_eq!(paths, all);
    let values: Vec<_> = run.into_iter().filter_map(|(_, value)| value).collect();
    assert_eq!(schema_errors("admin", &values), "");
}

/// A running service that logs JSON.
struct Logged {
    serving: Running,
    admin: SocketAddr,
    _rules: tempfile::NamedTempFile,
}

impl Logged {
    fn start(arguments: &[&str]) -> Self {
        let rules = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        fs::write(rules.path(), RULES).unwrap();
        let mut command = crate::process::logs::serve(rules.path(), &[]);
        let serving = Running::with_stderr(command.args(arguments));
        let started = parsed(&serving.line_with("tollgate started"));
        Self {
            serving,
            admin: started["admin"].as_str().unwrap().parse().unwrap(),
            _rules: rules,
        }
    }

    /// The next `count` audit lines. No other line names the value.
    fn audit(&self, count: usize) -> Vec<Value> {
        let mut audit = Vec::new();
        while audit.len() < count {
            let line = parsed(&self.serving.next_line().expect("it runs"));
            if line["module"] == "tollgate::audit" {
                audit.push(line);
            } else {
                assert!(!line.to_string().contains("alice"), "{line}");
            }
        }
        audit
    }
}

#[test]
fn each_change_is_one_audit_line_without_values() {
    let logged = Logged::start(&[]);
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"alice@example.org"}]}"#;
    let shadow = r#"{"domain":"d","rule":"d.user","for_seconds":1}"#;
    for (path, body, status) in [
        ("/reset", reset, 200),
        ("/reset", &*reset.replace("user", "nobody"), 404),
        ("/reset", "{", 400),
        ("/shadow", shadow, 200),
    ] {
        assert_eq!(http(logged.admin, "POST", path, body).0, status, "{body}");
    }
    let lines = logged.audit(5);
    let field = |name: &str| -> Vec<&str> {
        let fields = lines.iter();
        fields
            .map(|line| line[name].as_str().unwrap_or("none"))
            .collect()
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
    assert_eq!(field("@message"), ["admin change"; 5]);
    let here = "127.0.0.1";
    assert_eq!(field("who"), [here, here, here, here, "tollgate"]);
    assert!(field("peer")[0].starts_with("127.0.0.1:"));
    assert!(field("at")[0].ends_with('Z'));
    let what = field("what");
    let hash = what[0].strip_prefix("d: user=#").expect(what[0]);
    assert_eq!(hash.len(), 16, "{what:?}");
    assert!(what[1].starts_with("d: nobody=#"), "{what:?}");
    assert_eq!(what[3], "d: d.user");
    assert_eq!(field("details")[0], "0 of 1 buckets existed");
    assert_eq!((field("domain")[4], field("rule")[4]), ("d", "d.user"));
    assert!(!lines.iter().any(|line| line.to_string().contains("alice")));
    let (_, metrics) = http(logged.admin, "GET", "/metrics", "");
    for (change, result) in [
        ("reset", "done"),
        ("reset", "not_found"),
        ("reset", "invalid"),
        ("shadow", "done"),
        ("shadow", "ended"),
    ] {
        let series =
            format!("tollgate_admin_changes_total{{change=\"{change}\",result=\"{result}\"}}");
        assert_eq!(series_value(&metrics, &series), 1, "{series}");
    }
}

#[test]
fn an_audit_line_names_the_token_and_shows_values_where_they_are_shown_as_sent() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "correct-horse-battery").unwrap();
    let file = file.path().display().to_string();
    let logged = Logged::start(&["--top-keys", "plain", "--admin-token-file", &file]);
    let reset = r#"{"domain":"d","descriptor":[{"key":"user","value":"bob"}]}"#;
    let mut stream = TcpStream::connect(logged.admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /reset HTTP/1.0\r\nhost: any\r\nauthorization: Bearer correct-horse-battery\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{reset}",
        reset.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let line = &logged.audit(1)[0];
    assert_eq!(line["who"], "token");
    assert_eq!(line["what"], "d: user=bob");
    assert!(!line.to_string().contains("horse"));
}

/// A state is made once for all streams: its time is the same in each.
#[test]
fn a_hundred_streams_share_each_state() {
    let tollgate = Tollgate::start_at(Path::new("examples/edge.yaml"), &[]);
    let mut streams: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(tollgate.admin).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
                .write_all(b"GET /events HTTP/1.0\r\nhost: localhost\r\n\r\n")
                .unwrap();
            let lines = BufReader::new(stream).lines().map(Result::unwrap);
            let mut states = lines.filter(|line| line.starts_with("data: "));
            states.next().expect("a state");
            states
        })
        .collect();
    // Its states are those of the time in which all streams are open.
    let last = streams.pop().unwrap();
    let shared: BTreeSet<_> = last.take(5).collect();
    assert_eq!(shared.len(), 5);
    for states in streams {
        // A slow stream leaves states out, so it may have missed some.
        let mut states = states.take(1_000);
        assert!(states.any(|state| shared.contains(&state)));
    }
}
