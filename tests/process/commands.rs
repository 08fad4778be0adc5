//! The start of `serve`: what it prints, what prevents it, and the reference's name and variables.

use std::process::{Command, Output, Stdio};

use clap::CommandFactory as _;
use tollgate::cli::Cli;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::running::Running;

pub(crate) const RULES: &str = "
domain: shop
descriptors:
  - key: ten
    rate_limit: { unit: year, requests_per_unit: 10 }
";

pub(crate) fn tollgate(arguments: &[&str]) -> (i32, String, String) {
    let output: Output = Command::new(tollgate_binary())
        .args(arguments)
        .env_clear()
        // Other tests run services at the same time, so one that starts takes ports that are free.
        .envs(["GRPC_PORT", "PORT", "DEBUG_PORT"].map(|port| (port, "0")))
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
fn serve_prints_a_working_example_command() {
    let running = Tollgate::start(RULES, &[]);
    let tried = until("a command to try is printed", || {
        let said = running.said();
        let line = said.lines().find(|line| line.starts_with("try: "));
        line.map(str::to_owned)
    });
    let arguments: Vec<&str> = tried
        .strip_prefix("try: tollgate ")
        .unwrap()
        .split(' ')
        .collect();
    let (code, stdout, _) = tollgate(&arguments);
    assert_eq!(code, 0);
    assert!(
        stdout.starts_with("OK          ten=x  9 left of 10 per year, resets in "),
        "{stdout}"
    );
}

#[test]
fn invalid_rules_at_start_are_logged_until_valid_ones_arrive() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "descriptors: []\n").unwrap();
    let serving = Running::with_stderr(
        Command::new(tollgate_binary())
            .arg("serve")
            .arg(&rules)
            .args(["--grpc-port", "0", "--port", "0", "--debug-port", "0"])
            .env_clear(),
    );
    serving.line_with("config file cannot have empty domain");
    std::fs::write(&rules, RULES).unwrap();
    serving.line_with(" listens: ");
}

#[test]
fn the_name_of_the_references_binary_implies_serve() {
    let directory = tempfile::tempdir().unwrap();
    let ratelimit = directory.path().join("ratelimit");
    std::os::unix::fs::symlink(tollgate_binary(), &ratelimit).unwrap();
    let rules = directory.path().join("data/sub/config");
    std::fs::create_dir_all(&rules).unwrap();
    std::fs::write(rules.join("shop.yaml"), RULES).unwrap();
    let serving = Running::with_stderr(
        Command::new(&ratelimit)
            .env_clear()
            .env("RUNTIME_ROOT", directory.path().join("data"))
            .envs([
                ("RUNTIME_SUBDIRECTORY", "sub"),
                ("RUNTIME_WATCH_ROOT", "false"),
            ])
            .envs([("RUNTIME_IGNOREDOTFILES", "true"), ("USE_STATSD", "false")])
            .envs([("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")]),
    );
    let tried = serving.line_with("try: ");
    assert!(tried.ends_with(" shop ten=x"), "{tried}");
}

#[test]
fn the_references_variables_are_supported() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let mut serving = Running::with_stderr(
        Command::new(tollgate_binary())
            .arg("serve")
            .env_clear()
            .env("TOLLGATE_RULES", &rules)
            .envs([("HOST", "127.0.0.1"), ("PORT", "0")])
            .envs([("GRPC_HOST", "::1"), ("GRPC_PORT", "0")])
            .envs([("DEBUG_HOST", "127.0.0.1"), ("DEBUG_PORT", "0")])
            .envs([("LOG_LEVEL", "INFO"), ("LOG_FORMAT", "json")])
            .env("TOLLGATE_DRAIN_DELAY", "0s"),
    );
    let started = serving.line_with("tollgate started");
    let started: serde_json::Value = serde_json::from_str(&started).unwrap();
    let starts = |port: &str, with: &str| started[port].as_str().unwrap().starts_with(with);
    assert!(starts("grpc", "[::1]:"), "{started}");
    assert!(starts("http", "127.0.0.1:"), "{started}");
    serving.signal("TERM");
    assert!(serving.exit().success());
}

/// Exit codes of command lines in a folder that has `good.yaml` (a limit of 10 hits of `ten`),
/// `bad.yaml` and `failing.test.yaml`; `$GRPC` and `$ADMIN` are a service with the good rules.
/// `serve` and `tap`, which do not end by themselves, have tests of their own.
const EXIT_CODES: &[(&str, i32)] = &[
    ("override list --admin http://$ADMIN", 0),
    ("check good.yaml", 0),
    ("check bad.yaml", 1),
    ("check bad.yaml --format json", 1),
    ("check bad.yaml --format github", 1),
    ("check", 2),
    ("explain good.yaml shop ten=x", 0),
    ("explain bad.yaml shop ten=x", 1),
    ("decisions --domain shop --admin http://$ADMIN", 0),
    ("explain --last --domain shop --admin http://$ADMIN", 0),
    ("test failing.test.yaml", 1),
    ("test failing.test.yaml --format json", 1),
    ("test failing.test.yaml --format junit", 1),
    ("test failing.test.yaml --format tap", 1),
    ("hit $GRPC shop other=x --expect-limit", 5),
    ("hit $GRPC shop ten=x --hits 11 --repeat 3", 3),
    ("hit 127.0.0.1:1 shop ten=x", 4),
    ("hit 127.0.0.1 shop ten=x", 2),
    ("explain good.yaml shop ten=x --addr 127.0.0.1", 2),
    ("convert --from limitador bad.yaml", 1),
    ("convert --envoy good.yaml", 0),
    ("top --once --admin http://$ADMIN", 0),
    ("top --once --admin http://$ADMIN,http://127.0.0.1:1", 6),
    ("record --out good.yaml --admin http://$ADMIN", 1),
    ("replay good.yaml --rules good.yaml --against good.yaml", 1),
    ("reset shop ten=x --admin http://$ADMIN", 0),
    ("reset shop ten=x --admin http://127.0.0.1:1", 4),
    ("shadow shop shop.ten --for 1h --admin http://$ADMIN", 0),
    ("schema", 0),
    ("completions bash", 0),
    ("completions cmd", 2),
    ("--help", 0),
    ("--no-such-flag", 2),
];

#[test]
fn an_exit_code_does_not_depend_on_who_reads_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let test = "rules: good.yaml\ntests:\n- name: t\n  start: 2026-01-05T12:00:00Z\n  \
        steps: [{ask: shop ten=x, times: 11, expect: {admitted: 11}}]\n";
    for (name, text) in [
        ("good.yaml", RULES),
        ("bad.yaml", "domain: shop\ndescriptors: {}\n"),
        ("failing.test.yaml", test),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let service = Tollgate::start(RULES, &["--top-keys", "plain"]);
    assert_eq!(
        tollgate(&["hit", &service.grpc.to_string(), "shop", "ten=x"]).0,
        0
    );
    let is_gone = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    for (line, expected) in EXIT_CODES {
        let line = line.replace("$GRPC", &service.grpc.to_string());
        let line = line.replace("$ADMIN", &service.admin.to_string());
        let run = |stdout: Stdio, stderr: Stdio| {
            let mut command = Command::new(tollgate_binary());
            let command = command.args(line.split(' ')).env_clear();
            let command = command.current_dir(folder.path());
            let output = command.stdout(stdout).stderr(stderr).output().unwrap();
            (output.status.code(), output)
        };
        let read = run(Stdio::piped(), Stdio::piped());
        assert_eq!(read.0, Some(*expected), "{line}: {:?}", read.1);
        assert_eq!(run(is_gone(), is_gone()).0, Some(*expected), "{line}");
        // Output that is lost for another reason is a failure.
        let full = std::fs::File::options().write(true).open("/dev/full");
        let full = run(full.unwrap().into(), Stdio::piped());
        let has_output = !read.1.stdout.is_empty() && *expected == 0 && line != "--help";
        let expected = if has_output { 1 } else { *expected };
        assert_eq!(full.0, Some(expected), "{line} > /dev/full");
    }
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let is_in_the_table = |(line, _): &(&str, i32)| line.split(' ').next() == Some(name);
        assert!(
            ["serve", "tap"].contains(&name) || EXIT_CODES.iter().any(is_in_the_table),
            "{name} has no exit code in the table"
        );
    }
}
