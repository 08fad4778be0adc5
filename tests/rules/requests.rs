//! `requests`: the shared vectors of the clients' middleware, and errors.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tollgate::rules::requests::HttpRequest;

use crate::rules::reading::{MERGED, bad, good, source, words};

const VECTORS: &str = include_str!("../../clients/vectors/descriptors.json");

/// A file whose `requests` are this text.
fn file(requests: &str) -> String {
    format!(
        "domain: d\nrequests: {requests}\ndescriptors:\n  - key: k\n    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n"
    )
}

#[test]
fn descriptors_are_those_of_the_clients_middleware() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() > 60);
    for case in cases {
        let rules = good(&file(&case["config"].to_string()));
        let request = &case["request"];
        let mut headers = HeaderMap::new();
        for pair in request["headers"].as_array().unwrap() {
            let text = |at: usize| pair[at].as_str().unwrap();
            let name: HeaderName = text(0).parse().unwrap();
            headers.append(name, HeaderValue::from_str(text(1)).unwrap());
        }
        let peer = request["peer"].as_str().unwrap().rsplit_once(':');
        let peer = peer.map(|(host, _)| {
            let host = host.trim_matches(['[', ']']).split('%').next().unwrap();
            host.parse().unwrap()
        });
        let request = HttpRequest {
            method: request["method"].as_str().unwrap(),
            target: request["path"].as_str().unwrap(),
            headers: &headers,
            peer,
        };
        let found = rules.requests["d"].descriptors(&request);
        let found = found.iter().map(|descriptor| {
            let entries = descriptor.iter().map(|(key, value)| {
                let value = String::from_utf8_lossy(value).into_owned();
                Value::from(vec![(*key).to_owned(), value])
            });
            entries.collect::<Value>()
        });
        let expected = case["expect"]["descriptors"].as_array().cloned();
        assert_eq!(
            found.collect::<Value>(),
            Value::from(expected.unwrap_or_default()),
            "{}",
            case["name"]
        );
    }
}

#[test]
fn mistakes_are_reported_where_they_are() {
    for (requests, expected) in [
        (
            "{ trusted_proxies: [10.0.0.1/8] }",
            "'10.0.0.1/8' has bits set beyond its prefix",
        ),
        (
            "{ skip_paths: [healthz] }",
            "'healthz' is not a path template",
        ),
        ("{ skip_paths: [] }", "skip_paths is an empty list"),
        (
            "{ descriptors: [{ key: a, value: b }] }",
            "a descriptor of requests is not a list of entries",
        ),
        (
            "{ descriptors: [[{ value: b }]] }",
            "`key` is missing or empty",
        ),
        (
            "{ descriptors: [[{ key: a }]] }",
            "an entry of requests does not have exactly one source",
        ),
        (
            "{ descriptors: [[{ key: a, value: b, path: true }]] }",
            "an entry of requests does not have exactly one source",
        ),
        (
            "{ descriptors: [[{ key: a, path: false }]] }",
            "path is not true",
        ),
        (
            "{ descriptors: [[{ key: a, header: \"x y\" }]] }",
            "'x y' is not the name of a header",
        ),
        (
            "{ descriptors: [[{ key: a, heder: x }]] }",
            "config error, unknown key 'heder'",
        ),
    ] {
        let errors = bad(&file(requests));
        let found = words(errors.first().unwrap());
        assert!(found.contains(expected), "{requests}\n{found}");
    }
    let many = "[{ key: a, value: b }], ".repeat(65);
    let errors = bad(&file(&format!("{{ descriptors: [{many}] }}")));
    assert!(words(&errors[0]).contains("the list has more than 64 items"));
}

#[test]
fn one_file_of_a_domain_has_requests() {
    let requests = "{ descriptors: [[{ key: a, path: true }]] }";
    let files = ["a.yaml", "b.yaml"].map(|name| {
        let other = file(requests).replace("key: k\n", &format!("key: {}\n", &name[..1]));
        source(name, &other)
    });
    let report = tollgate::rules::file::load(&files, MERGED).unwrap_err();
    let found = words(&report.errors[0]);
    assert!(
        found.contains("an earlier file of this domain has requests"),
        "{found}"
    );
}
