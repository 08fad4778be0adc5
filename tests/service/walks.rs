//! Walks: text files of rules, requests and the answers that each request must have.
//!
//! A file begins with rules that its walks share. A walk begins with a line `== NAME`. Lines before
//! a line `--` are its own rules; a line `flags: FLAGS` has the service's arguments. Each line that
//! follows is a step:
//!
//! | step | what it does |
//! | --- | --- |
//! | `+SECONDS`, `@SECONDS` | moves the clock on, or sets it |
//! | `REQUEST -> oo-` | sends the request for each letter: `o` is OK, `-` is over limit |
//! | `REQUEST -> o LEFT SECONDS` | the same once, with the first status's hits and seconds |
//! | `REQUEST -> left LEFT` | the first status's remaining hits, whatever the code |
//! | `REQUEST => o LIMIT LEFT SECONDS` | the whole status of the only descriptor |
//! | `REQUEST ~> o -o` | the overall code, and the code of each descriptor |
//! | `REQUEST says NAME: VALUE; no NAME` | headers of the answer, and those that it has not |
//! | `POST CALL DESCRIPTORS JSON -> STATUS JSON` | a call of `/v1/`; its answer has these fields |
//! | `count NAME KEY N` | a counter of the rule with this key |
//! | `metric SERIES N` | any series |
//! | `replace OLD -> NEW` | changes the rules, and reloads them |
//!
//! Descriptors are `KEY=VALUE, KEY=VALUE`, joined by ` & `. `*HITS` behind one are its hits, and
//! `give back` before it makes them a refund.

use serde_json::{Value, json};
use tollgate_limiter::Timestamp;
use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, RateLimitResponse, descriptor, request,
};
use tollgate_test_support::in_process::Service;

use crate::service::api::post;

/// A service on its way through a walk.
pub(crate) struct Walk {
    service: Service,
    rules: String,
    domain: String,
}

/// Takes all walks of a file.
async fn walk_all(text: &str) {
    let (shared, walks) = text.split_once("\n== ").expect("a walk");
    for walk in walks.split("\n== ") {
        let (name, body) = walk.split_once('\n').expect("steps");
        let (rules, steps) = body.split_once("\n--\n").unwrap_or((shared, body));
        let arguments = body.lines().find_map(|line| line.strip_prefix("flags: "));
        let arguments = crate::service::flags(arguments.unwrap_or_default());
        let is_rule = |line: &&str| !line.starts_with("flags: ");
        let rules: Vec<_> = rules.lines().filter(is_rule).collect();
        let mut walk = Walk::start(&rules.join("\n"), &arguments).await;
        for line in steps.lines().filter(is_rule) {
            walk.step(name, line).await;
        }
    }
}

// === impl Walk ===

impl Walk {
    pub(crate) async fn start(rules: &str, arguments: &[&str]) -> Self {
        let mut lines = rules.lines();
        let domain = lines.find_map(|line| line.strip_prefix("domain: "));
        Self {
            service: Service::start(rules, arguments).await,
            rules: rules.to_owned(),
            domain: domain.expect("a domain").to_owned(),
        }
    }

    /// Takes one step of a walk.
    pub(crate) async fn step(&mut self, walk: &str, line: &str) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if let Some(seconds) = line.strip_prefix('+') {
            self.service.clock.advance_us(microseconds(seconds));
        } else if let Some(seconds) = line.strip_prefix('@') {
            let now = Timestamp::from_us(microseconds(seconds));
            self.service.clock.set(now);
        } else if let Some(change) = line.strip_prefix("replace ") {
            let (old, new) = change.split_once(" -> ").expect(line);
            assert!(self.rules.contains(old), "{walk}: {line}");
            self.rules = self.rules.replace(old, new);
            self.service.reload(&self.rules).await;
            let errors = self.service.metric("ratelimit_service_config_load_error");
            assert_eq!(errors, 0, "{walk}: {line}");
        } else if let Some(call) = line.strip_prefix("POST ") {
            self.call(walk, call).await;
        } else if let Some((series, value)) = counted(&self.domain, line) {
            assert_eq!(self.service.metric(&series), value, "{walk}: {line}");
        } else {
            let (asked, sign, expected) = split(line);
            let seen = self.seen(asked, sign, expected).await;
            assert_eq!(seen, expected, "{walk}: {line}");
        }
    }

    /// What is seen of a request, as the walk writes it.
    async fn seen(&mut self, asked: &str, sign: &str, expected: &str) -> String {
        let descriptors: Vec<_> = asked.split(" & ").map(descriptor_of).collect();
        if sign == "->" && !expected.contains(' ') {
            let mut codes = String::new();
            for _ in 0..expected.len() {
                let answer = self.ask(&descriptors).await;
                codes.push(letter(answer.overall_code()));
            }
            return codes;
        }
        let answer = self.ask(&descriptors).await;
        let first = &answer.statuses[0];
        let code = letter(answer.overall_code());
        match (sign, expected.split(' ').count()) {
            ("->", _) if expected.starts_with("left ") => format!("left {}", first.limit_remaining),
            ("->", 2) => format!("{code} {}", first.limit_remaining),
            ("->", _) => format!("{code} {} {}", first.limit_remaining, seconds(first)),
            ("=>", _) => {
                assert_eq!(letter(first.code()), code, "{asked}");
                let limit = first.current_limit.clone().unwrap_or_default();
                let (left, seconds) = (first.limit_remaining, seconds(first));
                let (requests, name) = (limit.requests_per_unit, limit.name);
                format!("{code} {requests}{name} {left} {seconds}")
            }
            ("~>", _) => {
                let each = answer.statuses.iter().map(|status| letter(status.code()));
                format!("{code} {}", each.collect::<String>())
            }
            _ => {
                let headers = expected.split("; ").map(|header| said(&answer, header));
                headers.collect::<Vec<_>>().join("; ")
            }
        }
    }

    async fn ask(&mut self, descriptors: &[Descriptor]) -> RateLimitResponse {
        let asked = request(&self.domain, descriptors.to_vec());
        self.service.ask(asked).await
    }

    async fn call(&self, walk: &str, line: &str) {
        let (asked, expected) = line.rsplit_once(" -> ").expect(line);
        let (head, fields) = asked.split_once(" {").expect(line);
        let (call, descriptors) = head.split_once(' ').expect(line);
        let mut body: Value = serde_json::from_str(&format!("{{{fields}")).expect(line);
        body["domain"] = json!(self.domain);
        let descriptors = descriptors.split(" & ").map(json_of);
        body["descriptors"] = descriptors.collect();
        let (status, answer) = post(self.service.http, call, &body).await;
        let (code, fields) = expected.split_once(' ').unwrap_or((expected, "{}"));
        assert_eq!(status.to_string(), code, "{walk}: {line}: {answer}");
        let fields: Value = serde_json::from_str(fields).expect(line);
        assert!(has(&answer, &fields), "{walk}: {line}: {answer}");
    }
}

/// The request of a step, the sign behind it, and what must be seen.
fn split(line: &str) -> (&str, &str, &str) {
    let signs = ["->", "=>", "~>", "says"];
    let found = signs.iter().find_map(|sign| {
        let (asked, expected) = line.split_once(&format!(" {sign} "))?;
        Some((asked, *sign, expected))
    });
    found.unwrap_or_else(|| panic!("no step: {line}"))
}

/// A series and its value, if the step is about one.
fn counted(domain: &str, line: &str) -> Option<(String, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    if let Some(series) = series.strip_prefix("metric ") {
        return Some((series.to_owned(), value));
    }
    let (name, key) = series.strip_prefix("count ")?.split_once(' ')?;
    let labels = format!("domain=\"{domain}\",key1=\"{key}\",key2=\"\"");
    Some((
        format!("ratelimit_service_rate_limit_{name}{{{labels}}}"),
        value,
    ))
}

/// The header that a step asks for, or `no NAME`.
fn said(answer: &RateLimitResponse, expected: &str) -> String {
    let name = expected.strip_prefix("no ").unwrap_or(expected);
    let name = name.split(": ").next().expect("a name");
    let mut headers = answer.response_headers_to_add.iter();
    let header = headers.find(|header| header.key == name);
    header.map_or_else(
        || format!("no {name}"),
        |header| format!("{name}: {}", header.value),
    )
}

fn letter(code: Code) -> char {
    if code == Code::Ok { 'o' } else { '-' }
}

fn seconds(status: &DescriptorStatus) -> i64 {
    status.duration_until_reset.map_or(0, |until| until.seconds)
}

/// The entries of a descriptor and its hits.
fn parts(text: &str) -> (Vec<(&str, &str)>, Option<u64>) {
    let (entries, hits) = match text.split_once(" *") {
        Some((entries, hits)) => (entries, Some(hits.parse().expect(text))),
        None => (text, None),
    };
    let entries = entries.split(", ");
    let entries = entries.map(|entry| entry.split_once('=').expect(text));
    (entries.collect(), hits)
}

fn descriptor_of(text: &str) -> Descriptor {
    let refund = text.strip_prefix("give back ");
    let (entries, hits_addend) = parts(refund.unwrap_or(text));
    Descriptor {
        hits_addend,
        is_negative_hits: refund.is_some(),
        ..descriptor(&entries)
    }
}

fn json_of(text: &str) -> Value {
    let (entries, hits) = parts(text);
    let entries = entries.iter();
    let entries = entries.map(|(key, value)| json!({"key": key, "value": value}));
    let mut descriptor = json!({"entries": entries.collect::<Vec<_>>()});
    if let Some(hits) = hits {
        descriptor["hits"] = json!(hits);
    }
    descriptor
}

/// Microseconds of a number of seconds with up to six decimals.
fn microseconds(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<6}").parse().expect(text)
}

/// Whether an answer has these fields. A text that ends with `…` is the beginning of one.
fn has(answer: &Value, fields: &Value) -> bool {
    match (answer, fields) {
        (Value::Object(answer), Value::Object(fields)) => fields
            .iter()
            .all(|(name, field)| has(answer.get(name).unwrap_or(&Value::Null), field)),
        (Value::Array(answer), Value::Array(fields)) => {
            let mut pairs = answer.iter().zip(fields);
            answer.len() == fields.len() && pairs.all(|(answer, field)| has(answer, field))
        }
        (Value::String(answer), Value::String(field)) => match field.strip_suffix('…') {
            Some(begin) => answer.starts_with(begin),
            None => answer == field,
        },
        _ => answer == fields,
    }
}

#[tokio::test]
async fn limits() {
    walk_all(include_str!("walks/limits.txt")).await;
}

#[tokio::test]
async fn all_or_nothing() {
    walk_all(include_str!("walks/all_or_nothing.txt")).await;
}

#[tokio::test]
async fn modes() {
    walk_all(include_str!("walks/modes.txt")).await;
}

#[tokio::test]
async fn headers() {
    walk_all(include_str!("walks/headers.txt")).await;
}

#[tokio::test]
async fn streams() {
    walk_all(include_str!("walks/streams.txt")).await;
}

#[tokio::test]
async fn reservations() {
    walk_all(include_str!("walks/reservations.txt")).await;
}

#[tokio::test]
async fn reservations_at_the_edge() {
    walk_all(include_str!("walks/extremes.txt")).await;
}
