//! `tollgate hit`: missing limits, refunds, deadlines, times and exit codes.
//!
//! What it deliberately does not do: TLS (`tests/gateway/hit.rs`).

use std::net::TcpListener;

use serde_json::Value;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::commands::{RULES, tollgate};

/// Sends a request to a service with RULES.
fn hit(service: &Tollgate, arguments: &[&str]) -> (i32, String, String) {
    let address = service.grpc.to_string();
    tollgate(&[&["hit", &address], arguments].concat())
}

#[test]
fn an_unknown_domain_is_reported_and_may_have_an_exit_code() {
    let service = Tollgate::start(RULES, &[]);
    let warning = "\
warning: no limit matched ten=a; is the domain \"shp\" loaded?
  `tollgate explain RULES shp ten=a` shows which rules there are
";
    let (code, stdout, stderr) = hit(&service, &["shp", "ten=a"]);
    assert_eq!(code, 0, "{stdout}");
    assert_eq!(stdout, "OK          ten=a  no limit matched\n");
    assert_eq!(stderr, warning);
    // Repeated requests warn once, in both formats.
    for format in [&[][..], &["--json"]] {
        let arguments = ["shp", "ten=a", "--expect-limit", "--repeat", "3"];
        let (code, stdout, stderr) = hit(&service, &[&arguments[..], format].concat());
        assert_eq!((code, stderr.as_str()), (5, warning));
        assert_eq!(stdout.lines().count(), 3, "{stdout}");
    }
}

#[test]
fn a_descriptor_without_a_limit_is_reported_and_may_have_an_exit_code() {
    let service = Tollgate::start(RULES, &[]);
    // `free` is unlimited, which is a match: so the domain is loaded.
    let arguments = ["shop", "free=x", "none=x", "--expect-limit"];
    let (code, stdout, stderr) = hit(&service, &arguments);
    assert_eq!(code, 5, "{stdout}");
    assert_eq!(
        stdout,
        "OK          free=x  unlimited\nOK          none=x  no limit matched\nOK          overall\n"
    );
    assert_eq!(
        stderr,
        "warning: no limit matched none=x\n  `tollgate explain RULES shop none=x` shows which rules there are\n"
    );
    let json = [&arguments[..], &["--json"]].concat();
    let (_, stdout, _) = hit(&service, &json);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let matched = [0, 1].map(|at| answer["statuses"][at]["matched"].clone());
    assert_eq!(matched, [true, false], "{stdout}");
    // A missing limit comes before the decision.
    let over = ["shop", "ten=a", "none=x", "--hits", "11"];
    assert_eq!(hit(&service, &over).0, 3);
    let expected = [&over[..], &["--expect-limit"]].concat();
    assert_eq!(hit(&service, &expected).0, 5);
    let any = [&expected[..], &["--any-decision"]].concat();
    assert_eq!(hit(&service, &any).0, 5);
    // With a limit, the option changes nothing.
    for (descriptor, hits, expected) in [
        ("ten=b", "1", 0),
        ("ten=b", "11", 3),
        ("free=x", "1", 0),
        ("quarter=a", "0", 0),
    ] {
        let arguments = ["shop", descriptor, "--hits", hits, "--expect-limit"];
        let (code, _, stderr) = hit(&service, &arguments);
        assert_eq!((code, stderr.as_str()), (expected, ""), "{descriptor}");
    }
}

#[test]
fn an_entry_without_an_equals_sign_is_refused_by_name() {
    for (descriptor, words) in [
        ("ten=a,b", "the entry \"b\" has no `=`"),
        ("ten", "the entry \"ten\" has no `=`"),
        ("", "the entry \"\" has no `=`"),
        ("ten=a,", "the entry \"\" has no `=`"),
        ("ten=a,=b", "the entry \"=b\" has no key"),
    ] {
        for command in [
            ["hit", "127.0.0.1:1", "shop", descriptor],
            ["explain", "rules.yaml", "shop", descriptor],
        ] {
            let (code, stdout, stderr) = tollgate(&command);
            assert_eq!((code, stdout.as_str()), (2, ""), "{command:?}");
            assert!(stderr.contains(words), "{command:?}: {stderr}");
            assert!(stderr.contains("KEY=VALUE,KEY=VALUE"), "{stderr}");
        }
    }
    // An empty value is written with `=`.
    let service = Tollgate::start(RULES, &[]);
    let (code, stdout, _) = hit(&service, &["shop", "ten="]);
    assert_eq!(code, 0);
    assert!(
        stdout.starts_with("OK          ten=  9 left of"),
        "{stdout}"
    );
}

#[test]
fn negative_hits_are_a_refund_and_the_output_says_so() {
    let service = Tollgate::start(RULES, &[]);
    assert_eq!(hit(&service, &["shop", "ten=a", "--hits", "5"]).0, 0);
    for (arguments, line) in [
        (&["--hits", "-3"][..], "refund of 3 hits: 8 left of 10"),
        (&["--refund"], "refund of 1 hit: 9 left of 10"),
        (&["--hits=-1", "--refund"], "refund of 1 hit: 10 left of 10"),
    ] {
        let arguments = [&["shop", "ten=a"], arguments].concat();
        let (code, stdout, stderr) = hit(&service, &arguments);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let line = format!("OK          ten=a  {line} a year, ");
        assert!(stdout.starts_with(&line), "{stdout}");
    }
    let (_, stdout, _) = hit(&service, &["shop", "ten=a", "--hits", "-2", "--json"]);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&answer["hits"], &answer["refund"]),
        (&2.into(), &true.into())
    );
    let (code, _, stderr) = hit(&service, &["shop", "ten=a", "--hits", "-x"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("or -1 to refund"), "{stderr}");
}

#[test]
fn a_deadline_of_the_client_is_not_reported_as_an_answer() {
    let service = Tollgate::start(RULES, &[]);
    for timeout in ["0", "0s"] {
        let (code, stdout, stderr) = hit(&service, &["shop", "ten=a", "--timeout", timeout]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        let words = "use a duration above 0, such as 5s";
        assert!(stderr.contains(words), "{stderr}");
    }
    // A port that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RULES).unwrap();
    let rules = file.path().to_str().unwrap();
    for command in [
        &["hit", &address, "shop", "ten=a"][..],
        &["explain", rules, "shop", "ten=a", "--addr", &address],
    ] {
        let (code, _, stderr) = tollgate(&[command, &["--timeout", "50ms"]].concat());
        assert_eq!(code, 4, "{stderr}");
        assert_eq!(
            stderr,
            format!(
                "error: no answer from {address} within 50ms, the deadline of this client (--timeout); \
                 the service has not refused\n"
            )
        );
    }
    // An error of the service is reported as its answer.
    let (code, _, stderr) = hit(&service, &["", "ten=a"]);
    assert_eq!(code, 4);
    assert_eq!(
        stderr,
        "error: the service answered InvalidArgument: rate limit domain must not be empty\n"
    );
}

#[test]
fn times_are_printed_in_days_hours_and_minutes() {
    let service = Tollgate::start(RULES, &[]);
    let address = service.grpc.to_string();
    let (_, stdout, _) = hit(&service, &["shop", "export=a,id=7", "ten=a"]);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].ends_with(", resets in 1 min"), "{stdout}");
    let year = |line: &str, word: &str| {
        let (_, time) = line.rsplit_once(word).expect(line);
        let parts: Vec<&str> = time.split(' ').collect();
        // A year never has the seconds of a day left to print, so there is always a larger unit.
        assert!(parts.len() >= 2 && parts[1] != "s", "{line}");
    };
    year(lines[1], ", resets in ");
    let (_, stdout, _) = hit(&service, &["shop", "ten=b", "--hits", "11"]);
    year(stdout.trim_end(), ", try again in ");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RULES).unwrap();
    let rules = file.path().to_str().unwrap();
    let (_, stdout, _) = tollgate(&["explain", rules, "shop", "export=b", "--addr", &address]);
    assert!(
        stdout.ends_with("now: 10 left of 10 in flight, resets in 1 min\n")
            || stdout.ends_with("now: 10 left of 10 in flight, resets in 0 s\n"),
        "{stdout}"
    );
}

#[test]
fn the_help_of_hit_lists_every_exit_code() {
    let (code, stdout, _) = tollgate(&["hit", "--help"]);
    assert_eq!(code, 0);
    let (_, codes) = stdout.split_once("Exit codes").expect("a list");
    let codes = codes
        .lines()
        .filter_map(|line| line.trim().split_once("  "));
    let codes: Vec<&str> = codes.map(|(code, _)| code).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "5"]);
}
