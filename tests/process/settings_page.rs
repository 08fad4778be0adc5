//! `docs/settings.md`: every setting under its heading, generated from the declaration.
//!
//! What it deliberately does not do: describe a value beyond its declaration. Ranges and examples
//! that the declaration names are tried in `help`.

use std::fmt::Write as _;

use clap::{Arg, Args as _, Command};
use tollgate::settings::Settings;
use tollgate::settings::help::RULES;
use tollgate::settings::help::{HelpText, KINDS, kind_of};

const PAGE: &str = "docs/settings.md";

const HEAD: &str = "\
# Settings

Every setting of `tollgate serve`, by subject. `make readme` generates this page from the code.

Each setting is a flag and an environment variable. A flag overrides its variable. A variable has the
name of envoyproxy/ratelimit where that has one. `tollgate serve -h` lists the twenty settings that
most installations set, and `tollgate serve --help` lists all.

Variables of the Redis server and of OpenTelemetry have no flag, because some hold secrets.
[From Envoy's reference service](guides/from-envoy-ratelimit.md) and
[Operating](operating.md#traces) list them.

An unknown variable whose name starts with `TOLLGATE_` or `REDIS_` is reported at start with the
nearest setting. So is a name that differs from a setting in one or two characters.

## Values

The name after a flag is the kind of its value.

| kind | values | example |
| --- | --- | --- |
";

/// The settings as declared, before their help is completed.
pub(crate) fn declared() -> Command {
    Settings::augment_args(Command::new("serve"))
}

/// The heading of a setting. RULES is an argument, which the help lists apart.
pub(crate) fn heading(setting: &Arg) -> &str {
    setting.get_help_heading().unwrap_or(RULES)
}

/// Text of a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn code(text: &str) -> String {
    format!("`{}`", cell(text))
}

/// One row: flag, variable, default, values, example, meaning.
fn row(setting: &Arg) -> String {
    let text = HelpText::of(setting);
    let kind = kind_of(setting);
    let value = setting
        .get_value_names()
        .map_or("", |names| names[0].as_str());
    let flag = match setting.get_long() {
        Some(long) => format!("--{long} {}", kind.map_or(value, |kind| kind.name)),
        None => value.to_owned(),
    };
    let variable = setting.get_env().unwrap().to_str().unwrap();
    let is_declared = !setting.get_default_values().is_empty();
    let default = match &text.default {
        Some(default) if is_declared => code(default),
        Some(computed) => cell(computed),
        None => "none".to_owned(),
    };
    let choices = setting.get_possible_values();
    let boolean = kind.is_some_and(|kind| kind.name == "BOOL");
    let named = choices.iter().filter(|_| !boolean);
    let named: Vec<_> = named.map(|choice| code(choice.get_name())).collect();
    let values = match (&text.range, kind) {
        _ if !named.is_empty() => named.join(", "),
        (Some(range), _) => cell(range),
        (None, Some(kind)) => cell(kind.range),
        (None, None) => "text".to_owned(),
    };
    let example = match (&text.example, kind, named.first()) {
        (Some(example), ..) => code(example),
        // The value that is not the default.
        (None, Some(kind), None)
            if kind.name == "BOOL" && text.default.as_deref() == Some(kind.example) =>
        {
            code("false")
        }
        (None, _, Some(choice)) => choice.clone(),
        (None, Some(kind), None) => code(kind.example),
        (None, None, None) => panic!("{flag} has no example"),
    };
    let mut meaning = format!("{}.", text.sentence);
    for detail in &text.details {
        meaning.extend([" ", detail]);
    }
    for choice in choices.iter().filter(|_| !boolean) {
        let _ = write!(
            meaning,
            " {}: {}.",
            code(choice.get_name()),
            choice.get_help().unwrap()
        );
    }
    let meaning = cell(&meaning);
    format!(
        "| {} | {} | {default} | {values} | {example} | {meaning} |\n",
        code(&flag),
        code(variable)
    )
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for kind in KINDS {
        let _ = writeln!(
            page,
            "| `{}` | {} | `{}` |",
            kind.name, kind.range, kind.example
        );
    }
    let settings = declared();
    let mut headings: Vec<&str> = Vec::new();
    for setting in settings.get_arguments() {
        if !headings.contains(&heading(setting)) {
            headings.push(heading(setting));
        }
    }
    for subject in headings {
        let _ = write!(
            page,
            "\n## {subject}\n\n| flag | variable | default | values | example | what it sets |\n\
             | --- | --- | --- | --- | --- | --- |\n"
        );
        let settings = settings.get_arguments();
        page.extend(settings.filter(|it| heading(it) == subject).map(row));
    }
    page
}

/// `make readme` writes the page; otherwise this test compares it.
#[test]
fn the_settings_page_matches_the_declaration() {
    if std::env::var_os("WRITE_README").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let (shown, declared) = (std::fs::read_to_string(PAGE).unwrap(), page());
    // Compared line by line: a difference is one setting of many.
    for (shown, declared) in shown.lines().zip(declared.lines()) {
        assert_eq!(shown, declared, "run `make readme`");
    }
    assert_eq!(shown.len(), declared.len(), "run `make readme`");
}

#[test]
fn each_setting_has_one_row_with_every_column() {
    let page = page();
    for setting in declared().get_arguments() {
        let variable = format!("` | `{}` |", setting.get_env().unwrap().to_str().unwrap());
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.contains(&variable))
            .collect();
        assert_eq!(rows.len(), 1, "{variable}");
        let columns = rows[0].replace("\\|", "");
        assert_eq!(columns.matches('|').count(), 7, "{columns}");
        assert!(!columns.contains("|  |"), "an empty column: {columns}");
    }
}
