//! Pictures of the algorithms, of measured figures, of tenants and of lease costs; `make pictures`
//! writes them and this test compares them. And the pages that show them.
//!
//! What it deliberately does not do: compare rendered images.

mod drawing;
mod lease_cost;
#[path = "../../crates/store/src/lease/leases.rs"]
#[allow(dead_code, unreachable_pub)] // the store uses the rest
mod leases;
mod overshoot;
mod page;
mod scene;
mod tenants;

use std::collections::BTreeMap;
use std::path::Path;

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::performance_chart::{self, Bar, PEERS_FILE, Peer};
use tollgate_test_support::xml::assert_well_formed;

use scene::Simulation;

const FOLDER: &str = "docs/pictures";

/// Every picture by the name of its file.
fn pictures() -> BTreeMap<String, String> {
    let simulations: Vec<_> = ALGORITHMS.iter().copied().map(Simulation::of).collect();
    let each = simulations.iter().map(|simulation| {
        (
            format!("{}.svg", simulation.algorithm.name()),
            drawing::picture(simulation),
        )
    });
    let all = ("algorithms.svg".to_owned(), drawing::overview(&simulations));
    let leases = (lease_cost::FILE.to_owned(), lease_cost::picture());
    let overshoot = (overshoot::FILE.to_owned(), overshoot::picture());
    let tenants = (tenants::FILE.to_owned(), tenants::picture());
    let peers = Peer::all(&std::fs::read_to_string("README.md").unwrap());
    let peers = (PEERS_FILE.to_owned(), performance_chart::draw_peers(&peers));
    let measured = performance_chart::axis_charts(&bars());
    let measured = measured.into_iter().chain([peers]).map(|(file, svg)| {
        let name = file.strip_prefix(FOLDER).unwrap().trim_start_matches('/');
        (name.to_owned(), svg)
    });
    each.chain([all, leases, overshoot, tenants])
        .chain(measured)
        .collect()
}

/// Figures of the table in `docs/performance.md`.
fn bars() -> Vec<Bar> {
    let page = std::fs::read_to_string("docs/performance.md").unwrap();
    page.lines().filter_map(Bar::read).collect()
}

#[test]
fn the_pictures_match_the_algorithms() {
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
fn the_measured_figures_match_their_page() {
    let page = std::fs::read_to_string("docs/performance.md").unwrap();
    let first = page.split("](pictures/").nth(1).unwrap();
    assert!(
        first.starts_with("peers.svg)"),
        "docs/performance.md opens with peers.svg"
    );
    let bars = bars();
    for (file, _) in performance_chart::axis_charts(&bars) {
        let link = format!("]({})", file.strip_prefix("docs/").unwrap());
        assert_eq!(
            page.matches(&link).count(),
            1,
            "docs/performance.md: {link}"
        );
    }
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
fn every_algorithm_has_exactly_one_picture() {
    let files = std::fs::read_dir(FOLDER).unwrap();
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    // Tests of these pages write and compare theirs.
    let others = ["live-", "on-call-", "replay-"];
    files.retain(|name| !others.iter().any(|other| name.starts_with(other)));
    files.sort_unstable();
    let expected: Vec<_> = pictures().into_keys().collect();
    assert_eq!(
        files, expected,
        "run `make pictures`; remove what is of none"
    );
}

#[test]
fn every_picture_is_small_well_formed_and_described() {
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
    assert_well_formed(&paths);
}

/// Leases never admit more than the limit, and unused hits are returned in time.
#[test]
fn lease_costs_match_the_page() {
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

/// The property that each picture shows. If this fails, review the pictures.
#[test]
fn the_pictures_distinguish_the_algorithms() {
    let simulations: Vec<_> = ALGORITHMS.iter().copied().map(Simulation::of).collect();
    for (name, expected) in [
        // 2N across a window start.
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
