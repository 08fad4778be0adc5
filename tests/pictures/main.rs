//! A picture of every algorithm, made by the algorithm itself; `make pictures` writes them, here they must be the same. And
//! the pages they stand on. What was measured is drawn again from the table on its page. And what leases cost, played with the
//! real ones.
//!
//! What it deliberately does not do: compare what a renderer makes of them.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod drawing;
mod lease_cost;
#[path = "../../src/store/lease/leases.rs"]
#[allow(dead_code, unreachable_pub)] // the store uses the rest
mod leases;
mod page;
mod scene;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::components::component;
use tollgate_test_support::performance_chart::{self, Bar};

use scene::Simulation;

const FOLDER: &str = "docs/pictures";

/// Every picture there should be, by the name of its file.
fn pictures() -> BTreeMap<String, String> {
    let simulations: Vec<_> = ALGORITHMS.iter().copied().map(Simulation::of).collect();
    let each = simulations.iter().map(|simulation| {
        (
            format!("{}.svg", simulation.algorithm.name()),
            drawing::picture(simulation),
        )
    });
    let all = ("algorithms.svg".to_owned(), drawing::overview(&simulations));
    let measured = (
        "performance.svg".to_owned(),
        performance_chart::draw(&bars()),
    );
    let leases = (lease_cost::FILE.to_owned(), lease_cost::picture());
    each.chain([all, measured, leases]).collect()
}

/// What `docs/performance.md` shows in its table.
fn bars() -> Vec<Bar> {
    let page = std::fs::read_to_string("docs/performance.md").unwrap();
    page.lines().filter_map(Bar::read).collect()
}

#[test]
fn the_pictures_are_what_the_algorithms_do() {
    let folder = Path::new(FOLDER);
    let pictures = pictures();
    if std::env::var_os("WRITE_PICTURES").is_some() {
        std::fs::create_dir_all(folder).unwrap();
        for (name, svg) in &pictures {
            std::fs::write(folder.join(name), svg).unwrap();
        }
        return;
    }
    for (name, svg) in &pictures {
        let shown = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(shown == *svg, "{FOLDER}/{name}: run `make pictures`");
    }
}

#[test]
fn what_was_measured_is_on_its_page() {
    assert!(performance_chart::FILE.starts_with(FOLDER));
    let bars = bars();
    for axis in ["cores", "rules", "keys", "descriptors", "algorithm"] {
        let seen = bars.iter().filter(|bar| bar.axis == axis).count();
        assert!(seen > 1, "docs/performance.md: no figures for `{axis}`");
    }
    for algorithm in ALGORITHMS {
        let name = algorithm.name();
        let seen = bars.iter().any(|bar| bar.what == name);
        assert!(seen, "docs/performance.md: no figure for `{name}`");
    }
}

#[test]
fn there_is_a_picture_of_every_algorithm_and_no_other() {
    let files = std::fs::read_dir(FOLDER).unwrap();
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort_unstable();
    let expected: Vec<_> = pictures().into_keys().collect();
    assert_eq!(
        files, expected,
        "run `make pictures`; remove what is of none"
    );
}

#[test]
fn every_picture_is_small_well_formed_and_says_in_words_what_it_shows() {
    let parse = "import sys, xml.dom.minidom as dom\nfor path in sys.argv[1:]: dom.parse(path)";
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (name, svg) in pictures() {
        assert!(svg.len() < 30_000, "{name}: {} bytes", svg.len());
        for word in ["<title", "<desc", "prefers-color-scheme: dark"] {
            assert!(svg.contains(word), "{name}: wants {word}");
        }
        for word in ["<script", "href", "url(", "@import"] {
            assert!(!svg.contains(word), "{name}: must not have {word}");
        }
        let path = folder.path().join(name);
        std::fs::write(&path, svg).unwrap();
        paths.push(path);
    }
    let output = Command::new(component("venv/bin/python"))
        .args(["-c", parse])
        .args(paths)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Whatever a replica holds, no more is admitted than the limit; and what is held is asked for again in time.
#[test]
fn leases_cost_what_the_page_says() {
    let page = std::fs::read_to_string(lease_cost::PAGE).unwrap();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = lease_cost::sentence();
    assert!(
        words.contains(&sentence),
        "{}: wants: {sentence}",
        lease_cost::PAGE
    );
    assert!(page.contains(&format!("](pictures/{})", lease_cost::FILE)));
    for age_ms in [500, 2_000, 5_000] {
        for rate in [10, 1_000] {
            let minute = lease_cost::mean(rate, age_ms);
            assert_eq!(minute.admitted, rate * 30, "{minute:?}");
            assert!(minute.late_ms <= age_ms, "{age_ms}: {minute:?}");
            assert!(minute.held < 200, "{age_ms}: {minute:?}");
        }
    }
}

/// What each is there to show. If this fails, look at the pictures again.
#[test]
fn the_pictures_tell_the_algorithms_apart() {
    let simulations: Vec<_> = ALGORITHMS.iter().copied().map(Simulation::of).collect();
    for (name, expected) in [
        // 2N across an edge.
        ("fixed_window", 20),
        // N, exactly.
        ("sliding_log", 10),
        ("leaky_bucket", 10),
    ] {
        let simulation = simulations
            .iter()
            .find(|simulation| simulation.algorithm.name() == name);
        assert_eq!(simulation.unwrap().busiest().admitted, expected, "{name}");
    }
    let mut told: BTreeMap<Vec<bool>, &str> = BTreeMap::new();
    for simulation in &simulations {
        let admitted = simulation.arrivals.iter().map(|one| one.admitted).collect();
        let name = simulation.algorithm.name();
        let other = told.insert(admitted, name);
        assert_eq!(other, None, "the scene does not tell {name} from it");
    }
}
