//! The same windows out of Python: `twin.py` looks at the clocks of Python's zoneinfo, hour by hour.
//!
//! Why: our windows and the laws they are held to have their offsets from one crate. Python's come from another
//! reader and another package of the same facts. Years that are over: what governments will decide, releases may
//! disagree about.
//!
//! What it deliberately does not do: compare every zone. `laws` walks through all of them.

use std::path::Path;
use std::process::Command;

use tollgate::limiter::{Unit, Weekday};

use crate::days::spelled;
use crate::running::component;
use crate::{at, given, us};

#[test]
fn python_sees_the_same_windows() {
    let output = Command::new(component("venv/bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calendar/twin.py"))
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
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [unit, count, week_start, zone, second] = words[..] else {
            panic!("{line}");
        };
        let unit = Unit::named(unit).unwrap();
        let calendar = given(
            unit,
            count.parse().unwrap(),
            zone,
            Weekday::named(week_start),
        );
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
    assert!(compared > 100_000, "only {compared} compared");
}
