//! The README is run: its commands, and its table of settings.

use std::fmt::Write as _;
use std::process::Command;

use clap::CommandFactory as _;
use tollgate::cli::Cli;

use crate::running::{TOLLGATE, Tollgate};

fn readme() -> String {
    std::fs::read_to_string("README.md").unwrap()
}

/// The lines of every fenced `sh` block, without comments.
fn commands() -> Vec<String> {
    let text = readme();
    let blocks = text
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_in_the_readme_is_one_we_run() {
    // `cargo run --release -- X` is the release build of what is tested here as `tollgate X`; ports differ so that tests
    // may run beside one another.
    let mut running = Tollgate::start(&std::fs::read_to_string("examples/edge.yaml").unwrap(), &[]);
    let mut refused = 0;
    for command in commands() {
        let tollgate = command
            .strip_prefix("cargo run --release -- ")
            .or_else(|| command.strip_prefix("target/release/tollgate "));
        match (tollgate, command.as_str()) {
            // Running already, with the same rules.
            (Some("serve examples/edge.yaml"), _) => assert!(running.running()),
            (Some(arguments), _) => {
                let arguments = arguments.replace("127.0.0.1:8081", &running.grpc.to_string());
                let output = Command::new(TOLLGATE)
                    .args(arguments.split(' '))
                    .output()
                    .unwrap();
                let code = output.status.code().unwrap();
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(code == 0 || code == 3, "{command}: {said}");
                refused += said.matches("OVER LIMIT").count();
            }
            // What CI runs, what that begins with, and what this test is part of.
            (None, "make test" | "make deps") => {}
            (None, curl) if curl.starts_with("curl -s 127.0.0.1:8080/") => {
                let path = curl
                    .split(' ')
                    .nth(2)
                    .unwrap()
                    .split_once(":8080")
                    .unwrap()
                    .1;
                assert!(!running.get(path).is_empty(), "{command}");
            }
            (None, "target/venv/bin/envoy -c examples/envoy.yaml" | "curl -i 127.0.0.1:10000/") => {
                // tests/envoy runs this bootstrap and asks through it.
                assert!(
                    std::fs::read_to_string("examples/envoy.yaml")
                        .unwrap()
                        .contains("port_value: 10000")
                );
            }
            _ => panic!("no test runs `{command}`"),
        }
    }
    assert!(refused > 0, "the sixty seconds end with a refusal");
}

/// The settings as the README shows them, from their declaration.
fn table() -> String {
    let mut table =
        String::from("| flag | variable | default | what |\n| --- | --- | --- | --- |\n");
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    for setting in serve
        .get_arguments()
        .filter(|setting| setting.get_id() != "help")
    {
        let flag = setting
            .get_long()
            .map_or("RULES".to_owned(), |long| format!("--{long}"));
        let variable = setting.get_env().unwrap().to_str().unwrap();
        let default: Vec<_> = setting
            .get_default_values()
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        let mut what = setting.get_help().unwrap().to_string().replace('\n', " ");
        if !matches!(setting.get_action(), clap::ArgAction::Set) {
            what += " (a switch)";
        }
        let choices: Vec<_> = setting
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect();
        if !choices.is_empty() && !what.contains(':') {
            what.extend([": ", &choices.join(", ")]);
        }
        let _ = writeln!(
            table,
            "| `{flag}` | `{variable}` | {} | {what} |",
            default.join(" ")
        );
    }
    table
}

/// `make readme` writes it; here it must be the same.
#[test]
fn the_table_of_settings_is_the_declaration() {
    let (begin, end) = ("<!-- settings -->\n", "<!-- /settings -->\n");
    let text = readme();
    let (before, rest) = text.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    if std::env::var_os("WRITE_README").is_some() {
        std::fs::write(
            "README.md",
            format!("{before}{begin}{}{end}{after}", table()),
        )
        .unwrap();
    } else {
        assert_eq!(shown, table(), "run `make readme`");
    }
}
