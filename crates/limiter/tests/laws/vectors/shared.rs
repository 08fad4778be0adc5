//! Shared thresholds: all values that match a pattern count in one bucket if the level sets it, and
//! otherwise in one bucket each.
//!
//! How: the reference service's three vectors. Its keys hold the pattern in place of the value
//! where it is shared: `files_files/*`, `parent_value1_files_nested/*`,
//! `files_top/*_files_nested/*`.
//!
//! What it deliberately does not do: labels of metrics.

use std::sync::Arc;

use tollgate_limiter::{Key, Level, Plan, Rule, Unit};

use tollgate_test_model::fixtures::{Path, Tree, TwoHashes, limited, request, take};

/// A tree of one rule, whose path is shared at the levels with a `true`.
fn tree(levels: &[(&str, &str, bool)]) -> Tree {
    let path: Vec<(&str, &str)> = levels.iter().map(|one| (one.0, one.1)).collect();
    let levels = levels.iter().map(|&(key, value, share_threshold)| {
        Arc::new(Level {
            share_threshold,
            ..Level::new(key, value)
        })
    });
    let rule = Rule {
        path: levels.collect(),
        ..limited(10, Unit::Second)
    };
    Tree::new().with(&path, rule)
}

fn key(tree: &Tree, path: Path<'_>) -> Key {
    let asked = [take(path, 1)];
    let request = request(&asked);
    Plan::new(&tree.rules, &request, &TwoHashes).checks()[0].key
}

#[test]
fn values_of_a_shared_pattern_are_one_bucket() {
    let tree = tree(&[("files", "files/*", true)]);
    let a = key(&tree, &[("files", "files/a.pdf")]);
    assert_eq!(a, key(&tree, &[("files", "files/b.csv")]));
    assert_eq!(a, key(&tree, &[("files", "files/")]));
    assert_eq!(a, key(&tree, &[("files", "files/*")])); // the pattern's own text, an exact match
}

#[test]
fn values_of_a_pattern_that_is_not_shared_are_a_bucket_each() {
    let tree = tree(&[("files", "files/*", false)]);
    let a = key(&tree, &[("files", "files/a.pdf")]);
    assert_ne!(a, key(&tree, &[("files", "files/b.csv")]));
    assert_ne!(a, key(&tree, &[("files", "files/*")]));
}

#[test]
fn only_the_level_with_share_threshold_is_shared() {
    let tree = tree(&[("parent", "", false), ("files", "nested/*", true)]);
    let of = |parent, file| key(&tree, &[("parent", parent), ("files", file)]);
    assert_eq!(of("value1", "nested/a"), of("value1", "nested/b"));
    assert_ne!(of("value1", "nested/a"), of("value2", "nested/a"));
}

#[test]
fn two_levels_may_be_shared() {
    let both = tree(&[("files", "top/*", true), ("files", "nested/*", true)]);
    let of = |tree: &Tree, top, nested| key(tree, &[("files", top), ("files", nested)]);
    assert_eq!(
        of(&both, "top/a", "nested/a"),
        of(&both, "top/b", "nested/b")
    );

    let first = tree(&[("files", "top/*", true), ("files", "nested/*", false)]);
    assert_eq!(
        of(&first, "top/a", "nested/a"),
        of(&first, "top/b", "nested/a")
    );
    assert_ne!(
        of(&first, "top/a", "nested/a"),
        of(&first, "top/a", "nested/b")
    );
}
