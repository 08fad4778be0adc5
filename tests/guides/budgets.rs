//! The guides of budgets: their files of tests pass, Envoy accepts their lists of actions, and the
//! program that calls a model settles what it reserved.
//!
//! What it deliberately does not do: stream through Envoy; `tests/envoy` does, with the bootstrap
//! of `docs/guides/budgets-with-envoy.md` and the overlay of `docs/guides/model-gateway.md`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};
use tollgate_test_support::components::component;
use tollgate_test_support::http_client::http;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::edge::Parts;
use crate::guides::guide::{Page, of_a_year, yaml};

/// Guides with rules, a list of actions, a file of tests and the command that runs it.
const WITH_TESTS: [&str; 2] = ["exports-in-flight.md", "llm-budgets.md"];

#[test]
fn the_files_of_tests_on_the_pages_pass() {
    for name in WITH_TESTS {
        let guide = Page::guide(name);
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            std::fs::write(directory.path().join(file), text).unwrap();
        };
        let blocks = guide.blocks();
        let rules = blocks.iter().find(|block| block.language == "yaml");
        write("rules.yaml", &rules.unwrap().text);
        write("rules.test.yaml", &guide.only("The tests", "yaml"));
        let command = guide.only("The tests", "sh");
        let arguments = command.trim().strip_prefix("tollgate ").unwrap();
        let output = Command::new(tollgate_binary())
            .args(arguments.split(' '))
            .current_dir(directory.path())
            .env_clear()
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {said}");
        assert!(said.contains("ok. 2 passed; 0 failed"), "{name}: {said}");
    }
}

#[test]
fn envoy_accepts_the_actions_on_the_pages() {
    const TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3";
    for name in WITH_TESTS {
        let blocks = Page::guide(name);
        let blocks = blocks.blocks();
        let found = blocks
            .iter()
            .find(|block| block.text.starts_with("rate_limits:"));
        let mut of_route = yaml(&found.unwrap().text).remove(0);
        assert!(of_route["rate_limits"].as_array().unwrap().len() >= 4);
        of_route["@type"] = json!(format!("{TYPE}.RateLimitPerRoute"));
        let service = json!({ "envoy_grpc": { "cluster_name": "backend" } });
        let filter = json!({
            "name": "envoy.filters.http.ratelimit",
            "typed_config": {
                "@type": format!("{TYPE}.RateLimit"),
                "domain": "models",
                "timeout": "1s",
                "rate_limit_service": { "transport_api_version": "V3", "grpc_service": service },
            },
        });
        let parts = Parts {
            filters: vec![filter],
            virtual_hosts: vec![json!({
                "name": "all", "domains": ["*"],
                "routes": [{
                    "match": { "prefix": "/" },
                    "route": { "cluster": "backend" },
                    "typed_per_filter_config": { "envoy.filters.http.ratelimit": of_route },
                }],
            })],
            ..Parts::default()
        };
        parts.validate();
    }
}

/// What the model of a test answers, and whether it sends its usage.
#[derive(Clone, Copy, Debug)]
enum ModelAnswer {
    Whole,
    CutOff,
    Refusal,
}

/// Starts a model that serves one request.
fn model(answer: ModelAnswer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim_end().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["stream_options"]["include_usage"], true);
        let words = "data: {\"choices\":[{\"delta\":{\"content\":\"forty-two\"}}]}\n\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":1234}}\n\ndata: [DONE]\n\n";
        let (status, events) = match answer {
            ModelAnswer::Whole => ("200 OK", [words, usage].concat()),
            ModelAnswer::CutOff => ("200 OK", words.to_owned()),
            ModelAnswer::Refusal => ("503 Busy", String::new()),
        };
        let head = "content-type: text/event-stream\r\nconnection: close";
        let text = format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n{events}");
        stream.write_all(text.as_bytes()).unwrap();
    });
    address
}

/// Tokens that a user has left.
fn left(tollgate: &Tollgate, user: &str) -> u64 {
    let body = json!({ "domain": "models", "descriptors": [
        { "entries": [{ "key": "user", "value": user }] }
    ], "hits": 0 });
    let (status, answer) = http(tollgate.http, "POST", "/v1/peek", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["remaining"].as_u64().unwrap()
}

#[test]
fn the_program_reserves_and_settles() {
    let guide = Page::guide("call-a-model.md");
    let blocks = guide.blocks();
    let block = |language: &str| {
        let found = blocks.iter().find(|block| block.language == language);
        &found.unwrap().text
    };
    let rules = of_a_year(block("yaml"));
    let tollgate = Tollgate::start(&rules, &[]);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("call_a_model.py");
    // On a busy machine an answer may take longer than the page waits.
    let patient = block("python").replace("timeout=2)", "timeout=60)");
    assert!(patient.contains("timeout=60)"));
    std::fs::write(&program, patient).unwrap();
    let run = |user: &str, model: SocketAddr| -> Output {
        Command::new(component("venv/bin/python"))
            .arg(&program)
            .args([user, "What is the answer?"])
            .env("TOLLGATE", format!("http://{}", tollgate.http))
            .env("MODEL", format!("http://{model}"))
            .env("NO_PROXY", "*")
            .output()
            .unwrap()
    };
    for (user, answer, succeeds, remaining) in [
        ("ann", ModelAnswer::Whole, true, 100_000 - 1_234),
        ("bob", ModelAnswer::CutOff, true, 100_000 - 4_000),
        ("eve", ModelAnswer::Refusal, false, 100_000),
    ] {
        let output = run(user, model(answer));
        assert_eq!(output.status.success(), succeeds, "{answer:?}: {output:?}");
        assert_eq!(left(&tollgate, user), remaining, "{answer:?}");
        if succeeds {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "forty-two\n");
        }
    }
    let output = run("ivy", ([127, 0, 0, 1], reserved_port()).into());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("no answer: "), "{said}");
    assert_eq!(
        left(&tollgate, "ivy"),
        100_000,
        "a model that was not reached"
    );
    // 97,000 are taken, so 4,000 do not fit.
    let taken = json!({ "domain": "models", "descriptors": [
        { "entries": [{ "key": "user", "value": "dan" }] }
    ], "hits": 97_000 });
    let (status, _) = http(tollgate.http, "POST", "/v1/check", &taken.to_string());
    assert_eq!(status, 200);
    let output = run("dan", model(ModelAnswer::Whole));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("429: ") && said.contains("OVER_LIMIT"),
        "{said}"
    );
    assert_eq!(left(&tollgate, "dan"), 3_000);
}
