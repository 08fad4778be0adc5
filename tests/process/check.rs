//! `tollgate check`: its JSON and the schema of it, fixes, colours.
//!
//! What it deliberately does not do: hold the texts of diagnostics (`tests/rules/broken`), or of
//! reports (`sessions/check.txt`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::process::commands::tollgate;
use crate::process::python::schema_errors;

// window: parsed only.
const GOOD: &str =
    "domain: good\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
const BAD: &str =
    "domain: bad\ndescriptors: [{key: k, rate_limit: {unit: dya, requests_per_unit: 1}}]\n";

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

fn json(arguments: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = tollgate(&[&["check", "--format", "json"], arguments].concat());
    assert_eq!(stderr, "");
    (code, serde_json::from_str(&stdout).unwrap())
}

#[test]
fn the_fix_of_a_report_makes_the_rules_good() {
    let (_directory, paths) = files(&[("bad.yaml", BAD.as_bytes())]);
    let (code, report) = json(&[&paths[0]]);
    assert_eq!(code, 1);
    let fix = &report["diagnostics"][0]["fixes"][0];
    let offset = |name: &str| usize::try_from(fix[name].as_u64().unwrap()).unwrap();
    let mut fixed = BAD.to_owned();
    let replacement = fix["replacement"].as_str().unwrap();
    fixed.replace_range(offset("start")..offset("end"), replacement);
    fs::write(&paths[0], &fixed).unwrap();
    assert_eq!(json(&[&paths[0]]).0, 0, "{fixed}");
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
    let reports: Vec<_> = reports.into_iter().map(|report| ("", report)).collect();
    assert_eq!(schema_errors("check", &reports), "");
    // The codes are listed.
    let mut unknown = reports[0].clone();
    unknown.1["diagnostics"][0]["code"] = "nonsense".into();
    assert_ne!(schema_errors("check", &[unknown]), "");
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
