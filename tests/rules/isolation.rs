//! Files of several domains of which one is bad: what is loaded, and what is said.
//!
//! What it deliberately does not do: show it to readers (`tests/service/reloading.rs`), or send
//! resources of an xDS server (`tests/gateway`).

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tollgate::rules::file::{LimitFiles, Options};
use tollgate::rules::path::RulesPath;
use tollgate::rules::reload::{LoadError, RulesUpdate, RulesWatcher};
use tollgate_limiter::{Allowance, Match};

/// A folder of rules, and its watcher.
struct Folder {
    directory: TempDir,
    watcher: RulesWatcher,
}

impl Folder {
    /// A folder with these files, which has been read.
    fn with(files: &[(&str, &str)]) -> (Self, RulesUpdate) {
        Self::overlaid(None, files)
    }

    /// A folder with these files, whose rules an overlay changes.
    fn overlaid(overlay: Option<&Path>, files: &[(&str, &str)]) -> (Self, RulesUpdate) {
        let directory = tempfile::tempdir().unwrap();
        let path = RulesPath::Path(directory.path().to_owned());
        let options = Options {
            merge_domains: true,
            limit_files: Some(LimitFiles::default()),
            isolate_domains: true,
            overlay: overlay.map(Path::to_owned),
        };
        let watcher = RulesWatcher::new(path, options);
        let mut folder = Self { directory, watcher };
        let first = folder.update(files);
        (folder, first)
    }

    /// Writes these files and reads all.
    fn update(&mut self, files: &[(&str, &str)]) -> RulesUpdate {
        for (name, text) in files {
            fs::write(self.directory.path().join(name), text).unwrap();
        }
        self.watcher.read().expect("the files are stable")
    }
}

/// The limits in use by their names, and what is said of domains that are refused.
fn seen(update: RulesUpdate) -> (Vec<String>, Vec<(String, bool)>) {
    let loaded = update.unwrap_or_else(|error| panic!("{error}")).loaded;
    let rules = loaded.rules.rules().iter();
    let limits = rules.map(|rule| match rule.allowance {
        Allowance::Limited { limit, .. } => format!("{} {}", rule.full_name(), limit.requests()),
        Allowance::Unlimited => rule.full_name(),
    });
    let refused = loaded.refused_domains.into_iter();
    let refused = refused.map(|one| (one.name, one.is_kept));
    (limits.collect(), refused.collect())
}

/// A file of a domain with one limit.
fn one(domain: &str, key: &str, requests: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors: [{{key: {key}, rate_limit: {{unit: day, requests_per_unit: {requests}}}}}]\n"
    )
}

#[test]
fn all_files_of_a_bad_domain_stay_and_those_of_others_change() {
    let (mut folder, first) = Folder::with(&[
        ("a.yaml", &one("a", "k", 1)),
        ("b1.yaml", &one("b", "k", 1)),
        ("b2.yaml", &one("b", "l", 1)),
    ]);
    assert_eq!(seen(first).1, []);
    let bad = [
        ("a.yaml", &*one("a", "k", 2)),
        ("b1.yaml", &one("b", "k", 2)),
        ("b2.yaml", "domain: b\nnonsense: 1\n"),
    ];
    let (limits, refused) = seen(folder.update(&bad));
    assert_eq!(limits, ["a.k 2", "b.k 1", "b.l 1"]);
    assert_eq!(refused, [("b".to_owned(), true)]);
    // A second change of the good one, and then of the bad one, which is good again.
    let (limits, refused) = seen(folder.update(&[("a.yaml", &one("a", "k", 3))]));
    assert_eq!(limits, ["a.k 3", "b.k 1", "b.l 1"]);
    assert_eq!(refused.len(), 1);
    let (limits, refused) = seen(folder.update(&[("b2.yaml", &one("b", "l", 3))]));
    assert_eq!(limits, ["a.k 3", "b.k 2", "b.l 3"]);
    assert_eq!(refused, []);
}

#[test]
fn a_domain_that_was_never_good_is_left_out() {
    let bad = "domain: b\nnonsense: 1\n";
    let (mut folder, first) = Folder::with(&[("a.yaml", &one("a", "k", 1)), ("b.yaml", bad)]);
    let (limits, refused) = seen(first);
    assert_eq!(limits, ["a.k 1"]);
    assert_eq!(refused, [("b".to_owned(), false)]);
    // Nothing is in use that was not before, so all of it is refused, as with one domain.
    for (files, kept) in [
        (
            vec![("b.yaml", "domain: b\nother: 1\n")],
            vec![("b", false)],
        ),
        (
            vec![("a.yaml", "domain: a\nother: 1\n")],
            vec![("a", true), ("b", false)],
        ),
    ] {
        let Err(LoadError::Diagnostics(report)) = folder.update(&files) else {
            panic!("{files:?} changed something");
        };
        let refused = report.refused_domains.iter();
        let refused: Vec<_> = refused.map(|one| (&*one.name, one.is_kept)).collect();
        assert_eq!(refused, kept);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_of_the_domain_that_it_names_or_had() {
    let files = [
        ("a.yaml", &*one("a", "k", 1)),
        ("b.yaml", &one("b", "k", 1)),
    ];
    for broken in ["domain: \"b\" # {\ndescriptors: [\n", "descriptors: [\n"] {
        let (mut folder, _) = Folder::with(&files);
        let update = folder.update(&[("a.yaml", &one("a", "k", 2)), ("b.yaml", broken)]);
        let (limits, refused) = seen(update);
        assert_eq!(limits, ["a.k 2", "b.k 1"]);
        assert_eq!(refused, [("b".to_owned(), true)], "{broken}");
    }
}

#[test]
fn a_broken_file_of_plans_keeps_its_plans() {
    let plans = "plans: {free: {unit: day, requests_per_unit: 5}}\n";
    let user = |key: &str| format!("domain: {key}\ndescriptors: [{{key: {key}, plan: free}}]\n");
    let (mut folder, _) = Folder::with(&[("a.yaml", &user("a")), ("plans.yaml", plans)]);
    let update = folder.update(&[("a.yaml", &user("b")), ("plans.yaml", "plans: [\n")]);
    let (limits, refused) = seen(update);
    assert_eq!(limits, ["b.b 5"]);
    assert_eq!((refused.len(), refused[0].1), (1, true));
    assert!(refused[0].0.ends_with("plans.yaml"), "{refused:?}");
    // A plan that is gone is needed by the last good rules, too: then nothing changes.
    let gone = "plans: {other: {unit: day, requests_per_unit: 5}}\n";
    let update = folder.update(&[("c.yaml", &one("c", "k", 1)), ("plans.yaml", gone)]);
    assert!(matches!(update, Err(LoadError::Diagnostics(_))));
}

#[test]
fn a_bad_domain_keeps_its_limits_by_value() {
    let table = |requests: u32| format!("value,unit,requests_per_unit\nx,day,{requests}\n");
    let rules = "domain: b\ndescriptors: [{key: k, limits_from: b.csv}]\n";
    let files = [
        ("a.yaml", &*one("a", "k", 1)),
        ("b.csv", &table(1)),
        ("b.yaml", rules),
    ];
    let (mut folder, _) = Folder::with(&files);
    let of_x = |update: RulesUpdate| {
        let loaded = update.unwrap_or_else(|error| panic!("{error}")).loaded;
        let entry = tollgate_limiter::Entry {
            key: b"k",
            value: b"x",
        };
        let Match::Rules(matched) = loaded.rules.find(b"b", &[entry]) else {
            panic!("no rule");
        };
        let applied = matched.as_applied();
        let Allowance::Limited { limit, .. } = applied[0].allowance else {
            panic!("no limit");
        };
        (limit.requests(), loaded.refused_domains.len())
    };
    let steps = [
        // A bad line, and a good table beside bad rules.
        (vec![("b.csv", table(0).replace('0', "many"))], (1, 1)),
        (
            vec![
                ("b.csv", table(2)),
                ("b.yaml", format!("{rules}nonsense: 1\n")),
            ],
            (1, 1),
        ),
        (vec![("b.yaml", rules.to_owned())], (2, 0)),
    ];
    for (number, (files, expected)) in (10..).zip(steps) {
        let mut files: Vec<_> = files.iter().map(|(name, text)| (*name, &**text)).collect();
        let a = one("a", "k", number);
        files.push(("a.yaml", &a));
        assert_eq!(of_x(folder.update(&files)), expected);
    }
}

#[test]
fn a_bad_domain_and_a_bad_overlay_are_both_said_and_the_good_one_waits() {
    let overlay = tempfile::NamedTempFile::new().unwrap();
    let write = |burst: u32| {
        let entry =
            "overlay: [{domain: a, path: [{key: k}], algorithm: token_bucket, charged: afterwards";
        fs::write(overlay.path(), format!("{entry}, burst: {burst}}}]\n")).unwrap();
    };
    write(2);
    let (mut folder, first) = Folder::overlaid(
        Some(overlay.path()),
        &[("a.yaml", &one("a", "k", 2)), ("b.yaml", &one("b", "k", 1))],
    );
    assert_eq!(seen(first).1, []);
    write(9);
    let bad = [
        ("a.yaml", &*one("a", "k", 3)),
        ("b.yaml", "domain: b\nnonsense: 1\n"),
    ];
    let error = folder.update(&bad).unwrap_err();
    assert!(!error.is_of_the_overlay() && error.waits_for_the_overlay());
    let text = error.to_string();
    for part in ["nonsense", "burst 9 is above"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(error.refused_domains()[0].name, "b");
    // With another overlay the good one is in use.
    write(3);
    let (limits, refused) = seen(folder.update(&[]));
    assert_eq!(limits, ["a.k 3", "b.k 1"]);
    assert_eq!(refused, [("b".to_owned(), true)]);
}
