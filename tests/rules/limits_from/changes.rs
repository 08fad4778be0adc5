//! Changes of files of limits, seen by polls. Only the test acts between two polls.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use tollgate::rules::file::LimitFiles;
use tollgate::rules::path::RulesPath;
use tollgate::rules::reload::{LoadError, Rules, RulesUpdate, RulesWatcher};
use tollgate_limiter::{LimitTable, TableDifference};

use super::{RULES, directory, options, requests};

const HEADER: &str = "value,unit,requests_per_unit\n";

fn table(rules: &Rules) -> Arc<LimitTable> {
    Arc::clone(rules.loaded.rules.limit_tables().next().unwrap())
}

/// A watcher of a path, and the rules that it read.
fn watching(path: &Path) -> (RulesWatcher, Rules) {
    let mut watcher = RulesWatcher::new(RulesPath::Path(path.to_owned()), options());
    let rules = watcher.read().unwrap().unwrap();
    (watcher, rules)
}

/// A watcher of rules whose file of limits is a link to this, after its error was reported. And the
/// files of limits that it knows.
fn watching_unreadable(target: &str) -> (tempfile::TempDir, RulesWatcher, LimitFiles) {
    let files = directory(&[("rules.yaml", RULES.as_bytes())]);
    symlink(target, files.path().join("tenants.csv")).unwrap();
    let path = RulesPath::Path(files.path().join("rules.yaml"));
    let options = options();
    let limit_files = options.limit_files.clone().unwrap();
    let mut watcher = RulesWatcher::new(path, options);
    match changed(&mut watcher) {
        Err(LoadError::Diagnostics(report)) => assert_eq!(report.errors.len(), 1),
        other => panic!("{other:?}"),
    }
    (files, watcher, limit_files)
}

/// The second poll from now gives an update, and further polls give none.
fn changed(watcher: &mut RulesWatcher) -> RulesUpdate {
    assert!(watcher.poll().is_none(), "one poll is not enough");
    let change = watcher.poll().expect("two polls agree");
    assert!((0..5).all(|_| watcher.poll().is_none()), "reported already");
    change
}

#[test]
fn a_change_of_the_file_of_limits_alone_is_seen() {
    let files = directory(&[
        ("rules.yaml", RULES.as_bytes()),
        (
            "tenants.csv",
            format!("{HEADER}a,second,1\nb,second,2\nc,second,3\n").as_bytes(),
        ),
    ]);
    // Also where the directory is the path: the file of limits is none of rules.
    let (mut watcher, before) = watching(files.path());
    assert!((0..5).all(|_| watcher.poll().is_none()));
    let text = format!("{HEADER}a,second,1\nb,second,20\nlonger,second,4\n");
    fs::write(files.path().join("tenants.csv"), text).unwrap();
    let after = changed(&mut watcher).unwrap();
    assert_eq!(requests(&after.loaded.rules, b"b"), Some(20));
    assert_eq!(requests(&after.loaded.rules, b"c"), Some(10));
    assert_ne!(before.hash, after.hash, "replicas can compare it");
    let difference = TableDifference {
        added: 1,
        changed: 1,
        removed: 1,
    };
    assert_eq!(table(&after).difference(&table(&before)), difference);
}

#[test]
fn a_config_map_that_is_swapped_is_seen() {
    let volume = tempfile::tempdir().unwrap();
    let at = |name: &str| volume.path().join(name);
    for (version, limit) in [("..1", 5), ("..2", 6_000)] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("rules.yaml"), RULES).unwrap();
        let text = format!("{HEADER}a,second,{limit}\n");
        fs::write(at(version).join("tenants.csv"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/rules.yaml", at("rules.yaml")).unwrap();
    symlink("..data/tenants.csv", at("tenants.csv")).unwrap();
    let (mut watcher, before) = watching(&at("rules.yaml"));
    assert_eq!(requests(&before.loaded.rules, b"a"), Some(5));
    symlink("..2", at("..next")).unwrap();
    fs::rename(at("..next"), at("..data")).unwrap();
    let after = changed(&mut watcher).unwrap();
    assert_eq!(requests(&after.loaded.rules, b"a"), Some(6_000));
}

#[test]
fn a_table_is_made_again_only_when_its_bytes_differ() {
    let text = format!("{HEADER}a,second,1\n");
    let files = directory(&[
        ("rules.yaml", RULES.as_bytes()),
        ("tenants.csv", text.as_bytes()),
    ]);
    let at = |name: &str| files.path().join(name);
    let (mut watcher, first) = watching(&at("rules.yaml"));
    fs::write(at("rules.yaml"), format!("{RULES}# another\n")).unwrap();
    let second = changed(&mut watcher).unwrap();
    assert!(
        Arc::ptr_eq(&table(&first), &table(&second)),
        "the same stamp"
    );
    // A copy in its place has another stamp.
    fs::write(at("copy"), &text).unwrap();
    fs::rename(at("copy"), at("tenants.csv")).unwrap();
    let third = changed(&mut watcher).unwrap();
    assert!(
        Arc::ptr_eq(&table(&first), &table(&third)),
        "the same bytes"
    );
    assert_eq!(first.loaded.tables[0].digest, third.loaded.tables[0].digest);
}

#[test]
fn a_replaced_table_is_freed_by_a_poll_when_nothing_else_holds_it() {
    let files = directory(&[
        ("rules.yaml", RULES.as_bytes()),
        ("tenants.csv", format!("{HEADER}a,second,1\n").as_bytes()),
    ]);
    let (mut watcher, first) = watching(&files.path().join("rules.yaml"));
    let held = Arc::downgrade(&table(&first));
    let text = format!("{HEADER}b,second,1\nc,second,1\n");
    fs::write(files.path().join("tenants.csv"), text).unwrap();
    let second = changed(&mut watcher).unwrap();
    assert_eq!(table(&second).len(), 2);
    watcher.poll();
    assert!(held.upgrade().is_some(), "rules hold it");
    drop(first);
    assert!(
        held.upgrade().is_some(),
        "the watcher frees it, not what drops rules"
    );
    watcher.poll();
    assert!(held.upgrade().is_none());
}

#[test]
fn a_bad_file_is_refused_once_and_a_good_one_is_seen_then() {
    let files = directory(&[
        ("rules.yaml", RULES.as_bytes()),
        ("tenants.csv", format!("{HEADER}a,second,1\n").as_bytes()),
    ]);
    let (mut watcher, _) = watching(&files.path().join("rules.yaml"));
    let tenants = files.path().join("tenants.csv");
    fs::write(&tenants, format!("{HEADER}a,second,one\n")).unwrap();
    match changed(&mut watcher) {
        Err(LoadError::Diagnostics(report)) => assert_eq!(report.errors.len(), 1),
        other => panic!("{other:?}"),
    }
    fs::remove_file(&tenants).unwrap();
    assert!(changed(&mut watcher).is_err());
    // The rules are watched as before while the file is missing.
    fs::write(files.path().join("rules.yaml"), "domain: d\n").unwrap();
    assert!(changed(&mut watcher).is_ok());
    fs::write(files.path().join("rules.yaml"), RULES).unwrap();
    assert!(changed(&mut watcher).is_err());
    fs::write(&tenants, format!("{HEADER}a,second,2\n")).unwrap();
    let after = changed(&mut watcher).unwrap();
    assert_eq!(requests(&after.loaded.rules, b"a"), Some(2));
}

#[test]
fn a_file_that_could_not_be_read_is_tried_again_by_each_poll_and_reported_once() {
    // Its first page is not mapped: it has a stamp, and a read of it is an error.
    let (_folder, mut watcher, files) = watching_unreadable("/proc/self/mem");
    for _ in 0..3 {
        files.begin();
        assert!(watcher.poll().is_none(), "reported already");
        assert_eq!(files.touched().len(), 1, "tried again");
    }
    // An explicit read reports it again.
    assert!(watcher.read().unwrap().is_err());
}

#[test]
fn what_is_no_file_is_not_tried_again_until_it_changes() {
    let (_folder, mut watcher, files) = watching_unreadable("/");
    for _ in 0..3 {
        files.begin();
        assert!(watcher.poll().is_none(), "reported already");
        assert!(files.touched().is_empty(), "tried again");
    }
}
