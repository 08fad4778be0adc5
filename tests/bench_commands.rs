//! `make bench` and `make bench-peers` write their figures and charts into the pages.
//!
//! How: the commands of the Makefile run in their short form, with copies of the pages in a
//! temporary folder. The benches are unoptimised here and their figures are not compared.
//!
//! What it deliberately does not do: build throttlecrab or run the decision bench.

use std::path::Path;
use std::process::Command;

use tollgate_test_support::components::without_cargo_variables;
use tollgate_test_support::performance_chart::{self, Bar, PEERS_FILE, Peer};
use tollgate_test_support::xml::assert_well_formed;

/// Runs the wire bench of a make target, with these options for BENCH.
fn run(target: &str, options: &[&str]) {
    let makefile = std::fs::read_to_string("Makefile").unwrap();
    let (_, recipe) = makefile.split_once(&format!("\n{target}: ")).unwrap();
    let recipe = recipe.split("\n\n").next().unwrap();
    let wire: Vec<_> = recipe
        .lines()
        .filter_map(|line| line.split_once(" --bench wire -- "))
        .collect();
    let [(_, arguments)] = wire[..] else {
        panic!("{target} runs the wire bench once: {wire:?}");
    };
    let fixed = arguments.strip_suffix("$(BENCH)").unwrap();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap());
    command
        .args(["test", "--quiet", "--locked", "--bench", "wire", "--"])
        .args(fixed.split_whitespace())
        .args(options);
    let output = without_cargo_variables(&mut command).output().unwrap();
    assert!(output.status.success(), "{target}: {output:?}");
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_bench_commands_write_the_pages_and_charts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write_to = ["--quick", "--write-to", folder.to_str().unwrap()];

    run("bench", &[&write_to[..], &["--axis", "one-key"]].concat());
    let page = read(folder, "docs/performance.md");
    let bars: Vec<_> = page.lines().filter_map(Bar::read).collect();
    assert!(bars.len() >= 9, "{page}");
    let charts = performance_chart::axis_charts(&bars);
    assert_eq!(charts.len(), 1, "only one axis was measured");
    for (file, svg) in &charts {
        assert!(read(folder, file) == *svg, "{file} matches the page");
        assert!(page.contains(file.strip_prefix("docs/").unwrap()), "{page}");
    }

    run("bench-peers", &write_to);
    let (readme, page) = (
        read(folder, "README.md"),
        read(folder, "docs/performance.md"),
    );
    let peers = Peer::all(&readme);
    for server in [
        "envoyproxy/ratelimit, on Redis",
        "tollgate, on the same Redis",
        "tollgate, leased, on the same Redis",
        "tollgate, in memory",
    ] {
        assert!(peers.iter().any(|peer| peer.server == server), "{readme}");
    }
    let throttlecrab = peers
        .iter()
        .any(|peer| peer.server.contains("throttlecrab"));
    assert_ne!(
        throttlecrab,
        readme.contains("throttlecrab was not installed")
    );
    assert!(readme.contains(&format!("]({PEERS_FILE})")), "{readme}");
    assert!(readme.contains(" by `make bench-peers`: "), "{readme}");
    assert!(readme.lines().count() <= 150, "{readme}");
    assert!(page.contains("\n| tollgate, in memory | 200 | "), "{page}");
    let chart = read(folder, PEERS_FILE);
    assert!(chart == performance_chart::draw_peers(&peers), "{chart}");

    let files = charts.into_iter().map(|(file, _)| file);
    let paths: Vec<_> = files
        .chain([PEERS_FILE.to_owned()])
        .map(|file| folder.join(file))
        .collect();
    assert_well_formed(&paths);
}

/// `make bench-peers` builds the decision bench with `--locked`, in a package of its own.
#[test]
fn the_lock_file_of_the_decision_bench_has_every_dependency() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--locked", "--format-version=1"]);
    let output = without_cargo_variables(&mut command).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let lock = std::fs::read_to_string("benches/peers/Cargo.lock").unwrap();
    let of_the_service = |package: &&serde_json::Value| {
        let manifest = package["manifest_path"].as_str().unwrap();
        !manifest.contains("/tests/")
    };
    for package in packages.iter().filter(of_the_service) {
        let name = package["name"].as_str().unwrap();
        let begin = format!("name = \"{name}\"\n");
        let locked = lock
            .split("[[package]]\n")
            .find(|part| part.starts_with(&begin))
            .unwrap_or_else(|| panic!("benches/peers/Cargo.lock has no {name}"));
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies {
            if dependency["kind"] == "dev" || dependency["optional"] == true {
                continue;
            }
            let wanted = dependency["name"].as_str().unwrap();
            let with = [format!("\n \"{wanted}\""), format!("\n \"{wanted} ")];
            assert!(
                with.iter().any(|with| locked.contains(with)),
                "benches/peers/Cargo.lock: {name} lacks {wanted}; run `cargo update --workspace \
                 --manifest-path benches/peers/Cargo.toml`"
            );
        }
    }
}
