//! Responses of Envoy to clients: the body and headers of a rule's `over_limit`, and the headers of
//! `--response-headers`.
//!
//! How: every number is compared with a zero-hit check over gRPC. Envoy adds no headers of its own unless a test
//! enables them, since it would add its values to ours.
//!
//! What it deliberately does not do: parse structured fields. It reads the part of RFC 9651 that
//! tollgate writes.

use std::collections::BTreeMap;

use tollgate_test_support::envoy_process::OwnHeaders;
use tollgate_test_support::grpc_client::DescriptorStatus;

use crate::edge::{DAY_SECONDS, Edge, until_the_end_of};

const YEAR_SECONDS: u64 = 365 * DAY_SECONDS;

/// An item of `RateLimit-Policy` or `RateLimit`: a name and its numbers.
type Item = (String, BTreeMap<String, u64>);

#[test]
fn over_limit_responses_have_the_rules_body_and_headers_and_others_do_not() {
    // window: the clock stands.
    let rules = r#"
domain: edge
descriptors:
  - key: day
    over_limit:
      body: '{"error":"more than {limit} in {window}","wait":{retry_after_seconds},"docs":{}}'
      headers:
        content-type: application/problem+json
        x-plan: "{limit} in {window}, again in {retry_after_seconds}"
    rate_limit: { unit: day, requests_per_unit: 1 }
"#;
    let mut edge = Edge::start(rules, &[], OwnHeaders::No);
    let passed = edge.get("/day");
    assert_eq!(passed.status, 200);
    assert_eq!(passed.body, b"nineteen bytes here");
    assert_eq!(passed.header("content-type"), Some("text/plain"));
    assert_eq!(passed.header("x-plan"), None);

    let refused = edge.get("/day");
    assert_eq!(refused.status, 429);
    let wait = until_the_end_of(DAY_SECONDS);
    let body = format!(r#"{{"error":"more than 1 in 1 day","wait":{wait},"docs":{{}}}}"#);
    assert_eq!(String::from_utf8_lossy(&refused.body), body);
    let length = Some(body.len() as u64);
    assert_eq!(refused.number("content-length"), length);
    let content_type = refused.header("content-type");
    assert_eq!(content_type, Some("application/problem+json"));
    let plan = format!("1 in 1 day, again in {wait}");
    assert_eq!(refused.header("x-plan"), Some(plan.as_str()));
    // No rule or setting asks for it.
    assert_eq!(refused.header("retry-after"), None);
}

#[test]
fn shadow_mode_responses_have_no_over_limit_headers() {
    // window: the clock stands.
    let rules = "
domain: edge
descriptors:
  - key: day
    over_limit: { body: 'no', headers: { x-plan: 'no' } }
    rate_limit: { unit: day, requests_per_unit: 0 }
";
    let arguments = ["--shadow-mode", "true", "--response-headers", "retry-after"];
    let mut edge = Edge::start(rules, &arguments, OwnHeaders::No);
    let passed = edge.get("/day");
    assert_eq!(passed.status, 200);
    assert_eq!(passed.body, b"nineteen bytes here");
    assert_eq!(passed.header("x-plan"), None);
    assert_eq!(passed.header("retry-after"), None);
}

#[test]
fn a_limit_of_zero_has_a_body_and_no_retry_after() {
    // window: the clock stands.
    let rules = "
domain: edge
descriptors:
  - key: day
    over_limit: { body: 'closed: {limit} in {window}' }
    rate_limit: { unit: day, requests_per_unit: 0 }
";
    let retry_after = ["--response-headers", "retry-after"];
    let mut edge = Edge::start(rules, &retry_after, OwnHeaders::No);
    let mut envoys = Edge::start(rules, &retry_after, OwnHeaders::Yes);
    for _ in 0..2 {
        let refused = edge.get("/day");
        assert_eq!((refused.status, refused.body.as_slice()), CLOSED);
        assert_eq!(refused.header("content-type"), Some("text/plain"));
        assert_eq!(refused.header("retry-after"), None);

        // Envoy adds one to every 429 when its filter is configured to.
        let refused = envoys.get("/day");
        assert_eq!((refused.status, refused.body.as_slice()), CLOSED);
        let wait = until_the_end_of(DAY_SECONDS);
        assert_eq!(refused.number("retry-after"), Some(wait));
    }
}

const CLOSED: (u16, &[u8]) = (429, b"closed: 0 in 1 day");

#[test]
fn headers_of_every_style_agree_with_the_statuses() {
    // window: the clock stands.
    let rules = r#"
domain: edge
descriptors:
  - { key: day, rate_limit: { unit: day, requests_per_unit: 10, name: 'a "day", or so; w' } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 3 } }
"#;
    let styles = "ietf,retry-after,x-ratelimit,reference";
    let mut edge = Edge::start(rules, &["--response-headers", styles], OwnHeaders::No);
    for (passed, left) in [(true, 2), (true, 1), (true, 0), (false, 0)] {
        let answer = edge.get("/two");
        assert_eq!(answer.status, if passed { 200 } else { 429 });
        let statuses = edge.look(&["day", "year"]);
        let [day, year] = statuses.as_slice() else {
            panic!("{statuses:?}")
        };
        assert_eq!(year.limit_remaining, left);

        // The tightest of the two, in every style that has one.
        for style in ["ratelimit", "x-ratelimit"] {
            let number = |part| answer.number(&format!("{style}-{part}"));
            assert_eq!(number("limit"), Some(3), "{answer:?}");
            assert_eq!(number("remaining"), Some(year.limit_remaining.into()));
            assert_eq!(number("reset"), Some(seconds(year)));
        }
        // Both, in the style that lists them.
        let names = [r#"a "day", or so; w"#, "limit-2"];
        let windows = [DAY_SECONDS, YEAR_SECONDS];
        let policies = items(answer.header("ratelimit-policy").expect("policies"));
        let levels = items(answer.header("ratelimit").expect("levels"));
        assert_eq!((policies.len(), levels.len()), (2, 2));
        for (position, status) in [day, year].into_iter().enumerate() {
            let limit = status.current_limit.as_ref().expect("a limit");
            let quota = u64::from(limit.requests_per_unit);
            let policy = [("q", quota), ("w", windows[position])];
            assert_eq!(policies[position], item(names[position], policy));
            let level = [
                ("r", u64::from(status.limit_remaining)),
                ("t", seconds(status)),
            ];
            assert_eq!(levels[position], item(names[position], level));
        }
        let retry_after = (!passed).then(|| until_the_end_of(YEAR_SECONDS));
        assert_eq!(answer.number("retry-after"), retry_after);
    }
}

/// Numbers of a status; times in whole seconds.
fn seconds(status: &DescriptorStatus) -> u64 {
    let until = status.duration_until_reset.expect("a duration");
    assert_eq!(until.nanos, 0);
    u64::try_from(until.seconds).expect("a time to come")
}

fn item<const N: usize>(name: &str, numbers: [(&str, u64); N]) -> Item {
    let numbers = numbers.map(|(key, number)| (key.to_owned(), number));
    (name.to_owned(), numbers.into_iter().collect())
}

/// A list of strings with whole numbers as parameters: `"name";q=10;w=60, "other";q=3`.
fn items(list: &str) -> Vec<Item> {
    let mut rest = list.chars().peekable();
    let mut items = Vec::new();
    loop {
        assert_eq!(rest.next(), Some('"'), "{list}");
        let mut name = String::new();
        loop {
            match rest.next().expect("the string ends") {
                '"' => break,
                '\\' => name.extend(rest.next()),
                char => name.push(char),
            }
        }
        let mut numbers = BTreeMap::new();
        while rest.next_if_eq(&';').is_some() {
            let text: String =
                std::iter::from_fn(|| rest.next_if(|c| !";,".contains(*c))).collect();
            let (key, number) = text.split_once('=').expect("a parameter");
            let number = number.parse().expect("a whole number");
            assert!(numbers.insert(key.to_owned(), number).is_none(), "{list}");
        }
        items.push((name, numbers));
        let Some(comma) = rest.next() else {
            return items;
        };
        assert_eq!((comma, rest.next()), (',', Some(' ')), "{list}");
    }
}
