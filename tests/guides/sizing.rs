//! `docs/guides/sizing.md`: its figures match the measured pages, its sums are correct, and its
//! scaler uses an existing metric.

use serde_json::Value;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::exposed_metrics::unknown;
use crate::guides::guide::{Page, read, yaml};

/// Rows of the table whose head begins with these cells.
fn rows<'t>(text: &'t str, head: &str) -> Vec<Vec<&'t str>> {
    let (_, table) = text
        .split_once(head)
        .unwrap_or_else(|| panic!("no table {head}"));
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// A number as pages write it: with commas and a unit.
fn number(text: &str) -> f64 {
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
        .collect();
    digits
        .replace(',', "")
        .parse()
        .unwrap_or_else(|_| panic!("no number: {text}"))
}

/// A cell of the row that begins with these cells.
fn cell(page: &str, cells: &[&str], at: usize) -> String {
    let page = read(page);
    let mut found = page.lines().filter_map(|line| {
        let row: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        (row.len() > at && cells.iter().zip(&row).all(|(wanted, is)| wanted == is))
            .then(|| row[at].to_owned())
    });
    found.next().unwrap_or_else(|| panic!("no row {cells:?}"))
}

/// The measured figure, without its range.
fn measured(axis: &str, what: &str) -> String {
    let cell = cell("docs/performance.md", &[axis, what, "tollgate"], 3);
    cell.split(' ').next().unwrap().to_owned()
}

/// Redis's CPU time and round trips for a mode and number of keys.
fn shared(what: &str, keys: &str) -> [String; 2] {
    let at = |at: usize| {
        let cell = cell("docs/shared-limits.md", &[what, keys], at);
        cell.split(' ').next().unwrap().to_owned()
    };
    [at(4), at(5)]
}

#[test]
fn the_figures_match_the_measured_ones() {
    let guide = Page::guide("sizing.md");
    let said: Vec<_> = rows(guide.text(), "| load |")
        .iter()
        .map(|row| row[1].to_owned())
        .collect();
    let measured = [
        measured("one-key", "2 × 100 streams"),
        measured("spread", "2 × 100 streams"),
        measured("spread", "8 × 8 streams"),
        measured("spread", "2 × 1 streams"),
    ];
    assert_eq!(said, measured);

    let redis: Vec<_> = rows(guide.text(), "| mode |")
        .iter()
        .map(|row| [row[1].to_owned(), row[2].to_owned()])
        .collect();
    let expected = [
        shared("exact: the service", "1,000"),
        shared("leased: the service", "1,000"),
        shared("leased: the service", "1"),
    ];
    assert_eq!(redis, expected);

    for row in rows(guide.text(), "| keys | bytes a key") {
        let resident = cell("docs/operating.md", &[row[0]], 1);
        assert_eq!(resident, format!("{} bytes a key", row[1]));
    }

    // Figures of the percentiles.
    for (share, said) in [("25 %", "0.2 ms"), ("50 %", "0.4 ms")] {
        let p99_us = number(&cell("docs/performance.md", &["tollgate", share], 4));
        let ms = if p99_us < 10_000.0 {
            format!("{:.1} ms", p99_us / 1e3)
        } else {
            format!("{:.0} ms", p99_us / 1e3)
        };
        assert_eq!(ms, said, "at {share}");
        assert!(guide.text().contains(said), "at {share} it is {ms}");
    }
    let most = 1_000_000.0 / number(&expected[0][0]);
    let said = format!("{:.0},000 checks a second", (most / 1e3).floor());
    assert!(guide.text().contains(&said), "{said}");
}

#[test]
fn the_sums_of_the_example_are_correct() {
    let guide = Page::guide("sizing.md");
    let rows = rows(guide.text(), "| what | arithmetic |");
    assert_eq!(rows.len(), 8);
    for row in rows {
        let (left, right) = row[1].split_once(" × ").unwrap();
        let product = number(left) * number(right);
        let said = number(row[2]);
        let (product, digits) = if row[2].ends_with("cores") {
            (product / 1e6, 0.01)
        } else if row[2].ends_with("MB") && row[1].ends_with("bytes") {
            (product / 1e6, 1.0)
        } else {
            (product, 1.0)
        };
        assert!(
            (product - said).abs() <= digits / 2.0 + 1e-9,
            "{row:?}: {product}"
        );
    }
    // The factors match the tables.
    for figure in [
        "3.32 µs",
        "28.40 µs",
        "56.5 bytes",
        "3.02 µs",
        "0.62 µs",
        "210 bytes",
    ] {
        assert!(
            guide
                .text()
                .matches(figure.split(' ').next().unwrap())
                .count()
                > 1,
            "{figure}"
        );
    }
}

#[test]
fn memory_of_a_redis_bucket_matches_the_page() {
    const KEYS: u64 = 20_000;
    let guide = Page::guide("sizing.md");
    let (_, said) = guide.text().split_once("**Memory**: some ").unwrap();
    let said = number(said);
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let rules =
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: year, requests_per_unit: 100 }\n";
    let tollgate = Tollgate::start(rules, &["--store", &url, "--store-deadline-ms", "5000"]);
    until("the store is up", || {
        let is_up = tollgate.metric("tollgate_store_up") == 1;
        is_up.then_some(()).ok_or_else(|| tollgate.said())
    });
    let used = || -> u64 {
        let info: String = redis.say(&["INFO", "memory"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = used();
    for from in (0..KEYS).step_by(100) {
        let descriptors: Vec<_> = (from..from + 100)
            .map(|key| format!(r#"{{"entries":[{{"key":"k","value":"{key}"}}]}}"#))
            .collect();
        let body = format!(
            r#"{{"domain":"d","descriptors":[{}]}}"#,
            descriptors.join(",")
        );
        assert_eq!(http(tollgate.http, "POST", "/json", &body).0, 200);
    }
    let buckets: u64 = redis.say(&["DBSIZE"]);
    assert!(buckets >= KEYS, "{buckets}");
    #[allow(clippy::cast_precision_loss)] // thousands
    let each = (used() - before) as f64 / KEYS as f64;
    println!("{each:.0} bytes a bucket");
    assert!(
        (each / said - 1.0).abs() < 0.15,
        "{each} bytes a bucket, and the page says {said}"
    );
}

#[test]
fn the_scaler_uses_an_existing_metric() {
    let guide = Page::guide("sizing.md");
    let [adapter, scaler] = &guide.under("A scaler", "yaml")[..] else {
        panic!("two snippets")
    };
    let (adapter, scaler) = (&yaml(adapter)[0], &yaml(scaler)[0]);
    let rule = &adapter["rules"][0];
    let query = rule["metricsQuery"].as_str().unwrap();
    let query = query
        .replace("<<.GroupBy>>", "job")
        .replace("{<<.LabelMatchers>>}", "");
    assert_eq!(unknown(&query), [""; 0]);
    assert_eq!(
        rule["name"]["as"],
        scaler["metrics"][0]["pods"]["metric"]["name"]
    );
    let target = &scaler["metrics"][0]["pods"]["target"];
    assert_eq!(target["averageValue"], Value::from("30000"));
    assert!(
        guide
            .text()
            .contains("\n30,000 a second are a quarter of a core at 8 µs")
    );
}
