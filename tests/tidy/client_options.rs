//! An option of the clients has the same words on the page of each client as on their common page.
//!
//! How: it reads the tables of options. Names are compared by their letters, without `With`. Words
//! are compared up to the first `:` or `;`, without code, since values are written as each language
//! writes them.

use std::collections::BTreeMap;
use std::fs;

const LANGUAGES: [&str; 5] = ["go", "java", "node", "python", "rust"];

/// Options whose words are the types of a language.
const OF_THE_LANGUAGE: [&str; 2] = ["tls", "logger"];

/// The words of each option, by the number of its table and its name.
fn options(path: &str) -> BTreeMap<(usize, String), String> {
    let page = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (mut tables, mut is_open) = (0, false);
    let mut options = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<_> = line.trim().split('|').map(str::trim).collect();
        let ["", name, default, meaning, ""] = cells[..] else {
            is_open = false;
            continue;
        };
        if (default, meaning) == ("default", "meaning") && name != "feature" {
            (tables, is_open) = (tables + 1, true);
        } else if is_open {
            for name in name.split(',') {
                options.insert((tables, letters(name)), words(meaning));
            }
        }
    }
    options
}

fn letters(name: &str) -> String {
    let name = name.trim().trim_matches('`');
    let name = name.strip_prefix("With").unwrap_or(name);
    let letters = name.chars().filter(char::is_ascii_alphabetic);
    letters.collect::<String>().to_ascii_lowercase()
}

/// The first words of a meaning, without code.
fn words(meaning: &str) -> String {
    let text: String = meaning.split('`').step_by(2).collect();
    let first = text.split([':', ';']).next().unwrap_or_default();
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn tidy_options_of_the_clients_have_the_same_words() {
    let common = options("clients/README.md");
    let mut compared = 0;
    for language in LANGUAGES {
        let path = format!("clients/{language}/README.md");
        for (option, own) in options(&path) {
            let (_, name) = &option;
            let Some(words) = common.get(&option) else {
                continue;
            };
            if OF_THE_LANGUAGE.contains(&name.as_str()) {
                continue;
            }
            compared += 1;
            assert!(
                own.starts_with(words),
                "{path}: {name} is {own:?}, and {words:?} in clients/README.md"
            );
        }
    }
    assert!(compared >= 100, "{compared} options were compared");
}
