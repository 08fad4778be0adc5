//! The API of the real binary: its OpenAPI document against real answers, and the commands of
//! `docs/api.md`.

use std::fs;

use serde_json::{Value, json};
use tollgate_test_support::components::repository;
use tollgate_test_support::http_client::{http, http_with};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::process::commands::tollgate;
use crate::process::python::python;
use crate::process::testing_rules::{blocks, of_a_year};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000, name: tokens }
  - key: leased
    rate_limit: { unit: year, requests_per_unit: 1000 }
  - key: none
    rate_limit: { unit: year, requests_per_unit: 0 }
  - key: log
    rate_limit: { unit: year, requests_per_unit: 5, algorithm: sliding_log }
";

/// Checks a document by the validator of OpenAPI, and values by its schemas.
const VALIDATE: &str = "import json, sys, jsonschema, openapi_spec_validator
document, values = json.load(sys.stdin)
openapi_spec_validator.validate(document)
ref = lambda path: {'$ref': '#' + path, 'components': document['components']}
def validator(schema):
    return jsonschema.Draft202012Validator({**schema, 'components': document['components']})
for call, status, sent, answer in values:
    path = document['paths']['/v1/' + call]['post']
    body = path['requestBody']['content']['application/json']['schema']
    understood = not any(validator(body).iter_errors(sent))
    assert understood == (status != 400), (call, status, sent)
    response = path['responses'][str(status)]
    if '$ref' in response:
        response = document['components']['responses'][response['$ref'].split('/')[-1]]
    schema = validator(response['content']['application/json']['schema'])
    for error in schema.iter_errors(answer):
        print(call, status, list(error.absolute_path), error.message)
    surprised = {**answer, 'surprise': 1}
    assert any(schema.iter_errors(surprised)), (call, status)
";

fn document() -> Value {
    let (code, printed, _) = tollgate(&["schema", "--for", "api"]);
    assert_eq!(code, 0);
    serde_json::from_str(&printed).unwrap()
}

#[test]
fn the_document_is_the_one_that_is_served() {
    let (_, printed, _) = tollgate(&["schema", "--for", "api"]);
    let service = Tollgate::start(RULES, &[]);
    let served = http(service.http, "GET", "/v1/openapi.json", "");
    assert!(served == (200, printed), "{}", served.0);
}

/// A call for one descriptor with these further fields.
#[allow(clippy::needless_pass_by_value)] // callers write the fields in place
fn body(key: &str, more: Value) -> Value {
    let mut body = json!({
        "domain": "d",
        "descriptors": [{ "entries": [{ "key": key, "value": "ann" }] }],
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Calls of each kind and the status of their answers.
fn calls() -> Vec<(&'static str, Value, u16)> {
    let id = json!({"reservation": "r"});
    let settle = |hits: u64| json!({"reservation": "r", "hits": hits});
    let extend = json!({"reservation": "r", "expires": "1.5s"});
    let reserve = json!({
        "hits": 800, "reservation": "r", "expires": "5m", "on_expiry": "release",
    });
    let own_hits = json!({
        "domain": "d",
        "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }], "hits": 1 }],
    });
    vec![
        ("check", body("user", json!({"hits": 1})), 200),
        ("check", own_hits, 200),
        ("check", body("user", json!({"hits": 9999})), 429),
        ("check", body("none", json!({})), 429),
        ("check", body("free", json!({})), 200),
        ("check", body("user", json!({"hits": -1})), 400),
        ("check", body("free", json!({"hits": 1.0})), 200),
        ("check", body("user", json!({"hits": 1.5})), 400),
        ("check", body("user", json!({"surprise": 1})), 400),
        ("check", body("", json!({})), 400),
        ("check", json!({}), 400),
        ("peek", body("user", json!({})), 200),
        ("peek", body("none", json!({})), 200),
        ("peek", json!([]), 400),
        ("reserve", body("free", json!({"hits": 5})), 200),
        ("reserve", body("fresh", reserve.clone()), 200),
        ("reserve", body("none", json!({"hits": 5})), 429),
        (
            "reserve",
            body("user", json!({"hits": 1, "on_expiry": "keep"})),
            400,
        ),
        ("extend", body("user", extend.clone()), 404),
        ("commit", body("user", settle(1)), 404),
        ("release", body("user", id.clone()), 404),
        ("extend", body("user", id.clone()), 400),
        ("commit", body("user", json!({"hits": 1})), 400),
        ("release", body("user", settle(1)), 400),
        (
            "batch",
            json!({"calls": [
                {"tag": 1, "reserve": body("other", reserve)},
                {"commit": body("other", settle(1))},
                {"extend": body("user", extend)},
                {"check": body("none", json!({}))},
                {"peek": body("none", json!({}))},
            ]}),
            200,
        ),
        (
            "lease",
            body("leased", json!({"hits": 5, "admitted": 1})),
            200,
        ),
        ("lease", body("none", json!({})), 429),
        ("lease", body("free", json!({"hits": 5})), 200),
        ("lease", body("log", json!({"hits": 5})), 200),
        ("lease", body("user", json!({"hits": 0})), 400),
        ("lease", body("user", json!({"unused": 1})), 400),
        (
            "return",
            body("user", json!({"lease": "l", "unused": 1})),
            404,
        ),
        ("return", body("user", json!({"unused": 1})), 400),
        (
            "batch",
            json!({"calls": [
                {"lease": body("leased", json!({}))},
                {"return": body("user", json!({"lease": "l"}))},
            ]}),
            200,
        ),
        ("batch", json!({"calls": {}}), 400),
    ]
}

#[test]
fn every_answer_is_valid_by_the_document_and_so_is_every_call_that_is_understood() {
    let service = Tollgate::start(RULES, &[]);
    let mut values = Vec::new();
    let mut post = |call: &str, sent: Value, expected: u16| {
        let (status, text) = http(
            service.http,
            "POST",
            &format!("/v1/{call}"),
            &sent.to_string(),
        );
        let answer: Value = serde_json::from_str(&text).expect(&text);
        assert_eq!(status, expected, "{call} {sent}: {answer}");
        values.push(json!([call, status, sent, answer]));
    };
    for (call, sent, expected) in calls() {
        post(call, sent, expected);
    }
    // A reservation with a limit, from its beginning to its end, twice.
    let user = |more| body("tokens", more);
    for (call, more) in [
        ("reserve", json!({"hits": 5, "reservation": "r"})),
        ("extend", json!({"reservation": "r", "expires": "60s"})),
        ("commit", json!({"reservation": "r", "hits": 3})),
        ("release", json!({"reservation": "r"})),
    ] {
        let mut sent = user(more);
        sent["descriptors"][0]["entries"][0]["key"] = json!("user");
        sent["descriptors"][0]["entries"][0]["value"] = json!("bob");
        post(call, sent, 200);
    }
    values.extend(refused_unread(&service));
    let errors = python(VALIDATE, &json!([document(), values]).to_string());
    assert_eq!(errors, "");
}

/// Calls that are refused whatever their bodies say, with their answers.
fn refused_unread(service: &Tollgate) -> Vec<Value> {
    let mut values = Vec::new();
    let good = body("user", json!({"hits": 1, "reservation": "r"}));
    let (plain, large) = (good.to_string(), format!("{good}{}", " ".repeat(1 << 20)));
    for call in ["commit", "batch"] {
        let sent = match call {
            "batch" => json!({"calls": []}),
            _ => good.clone(),
        };
        for (method, headers, body, expected) in [
            ("GET", "", &plain, 405),
            ("POST", "", &large, 413),
            ("POST", "content-encoding: gzip\r\n", &plain, 415),
        ] {
            let path = format!("/v1/{call}");
            let (status, text) = http_with(service.http, method, &path, headers, body);
            assert_eq!(status, expected, "{call} {text}");
            let answer: Value = serde_json::from_str(&text).expect(&text);
            values.push(json!([call, status, sent, answer]));
        }
    }
    values
}

/// The same with every time of the machine's clock left out.
fn without_times(answer: &mut Value) {
    match answer {
        Value::Array(items) => items.iter_mut().for_each(without_times),
        Value::Object(fields) => {
            for (name, value) in fields {
                if ["reset", "retry_after"].contains(&name.as_str()) {
                    let text = value.as_str().unwrap();
                    assert!(text.ends_with('s'), "{text}");
                    *value = json!("some time");
                } else {
                    without_times(value);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_command_of_the_pages_answers_as_it_shows() {
    for (page, commands) in [("api", 7), ("leases", 2)] {
        let page = fs::read_to_string(repository().join(format!("docs/{page}.md"))).unwrap();
        let rules = of_a_year(&blocks(&page, "yaml")[0]);
        // A lease that comes back late has another answer, and tests may be slow.
        let service = Tollgate::start(&rules, &["--lease-age-max-ms", "60000"]);
        let blocks = blocks(&page, "console");
        assert_eq!(blocks.len(), commands);
        let mut made_id: Option<(String, String)> = None;
        for block in blocks {
            let (command, shown) = block.split_once('\n').unwrap();
            let command = command.strip_prefix("$ curl -s localhost:8080").unwrap();
            let (path, body) = command.split_once(" -d '").unwrap();
            let mut body = body.strip_suffix('\'').unwrap().to_owned();
            if let Some((shown, made)) = &made_id {
                body = body.replace(shown.as_str(), made);
            }
            let (_, text) = http(service.http, "POST", path, &body);
            let text = text.replace("1 year", "1 day").replace("\"60s\"", "\"2s\"");
            let mut shown: Value = serde_json::from_str(shown).expect(shown);
            let mut answer: Value = serde_json::from_str(&text).expect(&text);
            without_times(&mut shown);
            without_times(&mut answer);
            if let (Some(shown), Some(made)) = (shown["lease"].as_str(), answer["lease"].as_str()) {
                made_id = Some((shown.to_owned(), made.to_owned()));
                answer["lease"] = json!(shown);
            }
            assert_eq!(answer, shown, "{command}");
        }
    }
}
