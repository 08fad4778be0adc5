//! `tollgate check`: paths, formats, exit codes, colours.
//!
//! What it deliberately does not do: hold the texts of diagnostics (`tests/rules/broken`).

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::commands::{RULES, tollgate};

const GOOD: &str =
    "domain: good\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
const BAD: &str =
    "domain: bad\ndescriptors: [{key: k, rate_limit: {unit: dya, requests_per_unit: 1}}]\n";
const WARNED: &str = "domain: warned\ndescriptors:\n  - key: k\n    unit: day\n    rate_limit: {unit: day, requests_per_unit: 1}\n";

/// A directory with these files, and the path of each.
fn files(contents: &[(&str, &[u8])]) -> (tempfile::TempDir, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let paths = contents.iter().map(|(name, content)| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let paths = paths.collect();
    (directory, paths)
}

/// Runs `check` with this input.
fn check_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(tollgate_binary())
        .arg("check")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn_tied()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn json(arguments: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = tollgate(&[&["check", "--format", "json"], arguments].concat());
    assert_eq!(stderr, "");
    (code, serde_json::from_str(&stdout).unwrap())
}

#[test]
fn several_paths_are_checked_as_one_rule_set() {
    let (directory, paths) = files(&[
        ("good.yaml", GOOD.as_bytes()),
        ("again.yaml", GOOD.as_bytes()),
        ("bad.yaml", BAD.as_bytes()),
    ]);
    let [good, again, bad] = &paths[..] else {
        unreachable!()
    };
    assert_eq!(
        tollgate(&["check", good, "examples/edge.yaml"]),
        (
            0,
            "2 paths: good, 6 limits in 2 domains\n".to_owned(),
            String::new()
        )
    );
    let (code, _, stderr) = tollgate(&["check", good, again, bad]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("duplicate domain 'good' in config file"),
        "{stderr}"
    );
    assert!(stderr.contains("first defined here"), "{stderr}");
    assert!(stderr.contains("did you mean `day`?"), "{stderr}");
    assert!(
        stderr.ends_with("\n\n2 errors; the rules are invalid\n"),
        "{stderr}"
    );
    // A file that two paths name is one file.
    let all = directory.path().to_str().unwrap();
    let (_, _, stderr) = tollgate(&["check", all, bad]);
    assert!(
        stderr.ends_with("\n\n2 errors; the rules are invalid\n"),
        "{stderr}"
    );
}

#[test]
fn a_dash_is_standard_input() {
    let output = check_input(&["-"], GOOD.as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"<stdin>: good, 1 limit in 1 domain\n");
    let output = check_input(&["-"], BAD.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("--> <stdin>:2:43"), "{stderr}");
    // More than a file may have is not read for ever.
    let output = check_input(&["-"], &vec![b'#'; (16 << 20) + 1]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("larger than 16 MiB"), "{stderr}");
}

#[test]
fn warnings_fail_when_they_are_denied() {
    let (_directory, paths) = files(&[("warned.yaml", WARNED.as_bytes())]);
    let (code, stdout, stderr) = tollgate(&["check", &paths[0]]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.ends_with(": good, 1 limit in 1 domain\n"),
        "{stdout}"
    );
    assert!(stderr.starts_with("warning[misplaced-key]: "), "{stderr}");
    let (code, stdout, stderr) = tollgate(&["check", "--deny-warnings", &paths[0]]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    let last = "1 warning; --deny-warnings treats warnings as errors\n";
    assert!(stderr.ends_with(last), "{stderr}");
}

#[test]
fn github_reads_annotations() {
    let (_directory, paths) = files(&[
        ("a,b:c.yaml", WARNED.as_bytes()),
        ("bad.yaml", BAD.as_bytes()),
    ]);
    let (code, stdout, _) = tollgate(&["check", "--format", "github", &paths[0], &paths[1]]);
    assert_eq!(code, 1);
    let lines: Vec<_> = stdout.lines().collect();
    let escaped = paths[0].replace(',', "%2C").replace(':', "%3A");
    assert_eq!(
        lines,
        [
            format!(
                "::warning file={escaped},line=4,col=5,title=misplaced-key::'unit' has no effect here and is ignored%0Ahelp: move it into `rate_limit`"
            ),
            format!(
                "::error file={},line=2,col=43,title=unknown-value::invalid rate limit unit 'dya'%0Ahelp: did you mean `day`? Possible values: second, minute, hour, day, week, month, year",
                paths[1]
            ),
        ]
    );
}

#[test]
fn json_tells_places_and_fixes() {
    let (_directory, paths) = files(&[("bad.yaml", BAD.as_bytes())]);
    let (code, report) = json(&[&paths[0]]);
    assert_eq!(code, 1);
    assert_eq!(report["valid"], false);
    assert_eq!(report["errors"], 1);
    let diagnostic = &report["diagnostics"][0];
    assert_eq!(diagnostic["code"], "unknown-value");
    assert_eq!(diagnostic["place"]["line"], 2);
    let fix = &diagnostic["fixes"][0];
    let offset = |name: &str| usize::try_from(fix[name].as_u64().unwrap()).unwrap();
    let mut fixed = BAD.to_owned();
    let replacement = fix["replacement"].as_str().unwrap();
    fixed.replace_range(offset("start")..offset("end"), replacement);
    let output = check_input(&["-"], fixed.as_bytes());
    assert!(output.status.success(), "{fixed}: {output:?}");
    let (code, report) = json(&["examples/edge.yaml"]);
    assert_eq!(
        (code, &report["valid"], &report["limits"]),
        (0, &true.into(), &5.into())
    );
}

/// `make readme` writes the schema; here it must be the same.
#[test]
fn the_committed_schema_of_reports_is_the_one_that_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/check.schema.json");
    let (code, made, _) = tollgate(&["schema", "--for", "check"]);
    assert_eq!(code, 0);
    if std::env::var_os("WRITE_README").is_some() {
        fs::write(&path, &made).unwrap();
    } else {
        assert!(
            fs::read_to_string(&path).unwrap() == made,
            "run make readme"
        );
    }
}

#[test]
fn the_schema_describes_every_report() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (_directory, paths) = files(&[
        ("good.yaml", GOOD.as_bytes()),
        ("again.yaml", GOOD.as_bytes()),
        ("latin1.yaml", b"domain: caf\xe9\n"),
    ]);
    let mut reports = vec![
        json(&["no/such/file.yaml"]).1,
        json(&[&paths[0], &paths[1]]).1,
        json(&[&paths[2]]).1,
        json(&["examples/edge.yaml"]).1,
    ];
    assert_eq!(reports[2]["diagnostics"][0]["code"], "not-utf8");
    assert_eq!(reports[2]["diagnostics"][0]["place"]["column"], 12);
    let folder = root.join("tests/rules/broken");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            reports.push(json(&[path.to_str().unwrap()]).1);
        }
    }
    assert!(reports.len() > 50);
    let (_, schema, _) = tollgate(&["schema", "--for", "check"]);
    let validate = "import json, sys, jsonschema
schema, reports = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for report in reports:
    for error in validator.iter_errors(report):
        print(list(error.absolute_path), error.message)
# A validator that accepts anything would be no test.
reports[0]['diagnostics'][0]['code'] = 'nonsense'
assert next(validator.iter_errors(reports[0]), None)
";
    let mut python = Command::new(root.join("target/venv/bin/python"))
        .args(["-c", validate])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn_tied()
        .unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let input = serde_json::to_vec(&serde_json::json!([schema, reports])).unwrap();
    python.stdin.take().unwrap().write_all(&input).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

#[test]
fn only_a_terminal_shows_colours_and_not_with_no_color() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (_directory, paths) = files(&[("bad.yaml", BAD.as_bytes())]);
    let (_, _, stderr) = tollgate(&["check", &paths[0]]);
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
    // Python's pty module runs a program in a terminal.
    let in_terminal = |no_color: &str| {
        let output = Command::new(root.join("target/venv/bin/python"))
            .args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
            .arg(tollgate_binary())
            .args(["check", &paths[0]])
            .env_clear()
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(in_terminal("").contains("\u{1b}["));
    let plain = in_terminal("1");
    assert!(
        plain.contains("did you mean `day`?") && !plain.contains('\u{1b}'),
        "{plain}"
    );
}

#[test]
fn no_path_and_what_cannot_be_read_have_their_exit_codes() {
    assert_eq!(tollgate(&["check"]).0, 2);
    let (code, _, stderr) = tollgate(&["check", "no/such/file.yaml", "examples/edge.yaml"]);
    assert_eq!(code, 1);
    assert!(
        stderr.starts_with("error[unreadable-file]: no/such/file.yaml: "),
        "{stderr}"
    );
    let (_directory, paths) = files(&[("rules.yaml", RULES.as_bytes())]);
    let mut command = Command::new(tollgate_binary());
    let command = command
        .arg("check")
        .env_clear()
        .env("TOLLGATE_RULES", &paths[0]);
    assert!(command.output().unwrap().status.success());
}

#[test]
fn rules_and_their_overlay_are_checked_together() {
    let overlay = |set: &str| format!("overlay: [{{domain: good, {set}}}]\n");
    let (directory, paths) = files(&[
        ("good.yaml", GOOD.as_bytes()),
        ("bad.yaml", BAD.as_bytes()),
        ("fits.yml", overlay("algorithm: leaky_bucket").as_bytes()),
        ("raises.yml", overlay("requests_per_unit: 2").as_bytes()),
    ]);
    let [good, bad, fits, raises] = &paths[..] else {
        panic!("{paths:?}")
    };
    let found = |rules: &str, overlay: &str| {
        let (code, report) = json(&[rules, "--overlay", overlay]);
        let diagnostics = report["diagnostics"].as_array().unwrap().iter();
        let place = |one: &Value| {
            let file = one["place"]["file"].as_str().unwrap();
            let name = file.rsplit('/').next().unwrap().to_owned();
            (name, one["code"].as_str().unwrap().to_owned())
        };
        (code, diagnostics.map(place).collect::<Vec<_>>())
    };
    let one = |file: &str, code: &str| (file.to_owned(), code.to_owned());
    assert_eq!(found(good, fits), (0, vec![]));
    let too_much = one("raises.yml", "raised-limit");
    assert_eq!(found(good, raises), (1, vec![too_much]));
    let unit = one("bad.yaml", "unknown-value");
    assert_eq!(found(bad, fits), (1, vec![unit]));
    let missing = directory.path().join("missing.yml");
    let unreadable = one("missing.yml", "unreadable-file");
    let missing = missing.to_str().unwrap();
    assert_eq!(found(good, missing), (1, vec![unreadable]));
    // An overlay that matches nothing is a warning.
    let other = GOOD.replace("good", "other");
    fs::write(good, other).unwrap();
    let unmatched = one("fits.yml", "unmatched-entry");
    assert_eq!(found(good, fits), (0, vec![unmatched]));
}
