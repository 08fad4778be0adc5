//! House rules as tests, each with its reason.
//!
//! Between the crates of the workspace the compiler keeps imports pointing one way. Within a crate
//! no files and no folders import each other in a circle.
//!
//! What it deliberately does not do: parse Rust. It reads lines, skips comments and what follows
//! `#[cfg(test)]`.

mod client_options;
mod luck;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_test_support::banned_phrases::METAPHORS;
use tollgate_test_support::components::source_folders;
use tollgate_test_support::import_graph::ImportGraph;

/// Where names are searched, and what they may not be there: the left column of the rename table
/// of the house style. `type` is a struct, enum, trait or alias; `module` is a file or folder of
/// that name anywhere below; `path` is one at that place.
const OLD_NAMES: &[(&str, &str, &[&str])] = &[
    (
        "src",
        "type",
        &[
            "Came",
            "Unanswered",
            "Obeyed",
            "Answering",
            "Door",
            "FrontDoor",
            "Desk",
            "Core",
            "Cores",
            "NotTaken",
            "Sheet",
            "Line",
            "Asked",
            "Siblings",
            "Gap",
            "Asking",
            "Share",
            "Trial",
            "Terms",
            "Standing",
            "Said",
            "Refused",
            "Lane",
            "Seat",
            "Surveyor",
            "News",
            "Taken",
            "Told",
            "Broken",
            "Handed",
            "Guarded",
            "Secured",
            "Place",
            "Trouble",
        ],
    ),
    (
        "crates",
        "type",
        &[
            "Sheet", "Line", "Asked", "Ask", "Siblings", "Gap", "How", "Came", "Broken", "Handed",
            "Greeted", "Goodbye", "Told", "Place",
        ],
    ),
    (
        "src",
        "module",
        &[
            "door",
            "desk",
            "cores",
            "minder",
            "by_hand",
            "taken",
            "line",
            "watched",
            "passing",
            "going_back",
            "trouble",
            "room",
            "said",
            "refused",
            "lane",
            "surveyor",
            "witness",
            "bench",
            "news",
            "mailbox",
            "leased",
            "fallback",
            "asking",
        ],
    ),
    (
        "crates",
        "module",
        &["siblings", "passing", "withstand", "gap", "sheet"],
    ),
    (
        "src",
        "path",
        &[
            "src/service",
            "src/config",
            "src/accept",
            "src/telemetry",
            "src/limiter",
            "src/store/mailbox",
        ],
    ),
    (
        "src",
        "function",
        &["beyond", "present", "speaks_of_requests", "unless_said"],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a folder, as its path from there and its text.
fn files(folder: &Path) -> BTreeMap<String, String> {
    files_in(folder, "rs")
}

/// Every file with this extension below a folder, as its path from there and its text.
fn files_in(base: &Path, extension: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![base.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let name = path.strip_prefix(base).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The files of these folders, by their paths from the repository's root.
fn files_of(folders: &[impl AsRef<str>]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in folders.iter().map(AsRef::as_ref) {
        for (file, text) in files(&root().join(folder)) {
            found.insert(format!("{folder}/{file}"), text);
        }
    }
    found
}

/// Everything that is compiled into the binary.
fn all_sources() -> BTreeMap<String, String> {
    files_of(&source_folders())
}

/// Sources, tests and benches.
fn all_texts() -> BTreeMap<String, String> {
    files_of(&["src", "crates", "tests", "benches"])
}

/// The names of that kind which a line declares.
fn declared<'l>(line: &'l str, kind: &str) -> impl Iterator<Item = &'l str> {
    let keywords: &[&str] = match kind {
        "type" => &["struct", "enum", "trait", "type"],
        "function" => &["fn"],
        _ => &[],
    };
    let mut tokens = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    std::iter::from_fn(move || {
        tokens.by_ref().find(|token| keywords.contains(token))?;
        tokens.next()
    })
}

/// The words of a line, in lower case as written; parts of identifiers are words.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
}

/// The lines of code of a file, numbered: without comments and without the test module at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line))
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn the_limiter_compiles_alone_with_bare_rustc() {
    let out = tempfile::tempdir().unwrap();
    let compiled = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--crate-name",
            "tollgate_limiter",
        ])
        .args(["--emit", "metadata", "--deny", "warnings", "--out-dir"])
        .arg(out.path())
        .arg(root().join("crates/limiter/src/lib.rs"))
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
}

#[test]
fn only_the_clock_asks_the_time() {
    for (file, text) in all_sources() {
        for (number, line) in code(&text) {
            let asks = line.contains("Instant::now") || line.contains("SystemTime::now");
            assert!(
                !asks || file == "crates/system/src/clock.rs",
                "{file}:{number}: time is an argument; see crates/system/src/clock.rs"
            );
        }
    }
}

/// Leases and waits of a client hold whatever becomes of the system's clock.
#[test]
fn clients_measure_time_by_a_clock_that_nobody_can_set() {
    let clients: [(&str, &str, &[&str]); 5] = [
        (
            "go",
            "go",
            &["Unix(", "UnixMilli(", "UnixNano(", "Round(0)"],
        ),
        ("java/src/main", "java", &["currentTimeMillis", ".now("]),
        ("node/src", "ts", &["Date.now", "new Date()"]),
        ("python/src", "py", &["time.time", "datetime"]),
        ("rust/src", "rs", &["SystemTime", "Utc::now"]),
    ];
    for (folder, extension, wall_clocks) in clients {
        let files = files_in(&root().join("clients").join(folder), extension);
        assert!(files.len() > 5, "{folder}: {files:?}");
        for (file, text) in files {
            if file.ends_with("_test.go") || file.starts_with("gen/") {
                continue;
            }
            for (number, line) in code(&text) {
                // gRPC of Node takes deadlines by the system's clock.
                let is_grpc_time =
                    line.trim() == "return Date.now() + deadline - performance.now();";
                let asks = wall_clocks.iter().any(|clock| line.contains(clock));
                assert!(
                    !asks || is_grpc_time,
                    "clients/{folder}/{file}:{number}: {line}"
                );
            }
        }
    }
}

#[test]
fn the_limiter_does_no_io_and_does_not_wait() {
    let limiter = files(&root().join("crates/limiter/src"));
    assert!(limiter.len() > 20, "the limiter was not found: {limiter:?}");
    for (file, text) in limiter {
        for (number, line) in code(&text) {
            for word in [
                "std::fs",
                "std::net",
                "std::time",
                "std::thread",
                "std::io",
                "async ",
                "println!",
                "static mut",
            ] {
                assert!(
                    !line.contains(word),
                    "crates/limiter/src/{file}:{number}: `{word}` does not belong in the limiter"
                );
            }
        }
    }
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    let mut wrong = Vec::new();
    for (file, text) in all_sources() {
        let documented = text.starts_with("//! ") || text.starts_with("#![doc = include_str!");
        if !documented {
            wrong.push(format!(
                "{file}: open with //! and one sentence that says what it is"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_wrap_at_100_columns() {
    let mut wrong = Vec::new();
    for (file, text) in all_texts() {
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            // A row of a table has no other line to go to.
            let wraps = comment.starts_with("//") && !comment.starts_with("//! |");
            if wraps && line.chars().count() > 100 {
                wrong.push(format!("{file}:{}", number + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "longer than 100 columns:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_files_and_no_folders_import_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    let mut folders = source_folders();
    folders.push("tests/support/src".to_owned());
    for folder in folders {
        let graph = ImportGraph::of_sources(&files(&root().join(&folder)));
        for cycle in graph.file_cycles() {
            wrong.push(format!("{folder}: files {}", cycle.join(", ")));
        }
        for cycle in graph.folder_cycles() {
            wrong.push(format!("{folder}: folders {}", cycle.join(", ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "these import each other; move what both sides need into a third file:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_planted_cycle_is_found() {
    let planted = |pairs: &[(&str, &str)]| {
        let sources = pairs
            .iter()
            .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        let graph = ImportGraph::of_sources(&sources.collect());
        (graph.file_cycles(), graph.folder_cycles())
    };
    // Two files, by a path in code and by a nested tree.
    let (files, folders) = planted(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "fn f() { crate::b::g() }"),
        ("b.rs", "use super::{a::{f, h as k}, c};"),
    ]);
    assert_eq!(files, [["a", "b"]]);
    assert_eq!(folders, [["a", "b"]]);
    // Two folders, of which no two files import each other; and a parent's file with its child.
    let (files, folders) = planted(&[
        ("a/mod.rs", ""),
        ("b/mod.rs", ""),
        ("a/one.rs", "use crate::b::two::T;"),
        ("a/other.rs", ""),
        ("b/two.rs", ""),
        ("b/more.rs", "use crate::a::other::T;"),
        ("c/mod.rs", "use self::child::T;"),
        ("c/child.rs", "use super::Parent;"),
    ]);
    assert_eq!(files, [["c", "c/child"]]);
    assert_eq!(folders, [["a", "b"]]);
    // A re-export is followed to the file that defines the name. Comments and tests do not count.
    let (files, folders) = planted(&[
        ("a/mod.rs", "pub use self::child::T;\nmod child;\nmod user;"),
        (
            "a/child.rs",
            "// use super::user::U;\n#[cfg(test)]\nmod tests { use crate::a::user::U; }",
        ),
        ("a/user.rs", "use super::T;"),
    ]);
    assert!(
        files.is_empty() && folders.is_empty(),
        "{files:?} {folders:?}"
    );
}

#[test]
fn old_names_do_not_come_back() {
    let mut wrong = Vec::new();
    for (place, kind, names) in OLD_NAMES {
        // The engine and the tools were folders of `src`.
        let places: &[&str] = match *place {
            "src" => &["src", "crates/engine/src", "crates/tools/src"],
            place => &[place],
        };
        let is_here = |file: &str| places.iter().any(|place| file.starts_with(place));
        for (file, text) in all_sources().iter().filter(|(file, _)| is_here(file)) {
            let module = file.trim_end_matches(".rs");
            let below = |path: &&&str| module.starts_with(**path);
            if let Some(path) = names.iter().find(below).filter(|_| *kind == "path") {
                wrong.push(format!("{file}: the path `{path}`"));
            }
            let parts = module.split('/');
            for part in parts.filter(|part| *kind == "module" && names.contains(part)) {
                wrong.push(format!("{file}: the module name `{part}`"));
            }
            for (number, line) in code(text) {
                for declared in declared(line, kind).filter(|name| names.contains(name)) {
                    wrong.push(format!("{file}:{number}: the {kind} `{declared}`"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_house_metaphor_is_left() {
    let mut wrong = Vec::new();
    let pages = [
        "Makefile",
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "build.rs",
    ];
    let pages = pages.map(|page| {
        (
            page.to_owned(),
            fs::read_to_string(root().join(page)).unwrap(),
        )
    });
    for (file, text) in all_texts().into_iter().chain(pages) {
        if file == "tests/tidy.rs" || file == "tests/support/src/banned_phrases.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for (metaphor, exempt) in METAPHORS {
                let allowed = exempt.iter().any(|words| line.contains(words));
                if !allowed && words(line).any(|word| word == *metaphor) {
                    wrong.push(format!(
                        "{file}:{}: `{metaphor}`: {}",
                        number + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_declares_a_name_is_found() {
    let of = |line, kind| declared(line, kind).collect::<Vec<_>>();
    assert_eq!(of("pub(crate) struct Came<'a> {", "type"), ["Came"]);
    assert_eq!(of("    enum Place {", "type"), ["Place"]);
    assert_eq!(of("pub trait Asking: Send {", "type"), ["Asking"]);
    assert_eq!(of("    pub(super) fn beyond(", "function"), ["beyond"]);
    assert!(of("let line = floor();", "type").is_empty());
    assert_eq!(
        words("the sea-door_way, room").collect::<Vec<_>>(),
        ["the", "sea", "door", "way", "room"]
    );
}

#[test]
fn nothing_is_left_for_later() {
    let mut all = all_sources();
    all.extend(
        files(&root().join("tests"))
            .into_iter()
            .filter(|(file, _)| file != "tidy.rs"),
    );
    all.extend(files(&root().join("benches")));
    for (file, text) in all {
        for (number, line) in text.lines().enumerate() {
            for word in [
                "todo!(",
                "unimplemented!(",
                "dbg!(",
                "FIXME",
                "XXX",
                "#[ignore",
            ] {
                assert!(
                    !line.contains(word),
                    "{file}:{}: `{word}` is work left undone",
                    number + 1
                );
            }
            assert!(
                !line.ends_with(' '),
                "{file}:{}: space at the end",
                number + 1
            );
        }
    }
}

#[test]
fn one_pipeline_decides_every_request() {
    // What decides, and the only files that may call it: so the batched engine, `/json` and unusual
    // gRPC calls run the same lines.
    let calls: &[(&str, &[&str])] = &[
        ("Plan::with_buffer(", &["pipeline/begin.rs"]),
        // It finds the rule of a bucket, and decides nothing.
        ("Plan::new(", &["pipeline/quota.rs"]),
        (".decide_into(", &["pipeline/end.rs"]),
        ("plan.decide(", &["pipeline/end.rs"]),
        ("decode(call.message", &["pipeline/begin.rs"]),
        // One driver for the service, and simulations, which apply the checks themselves.
        (
            ".begin(call,",
            &["pipeline/alone.rs", "pipeline/batcher.rs"],
        ),
        (
            ".end(pending,",
            &[
                "pipeline/alone.rs",
                "pipeline/api/call.rs",
                "pipeline/batcher.rs",
            ],
        ),
        ("pub(crate) fn end<", &["pipeline/end.rs"]),
        // One event, shown once.
        (
            "End::Decided(",
            &[
                "capture/writer.rs",
                "decisions/kept_decision.rs",
                "pipeline/candidate/decide.rs",
                "pipeline/debug_lines.rs",
                "pipeline/end.rs",
                "pipeline/observers.rs",
            ],
        ),
        (".observe(&mut scratch", &["pipeline/end.rs"]),
    ];
    for (call, files) in calls {
        let found: Vec<String> = files_of(&["crates/engine/src", "crates/tools/src", "src"])
            .into_iter()
            .filter(|(_, text)| code(text).any(|(_, line)| line.contains(call)))
            .map(|(file, _)| file.replacen("crates/engine/src/", "", 1))
            .collect();
        assert_eq!(found, *files, "`{call}`");
    }
}

#[test]
fn every_path_in_the_maps_exists() {
    let mut wrong = Vec::new();
    let mut paths = 0;
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        // Quoted text is every second piece of a line between backticks.
        for quoted in text
            .lines()
            .flat_map(|line| line.split('`').skip(1).step_by(2))
        {
            let (path, function) = quoted.split_once("::").unwrap_or((quoted, ""));
            let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            // `/json` is a route, NAME is the reader's choice, and `target/` is built.
            let skipped = path.starts_with('/') || path.contains("NAME") || path == "target/";
            if skipped || !path.contains('/') || !path.chars().all(is_path) {
                continue;
            }
            paths += 1;
            // Modules are written without `src/` and without an ending.
            let found = [
                path.to_owned(),
                format!("src/{path}"),
                format!("src/{path}.rs"),
                format!("crates/engine/src/{path}"),
                format!("crates/engine/src/{path}.rs"),
            ]
            .into_iter()
            .map(|path| root().join(path))
            .find(|path| path.exists());
            let declares = |file: PathBuf| {
                function.is_empty()
                    || fs::read_to_string(file)
                        .unwrap()
                        .contains(&format!("fn {function}("))
            };
            if !found.is_some_and(declares) {
                wrong.push(format!("{page}: `{quoted}` does not exist"));
            }
        }
    }
    assert!(paths > 50, "only {paths} paths were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_to_be_filled_in_before_a_release_is_named() {
    const FILES: [(&str, &str, &str); 9] = [
        (
            "Cargo.toml",
            "tollgate@packages.invalid",
            "team@limits.test",
        ),
        (
            "packaging/debian/changelog",
            "tollgate@packages.invalid",
            "team@limits.test",
        ),
        (
            "helm/tollgate/Chart.yaml",
            "https://tollgate.example",
            "https://limits.test",
        ),
        (
            "clients/java/pom.xml",
            "https://tollgate.example",
            "https://limits.test",
        ),
        (
            "clients/node/package.json",
            "https://tollgate.example",
            "https://limits.test",
        ),
        (
            "clients/python/pyproject.toml",
            "https://tollgate.example",
            "https://limits.test",
        ),
        (
            "clients/rust/Cargo.toml",
            "https://tollgate.example",
            "https://limits.test",
        ),
        (
            "tests/client_packages/common.py",
            "https://tollgate.example",
            "https://limits.test",
        ),
        (
            "SECURITY.md",
            "# Security\n",
            "# Security\n\nhttps://limits.test\n",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        let mut script = Command::new("sh");
        script
            .arg(root().join("tests/release_check.sh"))
            .arg(folder.path());
        let ended = script.output().unwrap();
        (
            ended.status.code(),
            String::from_utf8(ended.stderr).unwrap(),
        )
    };
    let mut filled = Vec::new();
    for (name, old, new) in FILES {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &text).unwrap();
        let text = text.replace(old, new);
        filled.push((
            file,
            text.replace(
                "contributors\n",
                "contributors\n    email: team@limits.test\n",
            ),
        ));
    }
    let (code, said) = check();
    assert_eq!(code, Some(1), "{said}");
    for (name, ..) in FILES {
        assert!(said.contains(name), "{name} is not named: {said}");
    }
    for (file, text) in filled {
        fs::write(file, text).unwrap();
    }
    assert_eq!(check(), (Some(0), String::new()));
}
