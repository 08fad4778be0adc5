//! `tollgate convert`: exit codes, what goes to stdout and stderr, the options, and the example of
//! `docs/dotnet.md`.
//!
//! What it deliberately does not do: hold conversions (`tests/rules/convert`).

use std::fs;
use std::path::Path;

use crate::commands::tollgate;

const LIMITS: &str = "tests/rules/convert/limitador/";
const SETTINGS: &str = "tests/rules/convert/asp_net_core/";

fn limitador(file: &str, more: &[&str]) -> (i32, String, String) {
    let path = format!("{LIMITS}{file}");
    tollgate(&[&["convert", "--from", "limitador", path.as_str()], more].concat())
}

fn settings(files: &[&str]) -> (i32, String, String) {
    tollgate(&[&["convert", "--from", "aspnetcoreratelimit"], files].concat())
}

#[test]
fn a_whole_conversion_exits_with_0_and_check_accepts_it() {
    let (code, rules, stderr) = limitador("05_the_guide.yaml", &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let snapshot = fs::read_to_string(format!("{LIMITS}05_the_guide.rules.yaml")).unwrap();
    assert_eq!(rules, snapshot);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    fs::write(&path, rules).unwrap();
    let path = path.to_str().unwrap();
    let (code, _, stderr) = tollgate(&["check", "--deny-warnings", path]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let (code, actions, stderr) = tollgate(&["convert", "--envoy", path]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(actions.contains(
        "header_name: x-user, descriptor_key: user } # a guess; --header user=NAME sets it"
    ));
    let (_, actions, _) = tollgate(&[
        "convert",
        "--envoy",
        path,
        "--header",
        "user=x-login",
        "--absent",
        "user=nobody",
    ]);
    assert!(
        actions.contains("request_headers: { header_name: x-login, descriptor_key: user }\n"),
        "{actions}"
    );
    assert!(
        actions.contains("descriptor_value: nobody, expect_match: false"),
        "{actions}"
    );
}

#[test]
fn a_gap_exits_with_6_and_names_file_line_reason_and_help() {
    let (code, rules, stderr) = limitador("29_without_equal.yaml", &[]);
    assert_eq!(code, 6, "{stderr}");
    assert!(rules.contains("name: kept"), "{rules}");
    assert!(
        stderr.starts_with(
            "tests/rules/convert/limitador/29_without_equal.yaml:6:7: warning: limit 1 is left out: its condition has no equal: `size()` has no equal\n  help: let Envoy"
        ),
        "{stderr}"
    );
    let (code, _, stderr) = settings(&[&format!("{SETTINGS}27_without_equal.json")]);
    assert_eq!(code, 6, "{stderr}");
    // Notes alone are no gap.
    let (code, _, stderr) = settings(&[&format!(
        "{SETTINGS}28_endpoint_rules_without_endpoints.json"
    )]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains(":11:21: note: "), "{stderr}");
}

#[test]
fn input_of_another_form_exits_with_1_and_prints_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (from, text, expected) in [
        (
            "limitador",
            "domain: a\n",
            ":1:1: error: this is not a limits file of limitador",
        ),
        ("limitador", "- [\n", ":2:1: error: "),
        ("limitador", "[]\n", "error: no limit was converted"),
        (
            "aspnetcoreratelimit",
            "{}\n",
            ":1:1: error: no section of AspNetCoreRateLimit",
        ),
        (
            "aspnetcoreratelimit",
            "[1]\n",
            ":1:1: error: this is not a settings file",
        ),
        ("aspnetcoreratelimit", "{ \"a\": \n", "error: "),
    ] {
        let path = file("input", text);
        let (code, stdout, stderr) = tollgate(&["convert", "--from", from, &path]);
        assert_eq!((code, stdout.as_str()), (1, ""), "{text}: {stderr}");
        assert!(stderr.contains(expected), "{text}: {stderr}");
    }
    let (code, _, stderr) = tollgate(&["convert", "--from", "limitador", "/nowhere/limits.yaml"]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("/nowhere/limits.yaml: No such file"),
        "{stderr}"
    );
    let bad = file(
        "rules.yaml",
        "domain: d\ndescriptors: [{key: k, unit: day}]\n",
    );
    assert_eq!(
        tollgate(&["convert", "--envoy", &bad, "--header", "k=x-k"]).0,
        0
    );
    let bad = file("rules.yaml", "domain: d\ndescriptor: []\n");
    let (code, stdout, stderr) = tollgate(&["convert", "--envoy", &bad]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
}

#[test]
fn the_command_line_is_checked() {
    for arguments in [
        &["convert"][..],
        &["convert", "--from", "limitador"],
        &["convert", "limits.yaml"],
        &["convert", "--envoy", "a.yaml", "b.yaml"],
        &["convert", "--envoy", "a.yaml", "--from", "limitador"],
        &["convert", "--envoy", "a.yaml", "--header", "user"],
        &[
            "convert",
            "--from",
            "limitador",
            "a.yaml",
            "--header",
            "user=x-user",
        ],
        &["convert", "--from", "other", "a.yaml"],
    ] {
        let (code, stdout, stderr) = tollgate(arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
    }
}

#[test]
fn several_namespaces_are_printed_one_by_one_or_written_to_a_directory() {
    let (code, stdout, stderr) = limitador("23_two_namespaces.yaml", &[]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(
        stderr.contains("2 namespaces (shop, admin)") && stderr.contains("--domain NAMESPACE"),
        "{stderr}"
    );
    let (code, admin, stderr) = limitador("23_two_namespaces.yaml", &["--domain", "admin"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        admin.contains("domain: admin\n") && !admin.contains("domain: shop"),
        "{admin}"
    );
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("rules");
    let out = out.to_str().unwrap();
    let (code, stdout, stderr) = limitador("23_two_namespaces.yaml", &["--out", out]);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert_eq!(
        fs::read_to_string(Path::new(out).join("admin.yaml")).unwrap(),
        admin
    );
    assert_eq!(tollgate(&["check", out]).0, 0);
    // Files that exist stay.
    fs::write(Path::new(out).join("shop.yaml"), "mine").unwrap();
    let (code, _, stderr) = limitador("23_two_namespaces.yaml", &["--out", out]);
    assert_eq!(code, 1);
    assert!(stderr.contains("shop.yaml exists; remove it"), "{stderr}");
    assert_eq!(
        fs::read_to_string(Path::new(out).join("shop.yaml")).unwrap(),
        "mine"
    );
}

#[test]
fn settings_override_settings_of_earlier_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("appsettings.Production.json");
    let production = r#"{ "ClientRateLimiting": { "GeneralRules": [ { "Limit": 77 } ] } }"#;
    fs::write(&path, production).unwrap();
    let first = format!("{SETTINGS}02_general_rules_by_client.json");
    let (code, rules, stderr) = settings(&[&first, path.to_str().unwrap(), "--domain", "edge"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(rules.contains("domain: edge\n"), "{rules}");
    assert!(
        rules.contains("unit: second, requests_per_unit: 77"),
        "{rules}"
    );
    assert!(
        rules.contains("unit: minute, requests_per_unit: 10"),
        "{rules}"
    );
}

#[test]
fn the_example_of_the_page_is_what_the_commands_print() {
    let page = fs::read_to_string("docs/dotnet.md").unwrap();
    let (_, section) = page.split_once("## Convert the settings\n").unwrap();
    let block = |language: &str| {
        let (_, block) = section.split_once(&format!("```{language}\n")).unwrap();
        block.split("```").next().unwrap()
    };
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(in_directory("appsettings.json"), block("json")).unwrap();
    let mut outputs = Vec::new();
    for command in block("text").lines() {
        let (command, output) = command.split_once(" > ").unwrap();
        let words = command.strip_prefix("tollgate ").unwrap().split(' ');
        let words: Vec<_> = words
            .map(|word| match Path::new(word).extension() {
                Some(_) => in_directory(word),
                None => word.to_owned(),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, stdout, stderr) = tollgate(&words);
        assert_eq!((code, stderr.as_str()), (0, ""), "{command}");
        fs::write(in_directory(output), &stdout).unwrap();
        outputs.push(stdout);
    }
    assert_eq!(outputs[0], block("yaml"));
    assert!(
        outputs[1].contains("descriptor_value: anon"),
        "{}",
        outputs[1]
    );
    assert!(
        outputs[1].contains("text: request.url_path"),
        "{}",
        outputs[1]
    );
}
