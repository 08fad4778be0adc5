//! Output and exit codes of `check`, `hit` and `serve`.

use std::process::{Command, Output};

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

pub(crate) const RULES: &str = "
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
fn durations_beyond_the_calendar_are_rejected_at_start() {
    for setting in [
        "--grpc-max-connection-age",
        "--keepalive-interval",
        "--drain-delay",
    ] {
        // If the setting were accepted, the start would fail at an address that cannot be bound.
        let nowhere = ["serve", "rules.yaml", "--grpc-host", "256.0.0.1"];
        let (code, _, stderr) = tollgate(&[nowhere.as_slice(), &[setting, "101y"]].concat());
        assert_eq!(code, 2);
        assert!(stderr.contains("up to 100 years"), "{stderr}");
    }
}

#[test]
fn check_reports_every_error_of_every_file_at_once() {
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
    for suffix in ["new", "old", "dist", "tmp"] {
        write(&format!("a.yaml.dpkg-{suffix}"), "not: rules\n");
    }
    let path = directory.path().to_str().unwrap();
    let (code, stdout, stderr) = tollgate(&["check", path]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    let stderr = stderr.replace(path, "DIR");
    let shown = |line: &&str| line.starts_with("error") || line.trim_start().starts_with("--> ");
    let lines: Vec<_> = stderr.lines().filter(shown).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "error[unknown-value]: invalid rate limit unit 'fortnight'",
            "--> DIR/a.yaml:5:13",
            "error[unknown-key]: config error, unknown key 'valu'",
            "--> DIR/a.yaml:6:5",
            "error[missing-key]: descriptor has empty key",
            "--> DIR/a.yaml:6:5",
            "error[duplicate]: duplicate domain 'a' in config file",
            "--> DIR/b.yaml:1:9",
            "error[wrong-type]: error loading config file: yaml: requests_per_unit is not a whole number from 0 to 4294967295",
            "--> DIR/c.yaml:2:67",
            "error[conflicting-keys]: algorithm fixed_window has no burst",
            "--> DIR/c.yaml:2:78",
        ]
    );
    assert!(
        stderr.ends_with("\n\n6 errors; the rules are invalid\n"),
        "{stderr}"
    );
}

#[test]
fn check_summarises_valid_rules() {
    let (code, stdout, stderr) = tollgate(&["check", "examples/edge.yaml"]);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "examples/edge.yaml: good, 5 limits in 1 domain\n", "")
    );
}

#[test]
fn check_names_the_path_it_cannot_read() {
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
fn serve_without_rules_prints_five_lines_of_help() {
    let (code, _, stderr) = tollgate(&["serve"]);
    assert_eq!((code, stderr.lines().count()), (2, 5), "{stderr}");
    // The example rules in the help are valid.
    let rules = stderr
        .lines()
        .find(|line| line.contains("{domain"))
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rules).unwrap();
    assert_eq!(tollgate(&["check", file.path().to_str().unwrap()]).0, 0);
}

#[test]
fn serve_names_the_port_in_use_and_its_setting() {
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
fn serve_names_contradicting_memory_settings() {
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
fn serve_prints_a_working_example_command() {
    let running = Tollgate::start(RULES, &[]);
    let tried =
        tollgate_test_support::polling::wait_for(tollgate_test_support::polling::PATIENCE, || {
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
        stdout.starts_with("OK          ten=x  9 left of 10 a year, resets in "),
        "{stdout}"
    );
}

#[test]
fn the_deprecated_grpc_engine_option_has_no_effect_and_serve_warns_once() {
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
fn hit_prints_a_readable_answer_and_its_exit_code_agrees() {
    let running = Tollgate::start(RULES, &[]);
    let address = running.grpc.to_string();
    let hit = |more: &[&str]| tollgate(&[&["hit", &address, "shop"], more].concat());
    let (code, stdout, _) = hit(&["export=a,id=7"]);
    assert_eq!(
        (code, stdout.as_str()),
        (
            0,
            "OK          export=a,id=7  9 left of 10 in flight, resets in 1 min\n"
        )
    );
    let (code, stdout, _) = hit(&["ten=a", "free=x", "none=x", "quarter=a"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines[0].starts_with("OK          ten=a  9 left of 10 a year, resets in "),
        "{stdout}"
    );
    assert_eq!(lines[1], "OK          free=x  unlimited");
    assert_eq!(lines[2], "OK          none=x  no limit matched");
    assert!(
        lines[3].starts_with("OK          quarter=a  9 left of 10 in 15 minutes, "),
        "{stdout}"
    );
    assert_eq!(lines[4], "OK          overall");

    let (code, stdout, _) = hit(&["ten=a", "--repeat", "10"]);
    assert_eq!(code, 3);
    let last = stdout.lines().last().unwrap();
    assert!(
        last.starts_with("OVER LIMIT  ten=a  0 left of 10 a year, try again in "),
        "{last}"
    );
    // Any decision, allowed or not, shows that the service works.
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
fn hit_gives_advice_when_no_service_answers() {
    let nobody = format!(
        "127.0.0.1:{}",
        tollgate_test_support::ports::reserved_port()
    );
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

#[test]
fn check_warns_about_misplaced_fields_and_accepts_the_rules() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = "domain: d\ndescriptors:\n  - key: k\n    unit: day\n    rate_limit: {unit: day, requests_per_unit: 1}\n";
    std::fs::write(file.path(), rules).unwrap();
    let (code, stdout, stderr) = tollgate(&["check", file.path().to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(stdout.contains("good, 1 limit in 1 domain"), "{stdout}");
    assert!(
        stderr.starts_with("warning[misplaced-key]: 'unit' has no effect here and is ignored"),
        "{stderr}"
    );
    assert!(
        stderr.contains(":4:5\n") && stderr.contains("= rule: descriptors[0]"),
        "{stderr}"
    );
}

#[test]
fn invalid_rules_at_start_are_logged_until_valid_ones_arrive() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "descriptors: []\n").unwrap();
    let mut child = Command::new(tollgate_binary())
        .arg("serve")
        .arg(&rules)
        .args(["--grpc-port", "0", "--port", "0", "--debug-port", "0"])
        .env_clear()
        .stderr(std::process::Stdio::piped())
        .spawn_tied()
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
fn the_name_of_the_references_binary_implies_serve() {
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
        .spawn_tied()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let _child = KillOnDrop(child);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with(" shop ten=x") && line.starts_with("try: ")));
}

#[test]
fn the_references_variables_are_supported() {
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
        .spawn_tied()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let id = child.id().to_string();
    let mut child = KillOnDrop(child);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let mut logged = Vec::new();
    for line in lines.map_while(Result::ok) {
        let line = serde_json::from_str::<serde_json::Value>(&line).expect(&line);
        if line["@message"] == "tollgate started" {
            let starts = |port: &str, with: &str| line[port].as_str().unwrap().starts_with(with);
            assert!(
                starts("grpc", "[::1]:") && starts("http", "127.0.0.1:"),
                "{line}"
            );
            assert!(
                Command::new("kill")
                    .args(["-s", "TERM", &id])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        logged.push(line);
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

/// Kills the process when dropped.
pub(crate) struct KillOnDrop(pub(crate) std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
