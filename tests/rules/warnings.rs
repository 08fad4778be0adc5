//! The page of rules lists every warning.
//!
//! What it deliberately does not do: show each warning (`broken/`, `cases/`). Which levels are
//! reached is compared with random descriptors in `tests/matching/shadowed.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn the_page_lists_every_warning_that_a_snapshot_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/rules.md")).unwrap();
    let (_, section) = page.split_once("## Warnings of check\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> = rows
        .map(|row| row.split('`').next().unwrap().to_owned())
        .collect();
    let snapshots = ["tests/rules/broken", "tests/rules/cases"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let texts = snapshots
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .map(|path| fs::read_to_string(path).unwrap());
    let shown: BTreeSet<_> = texts
        .flat_map(|text| {
            let after = text.split("warning[").skip(1);
            let codes = after.map(|after| after.split(']').next().unwrap().to_owned());
            codes.collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(listed, shown);
}
