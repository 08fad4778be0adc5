//! The vectors that all clients share: `../vectors`, or the folder that `TOLLGATE_VECTORS` names.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used
)]

mod support;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use support::{ManualClock, Received, Reply, ScriptedServer, envoy, tollgate};
use tollgate_limits::{
    Amount, BreakerOptions, Check, Client, Code, Decision, Descriptor, Error, LocalLimit, NoLimit,
    OnError, OnExpiry, Protocol, Reservation, Reserve, Settlement, UnknownDomain,
};

/// A proxy that takes no connection.
const PROXY: &str = "http://127.0.0.1:1";

fn is_proxied() -> bool {
    std::env::var_os("grpc_proxy").is_some_and(|proxy| proxy == PROXY)
}

/// Runs each case of a file, and names those that fail.
fn run_cases(file: &str, run: impl Fn(&Value)) {
    run_list(file, "cases", run);
}

fn run_list(file: &str, list: &str, run: impl Fn(&Value)) {
    let folder = std::env::var_os("TOLLGATE_VECTORS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors")),
        PathBuf::from,
    );
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let vectors: Value = serde_json::from_str(&text).expect("JSON");
    let cases = vectors[list].as_array().expect("cases");
    assert!(!cases.is_empty(), "{file} has no {list}");
    let mut failed = Vec::new();
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        if std::panic::catch_unwind(AssertUnwindSafe(|| run(case))).is_err() {
            eprintln!("FAILED: {file}: {name}");
            failed.push(name.to_owned());
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} cases of {file} fail: {failed:#?}",
        failed.len(),
        cases.len()
    );
    println!("{file}: {} cases", cases.len());
}

#[test]
fn descriptors() {
    run_cases("descriptors.json", middleware::descriptors_case);
}

#[test]
fn answers() {
    run_cases("answers.json", middleware::answers_case);
    run_list("leases.json", "answers", middleware::answers_case);
}

#[test]
fn addresses() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _guard = runtime.enter();
    run_cases("addresses.json", |case| {
        let address = text(&case["address"]);
        let built = Client::builder("vectors").address(address).build();
        if case["expect"]["valid"] == true {
            built.expect("a valid address");
        } else if let Err(Error::Argument(message)) = built {
            assert!(
                message.contains(&text(&case["expect"]["error"])),
                "{message}"
            );
        } else {
            panic!("it is not refused");
        }
    });
}

#[test]
fn sequences() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    run_cases("sequences.json", |case| {
        if case["proxy"] == true && !is_proxied() {
            return run_proxied("sequences");
        }
        runtime.block_on(sequence_case(case, false));
    });
}

#[test]
fn sequences_with_batching() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    run_cases("sequences.json", |case| {
        if case["proxy"] == true && !is_proxied() {
            return run_proxied("sequences_with_batching");
        }
        if case["options"]["protocol"] != "envoy" {
            runtime.block_on(sequence_case(case, true));
        }
    });
}

#[test]
fn leases() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    run_cases("leases.json", |case| {
        runtime.block_on(sequence_case(case, false));
    });
}

#[test]
fn leases_with_batching() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    run_cases("leases.json", |case| {
        if case["options"]["protocol"] != "envoy" {
            runtime.block_on(sequence_case(case, true));
        }
    });
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|items| items.iter().map(text).collect())
        .unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

/// Runs the cases of this test again where the environment names a proxy that takes no connection.
fn run_proxied(test: &str) {
    let again = std::env::current_exe().expect("a program");
    let mut again = std::process::Command::new(again);
    again.args(["--exact", test]).env("no_proxy", "");
    for scheme in ["http", "https", "grpc", "all"] {
        again.env(format!("{scheme}_proxy"), PROXY);
    }
    assert!(again.status().expect("it runs").success());
}

async fn sequence_case(case: &Value, batching: bool) {
    let mut server = ScriptedServer::start().await;
    let clock = ManualClock::default();
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let address = match case["address"].as_str() {
        Some(address) => address.to_owned(),
        None if case["listener"] == "http1" => start_http1().await,
        None => server.address.to_string(),
    };
    let built = client(&case["options"], &address, &clock, batching);
    if case["invalid"] == true {
        assert!(matches!(built, Err(Error::Argument(_))), "{built:?}");
        return;
    }
    let client = built.expect("valid options");
    let mut kept: Option<Reservation> = None;
    for (index, step) in items(&case["steps"]).iter().enumerate() {
        if step["do"] == "advance" {
            clock.advance(step["ms"].as_u64().expect("ms"));
            continue;
        }
        if step["do"] == "stop" {
            server.stop().await;
            continue;
        }
        for _ in 0..step["repeat"].as_u64().unwrap_or(1) {
            match &step["server"] {
                Value::Null => server.always(None),
                Value::Array(replies) => {
                    server.then(replies.iter().map(|it| reply(it, &clock)).collect());
                }
                one => server.always(Some(reply(one, &clock))),
            }
            let result = run_step(&client, step, &mut kept, &server).await;
            client.join_lease_calls().await;
            let place = format!("step {index}");
            verify(&place, step, &result, &server);
            warnings.verify(&place, &step["expect"], &address);
        }
    }
    if let Some(kept) = kept {
        std::mem::forget(kept); // the script is over
    }
    client.close().await;
}

/// Starts a listener that answers as a server of HTTP/1 answers HTTP/2.
async fn start_http1() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            let _gone = connection.write_all(answer).await;
        }
    });
    address.to_string()
}

/// Keeps the fields of the events of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<Fields>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tollgate_limits"
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        assert_eq!(*event.metadata().level(), tracing::Level::WARN);
        self.0.lock().unwrap().push(fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Warnings {
    /// Compares what was logged since the last call.
    fn verify(&self, place: &str, expect: &Value, address: &str) {
        let logged = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(logged.len() <= 1, "{place}: {} warnings", logged.len());
        let Some(expected) = expect.get("warning") else {
            return;
        };
        let Some(Fields(fields)) = logged.first() else {
            assert!(expected.is_null(), "{place}: no warning");
            return;
        };
        assert_eq!(fields["message"], "no answer from tollgate", "{place}");
        assert_eq!(fields["addresses"], address, "{place}");
        for (name, value) in expected.as_object().expect("no warning") {
            let field = if name == "text" { "error" } else { name };
            let found = &fields[field];
            match (name.as_str(), value) {
                ("error", Value::String(status)) => {
                    assert_eq!(found.split(':').next(), Some(&**status), "{place}");
                }
                (_, Value::String(text)) => assert_eq!(found, text, "{place}: {name}"),
                _ => assert_eq!(*found, value.to_string(), "{place}: {name}"),
            }
        }
    }
}

fn client(
    options: &Value,
    address: &str,
    clock: &ManualClock,
    batching: bool,
) -> Result<Client, Error> {
    let deadline = options["deadline_ms"].as_u64().unwrap_or(2_000);
    let mut builder = Client::builder("vectors")
        .address(address)
        .clock(clock.clone())
        .without_lease_rounds()
        .batching(batching)
        .deadline(Duration::from_millis(deadline));
    match options["on_error"].as_str() {
        None => {}
        Some("allow") => builder = builder.on_error(OnError::Allow),
        Some("deny") => builder = builder.on_error(OnError::Deny),
        Some("local") => builder = builder.on_error(OnError::Local),
        Some(other) => panic!("on_error {other}"),
    }
    let number = |value: &Value| u32::try_from(value.as_u64().expect("a number")).expect("u32");
    if let Some(local) = options["local"].as_object() {
        let (per_second, burst) = (number(&local["per_second"]), number(&local["burst"]));
        builder = builder.local(LocalLimit { per_second, burst });
    }
    if let Some(breaker) = options["breaker"].as_object() {
        let open_for = millis(&breaker["open_ms"]).expect("open_ms");
        builder = builder.breaker(BreakerOptions {
            failures: number(&breaker["failures"]),
            open_for,
        });
    }
    if let Some(entries) = options["denial_cache_entries"].as_u64() {
        builder = builder.denial_cache(usize::try_from(entries).expect("usize"));
    }
    match options["leases"].as_str() {
        None => {}
        Some("on") => builder = builder.leases(true),
        Some("off") => builder = builder.leases(false),
        Some(other) => panic!("leases {other}"),
    }
    match options["protocol"].as_str() {
        None | Some("tollgate") => {}
        Some("envoy") => builder = builder.protocol(Protocol::Envoy),
        Some(other) => panic!("protocol {other}"),
    }
    match options["unknown_domain"].as_str() {
        None => {}
        Some("allow") => builder = builder.unknown_domain(UnknownDomain::Allow),
        Some("error") => builder = builder.unknown_domain(UnknownDomain::Error),
        Some(other) => panic!("unknown_domain {other}"),
    }
    builder.build()
}

/// What a step came to.
#[derive(Debug)]
enum StepResult {
    Decision(Decision, Option<(Option<String>, u64)>),
    Settlement(Settlement),
    Failed(Error),
    Nothing,
}

async fn run_step(
    client: &Client,
    step: &Value,
    kept: &mut Option<Reservation>,
    server: &ScriptedServer,
) -> StepResult {
    let settled = |result: Result<Settlement, Error>| match result {
        Ok(settlement) => StepResult::Settlement(settlement),
        Err(error) => StepResult::Failed(error),
    };
    let decided = |result: Result<Decision, Error>| match result {
        Ok(decision) => StepResult::Decision(decision, None),
        Err(error) => StepResult::Failed(error),
    };
    if has_negative_hits(step) {
        // Hits are unsigned: a program with negative ones does not compile.
        return StepResult::Failed(Error::Argument("negative".to_owned()));
    }
    match step["do"].as_str().expect("do") {
        "ready" => {
            let timeout = millis(&step["ms"]).expect("ms");
            let ready = client.ready(timeout).await.expect("an open client");
            assert_eq!(step["expect"]["ready"], ready, "ready");
            StepResult::Nothing
        }
        "check" => {
            let dry_run = step["dry_run"].as_bool().unwrap_or_default();
            let check = if step["middleware"] == true {
                middleware::check_of(client, step)
            } else {
                check(step)
            };
            decided(client.check(check.dry_run(dry_run)).await)
        }
        "tick" => {
            client.run_lease_round().await;
            StepResult::Nothing
        }
        "close" => {
            client.close().await;
            StepResult::Nothing
        }
        "peek" => decided(client.peek(check(step)).await),
        "reserve" => match client.reserve(reserve(step)).await {
            Ok(reservation) => {
                let decision = reservation.decision().clone();
                let id = reservation.id().map(str::to_owned);
                let result = StepResult::Decision(decision, Some((id, reservation.hits())));
                if let Some(before) = kept.replace(reservation) {
                    std::mem::forget(before);
                }
                result
            }
            Err(error) => StepResult::Failed(error),
        },
        "commit" => {
            let amount = match &step["hits"] {
                Value::Array(amounts) => Amount::from(
                    amounts
                        .iter()
                        .map(|n| n.as_u64().expect("hits"))
                        .collect::<Vec<_>>(),
                ),
                hits => Amount::from(hits.as_u64().expect("hits")),
            };
            settled(kept.as_ref().expect("a reservation").commit(amount).await)
        }
        "release" => settled(kept.as_ref().expect("a reservation").release().await),
        "extend" => {
            let expires = millis(&step["expires_ms"]).expect("expires_ms");
            settled(kept.as_ref().expect("a reservation").extend(expires).await)
        }
        "end_scope" => {
            drop(kept.take());
            // The release runs in the background; closing the client would wait for it.
            let wanted = step["expect"]["calls"].as_u64().expect("calls");
            let enough = || wanted > 0 && server.calls() as u64 >= wanted;
            for _ in 0..if wanted > 0 { 400 } else { 6 } {
                if enough() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            StepResult::Nothing
        }
        other => panic!("unknown step {other}"),
    }
}

fn has_negative_hits(step: &Value) -> bool {
    let negative = |value: &Value| value.as_i64().is_some_and(|number| number < 0);
    negative(&step["hits"])
        || items(&step["hits"]).iter().any(negative)
        || items(&step["descriptors"])
            .iter()
            .any(|descriptor| negative(&descriptor["hits"]))
}

fn descriptors_of(value: &Value) -> Vec<Descriptor> {
    let descriptor = |value: &Value| {
        let entries = items(&value["entries"])
            .iter()
            .map(|entry| (text(&entry[0]), text(&entry[1])));
        let descriptor = Descriptor::new(entries);
        match value["hits"].as_u64() {
            Some(hits) => descriptor.hits(hits),
            None => descriptor,
        }
    };
    items(value).iter().map(descriptor).collect()
}

fn check(step: &Value) -> Check {
    let mut check = Check::new(descriptors_of(&step["descriptors"]));
    if let Some(hits) = step["hits"].as_u64() {
        check = check.hits(hits);
    }
    if let Some(domain) = step["domain"].as_str() {
        check = check.domain(domain);
    }
    check
}

fn reserve(step: &Value) -> Reserve {
    let mut reserve = Reserve::new(descriptors_of(&step["descriptors"]));
    if let Some(hits) = step["hits"].as_u64() {
        reserve = reserve.hits(hits);
    }
    if let Some(domain) = step["domain"].as_str() {
        reserve = reserve.domain(domain);
    }
    if let Some(id) = step["reservation"].as_str() {
        reserve = reserve.id(id);
    }
    if let Some(expires) = millis(&step["expires_ms"]) {
        reserve = reserve.expires(expires);
    }
    match step["on_expiry"].as_str() {
        None => reserve,
        Some("charge") => reserve.on_expiry(OnExpiry::Charge),
        Some("release") => reserve.on_expiry(OnExpiry::Release),
        Some(other) => panic!("on_expiry {other}"),
    }
}

// What the server answers.

fn code(name: &str) -> Code {
    (0..=16)
        .map(Code::from)
        .find(|code| code_name(*code) == name)
        .unwrap_or_else(|| panic!("no status {name}"))
}

fn code_name(code: Code) -> String {
    let mut name = String::new();
    for (index, letter) in format!("{code:?}").chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn proto_duration(value: &Value) -> Option<prost_types::Duration> {
    millis(value).map(|time| prost_types::Duration::try_from(time).expect("a duration"))
}

fn u32_of(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap_or_default()).expect("u32")
}

fn string_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn verdict(value: &Value) -> i32 {
    let name = value.as_str().unwrap_or("VERDICT_UNSPECIFIED");
    tollgate::Verdict::from_str_name(name)
        .expect("a verdict")
        .into()
}

fn limit_statuses(value: &Value) -> Vec<tollgate::LimitStatus> {
    let limit = |value: &Value| tollgate::LimitStatus {
        descriptor: u32_of(&value["descriptor"]),
        name: string_of(&value["name"]),
        rule: string_of(&value["rule"]),
        requests_per_unit: value["requests_per_unit"].as_u64().unwrap_or_default(),
        window: string_of(&value["window"]),
        verdict: verdict(&value["verdict"]),
        remaining: value["remaining"].as_u64().unwrap_or_default(),
        reset: proto_duration(&value["reset_ms"]),
        retry_after: proto_duration(&value["retry_after_ms"]),
    };
    items(value).iter().map(limit).collect()
}

fn reply(value: &Value, clock: &ManualClock) -> Reply {
    let message = value["message"].as_str();
    if let Some(millis) = value["advance_ms"].as_u64() {
        let mut value = value.clone();
        value.as_object_mut().expect("a reply").remove("advance_ms");
        return Reply::Advance(clock.clone(), millis, Box::new(reply(&value, clock)));
    }
    let (kind, value) = value
        .as_object()
        .expect("a reply")
        .iter()
        .next()
        .expect("a reply");
    match kind.as_str() {
        "lease" => Reply::Lease(tollgate::LeaseResponse {
            verdict: verdict(&value["verdict"]),
            lease: string_of(&value["lease"]),
            granted: value["granted"].as_u64().unwrap_or_default(),
            expires: proto_duration(&value["expires_ms"]),
            remaining: value["remaining"].as_u64(),
            reset: proto_duration(&value["reset_ms"]),
            retry_after: proto_duration(&value["retry_after_ms"]),
            limits: limit_statuses(&value["limits"]),
            not_leased: string_of(&value["not_leased"]),
        }),
        "batch" if value == &json!({}) => Reply::Batch(Box::new(Reply::error(Code::Unimplemented))),
        "batch" => Reply::Batch(Box::new(reply(value, clock))),
        "check" => Reply::Check(tollgate::CheckResponse {
            verdict: verdict(&value["verdict"]),
            remaining: value["remaining"].as_u64(),
            reset: proto_duration(&value["reset_ms"]),
            retry_after: proto_duration(&value["retry_after_ms"]),
            limits: limit_statuses(&value["limits"]),
            no_limit: string_of(&value["no_limit"]),
        }),
        "reserve" => Reply::Reserve(tollgate::ReserveResponse {
            verdict: verdict(&value["verdict"]),
            reservation: string_of(&value["reservation"]),
            hits: value["hits"].as_u64().unwrap_or_default(),
            expires: proto_duration(&value["expires_ms"]),
            remaining: value["remaining"].as_u64(),
            reset: proto_duration(&value["reset_ms"]),
            retry_after: proto_duration(&value["retry_after_ms"]),
            limits: limit_statuses(&value["limits"]),
            no_limit: string_of(&value["no_limit"]),
        }),
        "settle" => Reply::Settle(tollgate::SettleResponse {
            reservation: string_of(&value["reservation"]),
            reserved: value["reserved"].as_u64().unwrap_or_default(),
            committed: value["committed"].as_u64().unwrap_or_default(),
            repeated: value["repeated"].as_bool().unwrap_or_default(),
            remaining: value["remaining"].as_u64(),
            reset: proto_duration(&value["reset_ms"]),
            limits: limit_statuses(&value["limits"]),
            expires: proto_duration(&value["expires_ms"]),
        }),
        "envoy" => Reply::Envoy(envoy_reply(value)),
        "error" => {
            let code = code(value.as_str().expect("a status"));
            match message {
                Some(message) => Reply::Error(code, message.to_owned()),
                None => Reply::error(code),
            }
        }
        "hang" => Reply::Hang,
        other => panic!("unknown reply {other}"),
    }
}

fn envoy_reply(value: &Value) -> envoy::RateLimitResponse {
    use envoy::rate_limit_response::rate_limit::Unit;
    use envoy::rate_limit_response::{Code, DescriptorStatus, RateLimit};
    let code = |value: &Value| -> i32 {
        let name = value.as_str().unwrap_or("UNKNOWN");
        Code::from_str_name(name).expect("a code").into()
    };
    let status = |value: &Value| DescriptorStatus {
        code: code(&value["code"]),
        limit_remaining: u32_of(&value["limit_remaining"]),
        duration_until_reset: proto_duration(&value["duration_until_reset_ms"]),
        current_limit: value["current_limit"].as_object().map(|limit| RateLimit {
            name: string_of(limit.get("name").unwrap_or(&Value::Null)),
            requests_per_unit: u32_of(&limit["requests_per_unit"]),
            unit: Unit::from_str_name(limit["unit"].as_str().expect("a unit"))
                .expect("a unit")
                .into(),
            unit_multiplier: limit
                .get("unit_multiplier")
                .filter(|n| !n.is_null())
                .map(u32_of),
        }),
    };
    envoy::RateLimitResponse {
        overall_code: code(&value["overall_code"]),
        statuses: items(&value["statuses"]).iter().map(status).collect(),
    }
}

// What is expected.

fn verify(at: &str, step: &Value, result: &StepResult, server: &ScriptedServer) {
    let expect = &step["expect"];
    let what = format!("{at}, {}: {result:?}", step["do"]);
    if let Some(calls) = expect["calls"].as_u64() {
        assert_eq!(server.calls() as u64, calls, "calls at {what}");
    }
    if step["server"].is_null() {
        assert_eq!(server.calls(), 0, "no call is expected at {what}");
    }
    if let Some(fails) = expect["fails"].as_str() {
        let StepResult::Failed(error) = result else {
            panic!("must fail with {fails} at {what}")
        };
        assert_eq!(error_name(error), fails, "at {what}");
        let message = expect["message"].as_str().unwrap_or_default();
        assert!(error.to_string().contains(message), "at {what}");
    }
    let actual = match result {
        StepResult::Failed(_) if expect["fails"].is_null() => panic!("failed at {what}"),
        StepResult::Failed(_) | StepResult::Nothing => json!({}),
        StepResult::Decision(decision, reservation) => {
            let mut actual = decision_json(decision);
            if let Some((id, hits)) = reservation {
                actual["reservation"] = json!(id);
                actual["hits"] = json!(hits);
            }
            actual
        }
        StepResult::Settlement(settlement) => settlement_json(settlement),
    };
    for (field, expected) in expect.as_object().expect("expect") {
        match field.as_str() {
            "calls" | "fails" | "message" | "ready" | "warning" => {}
            "request" => verify_request(&what, expected, server.last().as_ref()),
            field => {
                let matches = includes(&actual[field], expected);
                assert!(
                    matches,
                    "{field} is {}, not {expected}, at {what}",
                    actual[field]
                );
            }
        }
    }
}

/// Whether a value has what is expected; fields that are not named are not compared.
fn includes(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(_), Value::Object(fields)) => fields
            .iter()
            .all(|(name, expected)| includes(&actual[name], expected)),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len()
                && actual
                    .iter()
                    .zip(expected)
                    .all(|(actual, expected)| includes(actual, expected))
        }
        _ => actual == expected,
    }
}

fn error_name(error: &Error) -> String {
    match error {
        Error::Argument(_) => "argument".to_owned(),
        Error::BreakerOpen => "breaker".to_owned(),
        other => other.code().map_or_else(|| format!("{other:?}"), code_name),
    }
}

fn time_json(time: Option<Duration>) -> Value {
    match time {
        // Times of vectors are whole milliseconds; a rest is shown as a fraction.
        Some(time) if time.as_nanos() % 1_000_000 == 0 => {
            json!(u64::try_from(time.as_millis()).expect("u64"))
        }
        Some(time) => json!(time.as_secs_f64() * 1_000.0),
        None => Value::Null,
    }
}

fn decision_json(decision: &Decision) -> Value {
    json!({
        "allowed": decision.allowed,
        "source": decision.source.as_str(),
        "remaining": decision.remaining,
        "reset_ms": time_json(decision.reset),
        "retry_after_ms": time_json(decision.retry_after),
        "limits": limits_json(&decision.limits),
        "no_limit": decision.no_limit.map(NoLimit::as_str),
        "error": decision.error.as_ref().map(error_name),
    })
}

fn limits_json(limits: &[tollgate_limits::Limit]) -> Vec<Value> {
    let limit = |limit: &tollgate_limits::Limit| {
        json!({
            "descriptor": limit.descriptor,
            "name": limit.name,
            "rule": limit.rule,
            "requests_per_unit": limit.requests_per_unit,
            "window": limit.window,
            "allowed": limit.allowed,
            "remaining": limit.remaining,
            "reset_ms": time_json(limit.reset),
            "retry_after_ms": time_json(limit.retry_after),
        })
    };
    limits.iter().map(limit).collect()
}

fn settlement_json(settlement: &Settlement) -> Value {
    json!({
        "reserved": settlement.reserved,
        "committed": settlement.committed,
        "repeated": settlement.repeated,
        "remaining": settlement.remaining,
        "reset_ms": time_json(settlement.reset),
        "limits": limits_json(&settlement.limits),
        "expires_ms": time_json(settlement.expires),
    })
}

fn verify_request(what: &str, expected: &Value, received: Option<&Received>) {
    let received = received.unwrap_or_else(|| panic!("no request at {what}"));
    let mut actual = request_json(received);
    actual["method"] = json!(received.method);
    for (field, expected) in expected.as_object().expect("a request") {
        if field == "calls" {
            let (actual, expected) = (unordered(&actual[field]), unordered(expected));
            assert_eq!(actual, expected, "calls at {what}");
            continue;
        }
        assert_eq!(&actual[field], expected, "{field} of the request at {what}");
    }
}

/// Calls of a batch as sorted texts, without the fields that are absent.
fn unordered(calls: &Value) -> Vec<String> {
    let mut texts: Vec<_> = items(calls)
        .iter()
        .map(|call| {
            let mut call = call.clone();
            let fields = call.as_object_mut().expect("a call");
            fields.retain(|_, value| !value.is_null());
            call.to_string()
        })
        .collect();
    texts.sort();
    texts
}

/// A call of a batch.
fn call_json(call: tollgate::Call) -> Value {
    let (method, message) = match call.call.expect("a call") {
        tollgate::call::Call::Lease(message) => ("Lease", message.encode_to_vec()),
        tollgate::call::Call::GiveBack(message) => ("Return", message.encode_to_vec()),
        other => panic!("no call of leases: {other:?}"),
    };
    let mut json = request_json(&Received {
        method: method.to_owned(),
        message: message.into(),
    });
    json["method"] = json!(method);
    json
}

fn lease_json(received: &Received) -> Value {
    let message = received.message.clone();
    let id = |id: String| Some(id).filter(|id| !id.is_empty());
    if received.method == "Lease" {
        let request = tollgate::LeaseRequest::decode(message).expect("a lease");
        return json!({
            "domain": request.domain,
            "descriptors": descriptors_json(&request.descriptors),
            "hits": request.hits,
            "lease": id(request.lease),
            "admitted": request.admitted,
            "refused": request.refused,
        });
    }
    let request = tollgate::ReturnRequest::decode(message).expect("a return");
    json!({
        "domain": request.domain,
        "descriptors": descriptors_json(&request.descriptors),
        "lease": id(request.lease),
        "unused": request.unused,
        "admitted": request.admitted,
        "refused": request.refused,
    })
}

fn request_json(received: &Received) -> Value {
    let message = received.message.clone();
    let duration = |time: Option<prost_types::Duration>| {
        time_json(time.map(|time| Duration::try_from(time).expect("a duration")))
    };
    let id = |id: String| {
        if id.is_empty() {
            Value::Null
        } else {
            json!(id)
        }
    };
    match received.method.as_str() {
        "Batch" => {
            let request = tollgate::BatchRequest::decode(message).expect("a batch");
            let calls: Vec<_> = request.calls.into_iter().map(call_json).collect();
            json!({ "calls": calls })
        }
        "Lease" | "Return" => lease_json(received),
        "Check" | "Peek" => {
            let request = tollgate::CheckRequest::decode(message).expect("a check");
            let descriptors = descriptors_json(&request.descriptors);
            json!({"domain": request.domain, "descriptors": descriptors, "hits": request.hits})
        }
        "Reserve" => {
            let request = tollgate::ReserveRequest::decode(message).expect("a reservation");
            let on_expiry = match request.on_expiry() {
                tollgate::OnExpiry::Unspecified => Value::Null,
                set => json!(set.as_str_name()),
            };
            json!({
                "domain": request.domain,
                "descriptors": descriptors_json(&request.descriptors),
                "hits": request.hits,
                "expires_ms": duration(request.expires),
                "reservation": id(request.reservation),
                "on_expiry": on_expiry,
            })
        }
        "Extend" => {
            let request = tollgate::ExtendRequest::decode(message).expect("an extension");
            json!({
                "domain": request.domain,
                "descriptors": descriptors_json(&request.descriptors),
                "reservation": id(request.reservation),
                "expires_ms": duration(request.expires),
            })
        }
        "Commit" => {
            let request = tollgate::CommitRequest::decode(message).expect("a commit");
            json!({
                "domain": request.domain,
                "descriptors": descriptors_json(&request.descriptors),
                "reservation": id(request.reservation),
                "hits": request.hits,
            })
        }
        "Release" => {
            let request = tollgate::ReleaseRequest::decode(message).expect("a release");
            json!({
                "domain": request.domain,
                "descriptors": descriptors_json(&request.descriptors),
                "reservation": id(request.reservation),
            })
        }
        "ShouldRateLimit" => {
            let request = envoy::RateLimitRequest::decode(message).expect("a check");
            let descriptor = |from: &envoy::RateLimitDescriptor| {
                let entries = from
                    .entries
                    .iter()
                    .map(|entry| json!([entry.key, entry.value]));
                descriptor_json(entries.collect(), from.hits_addend)
            };
            let hits = (request.hits_addend != 0).then_some(request.hits_addend);
            json!({
                "domain": request.domain,
                "descriptors": request.descriptors.iter().map(descriptor).collect::<Vec<_>>(),
                "hits": hits,
            })
        }
        other => panic!("unknown method {other}"),
    }
}

fn descriptors_json(descriptors: &[tollgate::Descriptor]) -> Vec<Value> {
    let descriptor = |from: &tollgate::Descriptor| {
        let entries = from
            .entries
            .iter()
            .map(|entry| json!([entry.key, entry.value]));
        descriptor_json(entries.collect(), from.hits)
    };
    descriptors.iter().map(descriptor).collect()
}

fn descriptor_json(entries: Vec<Value>, hits: Option<u64>) -> Value {
    let mut descriptor = json!({ "entries": entries });
    if let Some(hits) = hits {
        descriptor["hits"] = json!(hits);
    }
    descriptor
}

/// Cases of the middleware, run through the tower services.
mod middleware {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http::{HeaderMap, Request, Response, StatusCode};
    use http_body_util::{BodyExt as _, Full};
    use serde_json::Value;
    use tollgate_limits::middleware::{
        HeaderStyle, Limiter, RateLimit, RateLimitBuilder, RequestEntry,
    };
    use tollgate_limits::{Check, Client, Decision, Descriptor, Error, Limit, NoLimit, Source};
    use tonic_types::StatusExt as _;
    use tower::{Layer as _, ServiceExt as _, service_fn};

    use super::{code_name, items, millis, string_of, text, texts, u32_of};

    /// Answers every check with one decision, and keeps the check.
    #[derive(Clone, Default)]
    struct Fixed {
        decision: Decision,
        checked: Arc<Mutex<Option<Check>>>,
    }

    impl Limiter for Fixed {
        async fn check(&self, check: Check) -> Result<Decision, Error> {
            *self.checked.lock().unwrap() = Some(check);
            Ok(self.decision.clone())
        }
    }

    fn run<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(future)
    }

    fn entry(value: &Value) -> RequestEntry {
        let key = text(&value["key"]);
        let entry = if let Some(fixed) = value["value"].as_str() {
            RequestEntry::value(key, fixed)
        } else if let Some(name) = value["header"].as_str() {
            RequestEntry::header(key, name)
        } else if value["method"] == true {
            RequestEntry::method(key)
        } else if value["path"] == true {
            RequestEntry::path(key)
        } else if value["path_templates"].is_array() {
            RequestEntry::path_templates(key, texts(&value["path_templates"]))
        } else if value["remote_address"] == true {
            RequestEntry::remote_address(key)
        } else {
            panic!("unknown source in {value}")
        };
        match value["default"].as_str() {
            Some(default) => entry.or(default),
            None => entry,
        }
    }

    fn builder(config: &Value, limiter: Fixed) -> RateLimitBuilder<Fixed> {
        let mut builder = RateLimit::builder(limiter)
            .peer_address(|request| request.extensions.get::<SocketAddr>().copied())
            .trusted_proxies(texts(&config["trusted_proxies"]))
            .skip_paths(texts(&config["skip_paths"]));
        for descriptor in items(&config["descriptors"]) {
            builder = builder.descriptor(items(descriptor).iter().map(entry));
        }
        if let Some(hits) = config["hits"].as_u64() {
            builder = builder.hits(hits);
        }
        builder
    }

    /// Address of the connection. A zone is no part of a socket address of Rust.
    fn peer(value: &Value) -> Option<SocketAddr> {
        let text = text(value);
        let (start, end) = (text.find('%'), text.find(']'));
        let text = match (start, end) {
            (Some(start), Some(end)) => format!("{}{}", &text[..start], &text[end..]),
            _ => text,
        };
        (!text.is_empty()).then(|| text.parse().expect("an address"))
    }

    pub fn descriptors_case(case: &Value) {
        let limiter = Fixed {
            decision: allowed(),
            ..Fixed::default()
        };
        let checked = Arc::clone(&limiter.checked);
        let limit = builder(&case["config"], limiter)
            .build()
            .expect("valid options");
        let asked = &case["request"];
        let mut request = Request::builder()
            .method(asked["method"].as_str().expect("a method"))
            .uri(asked["path"].as_str().expect("a path"));
        for header in items(&asked["headers"]) {
            request = request.header(text(&header[0]), text(&header[1]));
        }
        let mut request = request.body(()).expect("a request");
        if let Some(peer) = peer(&asked["peer"]) {
            request.extensions_mut().insert(peer);
        }
        let inner = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        run(limit.http_layer().layer(inner).oneshot(request)).expect("a response");
        let check = checked.lock().unwrap().take();
        let expect = &case["expect"];
        if expect["skip"] == true {
            assert_eq!(check, None);
            return;
        }
        let check = check.expect("a check");
        let wanted = items(&expect["descriptors"]).iter().map(|entries| {
            Descriptor::new(
                items(entries)
                    .iter()
                    .map(|entry| (text(&entry[0]), text(&entry[1]))),
            )
        });
        assert_eq!(check.descriptors(), wanted.collect::<Vec<_>>());
    }

    fn allowed() -> Decision {
        let mut decision = Decision::default();
        decision.allowed = true;
        decision
    }

    fn source(name: &str) -> Source {
        let all = [
            Source::Server,
            Source::Lease,
            Source::Cache,
            Source::Local,
            Source::Allow,
            Source::Deny,
        ];
        all.into_iter()
            .find(|source| source.as_str() == name)
            .expect("a source")
    }

    fn limit(value: &Value) -> Limit {
        let mut limit = Limit::default();
        limit.descriptor = u32_of(&value["descriptor"]);
        limit.name = string_of(&value["name"]);
        limit.rule = string_of(&value["rule"]);
        limit.requests_per_unit = value["requests_per_unit"]
            .as_u64()
            .expect("requests_per_unit");
        limit.window = string_of(&value["window"]);
        limit.allowed = value["allowed"].as_bool().expect("allowed");
        limit.remaining = value["remaining"].as_u64().expect("remaining");
        limit.reset = millis(&value["reset_ms"]);
        limit.retry_after = millis(&value["retry_after_ms"]);
        limit
    }

    fn decision(value: &Value) -> Decision {
        let mut decision = Decision::default();
        decision.allowed = value["allowed"].as_bool().expect("allowed");
        decision.source = source(value["source"].as_str().expect("a source"));
        decision.remaining = value["remaining"].as_u64();
        decision.reset = millis(&value["reset_ms"]);
        decision.retry_after = millis(&value["retry_after_ms"]);
        decision.limits = items(&value["limits"]).iter().map(limit).collect();
        decision.no_limit = match value["no_limit"].as_str() {
            None => None,
            Some("unknown_domain") => Some(NoLimit::UnknownDomain),
            Some("no_rule") => Some(NoLimit::NoRule),
            Some("unlimited") => Some(NoLimit::Unlimited),
            Some(other) => panic!("no_limit {other}"),
        };
        decision
    }

    /// A check as the middleware makes it.
    pub fn check_of(client: &Client, step: &Value) -> Check {
        let mut limit = RateLimit::builder(client.clone());
        for descriptor in items(&step["descriptors"]) {
            let entries = items(&descriptor["entries"]).iter();
            let entry = |entry: &Value| RequestEntry::value(text(&entry[0]), text(&entry[1]));
            limit = limit.descriptor(entries.map(entry).collect::<Vec<_>>());
        }
        if let Some(hits) = step["hits"].as_u64() {
            limit = limit.hits(hits);
        }
        let (request, ()) = Request::new(()).into_parts();
        let limit = limit.build().expect("valid options");
        limit.check_of(&request).expect("a check")
    }

    pub fn answers_case(case: &Value) {
        let config = &case["config"];
        let limiter = Fixed {
            decision: decision(&case["decision"]),
            ..Fixed::default()
        };
        let mut builder = builder(config, limiter).descriptor([RequestEntry::value("a", "b")]);
        if config["headers"].is_array() {
            builder =
                builder.headers(texts(&config["headers"]).iter().map(
                    |style| match style.as_str() {
                        "ratelimit" => HeaderStyle::RateLimit,
                        "x-ratelimit" => HeaderStyle::XRateLimit,
                        "ratelimit-policy" => HeaderStyle::Policy,
                        other => panic!("headers {other}"),
                    },
                ));
        }
        let status = |value: &Value| {
            let code = value.as_u64().map(|code| u16::try_from(code).expect("u16"));
            code.map(|code| StatusCode::from_u16(code).expect("a status"))
        };
        if let Some(status) = status(&config["status"]) {
            builder = builder.status(status);
        }
        if let Some(status) = status(&config["error_status"]) {
            builder = builder.error_status(status);
        }
        let body = config["body"].as_str();
        let content_type = config["content_type"].as_str();
        if body.is_some() || content_type.is_some() {
            builder = builder.body(
                body.unwrap_or("Too Many Requests").to_owned(),
                content_type.unwrap_or("text/plain; charset=utf-8"),
            );
        }
        builder = builder.shadow(config["shadow"].as_bool().unwrap_or_default());
        let limit = builder.build().expect("valid options");
        http_answer(&limit, &case["expect"]["http"]);
        grpc_answer(&limit, &case["expect"]["grpc"]);
    }

    fn rate_limit_headers(headers: &HeaderMap, with_retry_after: bool) -> BTreeMap<String, String> {
        let ours =
            |name: &str| name.contains("ratelimit") || (with_retry_after && name == "retry-after");
        let texts = headers.iter().filter(|(name, _)| ours(name.as_str()));
        texts
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    fn wanted_headers(value: &Value) -> BTreeMap<String, String> {
        let headers = value.as_object().expect("headers");
        headers
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect()
    }

    fn http_answer(limit: &RateLimit<Fixed>, expect: &Value) {
        let inner = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"passed"))))
        });
        let response =
            run(limit.http_layer().layer(inner).oneshot(Request::new(()))).expect("a response");
        let headers = response.headers().clone();
        let status = response.status();
        let body = run(response.into_body().collect())
            .expect("a body")
            .to_bytes();
        assert_eq!(body == "passed", expect["pass"] == true, "HTTP");
        assert_eq!(
            rate_limit_headers(&headers, true),
            wanted_headers(&expect["headers"])
        );
        if expect["pass"] == false {
            assert_eq!(
                u64::from(status.as_u16()),
                expect["status"].as_u64().expect("a status")
            );
            assert_eq!(body, text(&expect["body"]));
            assert_eq!(headers["content-type"], text(&expect["content_type"]));
        }
    }

    fn grpc_answer(limit: &RateLimit<Fixed>, expect: &Value) {
        let inner = service_fn(|_: Request<()>| async {
            let response = Response::builder().header("x-passed", "yes");
            Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).expect("a response"))
        });
        let response =
            run(limit.grpc_layer().layer(inner).oneshot(Request::new(()))).expect("a response");
        let headers = response.headers();
        assert_eq!(
            headers.contains_key("x-passed"),
            expect["pass"] == true,
            "gRPC"
        );
        assert_eq!(
            rate_limit_headers(headers, false),
            wanted_headers(&expect["metadata"])
        );
        if expect["pass"] == false {
            let status = tonic::Status::from_header_map(headers).expect("a status");
            assert_eq!(code_name(status.code()), text(&expect["code"]));
            assert_eq!(status.message(), text(&expect["message"]));
            let retry = status
                .get_details_retry_info()
                .and_then(|retry| retry.retry_delay);
            assert_eq!(retry, millis(&expect["retry_ms"]));
        }
    }
}
