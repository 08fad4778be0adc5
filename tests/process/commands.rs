//! The start of `serve`: what it prints, what prevents it, and the reference's name and variables.

use std::process::{Command, Output};

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
        stdout.starts_with("OK          ten=x  9 left of 10 a year, resets in "),
        "{stdout}"
    );
}

#[test]
fn the_deprecated_grpc_engine_option_has_no_effect_and_serve_warns_once() {
    let warning =
        "--door (TOLLGATE_DOOR) is deprecated and has no effect: there is one gRPC server";
    for (service, times) in [
        (Tollgate::start(RULES, &["--door", "h2"]), 1),
        (
            Tollgate::start_with(RULES, &[], &[("TOLLGATE_DOOR", "tonic")]),
            1,
        ),
        (Tollgate::start(RULES, &[]), 0),
    ] {
        let address = service.grpc.to_string();
        assert_eq!(tollgate(&["hit", &address, "shop", "ten=x"]).0, 0);
        let said = service.said();
        assert_eq!(said.matches(warning).count(), times, "{said}");
        let removal = "The next release removes the option";
        assert_eq!(said.matches(removal).count(), times, "{said}");
    }
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
