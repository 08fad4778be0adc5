//! Changes of rules files: [`RulesWatcher::poll`], called by the test as often as it needs.
//!
//! A change is read once two polls in a row agree; files that were read are not read again. Only
//! the test acts between two polls, so nothing depends on time. (A test that writes twice within
//! one tick of the file system's clock writes another length, which every file system shows.)
//!
//! What it deliberately does not do: run a service (`tests/service/reloading.rs`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use tollgate::rules::file::{Code, Options};
use tollgate::rules::path::RulesPath;
use tollgate::rules::reload::{LoadError, RulesUpdate, RulesWatcher, load};

use tollgate_limiter::Allowance;

use crate::rules::reading::APART;

/// A directory with `rules.yaml`, and its watcher after the first read.
fn start(text: &str) -> (TempDir, RulesWatcher) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), text).unwrap();
    let reload = watching(directory.path());
    (directory, reload)
}

/// A watcher of a path that has been read.
fn watching(path: &Path) -> RulesWatcher {
    let mut reload = RulesWatcher::new(RulesPath::Path(path.to_path_buf()), APART);
    domains(reload.read().unwrap());
    reload
}

/// The domains of the rules of an update.
fn domains(change: RulesUpdate) -> Vec<String> {
    change
        .unwrap_or_else(|error| panic!("{error}"))
        .loaded
        .rules
        .domains()
}

/// Polls until there is an update, at most `count` times.
fn polls(reload: &mut RulesWatcher, count: usize) -> Option<RulesUpdate> {
    (0..count).find_map(|_| reload.poll())
}

/// The second poll from now gives an update, and further polls give none.
fn changed(reload: &mut RulesWatcher) -> RulesUpdate {
    assert!(reload.poll().is_none(), "one poll is not enough");
    let change = reload.poll().expect("two polls agree");
    assert!(polls(reload, 5).is_none(), "it was reported already");
    change
}

#[test]
fn the_first_poll_of_an_unread_path_is_a_change() {
    let (directory, _) = start("domain: a\n");
    let mut reload = RulesWatcher::new(RulesPath::Path(directory.path().to_path_buf()), APART);
    assert_eq!(domains(changed(&mut reload)), ["a"]);
}

#[test]
fn nothing_changes_by_itself() {
    let (_directory, mut reload) = start("domain: a\n");
    assert!(polls(&mut reload, 10).is_none());
}

#[test]
fn a_write_in_place_is_seen() {
    let (directory, mut reload) = start("domain: a\n");
    fs::write(directory.path().join("rules.yaml"), "domain: other\n").unwrap();
    assert_eq!(domains(changed(&mut reload)), ["other"]);
}

#[test]
fn a_rename_over_the_file_is_seen_though_length_and_times_are_the_same() {
    let (directory, mut reload) = start("domain: a\n");
    let (old, new) = (
        directory.path().join("rules.yaml"),
        directory.path().join(".new"),
    );
    fs::write(&new, "domain: b\n").unwrap();
    let times = fs::metadata(&old).unwrap().modified().unwrap();
    fs::File::options()
        .write(true)
        .open(&new)
        .unwrap()
        .set_modified(times)
        .unwrap();
    fs::rename(&new, &old).unwrap();
    assert_eq!(domains(changed(&mut reload)), ["b"]);
}

#[test]
fn a_file_that_is_still_being_written_is_not_read() {
    let (directory, mut reload) = start("domain: a\n");
    let rules = directory.path().join("rules.yaml");
    for half in ["dom", "domain: [", "domain: half", "domain: half of"] {
        fs::write(&rules, half).unwrap();
        assert!(reload.poll().is_none(), "{half}");
    }
    assert_eq!(
        domains(reload.poll().expect("the file is complete")),
        ["half of"]
    );
}

#[test]
fn a_configmap_that_swaps_its_link_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let moment = |name: &str, text: &str| {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("rules.yaml"), text).unwrap();
    };
    moment("..1", "domain: a\n");
    symlink("..1", root.join("..data")).unwrap();
    symlink("..data/rules.yaml", root.join("rules.yaml")).unwrap();
    let mut of_directory = watching(root);
    let mut of_file = watching(&root.join("rules.yaml"));
    // Like kubelet: a new data directory, a new link renamed over ..data, the old directory
    // removed.
    moment("..2", "domain: b\n");
    symlink("..2", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    fs::remove_dir_all(root.join("..1")).unwrap();
    assert_eq!(domains(changed(&mut of_directory)), ["b"]);
    assert_eq!(domains(changed(&mut of_file)), ["b"]);
}

#[test]
fn a_link_above_the_root_that_is_swapped_is_seen() {
    // The reference watches this link with RUNTIME_WATCH_ROOT=true.
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for (release, domain) in [("one", "a"), ("two", "b")] {
        fs::create_dir_all(root.join(release).join("config")).unwrap();
        fs::write(
            root.join(release).join("config/rules.yaml"),
            format!("domain: {domain}\n"),
        )
        .unwrap();
    }
    symlink("one", root.join("current")).unwrap();
    let path = RulesPath::Runtime {
        directory: root.join("current"),
        app_directory: "config".to_owned(),
        ignore_dot_files: true,
    };
    let mut reload = RulesWatcher::new(path, APART);
    assert_eq!(domains(reload.read().unwrap()), ["a"]);
    symlink("two", root.join("next")).unwrap();
    fs::rename(root.join("next"), root.join("current")).unwrap();
    assert_eq!(domains(changed(&mut reload)), ["b"]);
}

#[test]
fn an_emptied_runtime_root_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("config");
    fs::create_dir(&root).unwrap();
    fs::write(
        root.join("rules.yaml"),
        "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    )
    .unwrap();
    let path = RulesPath::Runtime {
        directory: directory.path().to_owned(),
        app_directory: "config".to_owned(),
        ignore_dot_files: true,
    };
    let mut reload = RulesWatcher::new(path, APART);
    let codes = |rules: RulesUpdate| -> Vec<_> {
        let warnings = rules.unwrap().loaded.warnings;
        warnings.iter().map(|warning| warning.code).collect()
    };
    assert_eq!(codes(reload.read().unwrap()), []);
    fs::remove_file(root.join("rules.yaml")).unwrap();
    assert_eq!(codes(changed(&mut reload)), [Code::NoFiles]);
}

#[test]
fn an_added_or_removed_file_is_seen() {
    let (directory, mut reload) = start("domain: a\n");
    fs::create_dir(directory.path().join("more")).unwrap();
    assert!(
        polls(&mut reload, 5).is_none(),
        "an empty directory holds no rules"
    );
    fs::write(directory.path().join("more/b.yaml"), "domain: b\n").unwrap();
    assert_eq!(domains(changed(&mut reload)), ["a", "b"]);
    fs::remove_file(directory.path().join("rules.yaml")).unwrap();
    assert_eq!(domains(changed(&mut reload)), ["b"]);
}

#[test]
fn temporary_files_of_editors_are_no_change() {
    let (directory, mut reload) = start("domain: a\n");
    for name in [".rules.yaml.swp", "rules.yaml~", "#rules.yaml#"] {
        fs::write(directory.path().join(name), "anything").unwrap();
    }
    assert!(polls(&mut reload, 5).is_none());
}

#[test]
fn files_that_cannot_be_read_are_refused_once() {
    let (directory, mut reload) = start("domain: a\n");
    fs::write(directory.path().join("binary"), [0xff]).unwrap();
    let Err(LoadError::Read(error)) = changed(&mut reload) else {
        panic!("the file is not UTF-8")
    };
    assert!(
        error
            .to_string()
            .ends_with("binary:1:1: not UTF-8 text; is this a rules file?"),
        "{error}"
    );
    fs::remove_dir_all(directory.path()).unwrap();
    let gone = changed(&mut reload).unwrap_err().to_string();
    assert!(
        gone.ends_with("No such file or directory (os error 2)"),
        "{gone}"
    );
    fs::create_dir(directory.path()).unwrap();
    let empty = changed(&mut reload).unwrap_err().to_string();
    assert!(empty.contains("no rules file in this directory"), "{empty}");
    fs::write(directory.path().join("again.yaml"), "domain: again\n").unwrap();
    assert_eq!(domains(changed(&mut reload)), ["again"]);
}

#[test]
fn invalid_rules_are_rejected_once_with_every_problem_and_valid_ones_accepted_again() {
    let (directory, mut reload) = start("domain: a\n");
    let rules = directory.path().join("rules.yaml");
    fs::write(&rules, "domain: b\nnonsense: 1\nmore: 2\n").unwrap();
    let Err(LoadError::Diagnostics(problems)) = changed(&mut reload) else {
        panic!("the rules have problems")
    };
    assert_eq!(problems.errors.len(), 2);
    fs::write(&rules, "domain: good\n").unwrap();
    assert_eq!(domains(changed(&mut reload)), ["good"]);
    // The same bytes in another file are an update.
    fs::remove_file(&rules).unwrap();
    assert!(changed(&mut reload).is_err());
    fs::write(&rules, "domain: good\n").unwrap();
    assert_eq!(domains(changed(&mut reload)), ["good"]);
}

#[test]
fn an_explicit_read_does_not_wait_for_a_second_poll() {
    let (directory, mut reload) = start("domain: a\n");
    fs::write(directory.path().join("rules.yaml"), "domain: now\n").unwrap();
    assert_eq!(domains(reload.read().unwrap()), ["now"]);
    assert!(polls(&mut reload, 5).is_none());
    assert_eq!(domains(reload.read().unwrap()), ["now"], "an explicit read");
}

/// The hash of a directory of these files.
fn hash(files: &[(&str, &str)]) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let path = RulesPath::Path(directory.path().to_path_buf());
    load(&path, APART)
        .unwrap_or_else(|error| panic!("{error}"))
        .hash
}

#[test]
fn the_hash_depends_only_on_the_texts_in_path_order() {
    let one = hash(&[("a", "domain: a\n"), ("b", "domain: b\n")]);
    assert_eq!(hash(&[("a", "domain: a\n"), ("b", "domain: b\n")]), one);
    assert_eq!(hash(&[("x", "domain: a\n"), ("y", "domain: b\n")]), one);
    for other in [
        &[("a", "domain: a\n"), ("b", "domain: c\n")][..],
        &[("a", "domain: b\n"), ("b", "domain: a\n")], // the other way round
        &[("a", "domain: a\n"), ("b", "domain: b\n# \n")],
        &[("a", "domain: a\n")],
        &[
            ("a", "domain: a\n"),
            ("b", "domain: b\n"),
            ("c", "domain: c\n"),
        ],
    ] {
        assert_ne!(hash(other), one, "{other:?}");
    }
    assert!(one < 1 << 48, "a metric holds it exactly");
}

/// A directory with rules and an overlay, and a watcher of both after the first read.
fn start_with_overlay(text: &str) -> (TempDir, RulesWatcher) {
    let directory = tempfile::tempdir().unwrap();
    let [rules, overlay] = ["rules.yaml", "overlay.yml"].map(|name| directory.path().join(name));
    fs::write(&rules, RULES_TO_OVERLAY).unwrap();
    fs::write(&overlay, text).unwrap();
    let options = Options {
        overlay: Some(overlay),
        ..APART
    };
    let mut reload = RulesWatcher::new(RulesPath::Path(rules), options);
    assert_eq!(algorithm(reload.read().unwrap()), "token_bucket");
    (directory, reload)
}

const RULES_TO_OVERLAY: &str =
    "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 9}}]\n";

/// The algorithm of the first rule.
fn algorithm(change: RulesUpdate) -> &'static str {
    let rules = change
        .unwrap_or_else(|error| panic!("{error}"))
        .loaded
        .rules;
    match rules.rules()[0].allowance {
        Allowance::Limited { algorithm, .. } => algorithm.name(),
        Allowance::Unlimited => panic!("no limit"),
    }
}

#[test]
fn a_change_of_the_overlay_is_seen_and_a_bad_one_is_refused_once() {
    let (directory, mut reload) =
        start_with_overlay("overlay: [{domain: d, algorithm: gcra, may_raise: true}]\n");
    let overlay = directory.path().join("overlay.yml");
    assert!(polls(&mut reload, 5).is_none());
    fs::write(
        &overlay,
        "overlay: [{domain: d, algorithm: leaky_bucket, may_raise: true}]\n",
    )
    .unwrap();
    assert_eq!(algorithm(changed(&mut reload)), "leaky_bucket");
    fs::write(&overlay, "overlay: [{domain: d, burst: 3}]\n").unwrap();
    let error = changed(&mut reload).unwrap_err();
    assert!(error.is_of_the_overlay(), "{error}");
    assert!(error.to_string().contains("has no burst"), "{error}");
    assert!(polls(&mut reload, 5).is_none());
    // The rules may become such that the overlay fits.
    let bucket = RULES_TO_OVERLAY.replace("9}", "9, algorithm: gcra}");
    fs::write(directory.path().join("rules.yaml"), bucket).unwrap();
    assert_eq!(algorithm(changed(&mut reload)), "token_bucket");
    fs::remove_file(&overlay).unwrap();
    let error = changed(&mut reload).unwrap_err();
    assert!(error.is_of_the_overlay(), "{error}");
    assert!(error.to_string().contains("overlay.yml"), "{error}");
    assert!(polls(&mut reload, 5).is_none());
    fs::write(&overlay, "overlay: [{domain: d, burst: 3}]\n").unwrap();
    assert_eq!(algorithm(changed(&mut reload)), "token_bucket");
}
