//! Settings compared from three sides: the binary's declaration, the schema of the values, and what
//! the chart sets itself.
//!
//! How: the schema's part is generated from the declaration (`make readme`), so a new setting
//! cannot be forgotten and a misspelt one is rejected before the installation.
//!
//! What it deliberately does not do: check ranges. The binary checks them at start.

use std::any::TypeId;
use std::fmt::Write as _;
use std::time::Duration;

use clap::{Arg, CommandFactory as _};
use serde_json::json;
use tollgate::cli::Cli;

use crate::chart::rendering::{EXAMPLE, HELMS, read, refusal, rendered, root, texts, values_files};

const SCHEMA: &str = "helm/tollgate/values.schema.json";

/// Settings that the chart sets or fixes by mount paths and ports, so values cannot set them.
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

/// Schema of a setting: the most natural type, and null for the default.
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
        // Only 0 needs no unit.
        return json!({ "description": what, "type": ["integer", "string", "null"], "minimum": 0, "maximum": 0 });
    } else if is(TypeId::of::<f32>()) {
        // `--set` keeps fractions as text.
        json!(["number", "string", "null"])
    } else {
        json!(["string", "null"])
    };
    json!({ "description": what, "type": types })
}

/// Schema of `settings`, one setting per line, as in the file.
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

/// `make readme` writes it; otherwise this test compares it.
#[test]
fn the_schema_of_settings_matches_the_declaration() {
    let (begin, end) = ("makes these\",\n      \"properties\": {\n", "      }\n");
    let text = read(SCHEMA);
    let (before, rest) = text.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    if std::env::var_os("WRITE_README").is_some() {
        let written = format!("{before}{begin}{}{end}{after}", schema_of_settings());
        std::fs::write(root().join(SCHEMA), written).unwrap();
    } else {
        // Compared line by line: a difference is one setting of many.
        let declared = schema_of_settings();
        for (shown, declared) in shown.lines().zip(declared.lines()) {
            assert_eq!(shown, declared, "run `make readme`");
        }
        assert_eq!(shown.len(), declared.len(), "run `make readme`");
    }
}

/// Every setting that values may set, and a value for it: its default, or a sample of its type.
fn samples() -> serde_json::Map<String, serde_json::Value> {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let settings = serve.get_arguments().filter_map(|setting| {
        let variable = setting.get_env()?.to_str().unwrap();
        (!OWNED.contains(&variable)).then(|| (variable.to_owned(), sample(setting)))
    });
    settings.collect()
}

fn sample(setting: &Arg) -> serde_json::Value {
    let default = setting.get_default_values().first();
    let default = default.map(|default| default.to_str().unwrap().to_owned());
    let choice = setting.get_possible_values().into_iter().next();
    let choice = choice.map(|choice| choice.get_name().to_owned());
    let types = schema_of(setting)["type"].to_string();
    if types.contains("boolean") {
        return json!(default.is_some_and(|default| default == "true"));
    }
    match default.or(choice) {
        Some(text) => match text.parse::<u64>() {
            Ok(number) if types.contains("integer") => json!(number),
            _ => json!(text),
        },
        None if types.contains("integer") => json!(1),
        None => json!("sample"),
    }
}

#[test]
fn every_setting_can_be_set_in_the_values_and_reaches_the_pod() {
    let samples = samples();
    assert!(samples.len() > 80, "{} settings", samples.len());
    let values = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let text = json!({ "settings": samples }).to_string();
    std::fs::write(values.path(), text).unwrap();
    let rendered = rendered(&[EXAMPLE, &format!("--values={}", values.path().display())]);
    for (name, sample) in samples {
        let expected = sample
            .as_str()
            .map_or_else(|| sample.to_string(), str::to_owned);
        assert_eq!(rendered.variable(&name), &json!(expected), "{name}");
    }
}

#[test]
fn every_variable_in_a_rendered_pod_is_a_setting() {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let settings: Vec<_> = serve.get_arguments().filter_map(Arg::get_env).collect();
    // Set in ci/everything-on-values.yaml by `extraEnv`.
    let others = ["NODE_NAME", "RELEASE"];
    for values in values_files() {
        let rendered = rendered(&[&values]);
        for name in texts(&rendered.container()["env"], "name") {
            assert!(
                settings.iter().any(|setting| *setting == name) || others.contains(&name),
                "{values}: tollgate knows no {name}"
            );
        }
    }
}

#[test]
fn settings_owned_by_the_chart_cannot_be_set() {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    for name in OWNED {
        let flag = name.trim_start_matches("TOLLGATE_").to_lowercase();
        let flag = format!("--{}", flag.replace('_', "-"));
        let mut flags = serve.get_arguments().filter_map(Arg::get_long);
        assert!(flags.any(|long| long == &flag[2..]) || name == "TOLLGATE_RULES");
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
fn the_ports_are_the_binarys_defaults() {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let default = |variable: &str| {
        let named = |setting: &&Arg| setting.get_env().is_some_and(|name| name == variable);
        let setting = serve.get_arguments().find(named).unwrap();
        let default = setting.get_default_values()[0].to_str().unwrap();
        default.parse::<u16>().unwrap()
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
