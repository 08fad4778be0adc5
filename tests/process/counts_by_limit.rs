//! Hits by limit and by what became of them: one load through a real Envoy, counted by a model, and
//! what every reader of a running service says of it.
//!
//! What it deliberately does not do: draw the live page (`tests/browser`).

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::components::{component, repository};
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::http_client::http;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::metrics_text::series_value;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::admin::events;
use crate::process::admin_commands::admin;
use crate::process::commands::tollgate;
use crate::process::running::Running;
use crate::process::top::Terminal;

/// No window turns. The limits without names are told apart by their windows.
const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limits:
      - {name: s, unit: year, requests_per_unit: 2}
      - {name: h, unit: year, requests_per_unit: 100}
  - key: plan
    rate_limits:
      - {unit: year, requests_per_unit: 50}
      - {unit: year, unit_multiplier: 2, requests_per_unit: 3}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: a
    descriptors:
      - key: b
        descriptors:
          - key: c
            value: x.y
            rate_limit: {unit: year, requests_per_unit: 4}
          - key: d
            rate_limit: {unit: year, requests_per_unit: 1}
  - key: each
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: small
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: large
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 100}
  - key: tokens
    rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_window}
";

/// Hits admitted, refused, that would be refused, and overruled.
type Counts = [u64; 4];

const OUTCOMES: [&str; 4] = ["admitted", "refused", "would_refuse", "overruled"];

/// A limit of the model: rule, label, how many hits may pass, and whether it refuses.
#[derive(Clone, Copy)]
struct Limit(&'static str, &'static str, u64, bool);

const S: Limit = Limit("edge.user", "s", 2, true);
const H: Limit = Limit("edge.user", "h", 100, true);
const YEAR: Limit = Limit("edge.plan", "year", 50, true);
const TWO_YEARS: Limit = Limit("edge.plan", "2 years", 3, true);
const QUIET: Limit = Limit("edge.quiet", "year", 1, false);
const DEEP_C: Limit = Limit("edge.a.b.c_x.y", "year", 4, true);
const DEEP_D: Limit = Limit("edge.a.b.d", "year", 1, true);
const EACH: Limit = Limit("edge.each", "year", 1, true);
/// A quota refuses only if all quotas of a request are over, and the large one never is.
const SMALL: Limit = Limit("edge.small", "year", 1, false);
const LARGE: Limit = Limit("edge.large", "year", 100, true);
const OVERRIDE: Limit = Limit("(override)", "", 1, true);

/// What the load came to, by rule and limit.
#[derive(Default)]
struct Model {
    used: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    hits: BTreeMap<(&'static str, &'static str), Counts>,
    /// Requests that were admitted and refused.
    requests: [u64; 2],
}

impl Model {
    /// Decides a request of one hit in each bucket of these limits; returns whether it passes.
    fn decide(&mut self, buckets: &[Bucket]) -> bool {
        let within: Vec<bool> = buckets
            .iter()
            .map(|(Limit(rule, label, most, _), value)| {
                let used = self.used.entry((rule, label, value)).or_default();
                *used += 1;
                *used <= *most
            })
            .collect();
        let refused = buckets.iter().zip(&within);
        let refused = refused
            .filter(|((Limit(.., enforced), _), within)| *enforced && !**within)
            .count()
            > 0;
        for ((Limit(rule, label, _, enforced), _), within) in buckets.iter().zip(&within) {
            let outcome = match (within, refused) {
                (true, false) => 0,
                (true, true) => 3,
                (false, _) if *enforced => 1,
                (false, _) => 2,
            };
            self.hits.entry((rule, label)).or_default()[outcome] += 1;
        }
        self.requests[usize::from(refused)] += 1;
        !refused
    }

    /// Hits by rule, with the name of a limit that has one.
    fn by_rule(&self) -> BTreeMap<String, Counts> {
        let mut rules: BTreeMap<String, Counts> = BTreeMap::new();
        for ((rule, label), hits) in &self.hits {
            for (sum, hits) in rules
                .entry(named(rule, label))
                .or_default()
                .iter_mut()
                .zip(hits)
            {
                *sum += hits;
            }
        }
        rules
    }
}

/// A rule, with the name of a limit that has one.
fn named(rule: &str, label: &str) -> String {
    match label {
        "s" | "h" => format!("{rule} name={label}"),
        _ => rule.to_owned(),
    }
}

/// A header's name and value.
type Header = (&'static str, &'static str);

/// A limit, and the value of its bucket.
type Bucket = (Limit, &'static str);

/// The headers of requests to Envoy, which makes a descriptor of each, and the buckets that they
/// take from.
fn load() -> Vec<(Vec<Header>, Vec<Bucket>)> {
    let user = |value: &'static str| ([("user", value)], [(S, value), (H, value)]);
    let mut load = Vec::new();
    for _ in 0..80 {
        let (user, limits) = user("ann");
        load.push((user.to_vec(), limits.to_vec()));
    }
    for _ in 0..5 {
        let plan = vec![(YEAR, "gold"), (TWO_YEARS, "gold")];
        load.push((vec![("plan", "gold")], plan));
        load.push((vec![("quiet", "q")], vec![(QUIET, "q")]));
        load.push((vec![("free", "f")], Vec::new()));
        load.push((vec![("brought", "x")], vec![(OVERRIDE, "x")]));
    }
    for value in ["one", "two", "one", "one"] {
        load.push((vec![("each", value)], vec![(EACH, value)]));
    }
    for value in ["three", "three", "four"] {
        // Two quotas, and a limit that refuses the second of these requests.
        let headers = vec![("small", "q"), ("large", "q"), ("each", value)];
        let buckets = vec![(SMALL, "q"), (LARGE, "q"), (EACH, value)];
        load.push((headers, buckets));
    }
    for _ in 0..3 {
        // Three descriptors, two of them of three levels: the limit of one refuses the request for
        // the others.
        let (user, limits) = user("bob");
        let levels = [("a", "1"), ("b", "2"), ("c", "x.y"), ("d", "z")];
        let mut buckets = limits.to_vec();
        buckets.extend([(DEEP_C, "c"), (DEEP_D, "d")]);
        load.push(([&user[..], &levels].concat(), buckets));
    }
    load
}

/// Adds what lines of decisions say: hits that were refused, and that would be, by rule; and the
/// verdicts of requests.
fn of_decisions(lines: &[Value]) -> (BTreeMap<String, [u64; 2]>, [u64; 2]) {
    let mut over: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut requests = [0; 2];
    for line in lines {
        requests[usize::from(line["verdict"] == "OVER_LIMIT")] += 1;
        for descriptor in line["descriptors"].as_array().unwrap() {
            let Some(rule) = descriptor["rule"].as_str() else {
                continue;
            };
            let hits = descriptor["hits"].as_u64().unwrap();
            let counts = over.entry(rule.to_owned()).or_default();
            match descriptor["reason"].as_str().unwrap() {
                "over_limit" => counts[0] += hits,
                "shadow_mode" | "quota" => counts[1] += hits,
                _ => {}
            }
        }
    }
    over.retain(|_, counts| *counts != [0; 2]);
    (over, requests)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn numbers<const N: usize>(of: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}")))
}

/// Single decisions have what the model has.
fn check_decisions(model: &Model, all: [&[Value]; 2]) {
    let expected = model.by_rule().into_iter().map(|(rule, counts)| {
        let [_, refused, would_refuse, _] = counts;
        (rule, [refused, would_refuse])
    });
    let expected: BTreeMap<_, _> = expected.filter(|(_, counts)| *counts != [0; 2]).collect();
    for decisions in all {
        assert_eq!(of_decisions(decisions), (expected.clone(), model.requests));
    }
}

/// The recording, decided again, has what the model has.
fn check_replay(model: &Model, recording: &str, rules: &str) {
    let (code, replayed, stderr) =
        tollgate(&["replay", recording, "--rules", rules, "--format", "json"]);
    assert_eq!((code, &*stderr), (0, ""), "{replayed}");
    let replayed = parsed(&replayed);
    let requests = numbers(&replayed, ["admitted", "refused"]);
    assert_eq!(requests, model.requests);
    let mut rows: BTreeMap<String, Counts> = BTreeMap::new();
    for row in replayed["by_rule"].as_array().unwrap() {
        let counts = rows.entry(row["rule"].as_str().unwrap().to_owned());
        let counts = counts.or_default().iter_mut();
        for (sum, count) in counts.zip(numbers(row, OUTCOMES)) {
            *sum += count;
        }
    }
    assert_eq!(rows, model.by_rule());
}

/// `/metrics` has what the model has, and the series of the reference count each descriptor once.
fn check_metrics(model: &Model, service: &Tollgate) {
    let metrics = service.get("/metrics");
    let shown = |rule: &str, limit: &str, outcome: &str| {
        series_value(
            &metrics,
            &format!(
                "tollgate_limit_hits_total{{domain=\"edge\",limit=\"{limit}\",outcome=\"{outcome}\",\
                 rule=\"{rule}\"}}"
            ),
        )
    };
    for ((rule, limit), counts) in &model.hits {
        let seen = OUTCOMES.map(|outcome| shown(rule, limit, outcome));
        assert_eq!(seen, *counts, "{rule} {limit}");
    }
    assert_eq!(shown("edge.tokens", "year", "charged"), 2);
    // As the reference counts: each descriptor once, for the limit that answered it.
    let by_level = |kind: &str, keys: &str| {
        let name = format!("ratelimit_service_rate_limit_{kind}");
        series_value(&metrics, &format!("{name}{{domain=\"edge\",{keys}}}"))
    };
    let user = "key1=\"user\",key2=\"\"";
    let kinds = ["total_hits", "over_limit", "within_limit"];
    assert_eq!(kinds.map(|kind| by_level(kind, user)), [83, 79, 4]);
    let deep = "key1=\"a\",key2=\"b\"";
    assert_eq!(kinds.map(|kind| by_level(kind, deep)), [6, 2, 4]);
}

/// The screen of `tollgate top` has what the model has.
fn check_screen(model: &Model, url: &str) {
    let over = |[_, refused, would_refuse, _]: Counts| (refused, would_refuse);
    let expected = model.hits.iter().filter(|((rule, _), hits)| {
        // The screen lists the limits of rules.
        over(**hits) != (0, 0) && rule.starts_with("edge.")
    });
    let mut expected: Vec<_> = expected
        .map(|((rule, label), hits)| (named(rule, label), over(*hits)))
        .collect();
    expected.sort_unstable();
    let terminal = Terminal::top(url, "", "");
    terminal.wait(&["[1 Rules]", "edge.user"]);
    terminal.tmux(&["resize-window", "-x", "160", "-y", "40"]);
    terminal.wait_for("the screen has what the model has", |screen| {
        rows_over(screen).is_some_and(|rows| rows == expected)
    });
}

/// The rows of the screen with hits that were refused or would be: rule, and both counts.
fn rows_over(screen: &[String]) -> Option<Vec<(String, (u64, u64))>> {
    let header = screen
        .iter()
        .find(|line| line.contains(" ADMIT/S REFUSED "))?;
    let end = |column: &str| Some(header.find(column)? + column.len() - 1);
    let (refused, would_refuse) = (end(" REFUSED ")?, end(" WOULD ")?);
    let number = |line: &str, end: usize| {
        let before: String = line.chars().take(end).collect();
        before.split(' ').next_back()?.parse::<u64>().ok()
    };
    let rows = screen
        .iter()
        .filter(|line| line.contains(" edge.") || line.contains(">edge."));
    let mut over: Vec<_> = rows
        .filter_map(|line| {
            let rule = line[1..].split("  ").next()?.to_owned();
            Some((rule, (number(line, refused)?, number(line, would_refuse)?)))
        })
        .filter(|(_, counts)| *counts != (0, 0))
        .collect();
    over.sort_unstable();
    Some(over)
}

/// The dashboard's queries, over a scrape before the load and one after it, have what the model
/// has. Prometheus's promtool evaluates them.
fn check_dashboard(model: &Model, service: &Tollgate) {
    let dashboard = fs::read_to_string(repository().join("helm/tollgate/files/dashboard.json"));
    let dashboard = parsed(&dashboard.unwrap());
    let query = |title: &str| {
        let mut panels = dashboard["panels"].as_array().unwrap().iter();
        let panel = panels.find(|panel| panel["title"] == title).expect(title);
        let query = panel["targets"][0]["expr"].as_str().unwrap();
        // Ten minutes at a rate; a limit without such hits is left out.
        let rate = query.replace("$__rate_interval", "10m");
        let rate = rate.replace("$namespace", "shop").replace("$job", "edge");
        format!("round(600 * ({rate})) > 0")
    };
    let sample = |labels: Value, value: u64| {
        // An empty label is none in Prometheus.
        let labels = labels.as_object().unwrap().iter();
        let labels: Vec<_> = labels
            .filter(|(_, value)| *value != "")
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        json!({ "labels": format!("{{{}}}", labels.join(",")), "value": value })
    };
    let by_limit = |outcome: usize| -> Vec<Value> {
        let hits = model.hits.iter().filter(|(_, hits)| hits[outcome] > 0);
        hits.map(|((rule, limit), hits)| {
            sample(json!({ "rule": rule, "limit": limit }), hits[outcome])
        })
        .collect()
    };
    let [admitted, refused] = model.requests;
    let queries = [
        ("Refused, by limit (top ten)", by_limit(1)),
        ("Would be refused, by limit (top ten)", by_limit(2)),
        (
            "Decisions by code",
            vec![
                // The reservation and its commit.
                sample(json!({ "code": "ok" }), admitted + 2),
                sample(json!({ "code": "over_limit" }), refused),
            ],
        ),
    ];
    let metrics = service.get("/metrics");
    let counted = ["tollgate_limit_hits_total{", "tollgate_decisions_total{"];
    let series = metrics.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once("} ")?;
        let counted = counted.iter().any(|name| line.starts_with(name));
        counted.then(|| {
            json!({
                "series": format!(r#"{name},namespace="shop",job="edge"}}"#),
                "values": format!("0 {value}+0x8"),
            })
        })
    });
    let tests = json!({
        "tests": [{
            "interval": "1m",
            "input_series": series.collect::<Vec<_>>(),
            "promql_expr_test": queries.map(|(title, samples)| json!({
                "expr": query(title), "eval_time": "9m", "exp_samples": samples,
            })),
        }],
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    // JSON is YAML.
    fs::write(file.path(), tests.to_string()).unwrap();
    let promtool = Command::new(component("promtool/promtool"))
        .args(["test", "rules"])
        .arg(file.path())
        .output()
        .unwrap();
    let said = [promtool.stdout, promtool.stderr].concat();
    assert!(
        promtool.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// `/limits` has what the model has, and the stream that the live page shows.
fn check_limits(model: &Model, service: &Tollgate) {
    let (status, limits) = http(service.admin, "GET", "/limits", "");
    assert_eq!(status, 200, "{limits}");
    check_limit_states(model, &parsed(&limits));
    for (name, data) in events(service, "", &["state"], || ()) {
        if name == "state" {
            check_limit_states(model, &data);
        }
    }
}

fn check_limit_states(model: &Model, limits: &Value) {
    let limits = limits["limits"].as_array().unwrap();
    assert_eq!(limits.len(), model.hits.len() - 1, "all but the override");
    for limit in limits {
        let rule = limit["rule"].as_str().unwrap();
        let rule = rule.split(" name=").next().unwrap();
        let label = limit["label"].as_str().unwrap();
        let known = model.hits.iter().find(|(key, _)| **key == (rule, label));
        let (_, counts) = known.unwrap_or_else(|| panic!("{limit}"));
        assert_eq!(numbers(&limit["hits"], OUTCOMES), *counts, "{limit}");
        let charged = if rule == "edge.tokens" { 2 } else { 0 };
        let sum: u64 = counts.iter().sum::<u64>() + charged;
        assert_eq!(
            numbers(&limit["hits"], ["charged", "total"]),
            [charged, sum]
        );
    }
}

/// `tollgate top --once` has what the model has, by rule.
fn check_top(model: &Model, url: &str) {
    let top = [
        "top", "--once", "--by", "asked", "--window", "1h", "--admin", url,
    ];
    let (code, top, stderr) = tollgate(&[&top[..], &["--format", "json"]].concat());
    assert_eq!((code, &*stderr), (0, ""));
    let top = parsed(&top);
    let mut keys: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for key in top["keys"].as_array().unwrap() {
        let counts = keys.entry(key["rule"].as_str().unwrap().to_owned());
        let more = numbers(key, ["asked", "refused", "would_refuse"]);
        for (sum, more) in counts.or_default().iter_mut().zip(more) {
            *sum += more;
        }
    }
    let expected: BTreeMap<_, _> = model
        .by_rule()
        .into_iter()
        .map(|(rule, counts)| (rule, [counts.iter().sum(), counts[1], counts[2]]))
        .collect();
    assert_eq!(keys, expected);
    let sum = |at: usize| expected.values().map(|counts| counts[at]).sum::<u64>();
    let all = numbers(&top, ["asked", "refused", "would_refuse"]);
    assert_eq!(all, [sum(0), sum(1), sum(2)]);
}

#[test]
fn every_reader_says_which_limit_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, recording, rules) = (path("log"), path("run.tgrec"), path("rules.yaml"));
    fs::write(&rules, RULES).unwrap();
    let arguments = ["--top-keys", "plain", "--decision-log", &log];
    let all = [
        "--decision-log-verdicts",
        "ok,over_limit,error",
        "--decision-log-per-second-max",
        "10000",
    ];
    let service = Tollgate::start(RULES, &[&arguments[..], &all].concat());
    let url = admin(&service);
    let load = load();
    let mut tap = Command::new(tollgate_binary());
    let count = load.len().to_string();
    tap.args([
        "tap", "--admin", &url, "--format", "json", "--count", &count,
    ]);
    tap.args(["--per-second-max", "1000"]).env_clear();
    let tap = Running::with_stdout(&mut tap);
    let recorder = Command::new(tollgate_binary())
        .args(["record", "--for", "10m", "--count", &count])
        .args(["--out", &recording, "--admin", &url])
        .env_clear()
        .stderr(Stdio::null())
        .spawn_tied()
        .unwrap();
    let mut recorder = KillOnDrop(recorder);
    until("both readers are there", || {
        let readers = ["tollgate_event_streams", "tollgate_recordings"];
        readers.map(|name| service.metric(name)) == [1, 1]
    });

    let mut model = Model::default();
    let envoy = Envoy::asking(&[&service], OnError::Deny);
    let mut caller = HttpConnection::open(envoy.edge);
    for (headers, buckets) in load {
        let sent: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        let status = caller.get_with("/load", &sent).status;
        let expected = if model.decide(&buckets) { 200 } else { 429 };
        assert_eq!(status, expected, "{headers:?}");
    }

    // Single decisions: the tap and the log.
    let tapped: Vec<Value> = std::iter::from_fn(|| tap.next_line())
        .map(|line| parsed(&line))
        .collect();
    let logged = until("all decisions are logged", || {
        let lines = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
        (lines.len() == tapped.len()).then_some(lines).ok_or(())
    });
    let logged: Vec<Value> = logged.iter().map(|line| parsed(line)).collect();
    check_decisions(&model, [&tapped, &logged]);
    until("the recording ends", || recorder.0.try_wait().unwrap());
    check_replay(&model, &recording, &rules);
    check_top(&model, &url);

    // Reservations: hits are charged after the work, or go back.
    for (call, hits) in [("reserve", 3), ("commit", 5)] {
        let entries = r#"[{"entries": [{"key": "tokens", "value": "t"}]}]"#;
        let body = format!(
            r#"{{"domain": "edge", "descriptors": {entries}, "hits": {hits}, "reservation": "r"}}"#
        );
        let (status, reply) = http(service.http, "POST", &format!("/v1/{call}"), &body);
        assert_eq!(status, 200, "{reply}");
    }
    let tokens = ("edge.tokens", "year");
    model.hits.insert(tokens, [3, 0, 0, 0]);
    model.hits.insert(("edge.free", "unlimited"), [0; 4]);

    check_metrics(&model, &service);
    check_limits(&model, &service);
    check_dashboard(&model, &service);
    check_screen(&model, &url);
}
