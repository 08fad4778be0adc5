//! The example of `docs/dotnet.md` for `tollgate convert`.
//!
//! What it deliberately does not do: hold conversions (`tests/rules/convert`), exit codes and
//! options (`sessions/convert.txt`).

use std::fs;
use std::path::Path;

use crate::process::commands::tollgate;

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
