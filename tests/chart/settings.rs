//! Settings, held together from three sides: what the binary says it has, what the schema lets values set, and what the
//! chart sets itself.
//!
//! How: the schema's part is written from the declaration (`make readme`), so that a new setting cannot be forgotten and a
//! misspelt one is refused before anything is installed.
//!
//! What it deliberately does not do: bounds. The binary knows them, and says so when it starts.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use clap::{Arg, CommandFactory as _};
use serde_json::json;
use tollgate::cli::Cli;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::rendering::{HELMS, read, refusal, rendered, root, texts, values_files};

const SCHEMA: &str = "helm/tollgate/values.schema.json";

/// What the chart sets, or fixes by where it mounts the rules and by its ports, so that nothing in the values may set it.
const OWNED: [&str; 9] = [
    "GRPC_PORT",
    "PORT",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "TOLLGATE_DRAIN_DELAY",
    "TOLLGATE_DRAIN_TIMEOUT",
    "TOLLGATE_RULES",
];

/// What a setting may be in the values: the type that is least surprising there, and null for the default.
fn schema_of(setting: &Arg) -> serde_json::Value {
    let what = setting.get_help().unwrap().to_string().replace('\n', " ");
    let is = |id: TypeId| setting.get_value_parser().type_id() == id;
    let mut choices = Vec::new();
    for choice in setting.get_possible_values() {
        choices.extend(choice.get_name_and_aliases().map(|name| json!(name)));
    }
    let default = setting.get_default_values().first();
    let whole = default.is_none_or(|default| default.to_str().unwrap().parse::<u64>().is_ok());
    let several = setting.get_value_delimiter();
    let types = if let Some(delimiter) = several.filter(|_| !choices.is_empty()) {
        let names: Vec<_> = choices.iter().filter_map(|name| name.as_str()).collect();
        let one = format!("({})", names.join("|"));
        let pattern = format!("^{one}({delimiter}{one})*$");
        return json!({ "description": what, "type": ["string", "null"], "pattern": pattern });
    } else if !choices.is_empty() && !is(TypeId::of::<bool>()) {
        choices.push(json!(null));
        return json!({ "description": what, "enum": choices });
    } else if is(TypeId::of::<bool>()) {
        json!(["boolean", "null"])
    } else if [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<usize>(),
    ]
    .into_iter()
    .any(is)
        || (is(TypeId::of::<u64>()) && default.is_some())
    {
        // Sizes may have a unit.
        if whole {
            json!(["integer", "null"])
        } else {
            json!(["integer", "string", "null"])
        }
    } else if is(TypeId::of::<Duration>()) {
        // A bare 0 needs no unit; every other number does.
        return json!({ "description": what, "type": ["integer", "string", "null"], "minimum": 0, "maximum": 0 });
    } else if is(TypeId::of::<f32>()) {
        // `--set` keeps fractions as text.
        json!(["number", "string", "null"])
    } else {
        json!(["string", "null"])
    };
    json!({ "description": what, "type": types })
}

/// The schema of `settings`, one a line, as it stands in the file.
fn schema_of_settings() -> String {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let mut lines = String::new();
    for setting in serve.get_arguments() {
        let Some(variable) = setting.get_env().map(|name| name.to_str().unwrap()) else {
            continue;
        };
        if !OWNED.contains(&variable) {
            let end = if lines.is_empty() { "" } else { ",\n" };
            let _ = write!(
                lines,
                "{end}        {}: {}",
                json!(variable),
                schema_of(setting)
            );
        }
    }
    lines + "\n"
}

/// `make readme` writes it; here it must be the same.
#[test]
fn the_schema_of_settings_is_the_declaration() {
    let (begin, end) = ("makes these\",\n      \"properties\": {\n", "      }\n");
    let text = read(SCHEMA);
    let (before, rest) = text.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    if std::env::var_os("WRITE_README").is_some() {
        let written = format!("{before}{begin}{}{end}{after}", schema_of_settings());
        std::fs::write(root().join(SCHEMA), written).unwrap();
    } else {
        // Line by line: a difference is one setting, and they are many.
        let declared = schema_of_settings();
        for (shown, declared) in shown.lines().zip(declared.lines()) {
            assert_eq!(shown, declared, "run `make readme`");
        }
        assert_eq!(shown.len(), declared.len(), "run `make readme`");
    }
}

fn help() -> String {
    let help = Command::new(tollgate_binary())
        .args(["serve", "--help"])
        .env_clear()
        .output()
        .unwrap();
    String::from_utf8(help.stdout).unwrap()
}

/// The variables that the help names.
fn variables(help: &str) -> BTreeSet<&str> {
    let named = help.split("[env: ").skip(1);
    named
        .map(|rest| rest.split(['=', ']']).next().unwrap())
        .collect()
}

#[test]
fn every_variable_in_a_rendered_pod_is_a_setting() {
    let help = help();
    let variables = variables(&help);
    // What ci/everything-on-values.yaml sets for its own sake.
    let others = ["NODE_NAME", "RELEASE"];
    let mut seen = BTreeSet::new();
    for values in values_files() {
        let rendered = rendered(&[&values]);
        for name in texts(&rendered.container()["env"], "name") {
            assert!(
                variables.contains(name) || others.contains(&name),
                "{values}: tollgate knows no {name}"
            );
            seen.insert(name.to_owned());
        }
    }
    for name in variables {
        assert!(
            OWNED.contains(&name) || seen.contains(name),
            "no file of ci/ sets {name}"
        );
    }
}

#[test]
fn what_is_the_chart_s_cannot_be_set_beside_it() {
    let help = help();
    for name in OWNED {
        let flag = name.trim_start_matches("TOLLGATE_").to_lowercase();
        let flag = format!("--{}", flag.replace('_', "-"));
        assert!(help.contains(&format!("{flag} <")) || name == "TOLLGATE_RULES");
        let cases = [
            (format!("--set=settings.{name}=1"), format!("'{name}'")),
            (
                format!("--set=extraEnv[0].name={name}"),
                format!("extraEnv has {name}, which is the chart's: "),
            ),
            (
                format!("--set=extraArgs={{{flag}=1}}"),
                format!("extraArgs has {flag}, which is the chart's: "),
            ),
        ];
        for (set, named) in cases {
            for version in HELMS {
                let said = refusal(version, &[&set]);
                assert!(said.contains(&named), "helm {version}, {set}: {said}");
            }
        }
    }
}

#[test]
fn the_ports_are_those_the_binary_opens_unless_told_otherwise() {
    let help = help();
    let default = |variable: &str| {
        let (_, rest) = help.split_once(&format!("[env: {variable}=]")).unwrap();
        let (_, rest) = rest.split_once("[default: ").unwrap();
        rest.split(']').next().unwrap().parse::<u16>().unwrap()
    };
    let rendered = rendered(&[]);
    let ports = &rendered.container()["ports"];
    assert_eq!(ports[0]["containerPort"], default("GRPC_PORT"));
    assert_eq!(ports[1]["containerPort"], default("PORT"));
    assert_eq!(
        ports.as_array().unwrap().len(),
        2,
        "admin stays on loopback"
    );
}
