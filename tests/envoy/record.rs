//! A recording of a real run through Envoy, replayed: the recorded verdicts, and what a changed
//! rule would have refused.
//!
//! How: several clients send a random load through Envoy while `tollgate record` runs, until it has
//! a fixed number of requests: every algorithm and a calendar, one to three descriptors a request,
//! several hits, slots with holders that Envoy frees, in two domains of which one is
//! `all_or_nothing`. Windows are short, so they turn during the run. `tollgate replay` must then
//! give each verdict again.
//!
//! The second part needs no time: limits of a year, whose recorded requests go through Envoy once
//! more to a service with the changed rules. A replay of the same change must name the same keys,
//! as often.
//!
//! `TOLLGATE_RECORD_REQUESTS` is the length of the recording (default: 3000; `make test-record`:
//! 200,000).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use prost::Message as _;
use serde_json::Value;
use tempfile::TempDir;
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate::proto::tollgate::recording::v1::Code;
use tollgate::recording::{Event, Events as _, Reader};
use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::background_clients::SetOnDrop;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_client::http;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::polling::until;
use tollgate_test_support::seeded_rng::SeededRng;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

const BOOTSTRAP: &str = include_str!("record.yaml");

/// The clients that send at once.
const CLIENTS: u64 = 8;

/// The algorithms of limits of a year, whose rule changes.
const LONG: [&str; 3] = ["fixed_window", "sliding_log", "token_bucket"];

/// What a key of these may have under the rules in force, and under the changed ones.
const LONG_LIMITS: [u32; 2] = [10_000, 6];

/// The values of these keys.
const LONG_KEYS: u64 = 60;

/// Seconds in which a slot is held unless it is freed: longer than the default run.
const SLOT_SECONDS: u64 = 600;

/// More hits than any of the other limits admits.
const TOO_MANY_HITS: u32 = 1_000;

/// The number of the calendar's key.
fn calendar() -> usize {
    ALGORITHMS.len()
}

fn is_concurrency(number: usize) -> bool {
    number < calendar() && ALGORITHMS[number].name() == "concurrency"
}

/// The keys by which `domain` limits, each with its limit.
fn rules_of(domain: &str, long_limit: u32) -> String {
    let mut rules = format!(
        "domain: {domain}\nall_or_nothing: {}\ndescriptors:\n",
        domain == "strict"
    );
    for (number, algorithm) in ALGORITHMS.iter().enumerate() {
        let limit = match algorithm.name() {
            "concurrency" => format!(
                "algorithm: concurrency, requests_per_unit: 1, holder_key: request_id, slot_seconds: {SLOT_SECONDS}"
            ),
            name => {
                let segments = if name == "sliding_window_segments" {
                    ", segments: 4"
                } else {
                    ""
                };
                // window: it turns during the run, and a replay must give the same verdicts.
                format!("algorithm: {name}, unit: second, requests_per_unit: 20{segments}")
            }
        };
        writeln!(rules, "- {{key: k{number}, rate_limit: {{{limit}}}}}").unwrap();
    }
    let number = calendar();
    // window: the replay's day is that of the run.
    writeln!(
        rules,
        "- {{key: k{number}, rate_limit: {{unit: day, calendar: true, time_zone: Europe/Paris, requests_per_unit: 50}}}}"
    )
    .unwrap();
    for algorithm in LONG {
        writeln!(
            rules,
            "- {{key: long_{algorithm}, rate_limit: {{algorithm: {algorithm}, unit: year, requests_per_unit: {long_limit}}}}}"
        )
        .unwrap();
    }
    rules
}

/// A folder of rules with a file for each domain.
fn write_rules(folder: &Path, long_limit: u32) {
    fs::create_dir(folder).unwrap();
    for domain in ["loose", "strict"] {
        let file = folder.join(format!("{domain}.yaml"));
        fs::write(file, rules_of(domain, long_limit)).unwrap();
    }
}

/// An Envoy whose routes `/loose` and `/strict` ask for the descriptors whose headers are there.
fn envoy(service: SocketAddr, folder: &TempDir) -> Envoy {
    let backend = folder.path().join(format!("{}.sock", service.port()));
    let mut routes = String::new();
    for domain in ["loose", "strict"] {
        let mut limits = String::new();
        let mut add = |key: &str, more: &str, rest: &str| {
            let action =
                format!("{{request_headers: {{header_name: x-{key}, descriptor_key: {key}}}}}");
            write!(limits, "{{actions: [{action}{more}]{rest}}}, ").unwrap();
        };
        let id = ", {request_headers: {header_name: x-request-id, descriptor_key: request_id}}";
        let refund =
            ", hits_addend: {number: 1, is_negative_hits: true}, apply_on_stream_done: true";
        let hits = ", hits_addend: {format: \"%REQ(x-hits)%\"}";
        for number in 0..=calendar() {
            let key = format!("k{number}");
            if is_concurrency(number) {
                add(&key, id, "");
                add(&key, id, refund);
            } else {
                add(&key, "", hits);
            }
        }
        for algorithm in LONG {
            add(&format!("long_{algorithm}"), "", hits);
        }
        let kind =
            "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
        writeln!(
            routes,
            "{:24}- {{match: {{path: /{domain}}}, route: {{cluster: backend}}, typed_per_filter_config: \
             {{envoy.filters.http.ratelimit: {{\"@type\": {kind}, domain: {domain}, rate_limits: [{limits}]}}}}}}",
            ""
        )
        .unwrap();
    }
    let bootstrap = BOOTSTRAP
        .replace("@ROUTES@\n", &routes)
        .replace("@BACKEND@", backend.to_str().unwrap())
        .replace("@SERVICE_PORT@", &service.port().to_string());
    Envoy::start(&bootstrap)
}

/// Sends random requests until the flag is set. The statuses by their number.
fn send(edge: SocketAddr, seed: u64, ended: &AtomicBool) -> BTreeMap<u16, u64> {
    let mut rng = SeededRng::of_seed(seed);
    let mut caller = HttpConnection::open(edge);
    let mut statuses = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        let path = rng.pick(&["/loose", "/strict"]);
        let mut headers = vec![("x-hits".to_owned(), rng.between(1, 3).to_string())];
        if rng.once_in(4) {
            let value = rng.below(LONG_KEYS) * rng.below(LONG_KEYS) / LONG_KEYS;
            headers.push((format!("x-long_{}", rng.pick(&LONG)), format!("v{value}")));
        } else {
            let mut keys: Vec<_> = (0..=calendar()).collect();
            for _ in 0..rng.between(1, 3) {
                let key = keys.swap_remove(rng.position(keys.len()));
                headers.push((format!("x-k{key}"), format!("v{}", rng.below(3))));
            }
        }
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let status = caller.get_with(path, &headers).status;
        *statuses.entry(status).or_default() += 1;
    }
    statuses
}

/// Runs `tollgate` with these arguments to its end.
fn tollgate(arguments: &[&str]) -> Output {
    let mut command = Command::new(tollgate_binary());
    let output = command.args(arguments).env_clear().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
}

/// The number of requests that are recorded.
fn requests() -> u64 {
    std::env::var("TOLLGATE_RECORD_REQUESTS").map_or(3_000, |text| text.parse().unwrap())
}

/// Has each of the short limits admit a request and refuse one. Slots of the value `v0` stay held.
fn admit_and_refuse(service: &Tollgate, envoy: &Envoy) {
    let mut caller = HttpConnection::open(envoy.edge);
    for domain in ["loose", "strict"] {
        for number in 0..=calendar() {
            if is_concurrency(number) {
                let entries = serde_json::json!([
                    {"key": format!("k{number}"), "value": "v0"},
                    {"key": "request_id", "value": "held"},
                ]);
                let body =
                    serde_json::json!({"domain": domain, "descriptors": [{"entries": entries}]});
                let (status, _) = http(service.http, "POST", "/json", &body.to_string());
                assert_eq!(status, 200, "{domain} {number}");
            }
            for (hits, status) in [(1, 200), (TOO_MANY_HITS, 429)] {
                if is_concurrency(number) && status == 200 {
                    continue;
                }
                let (key, hits) = (format!("x-k{number}"), hits.to_string());
                let headers = [(&*key, b"v0".as_slice()), ("x-hits", hits.as_bytes())];
                let answer = caller.get_with(&format!("/{domain}"), &headers);
                assert_eq!(answer.status, status, "{domain} {headers:?}");
            }
        }
    }
}

/// Records a random load, and gives the statuses that clients had.
fn record(service: &Tollgate, envoy: &Envoy, file: &str, seed: u64) -> BTreeMap<u16, u64> {
    let count = requests().to_string();
    // A bound for a load that fails.
    let longest = format!("{}s", 60 + requests() / 50);
    let recording = Command::new(tollgate_binary())
        .args([
            "record", "--out", file, "--count", &count, "--for", &longest,
        ])
        .args(["--admin", &format!("http://{}", service.admin)])
        .env_clear()
        .stderr(Stdio::piped())
        .spawn_tied()
        .unwrap();
    until("the recording has begun", || {
        service.metric("tollgate_recordings") == 1
    });
    admit_and_refuse(service, envoy);
    let ended = AtomicBool::new(false);
    let mut statuses = BTreeMap::new();
    thread::scope(|scope| {
        let end = SetOnDrop(&ended);
        let clients = (0..CLIENTS).map(|client| {
            let (edge, ended) = (envoy.edge, &ended);
            scope.spawn(move || send(edge, seed.wrapping_add(client << 32), ended))
        });
        let clients: Vec<_> = clients.collect();
        let output = recording.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("not recorded"), "{said}");
        println!("{said}");
        drop(end);
        for client in clients {
            for (status, count) in client.join().unwrap() {
                *statuses.entry(status).or_default() += count;
            }
        }
    });
    statuses
}

/// Sends the recorded requests of the long limits through Envoy, in their order. How often each key
/// is refused that was not: domain, key, value.
fn refused_live(file: &str, edge: SocketAddr) -> BTreeMap<[String; 3], u64> {
    let mut reader = Reader::new(File::open(file).unwrap()).unwrap();
    let mut caller = HttpConnection::open(edge);
    let mut refused = BTreeMap::new();
    while let Some(event) = reader.next_event().unwrap() {
        let Event::Request(request) = event else {
            continue;
        };
        let message = RateLimitRequest::decode(&*request.request).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let descriptor = &message.descriptors[0];
        let entry = &descriptor.entries[0];
        let (domain, key, value) = (text(&message.domain), text(&entry.key), text(&entry.value));
        if !key.starts_with("long_") {
            continue;
        }
        let hits = descriptor.hits_addend.unwrap().to_string();
        let header = format!("x-{key}");
        let headers = [(&*header, value.as_bytes()), ("x-hits", hits.as_bytes())];
        match caller.get_with(&format!("/{domain}"), &headers).status {
            429 if request.code() == Code::Ok => {
                *refused.entry([domain, key, value]).or_default() += 1;
            }
            200 | 429 => {}
            other => panic!("status {other}"),
        }
    }
    refused
}

/// The newly refused keys of a report: domain, key, value.
fn newly_refused(report: &Value) -> BTreeMap<[String; 3], u64> {
    let keys = report["keys_newly_refused"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let keys = keys.map(|key| {
        let [entry] = &**key["entries"].as_array().unwrap() else {
            panic!(
                "not one entry: {keys:?}",
                keys = report["keys_newly_refused"]
            );
        };
        let named = [&key["domain"], &entry["key"], &entry["value"]].map(text);
        (named, key["count"].as_u64().unwrap())
    });
    keys.collect()
}

#[test]
fn a_replay_gives_the_verdicts_of_the_run_and_those_of_a_changed_rule() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (rules, changed, file) = (path("rules"), path("changed"), path("run.tgrec"));
    write_rules(Path::new(&rules), LONG_LIMITS[0]);
    write_rules(Path::new(&changed), LONG_LIMITS[1]);

    let service = Tollgate::start_at(Path::new(&rules), &["--partitions", "4"]);
    let edge = envoy(service.grpc, &folder);
    let statuses = record(&service, &edge, &file, seed);
    assert_eq!(edge.stat("cluster.backend.ratelimit.error"), 0);
    let known: Vec<_> = statuses.keys().copied().collect();
    assert_eq!(known, [200, 429], "{statuses:?}");

    let replay = ["replay", &file, "--rules", &rules, "--format", "json"];
    let against = ["--against", &changed, "--top", "10000"];
    let output = tollgate(&[&replay[..], &against[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let recorded = &report["recorded"];
    println!("{recorded}\n{}", report["speed"]);
    // Every request, and every refund that Envoy sent, with the verdict that it had.
    assert_eq!(recorded["different"], 0, "{recorded}");
    assert_eq!(recorded["not_compared"], 0, "{recorded}");
    assert_eq!(recorded["why_they_may_differ"], serde_json::json!([]));
    let recorded_requests = &report["recording"]["requests"];
    assert_eq!(recorded["same"], *recorded_requests);
    assert!(recorded_requests.as_u64().unwrap() >= requests());
    assert_eq!(report["recording"]["complete"], true);
    let by_rule = report["by_rule"].as_array().unwrap();
    for domain in ["loose", "strict"] {
        for number in 0..=calendar() {
            let name = format!("k{number}");
            let mut rules = by_rule.iter();
            let rule = rules.find(|rule| {
                let rule_name = rule["rule"].as_str().unwrap();
                rule["domain"] == domain && rule_name.ends_with(&name)
            });
            let rule = rule.unwrap_or_else(|| panic!("no {name} in {by_rule:?}"));
            let refused = rule["refused"].as_u64().unwrap();
            let admitted = rule["admitted"].as_u64().unwrap();
            assert!(refused > 0 && admitted > 0, "{rule}");
        }
    }

    let live = Tollgate::start_at(Path::new(&changed), &[]);
    let live_edge = envoy(live.grpc, &folder);
    let refused = refused_live(&file, live_edge.edge);
    assert!(refused.len() > LONG.len() * 4, "{refused:?}");
    // Only keys that differ, for a short message.
    let replayed = newly_refused(&report);
    let differs = |one: &&[String; 3]| replayed.get(*one) != refused.get(*one);
    let keys = replayed.keys().chain(refused.keys()).filter(differs);
    let differing: Vec<_> = keys
        .map(|key| (key, replayed.get(key), refused.get(key)))
        .collect();
    assert!(differing.is_empty(), "replayed, live: {differing:?}");
}
