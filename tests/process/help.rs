//! Help of the command line: its size, its headings, its words, and that it tells the truth.

use std::process::Command;

use clap::{Arg, CommandFactory as _, Parser as _};
use tollgate::cli::Cli;
use tollgate::settings::help::{ESSENTIAL, HelpText, KINDS, kind_of};
use tollgate_test_support::banned_phrases;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::process::settings_page::declared;

const LINES_MAX: usize = 60;
const COLUMNS_MAX: usize = 100;

const PAGE: &str = "docs/cli.md";

const PAGE_HEAD: &str = "\
# Commands

The help of each command. `make readme` generates this page from the code. [Settings](settings.md) has every setting of `serve`, and `man
tollgate` has the same pages.
";

/// Every command with arguments of its own; "" is the program itself.
fn commands() -> Vec<String> {
    let cli = Cli::command();
    let names = cli.get_subcommands().flat_map(|command| {
        let name = command.get_name().to_owned();
        let below = command.get_subcommands();
        let below = below.map(|below| format!("{name} {}", below.get_name()));
        std::iter::once(name.clone())
            .chain(below)
            .collect::<Vec<_>>()
    });
    std::iter::once(String::new()).chain(names).collect()
}

fn help(command: &str, option: &str) -> String {
    let output = Command::new(tollgate_binary())
        .args(
            command
                .split(' ')
                .chain([option])
                .filter(|argument| !argument.is_empty()),
        )
        .env_clear()
        // A wide terminal must not widen the help.
        .env("COLUMNS", "300")
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn is_flag_line(line: &str) -> bool {
    line.starts_with("      --")
}

#[test]
fn short_help_of_serve_fits_a_screen_and_names_the_rest() {
    let help = help("serve", "-h");
    let lines = help.lines().count();
    assert!(lines <= LINES_MAX, "{lines} lines:\n{help}");
    let flags = help.lines().filter(|line| is_flag_line(line)).count();
    // RULES is an argument.
    assert_eq!(flags + 1, ESSENTIAL.len(), "{help}");
    assert!(
        help.contains("All settings: tollgate serve --help"),
        "{help}"
    );
}

#[test]
fn no_line_of_help_is_wider_than_100_columns() {
    for command in &commands() {
        for option in ["-h", "--help"] {
            for line in help(command, option).lines() {
                let columns = line.chars().count();
                assert!(
                    columns <= COLUMNS_MAX,
                    "tollgate {command} {option}: {line}"
                );
            }
        }
    }
}

#[test]
fn full_help_of_serve_lists_every_setting_under_a_heading() {
    let help = help("serve", "--help");
    let settings = declared();
    for id in ESSENTIAL {
        let known = settings
            .get_arguments()
            .any(|setting| setting.get_id() == id);
        assert!(known, "{id} is no setting");
    }
    for setting in settings.get_arguments() {
        let Some(long) = setting.get_long() else {
            continue;
        };
        let heading = setting.get_help_heading();
        let heading = heading.unwrap_or_else(|| panic!("--{long} has no heading"));
        let flag = format!("\n      --{long} <");
        let (before, _) = help
            .split_once(&flag)
            .unwrap_or_else(|| panic!("no --{long}"));
        let above = before
            .lines()
            .rfind(|line| !line.starts_with(' ') && line.ends_with(':'));
        assert_eq!(above, Some(format!("{heading}:").as_str()), "--{long}");
    }
}

/// The text of every page of help, of every setting and of every value.
fn every_text() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for command in &commands() {
        for option in ["-h", "--help"] {
            texts.push((
                format!("tollgate {command} {option}"),
                help(command, option),
            ));
        }
    }
    texts
}

/// `make readme` writes the page; otherwise this test compares it.
#[test]
fn the_page_of_commands_is_the_help() {
    let mut page = PAGE_HEAD.to_owned();
    for command in &commands() {
        // All settings have a page of their own.
        let option = if command == "serve" { "-h" } else { "--help" };
        let (name, text) = (format!("tollgate {command}"), help(command, option));
        let lines = text.lines().map(str::trim_end);
        let text = lines.collect::<Vec<_>>().join("\n");
        let name = name.trim_end();
        page.extend(["\n## ", name, "\n\n```text\n", &text, "\n```\n"]);
    }
    if std::env::var_os("WRITE_README").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let committed = std::fs::read_to_string(PAGE).unwrap_or_default();
    for (shown, declared) in committed.lines().zip(page.lines()) {
        assert_eq!(shown, declared, "run `make readme`");
    }
    assert_eq!(committed.len(), page.len(), "run `make readme`");
}

#[test]
fn no_help_has_a_banned_phrase() {
    let mut wrong = Vec::new();
    for (page, text) in every_text() {
        let found = banned_phrases::find(&text);
        wrong.extend(found.iter().map(|finding| format!("{page}: {finding}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first sentence of a setting fits a line beside its flag, and says no default of its own.
#[test]
fn the_first_line_of_a_setting_is_one_short_sentence() {
    for setting in declared().get_arguments() {
        let (id, text) = (setting.get_id(), HelpText::of(setting));
        let words = text.sentence.split_whitespace().count();
        assert!(
            (1..=18).contains(&words),
            "{id}: {words} words: {}",
            text.sentence
        );
        assert!(!text.sentence.contains(". "), "{id}: {}", text.sentence);
        let first = text.sentence.chars().next().unwrap();
        assert!(
            first.is_uppercase() || text.sentence.starts_with("xDS"),
            "{id}: {}",
            text.sentence
        );
        assert!(
            !text.sentence.to_lowercase().contains("default"),
            "{id}: {}",
            text.sentence
        );
        for sentence in text.details.iter().flat_map(|text| text.split(". ")) {
            let words = sentence.split_whitespace().count();
            assert!(words <= 30, "{id}: {words} words: {sentence}");
        }
    }
}

/// Whether `serve` accepts a value of a setting. Values come by themselves, so a flag that needs
/// another one is not tried with it.
fn accepts(setting: &Arg, value: &str) -> Result<(), String> {
    let arguments = match setting.get_long() {
        Some(long) => vec![
            "tollgate".to_owned(),
            "serve".to_owned(),
            format!("--{long}={value}"),
        ],
        None => vec!["tollgate".to_owned(), "serve".to_owned(), value.to_owned()],
    };
    match Cli::try_parse_from(arguments) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_example_and_every_default_is_accepted() {
    for setting in declared().get_arguments() {
        let text = HelpText::of(setting);
        let kind = kind_of(setting).map(|kind| kind.example.to_owned());
        let fits = setting.get_possible_values().is_empty() || text.example.is_some();
        let values = text.example.or(kind.filter(|_| fits)).into_iter();
        let default = setting.get_default_values().iter();
        for value in values.chain(default.map(|it| it.to_str().unwrap().to_owned())) {
            let accepted = accepts(setting, &value);
            assert!(
                accepted.is_ok(),
                "{}: {value}: {accepted:?}",
                setting.get_id()
            );
        }
    }
}

/// `A to B` is what the setting accepts, and neither less nor more.
#[test]
fn every_range_is_the_one_that_is_accepted() {
    let mut tried = 0;
    for setting in declared().get_arguments() {
        let kind = kind_of(setting);
        let Some(range) = HelpText::of(setting)
            .range
            .or(kind.map(|kind| kind.range.to_owned()))
        else {
            continue;
        };
        let id = setting.get_id();
        if let Some((least, most)) = range
            .rsplit_once(", ")
            .unwrap_or(("", &range))
            .1
            .split_once(" to ")
            && let (Ok(least), Ok(most)) = (least.parse::<u64>(), most.parse::<u64>())
            && kind.is_some_and(|kind| kind.name != "RATIO")
        {
            tried += 1;
            for (value, good) in [
                (Some(least), true),
                (Some(most), true),
                (least.checked_sub(1), false),
                (Some(most + 1), false),
            ] {
                let Some(value) = value else { continue };
                assert_eq!(
                    accepts(setting, &value.to_string()).is_ok(),
                    good,
                    "{id}: {value}"
                );
            }
        } else if range == "above 0" {
            tried += 1;
            assert!(
                accepts(setting, "0").is_err() && accepts(setting, "1us").is_ok(),
                "{id}"
            );
        } else if range.ends_with("at least 1") {
            tried += 1;
            assert!(
                accepts(setting, "0").is_err() && accepts(setting, "1").is_ok(),
                "{id}"
            );
        } else if range.ends_with("at least 64KiB") {
            tried += 1;
            assert!(
                accepts(setting, "63KiB").is_err() && accepts(setting, "64KiB").is_ok(),
                "{id}"
            );
        } else if range.ends_with(" 0 to 1") {
            tried += 1;
            assert!(
                accepts(setting, "1.1").is_err() && accepts(setting, "1").is_ok(),
                "{id}"
            );
            assert!(
                accepts(setting, "-0.1").is_err() && accepts(setting, "0").is_ok(),
                "{id}"
            );
        }
    }
    assert!(tried >= 20, "{tried} ranges");
    assert!(KINDS.len() > 8);
}
