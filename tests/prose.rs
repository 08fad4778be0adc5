//! The language of every text that a person reads.
//!
//! No banned phrase is in the pages, the chart, the examples, help, errors, logs or metric help.
//! The list of phrases is `banned_phrases` of the support crate. `make lint` runs the prose linter
//! on the pages; tests here plant what it must find.
//!
//! Paths in `docs/lint/not_yet.txt` are not checked, neither here nor by the linter.

use std::fs;
use std::path::Path;
use std::process::Command;

use tollgate_test_support::banned_phrases;
use tollgate_test_support::components::{component, crate_folders, repository, source_folders};

/// Pages, and files whose comments a person reads. The page of each crate is one, too.
const TEXTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "Dockerfile",
    "Makefile",
    "docs",
    "helm",
    "examples",
    "packaging",
];

/// Rust sources whose doc comments clap prints as help. String literals of all sources are checked.
const HELP: &[&str] = &["src/settings", "src/cli"];

/// Endings of files that are data, pictures or a licence.
const DATA: &[&str] = &["svg", "png", "lock", "tgz", "pyc", "LICENSE"];

fn texts() -> Vec<String> {
    let pages = crate_folders()
        .into_iter()
        .map(|folder| folder + "/README.md");
    TEXTS
        .iter()
        .map(|path| (*path).to_owned())
        .chain(pages)
        .collect()
}

/// Every file below these paths, as paths from the repository.
fn walked(paths: &[String]) -> Vec<String> {
    fn walk(path: &Path, files: &mut Vec<String>) {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            for entry in &entries {
                walk(entry, files);
            }
        } else if path.exists() {
            let path = path.strip_prefix(repository()).unwrap();
            files.push(path.to_str().unwrap().to_owned());
        }
    }
    let mut files = Vec::new();
    for path in paths {
        walk(&repository().join(path), &mut files);
    }
    files
}

/// The same, except for data and for paths in `not_yet.txt`.
fn files(paths: &[String]) -> Vec<String> {
    let mut files = walked(paths);
    let not_yet = not_yet();
    let left_out = |file: &String| not_yet.iter().any(|entry| covers(entry, file));
    files.retain(|file| !left_out(file) && !DATA.iter().any(|ending| file.ends_with(ending)));
    files
}

/// The entries of the list: a path, or a folder with `/**`.
fn not_yet() -> Vec<String> {
    let list = fs::read_to_string(repository().join("docs/lint/not_yet.txt")).unwrap();
    let entries = list.lines().map(str::trim);
    let entries = entries.filter(|line| !line.is_empty() && !line.starts_with('#'));
    entries.map(str::to_owned).collect()
}

fn covers(entry: &str, file: &str) -> bool {
    match entry.strip_suffix("**") {
        Some(folder) => file.starts_with(folder),
        None => file == entry,
    }
}

/// A file's text without the marks that begin the lines of a comment or a quotation.
fn unmarked(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.trim_start().trim_start_matches(['#', '/', '>', '*']));
    lines.collect::<Vec<_>>().join("\n")
}

/// The string literals of Rust code, and with `help` also its doc comments. Everything else is
/// blank, so that lines keep their numbers. Test modules are left out.
fn spoken(source: &str, help: bool) -> String {
    let end = source.find("\n#[cfg(test)]\nmod ").unwrap_or(source.len());
    let source: Vec<char> = source[..end].chars().collect();
    let mut spoken = String::new();
    let mut at = 0;
    let begins = |at: usize, what: &str| {
        what.chars()
            .enumerate()
            .all(|(i, c)| source.get(at + i) == Some(&c))
    };
    while let Some(&c) = source.get(at) {
        let hashes = source[at + 1..].iter().take_while(|c| **c == '#').count();
        if begins(at, "//") {
            let comment: String = source[at..].iter().take_while(|c| **c != '\n').collect();
            if help && comment.starts_with("///") {
                spoken += &comment[3..];
            }
            at += comment.chars().count();
        } else if begins(at, "'\"'") || begins(at, "'\\\"'") || begins(at, "'\\''") {
            at += if source[at + 1] == '\\' { 4 } else { 3 };
        } else if c == 'r' && source.get(at + 1 + hashes) == Some(&'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            at += hashes + 2;
            while at < source.len() && !begins(at, &close) {
                spoken.push(source[at]);
                at += 1;
            }
            // Two literals are not one text: this word is in no phrase.
            spoken += " _ ";
            at += close.len();
        } else if c == '"' {
            at += 1;
            while at < source.len() && source[at] != '"' {
                match (source[at], source.get(at + 1)) {
                    ('\\', Some('\n')) => spoken += " \n",
                    ('\\', Some('"')) => spoken += " \" ",
                    ('\\', _) => spoken.push(' '),
                    (c, _) => spoken.push(c),
                }
                at += if source[at] == '\\' { 2 } else { 1 };
            }
            spoken += " _ ";
            at += 1;
        } else {
            if c == '\n' {
                spoken.push('\n');
            }
            at += 1;
        }
    }
    spoken
}

fn is_help(file: &str) -> bool {
    HELP.iter().any(|folder| file.starts_with(folder))
}

#[test]
fn no_text_for_a_reader_has_a_banned_phrase() {
    let mut wrong = Vec::new();
    let texts = files(&texts()).into_iter().map(|file| (file, false));
    let sources = files(&source_folders())
        .into_iter()
        .map(|file| (file, true));
    let mut read = 0;
    for (file, source) in texts.chain(sources) {
        let text = fs::read_to_string(repository().join(&file)).unwrap();
        let text = if source {
            spoken(&text, is_help(&file))
        } else {
            unmarked(&text)
        };
        read += 1;
        for finding in banned_phrases::find(&text) {
            wrong.push(format!("{file}: {finding}"));
        }
    }
    assert!(read > 100, "only {read} files were read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn literals_and_help_are_read_and_nothing_else() {
    let source = "/// Help.\nfn one() { // a comment\n    say(\"a \\\"b\\\" \\\n    c\", 'd', '\"', r#\"raw \"e\"\"#);\n}\n\n#[cfg(test)]\nmod tests { \"f\" }\n";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(&spoken(source, true)),
        "Help. a \" b \" c _ raw \"e\" _"
    );
    assert_eq!(words(&spoken(source, false)), "a \" b \" c _ raw \"e\" _");
    assert_eq!(spoken("\n\n\"c\"", false).lines().count(), 3);
    assert!(covers("docs/decisions/**", "docs/decisions/a.md"));
    assert!(!covers("docs/rules.md", "docs/rules.mdx"));
}

#[test]
fn what_is_not_yet_checked_exists() {
    for entry in not_yet() {
        let path = repository().join(entry.trim_end_matches("/**"));
        assert!(
            path.exists(),
            "docs/lint/not_yet.txt: {entry} does not exist"
        );
    }
}

/// Every page, whether it is clean or not.
fn pages() -> Vec<String> {
    let mut pages = walked(&texts());
    pages.retain(|page| Path::new(page).extension().is_some_and(|is| is == "md"));
    pages
}

/// The anchors of a page, as GitHub makes them from its headings. Code blocks have none.
fn anchors(page: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let outside_code = text.split("```").step_by(2);
    let headings = outside_code
        .flat_map(str::lines)
        .filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    let mut links = 0;
    for page in pages() {
        let text = fs::read_to_string(repository().join(&page)).unwrap();
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") || link.contains(['"', ' ', '\n']) {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                _ => relative(&page, file),
            };
            if !repository().join(&target).exists() {
                wrong.push(format!("{page}: {link}: no such file"));
            } else if !anchor.is_empty() && !anchors(&target).iter().any(|one| one == anchor) {
                wrong.push(format!("{page}: {link}: no such heading"));
            }
        }
    }
    assert!(links > 200, "only {links} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Code blocks of a page: the line before it, its language, and its text.
fn code_blocks(text: &str) -> Vec<(&str, &str, &str)> {
    let parts: Vec<_> = text.split("```").collect();
    let blocks = parts.chunks_exact(2).map(|pair| {
        let (language, code) = pair[1].split_once('\n').unwrap();
        let before = pair[0].trim_end().lines().last().unwrap_or_default();
        (before, language, code)
    });
    blocks.collect()
}

/// The lines without indentation. An empty line ends a piece.
fn pieces(code: &str) -> Vec<String> {
    let lines = code.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    lines.trim().split("\n\n").map(str::to_owned).collect()
}

#[test]
fn each_snippet_of_the_page_of_clients_is_a_part_of_a_tested_program() {
    let read = |page: &str| fs::read_to_string(repository().join(page)).unwrap();
    let page = read("docs/clients.md");
    for (folder, language) in [
        ("go", "go"),
        ("java", "java"),
        ("node", "js"),
        ("python", "python"),
        ("rust", "rust"),
    ] {
        let readme = read(&format!("clients/{folder}/README.md"));
        let programs: Vec<_> = code_blocks(&readme)
            .into_iter()
            .filter(|(before, _, _)| before.starts_with("<!-- run: "))
            .map(|(_, _, code)| pieces(code).join("\n\n"))
            .collect();
        let mut snippets = 0;
        for (_, _, code) in code_blocks(&page)
            .into_iter()
            .filter(|(_, of, _)| *of == language)
        {
            snippets += 1;
            let wanted = pieces(code);
            let is_part = |program: &String| wanted.iter().all(|piece| program.contains(piece));
            assert!(
                programs.iter().any(is_part),
                "docs/clients.md: no program of clients/{folder}/README.md has:\n{code}"
            );
        }
        assert!(snippets > 0, "docs/clients.md has no code in {language}");
    }
    let tables = page.lines().filter(|line| line.starts_with("| "));
    for code in tables.flat_map(|line| line.split('`').skip(1).step_by(2)) {
        assert!(
            !code.contains('('),
            "docs/clients.md: {code} is in no program"
        );
    }
}

/// The path of a link from the repository.
fn relative(page: &str, link: &str) -> String {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The exit code and the output of the linter for a page of this text.
fn linted(page: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.md");
    fs::write(&file, page).unwrap();
    let linter = Command::new(component("prose/node_modules/.bin/textlint"))
        .arg("--config")
        .arg(component("prose/textlintrc.json"))
        .arg(file)
        .output()
        .unwrap();
    (
        linter.status.success(),
        String::from_utf8(linter.stdout).unwrap(),
    )
}

#[test]
fn the_linter_finds_a_long_sentence_in_wrapped_text() {
    let words = |count: usize| (1..=count).map(|n| format!("w{n}")).collect::<Vec<_>>();
    let long = words(31).join("\n  ");
    let (passed, said) = linted(&format!("# Page\n\n- An item. {long}.\n"));
    assert!(!passed && said.contains("31 words"), "{said}");
    // Each of two sentences has 30. Code is one word; a table has no limit.
    let (short, cell) = (words(30).join("\n"), words(40).join(" "));
    let rest = words(28).join(" ");
    let table = format!("| head |\n| --- |\n| {cell} |");
    let after_number = format!("{rest} 4. With {rest}.");
    let page = format!("{short}.\nAnd {rest} `{cell}`.\n\n{after_number}\n\n{table}\n");
    let (passed, said) = linted(&page);
    assert!(passed, "{said}");
}

#[test]
fn the_linter_runs_every_rule_of_its_configuration() {
    // textlint ignores a configuration that it cannot load.
    let (passed, said) = linted("There is a limit.\n");
    assert!(!passed && said.contains("write-good"), "{said}");
}
