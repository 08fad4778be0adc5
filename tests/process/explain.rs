//! Output of `explain`.

use std::process::Command;

use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::commands::{RULES, tollgate};

const TREE: &str = "
domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: { unit: hour, requests_per_unit: 5, name: free, replaces: [{ name: other }] }
  - key: files
    value: files/*
    share_threshold: true
    quota_mode: true
    detailed_metric: true
    rate_limit: { unit: day, requests_per_unit: 9, algorithm: gcra, burst: 3 }
  - key: plain
";

fn explain(descriptor: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TREE).unwrap();
    let path = file.path().to_str().unwrap();
    let (code, stdout, stderr) = tollgate(&["explain", path, "shop", descriptor]);
    assert_eq!(code, 0, "{stderr}");
    stdout
}

#[test]
fn explain_names_the_rule_and_the_reason() {
    assert_eq!(
        explain("plan=free,user=bob"),
        "\
domain shop
  level 1: plan=free: matches exactly
  level 2: user=bob: matches user with any value
  all_or_nothing: false, from the setting
rule shop.plan_free.user
  limit: 5 in 1 hour, fixed_window
  count_refused: blocking
  promise: at most N in each aligned window; up to 2N across an edge
  bucket: shop plan=free,user=bob; fixed_window, 1 hour, name free
  name: free
  replaces: other
  metrics: domain=\"shop\" key1=\"plan_free\" key2=\"user\"
"
    );
    assert_eq!(
        explain("files=files/a"),
        "\
domain shop
  level 1: files=files/a: matches the pattern files_files/*, the first that matches
  all_or_nothing: false, from the setting
rule shop.files_files/*
  limit: 9 in 1 day, token_bucket
  burst: 3
  count_refused: none
  promise: refills continuously at N per window, holds `burst` (default N)
  bucket: shop files=files/* (shared by all matching values); token_bucket, 1 day
  quota_mode: a request is refused only if all its quotas are over limit
  metrics: domain=\"shop\" key1=\"files_files/*\" key2=\"\"
"
    );
}

const KINDS: &str = r"
domain: shop
descriptors:
  - { key: ip, cidr: [10.0.0.0/8, 192.168.0.0/16], rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: ip, cidr: 10.1.0.0/16, rate_limit: { unit: day, requests_per_unit: 8 } }
  - { key: ip, cidr: '::/0', ipv6_prefix: 64, rate_limit: { unit: day, requests_per_unit: 7 } }
  - { key: ip, value: '10.*' }
  - { key: ip, regex: '\d.*' }
  - { key: plan, values: [free, trial], share_threshold: true, rate_limit: { unit: day } }
  - { key: plan, regex: '[a-z]+', rate_limit: { unit: day } }
";

#[test]
fn explain_names_the_kind_of_match_and_other_matches() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), KINDS).unwrap();
    let path = file.path().to_str().unwrap();
    for (descriptor, said) in [
        (
            "ip=10.1.2.3",
            &[
                "level 1: ip=10.1.2.3: matches the prefix 10.1.0.0/16, the longest that contains 10.1.2.3\n",
                "also matches, with lower priority: the prefix 10.0.0.0/8; the pattern ip_10.*; the regex \\d.*\n",
                "rule shop.ip_10.1.0.0/16\n",
                "bucket: shop ip=10.1.2.3; ",
            ][..],
        ),
        (
            "ip=::ffff:10.2.0.1",
            &[
                "matches the prefix 10.0.0.0/8, ",
                "bucket: shop ip=10.2.0.1; ",
            ],
        ),
        (
            "ip=2001:DB8::9",
            &[
                "matches the prefix ::/0, ",
                "bucket: shop ip=2001:db8::/64; ",
            ],
        ),
        (
            "ip=10.x",
            &[
                "matches the pattern ip_10.*, the first that matches",
                "also matches, with lower priority: the regex",
            ],
        ),
        (
            "ip=9 to 5",
            &["matches the regex \\d.*, the first that matches\n"],
        ),
        (
            "plan=trial",
            &[
                "matches the list free|trial\n",
                "bucket: shop plan=free|trial (shared by all matching values); ",
                "key1=\"plan_free|trial\"",
            ],
        ),
        (
            "plan=PAID",
            &["no match; configured here: free, trial, ~[a-z]+\n"],
        ),
    ] {
        let (code, stdout, stderr) = tollgate(&["explain", path, "shop", descriptor]);
        assert_eq!(code, 0, "{stderr}");
        for words in said {
            assert!(stdout.contains(words), "{words:?} in {stdout}");
        }
    }
}

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    detailed_metric: true
    rate_limits:
      - { unit: second, requests_per_unit: 20, algorithm: gcra, burst: 40, refill: interval }
      - { unit: minute, unit_multiplier: 15, requests_per_unit: 1000, algorithm: sliding_window, segments: 6, count_refused: blocking }
      - { unit: month, requests_per_unit: 9000, calendar: true, time_zone: Europe/Paris, name: monthly }
      - { algorithm: concurrency, requests_per_unit: 10, slot_seconds: 60, holder_key: request_id }
  - key: hall
    rate_limit: { algorithm: concurrency, requests_per_unit: 1, slot_seconds: 5 }
";

#[test]
fn explain_prints_every_limit_option_and_slot_holder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), LIMITS).unwrap();
    let path = file.path().to_str().unwrap();
    let explain = |descriptor: &str| {
        let (code, stdout, stderr) = tollgate(&["explain", path, "shop", descriptor]);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let expected = "\
domain shop
  level 1: user=bob: matches user with any value
  the last entry, request_id=7, identifies the holder of a slot
  all_or_nothing: false, from the setting
4 limits; the answer shows the tightest
rule shop.user
  limit: 20 in 1 second, token_bucket_interval
  burst: 40
  count_refused: none
  promise: refills by N at each edge of an aligned window, holds `burst` (default N)
  bucket: shop user=bob; token_bucket_interval, 1 second
  metrics: domain=\"shop\" key1=\"user_bob\" key2=\"\"
rule shop.user
  limit: 1000 in 15 minutes, sliding_window_segments
  segments: 6
  count_refused: blocking
  promise: at most N in the present segment and the n - 1 before it, exactly
  bucket: shop user=bob; sliding_window_segments, 15 minutes
  metrics: domain=\"shop\" key1=\"user_bob\" key2=\"\"
rule shop.user
  limit: 9000 in 1 month in Europe/Paris, fixed_window
  count_refused: blocking
  promise: at most N in each aligned window; up to 2N across an edge
  bucket: shop user=bob; fixed_window, 1 month in Europe/Paris, name monthly
  name: monthly
  metrics: domain=\"shop\" key1=\"user_bob\" key2=\"\"
rule shop.user
  limit: 10 in flight, concurrency
  slot_seconds: 60
  holder_key: request_id, as the last entry; without it a slot is anonymous
  promise: at most N in flight; a lost one comes back when its slot expires
  bucket: shop user=bob; concurrency
  metrics: domain=\"shop\" key1=\"user_bob\" key2=\"\"
";
    assert_eq!(explain("user=bob,request_id=7"), expected);
    let holder = "  the last entry, request_id=7, identifies the holder of a slot\n";
    assert_eq!(explain("user=bob"), expected.replace(holder, ""));
    assert_eq!(
        explain("hall=a"),
        "\
domain shop
  level 1: hall=a: matches hall with any value
  all_or_nothing: false, from the setting
rule shop.hall
  limit: 1 in flight, concurrency
  slot_seconds: 5
  promise: at most N in flight; a lost one comes back when its slot expires
  bucket: shop hall=a; concurrency
  metrics: domain=\"shop\" key1=\"hall\" key2=\"\"
"
    );
}

const TWINS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limits:
      - { unit: second, requests_per_unit: 5 }
      - { unit: minute, requests_per_unit: 50 }
      - { unit: minute, requests_per_unit: 50, algorithm: sliding_window }
      - { unit: minute, requests_per_unit: 40, name: 'by hand, twice' }
";

const RESERVED: &str = "
domain: models
descriptors:
  - key: user
    descriptors:
      - key: in
        rate_limit: { unit: day, requests_per_unit: 1000, cost: 0.25, budget: spend, reserve: { key: id, amount: p95, floor: 10, ceiling: 400, per: key, expires: 90s, on_expiry: release } }
  - key: team
    rate_limit: { unit: day, requests_per_unit: 1000, reserve: { key: id, amount: 300 } }
  - key: api
    rate_limit: { unit: day, requests_per_unit: 1000, reserve: { amount: 300 } }
";

#[test]
fn explain_shows_what_starts_and_ends_of_reservations_do() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RESERVED).unwrap();
    let path = file.path().to_str().unwrap();
    let explain = |descriptor: &str| {
        let (code, stdout, stderr) = tollgate(&["explain", path, "models", descriptor]);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    assert_eq!(
        explain("user=bob,in=,id=7"),
        "\
domain models
  level 1: user=bob: matches user with any value
  level 2: in=: matches in with any value
  the last entry, id=7, is the id of a reservation
  all_or_nothing: false, from the setting
rule models.user.in
  limit: 1000 in 1 day, fixed_window
  count_refused: blocking
  reserve: {key: id, amount: p95, floor: 10, ceiling: 400, per: key, expires: 1m 30s, on_expiry: release}
    start: id as the last entry and hits_addend 0 reserves p95 of what was committed, from 10 to 400, and 10 at first
    end: id as the last entry and more hits settles its hits times the cost
  cost: 0.25 for each hit; what a request costs is rounded up
  promise: at most N in each aligned window; up to 2N across an edge
  bucket: models user=bob; fixed_window, 1 day, budget spend
  metrics: domain=\"models\" key1=\"user\" key2=\"in\"
"
    );
    let team = explain("team=a");
    let reserve = "  reserve: {key: id, amount: 300, expires: 1m, on_expiry: charge}
    start: id as the last entry and hits_addend 0 reserves 300
    end: id as the last entry and more hits settles its hits
";
    assert!(team.contains(reserve), "{team}");
    assert!(
        !team.contains("holder_key") && !team.contains("  cost:"),
        "{team}"
    );
    let api = explain("api=a");
    let reserve = "  reserve: {amount: 300, expires: 1m, on_expiry: charge}
    only requests of the API reserve: no entry is an id
";
    assert!(api.contains(reserve), "{api}");
}

#[test]
fn explain_of_a_running_service_starts_no_reservation() {
    let running = Tollgate::start(RESERVED, &[]);
    let address = running.grpc.to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RESERVED).unwrap();
    let path = file.path().to_str().unwrap();
    for _ in 0..2 {
        let live = ["explain", path, "models", "team=a,id=7", "--addr", &address];
        let (code, stdout, _) = tollgate(&live);
        assert_eq!(code, 0);
        assert!(
            stdout.contains("now: 1000 left of 1000 a day, resets in "),
            "{stdout}"
        );
    }
}

#[test]
fn explain_distinguishes_buckets_of_one_descriptor() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TWINS).unwrap();
    let path = file.path().to_str().unwrap();
    let (code, stdout, stderr) = tollgate(&["explain", path, "shop", "user=bob"]);
    assert_eq!(code, 0, "{stderr}");
    let buckets = stdout.lines().map(str::trim);
    let buckets: Vec<_> = buckets
        .filter_map(|line| line.strip_prefix("bucket: "))
        .collect();
    assert_eq!(
        buckets,
        [
            "shop user=bob; fixed_window, 1 second",
            "shop user=bob; fixed_window, 1 minute",
            "shop user=bob; sliding_window, 1 minute",
            "shop user=bob; fixed_window, 1 minute, name by hand, twice",
        ]
    );
}

#[test]
fn explain_prints_all_or_nothing_and_its_source() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (domain, setting, said) in [
        ("", None, "false, from the setting"),
        ("", Some("true"), "true, from the setting"),
        ("all_or_nothing: true", None, "true, from the domain"),
        (
            "all_or_nothing: false",
            Some("true"),
            "false, from the domain",
        ),
    ] {
        let rules = TREE.replace("domain: shop", &format!("domain: shop\n{domain}"));
        std::fs::write(file.path(), rules).unwrap();
        let arguments = ["explain", path, "shop", "plan=free,user=bob"];
        let flags = setting.map(|setting| ["--all-or-nothing", setting]);
        let by_flag = Command::new(tollgate_binary())
            .args(arguments)
            .args(flags.into_iter().flatten())
            .env_clear()
            .output();
        let variables = setting.map(|setting| ("TOLLGATE_ALL_OR_NOTHING", setting));
        let by_variable = Command::new(tollgate_binary())
            .args(arguments)
            .env_clear()
            .envs(variables)
            .output();
        for output in [by_flag, by_variable] {
            let stdout = String::from_utf8(output.unwrap().stdout).unwrap();
            let line = format!("\n  all_or_nothing: {said}\n");
            assert!(stdout.contains(&line), "{said} in {stdout}");
        }
    }
}

#[test]
fn explain_prints_the_over_limit_response() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = format!(
        r#"
domain: shop
descriptors:
  - key: user
    rate_limit: {{ unit: hour, requests_per_unit: 5 }}
    over_limit:
      body: "{{\"wait\": {{retry_after_seconds}}}}\n{}"
      headers: {{ x-why: "{{limit}} in {{window}}", x-how: ruled }}
  - key: bare
    rate_limit: {{ unit: hour, requests_per_unit: 5 }}
    over_limit: {{ headers: {{ x-why: because }} }}
"#,
        "é".repeat(500)
    );
    std::fs::write(file.path(), rules).unwrap();
    let path = file.path().to_str().unwrap();
    let over_limit = |descriptor| {
        let (code, stdout, stderr) = tollgate(&["explain", path, "shop", descriptor]);
        assert_eq!(code, 0, "{stderr}");
        let lines = stdout.lines().map(str::trim);
        let lines = lines.filter_map(|line| line.strip_prefix("over_limit: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let cut = "é".repeat(80 - r#"{"wait": {retry_after_seconds}}"#.len() - 1);
    assert_eq!(
        over_limit("user=bob"),
        [
            // Line feeds are escaped, and long texts are cut.
            format!(r#"body {{"wait": {{retry_after_seconds}}}}\n{cut}… (1032 bytes)"#),
            "header x-why: {limit} in {window}".to_owned(),
            "header x-how: ruled".to_owned(),
        ]
    );
    assert_eq!(over_limit("bare=x"), ["header x-why: because"]);
}

#[test]
fn explain_names_the_failed_level_and_its_alternatives() {
    assert_eq!(
        explain("plan=paid,user=bob"),
        "domain shop\n  level 1: plan=paid: no match; configured here: free\nno limit matches: the request passes\n"
    );
    assert_eq!(
        explain("what=x"),
        "domain shop\n  level 1: what=x: no match; configured here: files, plain, plan\nno limit matches: the request passes\n"
    );
    assert_eq!(
        explain("plain=x"),
        "domain shop\n  level 1: plain=x: matches plain with any value\n  this level has no limit, and only the level of the last entry applies\nno limit matches: the request passes\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TREE).unwrap();
    let (_, stdout, _) = tollgate(&["explain", file.path().to_str().unwrap(), "shp", "plan=free"]);
    assert!(
        stdout.contains("no rules for this domain; there are rules for shop"),
        "{stdout}"
    );
}

#[test]
fn explain_reads_a_running_service_without_taking_a_hit() {
    let running = Tollgate::start(RULES, &[]);
    let address = running.grpc.to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RULES).unwrap();
    assert_eq!(
        tollgate(&["hit", &address, "shop", "ten=a", "--hits", "3"]).0,
        0
    );
    for _ in 0..2 {
        let path = file.path().to_str().unwrap();
        let (code, stdout, _) = tollgate(&["explain", path, "shop", "ten=a", "--addr", &address]);
        assert_eq!(code, 0);
        assert!(
            stdout.contains("now: 7 left of 10 a year, resets in "),
            "{stdout}"
        );
    }
}

#[test]
fn explain_says_that_a_quota_is_answered_by_rlqs_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = "domain: edge\ndescriptors:\n- key: route\n  descriptors:\n  - key: user\n    \
                 rate_limit: { unit: second, requests_per_unit: 30, algorithm: token_bucket, rlqs: true }\n\
                 - key: other\n  rate_limit: { unit: second, requests_per_unit: 1 }\n";
    std::fs::write(file.path(), rules).unwrap();
    let path = file.path().to_str().unwrap();
    // No service is asked: a check of a quota is an error.
    let asked = [
        "explain",
        "--addr",
        "127.0.0.1:1",
        path,
        "edge",
        "route=/a,user=ann",
    ];
    let (code, stdout, stderr) = tollgate(&asked);
    assert_eq!(code, 0, "{stderr}");
    for words in [
        "limit: 30 in 1 second, token_bucket\n",
        "rlqs: a quota, apportioned over the proxies that report its bucket",
        "bucket id: route=/a,user=ann, in any order\n",
        "a check (RLS) is answered with an error\n",
        "now: a quota has no answer to a check; see GET /quotas or tollgate top\n",
    ] {
        assert!(stdout.contains(words), "{words:?} in {stdout}");
    }
    let (code, stdout, _) = tollgate(&["explain", path, "edge", "other=x"]);
    assert!(code == 0 && !stdout.contains("quota"), "{stdout}");

    // Envoy's actions would make checks of it.
    let (code, actions, stderr) = tollgate(&["convert", "--envoy", path]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        actions
            .contains("# edge.route.user has rlqs: true: the rate limit quota filter reports it"),
        "{actions}"
    );
    assert!(!actions.contains("descriptor_key: user"), "{actions}");
}
