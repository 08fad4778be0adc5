//! Checks `docs/threat-model.md` against the code: each setting, counter and test that it names
//! exists.
//!
//! What it deliberately does not do: run the named tests, or find attacks that the page omits.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use tollgate::cli::Cli;
use tollgate_test_support::markdown::{Page, quoted};

/// Number of columns of the table of attacks.
const COLUMNS: usize = 5;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The quoted names in a column of the table, with their attacks.
fn named(column: usize) -> Vec<(String, String)> {
    let page = Page::read("docs/threat-model.md");
    let rows = page.rows();
    let attacks = rows.iter().filter(|row| row.len() == COLUMNS);
    let named = attacks.flat_map(|row| {
        let words = quoted(row[column]).into_iter();
        words.map(|word| (row[0].to_owned(), word.to_owned()))
    });
    named.collect()
}

#[test]
fn every_setting_on_the_page_exists() {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let flags_and_variables = serve.get_arguments().flat_map(|setting| {
        let flag = setting.get_long().map(|long| format!("--{long}"));
        let variable = setting
            .get_env()
            .map(|name| name.to_string_lossy().into_owned());
        flag.into_iter().chain(variable)
    });
    let settings: BTreeSet<_> = flags_and_variables.collect();
    let named = named(2);
    assert!(named.len() >= 20, "{}", named.len());
    for (attack, setting) in named {
        assert!(settings.contains(&setting), "{attack}: {setting}");
    }
}

#[test]
fn every_counter_on_the_page_exists() {
    let files = fs::read_dir(root().join("crates/telemetry/src/metrics")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let metrics: String = files
        .filter(|path| path.is_file())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let named = named(3);
    assert!(named.len() >= 12, "{}", named.len());
    for (attack, counter) in named {
        let name = counter.split('{').next().unwrap();
        assert!(
            metrics.contains(&format!("\"{name}\"")),
            "{attack}: {counter}"
        );
        // A label value is a declared name as well.
        if let Some((_, value)) = counter.split_once('"') {
            let value = value.trim_end_matches("\"}");
            let known = [metrics.as_str(), &read("crates/http2/src/error.rs")]
                .iter()
                .any(|text| text.contains(&format!("\"{value}\"")));
            assert!(known, "{attack}: {counter}");
        }
    }
}

#[test]
fn every_test_on_the_page_exists_and_every_attack_has_one() {
    let page = Page::read("docs/threat-model.md");
    for row in page.rows().iter().filter(|row| row.len() == COLUMNS) {
        assert!(!quoted(row[4]).is_empty(), "{}: no test", row[0]);
    }
    for (attack, test) in named(4) {
        let (path, name) = test.rsplit_once("::").expect("a file and a test");
        let files = [format!("{path}.rs"), format!("{path}/mod.rs")];
        let file: Option<PathBuf> = files
            .iter()
            .map(|file| root().join(file))
            .find(|file| file.exists());
        let file = file.unwrap_or_else(|| panic!("{attack}: no file {path}"));
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let name = format!("fn {name}(");
        let at = lines.iter().position(|line| line.contains(&name));
        let before = lines[..at.unwrap_or_default()].iter().rev();
        // One of the attributes before the function makes it a test.
        let is_there = before
            .take_while(|line| line.starts_with("#["))
            .any(|line| line.contains("test"));
        assert!(is_there, "{attack}: no test {test}");
    }
}
