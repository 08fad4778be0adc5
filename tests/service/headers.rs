//! Response headers in every style, and the body and headers of a rule's `over_limit`.
//!
//! Values are compared with the statuses of the same response, so that a header that disagrees is
//! found for any rules.
//!
//! What it deliberately does not do: test which descriptor the reference's three headers describe
//! (`answers`), or what Envoy does with them (`tests/envoy`).

use serde_json::Value as Json;
use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitRequest, RateLimitResponse, hits, request,
};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::{START, Service};

use crate::service::{flags, headers_of, override_of};

const RULES: &str = "
domain: d
descriptors:
  - key: ten
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: five
    rate_limit: { unit: hour, unit_multiplier: 2, requests_per_unit: 5, name: five }
  - key: five_too
    rate_limit: { unit: day, requests_per_unit: 5, name: five }
  - key: odd
    rate_limit: { unit: second, requests_per_unit: 1, name: \"say \\\"hi\\\" \\\\ é\\n\" }
  - key: limit-3
    rate_limit: { unit: minute, requests_per_unit: 3, name: limit-3 }
  - key: accents
    rate_limits:
      - { unit: minute, requests_per_unit: 3, name: é }
  - key: more_accents
    rate_limit: { unit: minute, requests_per_unit: 3, name: è }
  - key: monthly
    rate_limit: { unit: month, calendar: true, time_zone: Europe/Paris, requests_per_unit: 9 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
";

/// The value of the header of that name, if there is one.
fn header<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut headers = answer.response_headers_to_add.iter();
    let header = headers.find(|header| header.key == name)?;
    Some(&header.value)
}

fn asked(descriptors: &[(&str, u64)], value: &str) -> RateLimitRequest {
    let descriptors = descriptors
        .iter()
        .map(|(key, count)| hits(key, value, *count));
    request("d", descriptors.collect())
}

const STYLES: [(&str, &[&str]); 4] = [
    (
        "reference",
        &[
            "RateLimit-Limit: 10",
            "RateLimit-Remaining: 0",
            "RateLimit-Reset: 50",
        ],
    ),
    (
        "x-ratelimit",
        &[
            "X-RateLimit-Limit: 10",
            "X-RateLimit-Remaining: 0",
            "X-RateLimit-Reset: 50",
        ],
    ),
    (
        "ietf",
        &[
            "RateLimit-Policy: \"limit-1\";q=10;w=60",
            "RateLimit: \"limit-1\";r=0;t=50",
        ],
    ),
    ("retry-after", &["Retry-After: 50"]),
];

#[tokio::test]
async fn header_styles_combine_without_duplicates() {
    for mask in 0..32_usize {
        let chosen = |style: usize| mask & (1 << style) != 0;
        let variable = chosen(4).to_string();
        let mut arguments = vec!["--limit-response-headers-enabled", variable.as_str()];
        // The order of the names, their case and duplicates make no difference.
        let names: Vec<_> = (0..4)
            .rev()
            .filter(|style| chosen(*style))
            .flat_map(|style| [STYLES[style].0.to_uppercase(), STYLES[style].0.to_owned()])
            .collect();
        let names = names.join(",");
        if !names.is_empty() {
            arguments.extend(["--response-headers", &names]);
        }
        let mut service = Service::start(RULES, &arguments).await;
        let expected = STYLES.iter().enumerate().flat_map(|(style, (_, headers))| {
            let there = chosen(style) || (style == 0 && chosen(4));
            headers.iter().filter(move |_| there)
        });
        let expected: Vec<_> = expected.copied().collect();
        // Eleven at once never pass, so there is no wait.
        service.ask(asked(&[("ten", 10)], "a")).await;
        let answer = service.ask(asked(&[("ten", 1)], "a")).await;
        assert_eq!(headers_of(&answer), expected, "{arguments:?}");
    }
}

#[tokio::test]
async fn the_references_variables_rename_only_its_own_headers() {
    let arguments = flags("--response-headers reference,x-ratelimit --limit-limit-header x-limit");
    let mut service = Service::start(RULES, &arguments).await;
    let answer = service.ask(asked(&[("ten", 1)], "a")).await;
    let names: Vec<_> = answer
        .response_headers_to_add
        .iter()
        .map(|header| header.key.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "x-limit",
            "RateLimit-Remaining",
            "RateLimit-Reset",
            "X-RateLimit-Limit",
            "X-RateLimit-Remaining",
            "X-RateLimit-Reset"
        ]
    );
}

const ALL: &[&str] = &["--response-headers", "x-ratelimit,ietf,retry-after"];

#[tokio::test]
async fn the_drafts_fields_agree_with_the_statuses() {
    let mut service = Service::start(RULES, ALL).await;
    let keys = [
        ("ten", 3),
        ("free", 1),
        ("five", 2),
        ("nothing", 1),
        ("monthly", 9),
        ("watched", 2),
        ("quota", 3),
    ];
    let answer = service.ask(asked(&keys, "a")).await;
    let statuses = answer.statuses.iter().filter_map(|status| {
        let until = status.duration_until_reset.as_ref()?.seconds;
        Some(format!("r={};t={until}", status.limit_remaining))
    });
    let names = ["limit-1", "five", "limit-5", "limit-6", "limit-7"];
    let levels = names.iter().zip(statuses);
    let levels: Vec<_> = levels
        .map(|(name, level)| format!("\"{name}\";{level}"))
        .collect();
    assert_eq!(levels.len(), 5);
    assert_eq!(header(&answer, "RateLimit"), Some(&*levels.join(", ")));
    // A month is 30 days here, like on the wire; its end is the reset time.
    assert_eq!(
        header(&answer, "RateLimit-Policy"),
        Some(
            "\"limit-1\";q=10;w=60, \"five\";q=5;w=7200, \"limit-5\";q=9;w=2592000, \"limit-6\";q=1;w=31536000, \"limit-7\";q=2;w=60"
        )
    );
    // START is the 15th of November; in Paris the month ends at 23:00 UTC on the 30th.
    let start_s = START.as_us() / 1_000_000;
    let month = 1_701_385_200 - start_s;
    assert!(
        levels[2].ends_with(&format!(";r=0;t={month}")),
        "{levels:?}"
    );
    // The other headers describe one of these limits.
    assert_eq!(header(&answer, "X-RateLimit-Limit"), Some("9"));
    assert_eq!(header(&answer, "X-RateLimit-Remaining"), Some("0"));
    assert_eq!(
        header(&answer, "X-RateLimit-Reset"),
        Some(&*month.to_string())
    );
}

/// The names in a list of structured fields.
fn names(answer: &RateLimitResponse) -> Vec<String> {
    let levels = header(answer, "RateLimit").unwrap();
    let policies = header(answer, "RateLimit-Policy").unwrap();
    let names = |list: &str| -> Vec<String> {
        let items = list.split(", ");
        items
            .map(|item| item.rsplitn(3, ';').last().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(levels), names(policies));
    names(levels)
}

#[tokio::test]
async fn names_are_quoted_and_unique() {
    let mut service = Service::start(RULES, ALL).await;
    for (keys, expected) in [
        (&["odd"][..], &[r#""say \"hi\" \\ ??""#][..]),
        (&["five", "five_too"], &["\"five\"", "\"five-2\""]),
        (
            &["ten", "five", "five", "five"],
            &["\"limit-1\"", "\"five\"", "\"five-3\"", "\"five-4\""],
        ),
        // A name that is a duplicate only after escaping.
        (&["accents", "more_accents"], &["\"?\"", "\"?-2\""]),
        // Or a duplicate of a generated name.
        (
            &["limit-3", "five", "ten"],
            &["\"limit-3\"", "\"five\"", "\"limit-3-3\""],
        ),
        (
            &["five", "ten", "ten", "limit-3"],
            &["\"five\"", "\"limit-2\"", "\"limit-3\"", "\"limit-3-4\""],
        ),
    ] {
        let descriptors = keys.iter().map(|key| hits(key, "a", 0));
        let answer = service.ask(request("d", descriptors.collect())).await;
        assert_eq!(names(&answer), expected, "{keys:?}");
    }
}

const SPOKEN: &str = "
domain: d
descriptors:
  - key: a
    rate_limits:
      - { unit: minute, requests_per_unit: 2 }
      - { unit: month, calendar: true, time_zone: Europe/Paris, requests_per_unit: 3 }
    over_limit:
      body: '{\"at most\": {limit}, \"in\": \"{window}\", \"again\": {retry_after_seconds}, \"{other}\": {}}'
      headers: { Content-Type: application/json, x-wait: '{retry_after_seconds} s, {limit}', x-empty: '' }
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 1 }
    over_limit: { body: b, headers: { x-b: b } }
  - key: silent
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
    over_limit: { body: watched }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
    over_limit: { body: quota }
  - key: slots
    rate_limit: { algorithm: concurrency, requests_per_unit: 1, slot_seconds: 9 }
    over_limit: { body: '{limit} {window} {retry_after_seconds}' }
  - key: headers
    rate_limit: { unit: hour, requests_per_unit: 0 }
    over_limit: { headers: { x-only: headers } }
";

/// The body of an answer.
fn body(answer: &RateLimitResponse) -> &str {
    std::str::from_utf8(&answer.raw_body).unwrap()
}

#[tokio::test]
async fn a_refusal_has_its_limits_body_and_headers() {
    let mut service = Service::start(SPOKEN, &["--response-headers", "x-ratelimit"]).await;
    for _ in 0..2 {
        let answer = service.ask(asked(&[("a", 1)], "v")).await;
        assert_eq!(body(&answer), "");
        assert_eq!(headers_of(&answer).len(), 3, "{:?}", headers_of(&answer));
    }
    let answer = service.ask(asked(&[("a", 1)], "v")).await;
    assert_eq!(
        body(&answer),
        r#"{"at most": 2, "in": "1 minute", "again": 50, "{other}": {}}"#
    );
    assert_eq!(
        headers_of(&answer),
        [
            "X-RateLimit-Limit: 2",
            "X-RateLimit-Remaining: 0",
            "X-RateLimit-Reset: 50",
            "content-type: application/json",
            "x-wait: 50 s, 2",
            "x-empty: ",
        ]
    );
    // Among several limits the one that is reported fills the placeholders.
    service.clock.advance_us(60_000_000);
    let answer = service.ask(asked(&[("a", 1)], "v")).await;
    let until = answer.statuses[0].duration_until_reset.as_ref();
    let seconds = until.unwrap().seconds;
    assert_eq!(
        body(&answer),
        format!(
            r#"{{"at most": 3, "in": "1 month in Europe/Paris", "again": {seconds}, "{{other}}": {{}}}}"#
        )
    );
    let answer = service.ask(asked(&[("slots", 1), ("slots", 1)], "v")).await;
    assert_eq!(body(&answer), "1 any moment 9");
    let answer = service.ask(asked(&[("headers", 1)], "v")).await;
    assert_eq!(header(&answer, "x-only"), Some("headers"));
    assert_eq!(body(&answer), "");
}

#[tokio::test]
async fn among_several_refusing_limits_the_reported_one_has_priority() {
    let mut service = Service::start(SPOKEN, &[]).await;
    let again = "{\"at most\"";
    for (number, (keys, begins)) in [
        (&["a", "b"][..], "b"), // the last, like in the headers
        (&["b", "a"], again),
        (&["b", "a", "silent"], "b"), // the last has no body: request order
        (&["silent", "b"], "b"),
        (&["silent"], ""),
        (&["watched"], ""), // passes
        (&["watched", "silent"], ""),
        (&["quota"], "quota"),
        (&["quota", "b"], "b"), // a quota has no precedence
        (&["b", "quota"], "b"),
        (&["quota", "silent"], "quota"),
    ]
    .into_iter()
    .enumerate()
    {
        let value = number.to_string();
        let full: Vec<_> = keys.iter().map(|key| (*key, 4)).collect();
        let answer = service.ask(asked(&full, &value)).await;
        assert!(
            body(&answer).starts_with(begins),
            "{keys:?}: {}",
            body(&answer)
        );
        assert_eq!(body(&answer).is_empty(), begins.is_empty(), "{keys:?}");
        assert_eq!(header(&answer, "x-b"), (begins == "b").then_some("b"));
    }
}

#[tokio::test]
async fn allowed_requests_have_no_over_limit_body_or_headers() {
    // One of two quotas is over: the request passes.
    let mut service = Service::start(SPOKEN, &[]).await;
    let answer = service.ask(asked(&[("quota", 2), ("quota", 0)], "v")).await;
    assert_eq!(answer.overall_code(), Code::OverLimit, "the same bucket");
    let two = vec![hits("quota", "w", 2), hits("quota", "x", 1)];
    let answer = service.ask(request("d", two)).await;
    assert_eq!((answer.overall_code(), body(&answer)), (Code::Ok, ""));
    let mut service = Service::start(SPOKEN, &["--shadow-mode", "true"]).await;
    let answer = service.ask(asked(&[("b", 2)], "v")).await;
    assert_eq!(answer.statuses[0].code(), Code::OverLimit);
    assert_eq!((answer.overall_code(), body(&answer)), (Code::Ok, ""));
    assert_eq!(headers_of(&answer), [""; 0]);
}

#[tokio::test]
async fn a_request_override_that_replaces_the_rule_has_no_over_limit() {
    let rules = SPOKEN.replacen(
        "descriptors:",
        "limit_from_request: replace\ndescriptors:",
        1,
    );
    let mut service = Service::start(&rules, &[]).await;
    let along = Descriptor {
        limit: override_of(1, 1),
        ..hits("b", "v", 2)
    };
    let answer = service.ask(request("d", vec![along])).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(body(&answer), "");
}

#[tokio::test]
async fn denial_by_overload_uses_the_limits_over_limit() {
    let bounds = flags(
        "--partitions 1 --mailbox-checks-max 1 --on-overload deny --response-headers retry-after",
    );
    let mut service = Service::start(SPOKEN, &bounds).await;
    let answer = service.ask(asked(&[("b", 1), ("silent", 1)], "v")).await;
    assert_eq!(
        (answer.overall_code(), body(&answer)),
        (Code::OverLimit, "b")
    );
    assert_eq!(headers_of(&answer), ["Retry-After: 1", "x-b: b"]);
}

#[tokio::test]
async fn json_has_the_same_headers() {
    let service = Service::start(SPOKEN, &["--response-headers", "ietf"]).await;
    let address = service.http;
    let ask = async |hits: u32| {
        let asked = format!(
            r#"{{"domain":"d","hitsAddend":{hits},"descriptors":[{{"entries":[{{"key":"b","value":"v"}}]}}]}}"#
        );
        let answer =
            tokio::task::spawn_blocking(move || http(address, "POST", "/json", &asked)).await;
        let (status, body) = answer.unwrap();
        (status, serde_json::from_str::<Json>(&body).unwrap())
    };
    let (status, answer) = ask(1).await;
    assert_eq!((status, answer.get("rawBody")), (200, None));
    let (status, answer) = ask(1).await;
    assert_eq!(status, 429);
    // `b` in base 64.
    assert_eq!(answer["rawBody"], "Yg==");
    assert_eq!(
        answer["responseHeadersToAdd"],
        serde_json::json!([
            { "key": "RateLimit-Policy", "value": "\"limit-1\";q=1;w=3600" },
            { "key": "RateLimit", "value": "\"limit-1\";r=0;t=3590" },
            { "key": "x-b", "value": "b" },
        ])
    );
}

#[tokio::test]
async fn the_request_that_goes_upstream_can_have_headers_of_its_own() {
    let all = |answer: &RateLimitResponse| -> Vec<String> {
        let headers = answer.request_headers_to_add.iter();
        headers
            .map(|it| format!("{}: {}", it.key, it.value))
            .collect()
    };
    let flags = [
        "--limit-request-headers-enabled=true",
        "--limit-request-remaining-header=X-Left",
    ];
    let mut service = Service::start(RULES, &flags).await;
    let mut ask = async |key: &str| service.ask(asked(&[(key, 1)], "a")).await;
    // A limit in shadow mode lets the request pass, and the upstream sees that nothing is left.
    for _ in 0..2 {
        let answer = ask("watched").await;
        assert_eq!(answer.overall_code(), Code::Ok);
        assert!(answer.response_headers_to_add.is_empty());
        let headers = all(&answer);
        assert_eq!(headers[..2], ["RateLimit-Limit: 1", "X-Left: 0"]);
        assert!(headers[2].starts_with("RateLimit-Reset: "), "{headers:?}");
    }
    assert_eq!(all(&ask("free").await), [""; 0]);
}
