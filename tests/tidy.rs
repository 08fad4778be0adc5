//! Tests of the project's source rules: module imports, use of crates, file headers.
//!
//! Inside one crate the compiler does not restrict imports between modules. The test reads the
//! import table in `src/lib.rs` and compares every `crate::` path in `src/` with it. It also checks
//! which modules use which external crate.
//!
//! What it deliberately does not do: parse Rust. It reads lines, and skips comments and everything
//! after `#[cfg(test)]`.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// External crates that only some modules may use, and why.
const HOMES: &[(&str, &[&str], &str)] = &[
    (
        "serde_json",
        &["config", "service/json.rs", "cli"],
        "domain types are not serialisable; the edges mirror them",
    ),
    (
        "prost",
        &["service", "config/xds"],
        "protobuf types end where they come in; elsewhere our own words are spoken",
    ),
    ("prost_types", &["service", "config/xds"], "as prost"),
    ("prost_reflect", &["service/json.rs"], "as prost"),
    (
        "tonic",
        &[
            "service",
            "config/channel",
            "config/xds",
            "telemetry/collector.rs",
        ],
        "gRPC is served in one module; rules and spans use it as clients",
    ),
    (
        "h2",
        &[],
        "the gRPC server has its own HTTP/2 (`crates/http2`)",
    ),
    (
        "tollgate_http2",
        &["grpc"],
        "only the gRPC server speaks HTTP/2",
    ),
    (
        "tikv_jemallocator",
        &["main.rs"],
        "the binary's choice, not the library's",
    ),
    (
        "tower",
        &["admin", "config/channel"],
        "one module composes HTTP layers, and one connects by itself",
    ),
    ("axum", &["admin"], "one module routes HTTP"),
    (
        "anyhow",
        &["cli", "main.rs"],
        "libraries say what went wrong by type",
    ),
    (
        "clap",
        &["cli", "config/settings"],
        "settings are declared once",
    ),
    (
        "saphyr_parser",
        &["config/yaml.rs"],
        "YAML ends where rules begin",
    ),
    (
        "jiff",
        &["config/calendar.rs"],
        "zones end where calendars begin",
    ),
    (
        "regex_automata",
        &["config/patterns"],
        "what matches comes to the limiter behind its own trait",
    ),
    ("regex_syntax", &["config/patterns"], "as regex_automata"),
    ("aho_corasick", &["config/patterns"], "as regex_automata"),
    ("prometheus", &["metrics"], "every metric once"),
    (
        "redis",
        // In the second file `redis::` is our own module.
        &["store/redis", "store/mod.rs"],
        "one store speaks to Redis",
    ),
    (
        "rustls",
        &[
            "config/tls",
            "config/traces.rs",
            "config/channel",
            "accept/secure.rs",
            "store/redis/connect.rs",
        ],
        "certificates end where they are read, and TLS under the connection",
    ),
    (
        "webpki",
        &["config/tls/names.rs"],
        "one list of names is held against certificates",
    ),
    (
        "tokio_rustls",
        &["accept/secure.rs", "config/channel"],
        "as rustls",
    ),
    (
        "rustix",
        &["accept/pace.rs"],
        "one thread looks at what it has used of a processor",
    ),
    (
        "thread_priority",
        &["accept/pace.rs"],
        "one thread goes behind all others",
    ),
    (
        "subtle",
        &["admin/guard.rs"],
        "one secret is compared with client input",
    ),
    (
        "dashmap",
        &["store/redis/refused.rs"],
        "one map is written by every core",
    ),
    ("siphasher", &["keyed_hash.rs"], "one file chooses the hash"),
    (
        "opentelemetry",
        &["telemetry"],
        "what is traced is said in our own words elsewhere",
    ),
    ("opentelemetry_sdk", &["telemetry"], "as opentelemetry"),
    (
        "opentelemetry_otlp",
        &["telemetry/collector.rs", "telemetry/queue.rs"],
        "as opentelemetry",
    ),
    (
        "opentelemetry_http",
        &["telemetry/collector.rs"],
        "as opentelemetry",
    ),
    (
        "hyper_rustls",
        &["telemetry/collector.rs"],
        "one connection is TLS by it",
    ),
    (
        "sha1_smol",
        &["store/redis/script"],
        "it names a script, and keeps nothing safe",
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a folder, as its path from there and its text.
fn files(folder: &Path) -> BTreeMap<String, String> {
    fn walk(base: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                walk(base, &path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(base).unwrap().display().to_string();
                files.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

fn sources() -> BTreeMap<String, String> {
    files(&root().join("src"))
}

/// The lines of code of a file, numbered: without comments and without the test module at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line))
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The table in `src/lib.rs`: each module and the modules that it may import.
fn imports() -> Vec<(String, Vec<String>)> {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rows = map.lines().filter_map(|line| line.strip_prefix("//! | `"));
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let name = cells.next().unwrap().trim_end_matches('`').to_owned();
        let may = cells
            .next()
            .unwrap()
            .split(',')
            .map(|cell| cell.trim().trim_matches('`').to_owned());
        (name, may.filter(|cell| !cell.is_empty()).collect())
    })
    .collect()
}

/// The modules that a line names: `crate::module`, and in `main.rs` `tollgate::module`.
fn named<'l>(line: &'l str, prefix: &str) -> Vec<&'l str> {
    line.match_indices(prefix)
        .map(|(at, _)| &line[at + prefix.len()..])
        .map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap()
        })
        .collect()
}

#[test]
fn imports_point_one_way() {
    let table = imports();
    let mut wrong = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| *file != "lib.rs") {
        let module = module_of(file);
        let Some((_, may)) = table.iter().find(|(name, _)| name == module) else {
            wrong.push(format!(
                "{file}: the module `{module}` is not in the table of src/lib.rs"
            ));
            continue;
        };
        let prefix = if module == "main" {
            "tollgate::"
        } else {
            "crate::"
        };
        for (number, line) in code(text) {
            for name in named(line, prefix) {
                if name != module && !may.iter().any(|other| other == name) {
                    wrong.push(format!(
                        "src/{file}:{number}: `{module}` may not import `{name}`"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_module_imports_only_modules_above_it_in_the_table() {
    // So imports have no cycle, and the table is in topological order.
    let table = imports();
    assert!(
        table.len() > 10,
        "the table in src/lib.rs was not found: {table:?}"
    );
    for (position, (module, may)) in table.iter().enumerate() {
        for other in may {
            let above = table[..position].iter().any(|(name, _)| name == other);
            assert!(
                above,
                "`{module}` may import `{other}`, which is not above it in the table"
            );
        }
        let file = root().join(format!("src/{module}.rs"));
        let exists = root().join("src").join(module).is_dir() || file.is_file();
        assert!(exists, "the table names `{module}`, which does not exist");
    }
}

#[test]
fn crates_are_used_only_in_their_modules() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        for (name, homes, why) in HOMES {
            if homes.iter().any(|home| file.starts_with(home)) {
                continue;
            }
            let path = format!("{name}::");
            for (number, line) in code(&text) {
                let at = line.find(&path);
                let whole = at.is_some_and(|at| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                });
                if whole {
                    wrong.push(format!(
                        "src/{file}:{number}: {name} does not belong here: {why}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
    for (file, text) in sources() {
        for (number, line) in code(&text) {
            let asks = line.contains("Instant::now") || line.contains("SystemTime::now");
            assert!(
                !asks || file == "clock.rs",
                "src/{file}:{number}: time is an argument; see src/clock.rs"
            );
        }
    }
}

#[test]
fn the_limiter_does_no_io_and_never_waits() {
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
fn every_file_opens_with_its_reason_and_says_what_it_does_not_do() {
    let generated = ["service/proto.rs"];
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        let header: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        if !header.starts_with("//! ") {
            wrong.push(format!("src/{file}: open with //! and why the file exists"));
        } else if text.lines().count() > 60
            && !header.contains("deliberately does not do")
            && !generated.contains(&file.as_str())
        {
            wrong.push(format!("src/{file}: say what it deliberately does not do"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_left_for_later() {
    let mut all = sources();
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
                    "{file}:{}: `{word}` is a promise nobody keeps",
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
