//! `check`, `hit` and `serve` as a person at a terminal sees them.

use std::process::{Command, Output};

use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::ports::free_port;
use tollgate_test_support::rules_grammar::with_names;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

const RULES: &str = "
domain: shop
descriptors:
  - key: ten
    rate_limit: { unit: year, requests_per_unit: 10 }
  - key: quarter
    rate_limit: { unit: minute, unit_multiplier: 15, requests_per_unit: 10 }
  - key: free
    rate_limit: { unlimited: true }
  - key: export
    rate_limit: { algorithm: concurrency, requests_per_unit: 10, slot_seconds: 60, holder_key: id }
";

fn tollgate(arguments: &[&str]) -> (i32, String, String) {
    let output: Output = Command::new(tollgate_binary())
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_length_of_time_that_leads_to_no_date_is_refused_at_the_start() {
    for setting in [
        "--grpc-max-connection-age",
        "--keepalive-interval",
        "--drain-delay",
    ] {
        // Where the setting is accepted after all, it ends at an address that nobody has.
        let nowhere = ["serve", "rules.yaml", "--grpc-host", "256.0.0.1"];
        let (code, _, stderr) = tollgate(&[nowhere.as_slice(), &[setting, "101y"]].concat());
        assert_eq!(code, 2);
        assert!(stderr.contains("at most 100 years"), "{stderr}");
    }
}

#[test]
fn check_says_everything_that_is_wrong_in_every_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write(
        "a.yaml",
        "domain: a\ndescriptors:\n  - key: x\n    rate_limit:\n      unit: fortnight\n  - valu: 3\n",
    );
    write("b.yaml", "domain: a\n");
    write(
        "c.yaml",
        "domain: c\ndescriptors: [{key: x, rate_limit: {unit: day, requests_per_unit: -1, burst: 2}}]\n",
    );
    write(".hidden.yaml", "not: rules\n");
    write("backup.yaml~", "not: rules\n");
    let path = directory.path().to_str().unwrap();
    let (code, stdout, stderr) = tollgate(&["check", path]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    let expected = "\
DIR/a.yaml: config error, unknown key 'valu'
  at DIR/a.yaml:6:5, descriptors[1]
  hint: here belong IN_A_DESCRIPTOR
DIR/a.yaml: invalid rate limit unit 'fortnight'
  at DIR/a.yaml:5:13, descriptors[0].rate_limit
  hint: use one of second, minute, hour, day, week, month, year
DIR/a.yaml: descriptor has empty key
  at DIR/a.yaml:6:5, descriptors[1]
  hint: add `key: NAME`, the descriptor key that Envoy sends
DIR/b.yaml: duplicate domain 'a' in config file
  at DIR/b.yaml:1:9
  hint: keep all rules of a domain in one file, or set MERGE_DOMAIN_CONFIG=true
DIR/c.yaml: error loading config file: yaml: requests_per_unit is not a whole number from 0 to 4294967295
  at DIR/c.yaml:2:67, descriptors[0].rate_limit
  hint: write such a number, without quotes
DIR/c.yaml: algorithm fixed_window has no burst
  at DIR/c.yaml:2:78, descriptors[0].rate_limit
  hint: remove `burst`, or set `algorithm` to one of token_bucket, token_bucket_interval, leaky_bucket
6 problems; the rules would not be taken
";
    assert_eq!(stderr.replace(path, "DIR"), with_names(expected));
}

#[test]
fn check_says_what_is_there_when_all_is_well() {
    let (code, stdout, stderr) = tollgate(&["check", "examples/edge.yaml"]);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "examples/edge.yaml: good, 5 limits in 1 domain\n", "")
    );
}

#[test]
fn check_says_which_path_it_cannot_read() {
    let empty = tempfile::tempdir().unwrap();
    for (path, words) in [
        ("no/such/rules", "no/such/rules: No such file or directory"),
        (
            empty.path().to_str().unwrap(),
            "no rules file in this directory",
        ),
    ] {
        let (code, _, stderr) = tollgate(&["check", path]);
        assert_eq!(code, 1);
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn serve_without_rules_explains_itself_in_five_lines() {
    let (code, _, stderr) = tollgate(&["serve"]);
    assert_eq!((code, stderr.lines().count()), (2, 5), "{stderr}");
    // The rules it shows are rules.
    let rules = stderr
        .lines()
        .find(|line| line.contains("{domain"))
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rules).unwrap();
    assert_eq!(tollgate(&["check", file.path().to_str().unwrap()]).0, 0);
}

#[test]
fn serve_names_the_port_it_cannot_have_and_the_setting() {
    let other = Tollgate::start(RULES, &[]);
    let taken = other.grpc.port().to_string();
    let arguments = [
        "serve",
        "examples/edge.yaml",
        "--grpc-host",
        "127.0.0.1",
        "--grpc-port",
        &taken,
    ];
    let (code, _, stderr) = tollgate(&arguments);
    assert_eq!(code, 1);
    assert!(
        stderr.contains(&taken) && stderr.contains("--grpc-port"),
        "{stderr}"
    );
}

#[test]
fn serve_names_settings_of_memory_that_contradict_each_other() {
    let arguments = [
        "--grpc-host",
        "127.0.0.1",
        "--grpc-port",
        "0",
        "--port",
        "0",
    ];
    let serve = ["serve", "examples/edge.yaml", "--debug-port", "0"];
    let bodies = ["--body-memory-max", "64KiB"];
    let (code, _, stderr) = tollgate(&[&serve[..], &arguments, &bodies].concat());
    assert_eq!(code, 1);
    assert!(
        stderr.starts_with("error: --body-memory-max is 65536 bytes"),
        "{stderr}"
    );
    assert!(stderr.contains("--message-size-max"), "{stderr}");
}

#[test]
fn serve_prints_a_command_to_try_and_it_works() {
    let running = Tollgate::start(RULES, &[]);
    let tried = wait_for(PATIENCE, || {
        let said = running.said();
        Some(
            said.lines()
                .find(|line| line.starts_with("try: "))?
                .to_owned(),
        )
    });
    let tried = tried.expect("a command to try");
    let arguments: Vec<&str> = tried
        .strip_prefix("try: tollgate ")
        .unwrap()
        .split(' ')
        .collect();
    let (code, stdout, _) = tollgate(&arguments);
    assert_eq!(code, 0);
    assert!(
        stdout.starts_with("OK          ten=x  9 left of 10 a year, fresh again in "),
        "{stdout}"
    );
}

#[test]
fn the_deprecated_door_has_no_effect_and_serve_warns_once() {
    let warning =
        "--door (TOLLGATE_DOOR) is deprecated and has no effect: there is one gRPC server";
    for value in ["h2", "tonic"] {
        for service in [
            Tollgate::start(RULES, &["--door", value]),
            Tollgate::start_with(RULES, &[], &[("TOLLGATE_DOOR", value)]),
        ] {
            let address = service.grpc.to_string();
            let (code, stdout, stderr) = tollgate(&["hit", &address, "shop", "ten=x"]);
            assert_eq!(code, 0, "{value}: {stderr}");
            assert!(stdout.starts_with("OK "), "{value}: {stdout}");
            let said = service.said();
            assert_eq!(said.matches(warning).count(), 1, "{value}: {said}");
            assert!(
                said.contains("The next release removes the option"),
                "{said}"
            );
        }
    }
    let service = Tollgate::start(RULES, &[]);
    assert!(!service.said().contains("--door"), "{}", service.said());
    // The other commands accept the variable and have nothing to say about it.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RULES).unwrap();
    let rules = file.path().to_str().unwrap();
    for arguments in [&["check", rules][..], &["explain", rules, "shop", "ten=x"]] {
        let mut command = Command::new(tollgate_binary());
        let command = command.args(arguments).env_clear();
        let output = command.env("TOLLGATE_DOOR", "tonic").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_eq!(output.stderr, b"", "{arguments:?}");
    }
}

#[test]
fn hit_answers_as_a_person_would_and_its_exit_code_says_it_too() {
    let running = Tollgate::start(RULES, &[]);
    let address = running.grpc.to_string();
    let hit = |more: &[&str]| tollgate(&[&["hit", &address, "shop"], more].concat());
    let (code, stdout, _) = hit(&["export=a,id=7"]);
    assert_eq!(
        (code, stdout.as_str()),
        (
            0,
            "OK          export=a,id=7  9 left of 10 in flight, fresh again in 60 s\n"
        )
    );
    let (code, stdout, _) = hit(&["ten=a", "free=x", "none=x,y", "quarter=a"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines[0].starts_with("OK          ten=a  9 left of 10 a year, fresh again in "),
        "{stdout}"
    );
    assert_eq!(lines[1], "OK          free=x  unlimited");
    assert_eq!(lines[2], "OK          none=x,y  no limit applies");
    assert!(
        lines[3].starts_with("OK          quarter=a  9 left of 10 in 15 minutes, "),
        "{stdout}"
    );
    assert_eq!(lines[4], "OK          altogether");

    let (code, stdout, _) = hit(&["ten=a", "--repeat", "10"]);
    assert_eq!(code, 3);
    let last = stdout.lines().last().unwrap();
    assert!(
        last.starts_with("OVER LIMIT  ten=a  0 left of 10 a year, try again in "),
        "{last}"
    );
    // Any decision shows that the service decides, one that refuses included.
    let (code, stdout, _) = hit(&["ten=a", "--hits", "0", "--any-decision"]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.starts_with("OVER LIMIT  ten=a"), "{stdout}");
    assert_eq!(hit(&["ten=a", "--hits", "3", "--refund"]).0, 0);
    assert_eq!(hit(&["ten=a", "--hits", "0"]).0, 0);

    let (code, stdout, _) = hit(&["ten=b", "--json", "--hits", "11"]);
    assert_eq!(code, 3);
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["statuses"][0]["limit"]["requests_per_unit"], 10);
}

#[test]
fn hit_says_what_to_do_when_nobody_answers() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let (code, _, stderr) = tollgate(&["hit", &nobody, "shop", "ten=a"]);
    assert_eq!(code, 4);
    assert!(stderr.contains("tollgate serve"), "{stderr}");
    let any = ["hit", &nobody, "shop", "ten=a", "--any-decision"];
    assert_eq!(tollgate(&any).0, 4, "no answer is no decision");
    let (code, _, stderr) = tollgate(&["hit", "nonsense", "shop", "ten=a"]);
    assert_eq!(code, 4);
    assert!(stderr.contains("HOST:PORT"), "{stderr}");
    assert_eq!(tollgate(&["hit"]).0, 2);
    assert_eq!(tollgate(&["--version"]).0, 0);
}

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
fn explain_says_which_rule_and_why() {
    assert_eq!(
        explain("plan=free,user=bob"),
        "\
domain shop
  level 1: plan=free: exactly this is configured
  level 2: user=bob: user is configured for any value
  all_or_nothing: false, by the setting
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
  level 1: files=files/a: the pattern files_files/* fits, and is the first that does
  all_or_nothing: false, by the setting
rule shop.files_files/*
  limit: 9 in 1 day, token_bucket
  burst: 3
  count_refused: none
  promise: refills continuously at N per window, holds `burst` (default N)
  bucket: shop files=files/* (shared by all that fit); token_bucket, 1 day
  quota_mode: refused only when every quota of the request is over
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
fn explain_says_which_kind_matched_why_and_what_was_passed_over() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), KINDS).unwrap();
    let path = file.path().to_str().unwrap();
    for (descriptor, said) in [
        (
            "ip=10.1.2.3",
            &[
                "level 1: ip=10.1.2.3: 10.1.2.3 lies in 10.1.0.0/16, the longest of the prefixes configured that hold it\n",
                "passed over, though it fits: the prefix 10.0.0.0/8; the pattern ip_10.*; the regex \\d.*\n",
                "rule shop.ip_10.1.0.0/16\n",
                "bucket: shop ip=10.1.2.3; ",
            ][..],
        ),
        (
            "ip=::ffff:10.2.0.1",
            &["lies in 10.0.0.0/8, ", "bucket: shop ip=10.2.0.1; "],
        ),
        (
            "ip=2001:DB8::9",
            &["lies in ::/0, ", "bucket: shop ip=2001:db8::/64; "],
        ),
        (
            "ip=10.x",
            &[
                "the pattern ip_10.* fits, and is the first that does",
                "passed over, though it fits: the regex",
            ],
        ),
        (
            "ip=9 to 5",
            &["the regex \\d.* matches the whole value, and is the first that does\n"],
        ),
        (
            "plan=trial",
            &[
                "it is in the list free|trial\n",
                "bucket: shop plan=free|trial (shared by all that fit); ",
                "key1=\"plan_free|trial\"",
            ],
        ),
        (
            "plan=PAID",
            &["nothing configured fits; here is free, trial, ~[a-z]+\n"],
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
  - key: room
    rate_limit: { algorithm: concurrency, requests_per_unit: 1, slot_seconds: 5 }
";

#[test]
fn explain_says_every_limit_every_choice_and_who_holds_a_slot() {
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
  level 1: user=bob: user is configured for any value
  the last entry, request_id=7, says who holds a slot
  all_or_nothing: false, by the setting
4 limits, of which the tightest answers
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
  limit: 10 at any moment, concurrency
  slot_seconds: 60
  holder_key: request_id, as the last entry; without it a slot is anonymous
  promise: at most N in flight; a lost one comes back when its slot expires
  bucket: shop user=bob; concurrency
  metrics: domain=\"shop\" key1=\"user_bob\" key2=\"\"
";
    assert_eq!(explain("user=bob,request_id=7"), expected);
    let holder = "  the last entry, request_id=7, says who holds a slot\n";
    assert_eq!(explain("user=bob"), expected.replace(holder, ""));
    assert_eq!(
        explain("room=a"),
        "\
domain shop
  level 1: room=a: room is configured for any value
  all_or_nothing: false, by the setting
rule shop.room
  limit: 1 at any moment, concurrency
  slot_seconds: 5
  promise: at most N in flight; a lost one comes back when its slot expires
  bucket: shop room=a; concurrency
  metrics: domain=\"shop\" key1=\"room\" key2=\"\"
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

#[test]
fn explain_tells_the_buckets_of_one_descriptor_apart() {
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
fn explain_says_whether_a_request_takes_from_all_or_from_none_and_whose_word_that_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (domain, setting, said) in [
        ("", None, "false, by the setting"),
        ("", Some("true"), "true, by the setting"),
        ("all_or_nothing: true", None, "true, by the domain"),
        (
            "all_or_nothing: false",
            Some("true"),
            "false, by the domain",
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
fn explain_shows_what_a_refusal_says_in_a_line_each() {
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
            // A line feed is none here, and of a long text there is only the beginning.
            format!(r#"body {{"wait": {{retry_after_seconds}}}}\n{cut}… (1032 bytes)"#),
            "header x-why: {limit} in {window}".to_owned(),
            "header x-how: ruled".to_owned(),
        ]
    );
    assert_eq!(over_limit("bare=x"), ["header x-why: because"]);
}

#[test]
fn explain_says_which_level_failed_and_what_is_there_instead() {
    assert_eq!(
        explain("plan=paid,user=bob"),
        "domain shop\n  level 1: plan=paid: nothing configured fits; here is free\nno limit applies: the request passes\n"
    );
    assert_eq!(
        explain("what=x"),
        "domain shop\n  level 1: what=x: nothing configured fits; here is files, plain, plan\nno limit applies: the request passes\n"
    );
    assert_eq!(
        explain("plain=x"),
        "domain shop\n  level 1: plain=x: plain is configured for any value\n  this level has no limit of its own, and only the last entry's level counts\nno limit applies: the request passes\n"
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
fn explain_looks_at_a_running_service_without_taking_a_hit() {
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
            stdout.contains("now: 7 left of 10 a year, fresh again in "),
            "{stdout}"
        );
    }
}

#[test]
fn check_warns_of_a_right_name_in_a_wrong_place_and_takes_the_rules() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = "domain: d\ndescriptors:\n  - key: k\n    unit: day\n    rate_limit: {unit: day, requests_per_unit: 1}\n";
    std::fs::write(file.path(), rules).unwrap();
    let (code, stdout, stderr) = tollgate(&["check", file.path().to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(stdout.contains("good, 1 limit in 1 domain"), "{stdout}");
    assert!(
        stderr.starts_with("warning: ")
            && stderr.contains("'unit' means nothing here and is ignored"),
        "{stderr}"
    );
    assert!(stderr.contains(":4:5, descriptors[0]"), "{stderr}");
}

#[test]
fn bad_rules_at_the_start_are_said_and_good_ones_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "descriptors: []\n").unwrap();
    let mut child = Command::new(tollgate_binary())
        .arg("serve")
        .arg(&rules)
        .args(["--grpc-port", "0", "--port", "0", "--debug-port", "0"])
        .env_clear()
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let _child = KillOnDrop(child);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    let mut refused = false;
    for line in lines {
        if line.contains("config file cannot have empty domain") {
            refused = true;
            std::fs::write(&rules, RULES).unwrap();
        }
        if line.contains(" listens: ") {
            assert!(refused);
            return;
        }
    }
    panic!("it ended");
}

#[test]
fn by_the_name_of_the_references_binary_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    let ratelimit = directory.path().join("ratelimit");
    std::os::unix::fs::symlink(tollgate_binary(), &ratelimit).unwrap();
    let rules = directory.path().join("data/sub/config");
    std::fs::create_dir_all(&rules).unwrap();
    std::fs::write(rules.join("shop.yaml"), RULES).unwrap();
    let mut child = Command::new(&ratelimit)
        .env_clear()
        .env("RUNTIME_ROOT", directory.path().join("data"))
        .envs([
            ("RUNTIME_SUBDIRECTORY", "sub"),
            ("RUNTIME_WATCH_ROOT", "false"),
        ])
        .envs([("RUNTIME_IGNOREDOTFILES", "true"), ("USE_STATSD", "false")])
        .envs([("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let _child = KillOnDrop(child);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with(" shop ten=x") && line.starts_with("try: ")));
}

#[test]
fn the_references_variables_are_understood() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let mut child = Command::new(tollgate_binary())
        .arg("serve")
        .env_clear()
        .env("TOLLGATE_RULES", &rules)
        .envs([
            ("HOST", "127.0.0.1"),
            ("PORT", "0"),
            ("GRPC_HOST", "::1"),
            ("GRPC_PORT", "0"),
        ])
        .envs([("DEBUG_HOST", "127.0.0.1"), ("DEBUG_PORT", "0")])
        .envs([
            ("LOG_LEVEL", "INFO"),
            ("LOG_FORMAT", "json"),
            ("TOLLGATE_DRAIN_DELAY", "0s"),
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let id = child.id().to_string();
    let mut child = KillOnDrop(child);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let mut logged = Vec::new();
    for line in lines.map_while(Result::ok) {
        if line.contains(" listens: ") {
            assert!(
                line.contains("gRPC [::1]:") && line.contains("HTTP 127.0.0.1:"),
                "{line}"
            );
            assert!(
                Command::new("kill")
                    .args(["-s", "TERM", &id])
                    .status()
                    .unwrap()
                    .success()
            );
        } else if !line.starts_with("try: ") {
            logged.push(serde_json::from_str::<serde_json::Value>(&line).expect(&line));
        }
    }
    assert!(child.0.wait().unwrap().success());
    assert!(!logged.is_empty());
    for line in logged {
        assert_eq!(line["level"], "info");
        assert!(
            line["@message"].is_string() && line["@timestamp"].is_string(),
            "{line}"
        );
    }
}

/// A process that is gone when the test is.
pub(crate) struct KillOnDrop(pub(crate) std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
