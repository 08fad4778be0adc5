//! Overlays: what `check` prints for the files below `overlay/`, and what they make of the rules.
//!
//! Each file is an overlay of `overlay/rules.yaml` and has one mistake, except the files called
//! `several`. `WRITE_SNAPSHOTS=1` writes the texts; read them before you commit them.
//!
//! What it deliberately does not do: reload (`watching`), or run a service (`tests/gateway`).

use std::fs;
use std::path::Path;

use tollgate::rules::file::{LoadedRules, Report, load_overlaid, overlay_schema};
use tollgate::rules::path::Source;
use tollgate::rules::reload;
use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{Allowance, CountRefused, Entry, Match, OnUndecided, Rule};

use crate::rules::reading::{APART, source};
use crate::rules::snapshots::{Differences, folder, yaml_files};

/// How many files there are at least.
const FILES_MIN: usize = 30;

fn rules() -> Source {
    let text = fs::read_to_string(folder("overlay").join("rules.yaml")).unwrap();
    source("rules.yaml", &text)
}

fn read(name: &str, text: &str) -> Result<LoadedRules, Report> {
    load_overlaid(&[rules()], Some(&source(name, text)), APART)
}

/// The report of an overlay, and whether the rules are used with it.
fn report(name: &str, text: &str) -> Report {
    match read(name, text) {
        Err(report) => report,
        Ok(loaded) => Report {
            warnings: loaded.warnings,
            warnings_omitted: loaded.warnings_omitted,
            ..Report::default()
        },
    }
}

/// The rules with an overlay without diagnostics.
fn overlaid(entries: &str) -> LoadedRules {
    let text = format!("overlay:\n{entries}");
    let loaded = read("overlay.yaml", &text).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.warnings, [], "{entries}");
    loaded
}

/// The rule whose last level has this key.
fn rule<'l>(loaded: &'l LoadedRules, key: &str) -> &'l Rule {
    let mut rules = loaded.rules.rules().iter();
    let found = rules.find(|rule| rule.path.last().is_some_and(|level| level.key == key));
    found.unwrap_or_else(|| panic!("{key}"))
}

/// Requests, algorithm and burst of a rule.
fn limit(rule: &Rule) -> (u64, &'static str, u64) {
    match rule.allowance {
        Allowance::Limited { limit, algorithm } => {
            (limit.requests(), algorithm.name(), limit.burst())
        }
        Allowance::Unlimited => panic!("{rule:?}"),
    }
}

#[test]
fn every_overlay_is_explained_as_its_snapshot_says() {
    let mut files = yaml_files(&folder("overlay"));
    files.retain(|path| !path.ends_with("rules.yaml"));
    assert!(files.len() >= FILES_MIN, "{} files", files.len());
    let mut differences = Differences::default();
    for path in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let found = report(name, &fs::read_to_string(path).unwrap());
        let printed = format!("{}\n", found.render(false));
        differences.compare(&path.with_extension("txt"), &printed);
        // The rules are valid, so every error is about the overlay.
        let count = found.diagnostics().len();
        assert_eq!(found.only_overlay, !found.errors.is_empty(), "{name}");
        assert!(
            if name.contains("several") {
                count > 2
            } else {
                count == 1
            },
            "{name}: {printed}"
        );
    }
    differences.assert_none();
}

#[test]
fn a_permission_lets_every_raise_pass() {
    for (entry, key) in [
        (
            "algorithm: token_bucket, burst: 101, count_refused: all",
            "user",
        ),
        ("algorithm: token_bucket", "user"),
        ("charged: at_once", "tokens"),
        ("count_refused: all", "tokens"),
        ("requests_per_unit: 101", "user"),
        ("count_refused: none", "plan"),
        ("shadow_mode: true", "user"),
        ("name: usual", "user"),
    ] {
        let entry =
            |more: &str| format!("- {{domain: shop, path: [{{key: {key}}}], {entry}{more}}}\n");
        let text = |more| format!("overlay:\n{}", entry(more));
        let refused = read("overlay.yaml", &text("")).unwrap_err();
        assert_eq!(refused.errors.len(), 1, "{refused}");
        assert_eq!(refused.errors[0].code.name(), "raised-limit", "{refused}");
        let raised = overlaid(&entry(", may_raise: true"));
        let plain = load_overlaid(&[rules()], None, APART).unwrap();
        assert_ne!(rule(&raised, key), rule(&plain, key));
    }
    let whole = overlaid(
        "- {domain: shop, all_or_nothing: true, on_store_failure: allow, may_raise: true}\n",
    );
    assert_eq!(whole.rules.all_or_nothing(b"shop"), Some(true));
    let answer = whole.rules.on_store_failure(b"shop");
    assert_eq!(answer, Some(OnUndecided::Allow));
}

#[test]
fn what_admits_no_more_needs_no_permission() {
    let user = |set: &str| {
        let loaded = overlaid(&format!(
            "- {{domain: shop, path: [{{key: user}}], {set}}}\n"
        ));
        limit(rule(&loaded, "user"))
    };
    assert_eq!(
        user("algorithm: token_bucket, count_refused: all"),
        (100, "token_bucket", 100)
    );
    assert_eq!(
        user("algorithm: gcra, burst: 20, charged: afterwards"),
        (100, "token_bucket", 20)
    );
    assert_eq!(
        user("algorithm: leaky_bucket, count_refused: blocking"),
        (100, "leaky_bucket", 1)
    );
    assert_eq!(
        user("algorithm: sliding_log, charged: afterwards"),
        (100, "sliding_log", 100)
    );
    let segments = user("algorithm: sliding_window, segments: 6, charged: afterwards");
    assert_eq!(segments, (100, "sliding_window_segments", 100));
    assert_eq!(user("requests_per_unit: 7"), (7, "fixed_window", 7));
    let fewer = user("requests_per_unit: 7, algorithm: token_bucket, count_refused: all");
    assert_eq!(fewer, (7, "token_bucket", 7));
    let stricter = overlaid("- {domain: shop, on_store_failure: deny, all_or_nothing: false}\n");
    let answer = stricter.rules.on_store_failure(b"shop");
    assert_eq!(answer, Some(OnUndecided::Deny));
    assert_eq!(stricter.rules.all_or_nothing(b"shop"), Some(false));
}

#[test]
fn a_limit_keeps_what_an_entry_does_not_set() {
    let loaded = overlaid(
        "- domain: shop
  path: [{key: plan, value: '*'}]
  requests_per_unit: 500
  over_limit: {body: 'more than {limit}'}
  name: plans
  candidate: {unit: day, requests_per_unit: 50}
- domain: shop
  path: [{key: export}]
  requests_per_unit: 2
",
    );
    let alone = load_overlaid(&[rules()], None, APART).unwrap();
    let (plan, before) = (rule(&loaded, "plan"), rule(&alone, "plan"));
    let (Allowance::Limited { limit: new, .. }, Allowance::Limited { limit: old, .. }) =
        (plan.allowance, before.allowance)
    else {
        panic!("limits")
    };
    assert_eq!((new.requests(), old.requests()), (500, 1000));
    assert_eq!(
        (new.calendar(), new.window()),
        (old.calendar(), old.window())
    );
    assert_eq!(new.count_refused(), old.count_refused());
    assert!(new.calendar().is_some() && new.count_refused().is_some());
    assert_eq!((&*plan.name, before.over_limit.is_some()), ("plans", false));
    assert!(plan.over_limit.is_some() && plan.candidate.is_some());
    assert_eq!(limit(rule(&loaded, "export")), (2, "concurrency", 2));
}

/// Of `charged` and `count_refused` an entry sets one, in place of what the limit has.
#[test]
fn another_algorithm_keeps_how_a_limit_is_charged() {
    for (key, set, refused) in [
        ("tokens", "algorithm: sliding_window", CountRefused::InFull),
        ("tokens", "charged: afterwards", CountRefused::InFull),
        (
            "tokens",
            "charged: at_once, may_raise: true",
            CountRefused::Blocking,
        ),
        (
            "tokens",
            "count_refused: none, may_raise: true",
            CountRefused::None,
        ),
        ("plan", "charged: afterwards", CountRefused::InFull),
        (
            "user",
            "algorithm: gcra, charged: afterwards",
            CountRefused::InFull,
        ),
    ] {
        let loaded = overlaid(&format!(
            "- {{domain: shop, path: [{{key: {key}}}], {set}}}\n"
        ));
        let Allowance::Limited { limit, algorithm } = rule(&loaded, key).allowance else {
            panic!("{key}")
        };
        assert_eq!(count_refused(algorithm, &limit), refused, "{key} {set}");
    }
}

#[test]
fn the_first_entry_that_matches_a_limit_applies() {
    // The first one sets nothing, so it excludes its limit.
    let loaded = overlaid(
        "- {domain: shop, path: [{key: export}]}
- {domain: shop, path: [{key: plan}]}
- {domain: shop, path: [{key: user}, {key: '*', value: 'reports/*'}], algorithm: leaky_bucket}
- {domain: sh*p, algorithm: token_bucket, burst: 3, may_raise: true}
- {domain: '*', on_store_failure: deny}
",
    );
    assert_eq!(limit(rule(&loaded, "user")), (100, "token_bucket", 3));
    assert_eq!(limit(rule(&loaded, "address")), (5, "token_bucket", 3));
    assert_eq!(limit(rule(&loaded, "file")), (10, "leaky_bucket", 1));
    assert_eq!(limit(rule(&loaded, "export")), (4, "concurrency", 4));
    assert_eq!(limit(rule(&loaded, "plan")).1, "fixed_window");
    let origin = |key| loaded.origins.of(rule(&loaded, key).index).unwrap();
    let user = origin("user");
    assert_eq!(user.rule, "rules.yaml:4");
    assert_eq!(user.overlay.as_deref(), Some("overlay.yaml:5"));
    assert_eq!(origin("health").overlay, None);
}

#[test]
fn a_path_is_compared_with_what_the_rules_write() {
    for (path, keys) in [
        ("[{key: user}]", &["user"][..]),
        ("[{key: user, value: bob}]", &[]),
        ("[{key: user, value: ''}]", &["user"]),
        ("[{key: user}, {key: file, value: 'reports/*'}]", &["file"]),
        ("[{key: user}, {key: file, value: 'r*s/*'}]", &["file"]),
        ("[{key: user}, {key: file, value: reports/2026}]", &[]),
        ("[{key: file}]", &[]),
        ("[{key: address, value: '10.*/8'}]", &["address", "address"]),
        ("[{key: plan, value: free}]", &[]),
        ("[{key: plan, value: '*r*'}]", &["plan"]),
        ("[{key: 'e*p*t'}]", &["export"]),
        ("[{key: health}]", &[]),
    ] {
        let text = format!("overlay:\n- {{domain: shop, path: {path}, over_limit: {{body: x}}}}\n");
        let loaded = read("overlay.yaml", &text).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(
            loaded.warnings.len(),
            usize::from(keys.is_empty()),
            "{path}"
        );
        let matched = loaded.rules.rules().iter().filter(|rule| {
            let origin = loaded.origins.of(rule.index).unwrap();
            origin.overlay.is_some()
        });
        let matched: Vec<_> = matched
            .map(|rule| &*rule.path.last().unwrap().key)
            .collect();
        assert_eq!(matched, keys, "{path}");
    }
}

#[test]
fn errors_of_rules_and_overlay_are_reported_together() {
    let bad_rules = source(
        "rules.yaml",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: x}}]",
    );
    let bad = source("overlay.yaml", "overlay: [{domain: d, algorithm: x}]");
    let report = load_overlaid(&[bad_rules], Some(&bad), APART).unwrap_err();
    let files: Vec<_> = report.errors.iter().map(|error| &*error.file).collect();
    assert_eq!(files, ["rules.yaml", "overlay.yaml"], "{report}");
    assert!(!report.only_overlay);
}

#[test]
fn the_hash_of_rules_covers_the_overlay() {
    let overlay = |burst: u32| {
        let text = format!(
            "overlay: [{{domain: shop, path: [{{key: user}}], algorithm: gcra, burst: {burst}, may_raise: true}}]"
        );
        source("overlay.yaml", &text)
    };
    let hash = |overlay: Option<&Source>| {
        let rules = reload::load_overlaid(&[rules()], overlay, APART);
        rules.unwrap_or_else(|report| panic!("{report}")).hash
    };
    let hashes = [hash(None), hash(Some(&overlay(5))), hash(Some(&overlay(6)))];
    assert!(
        hashes[0] != hashes[1] && hashes[1] != hashes[2],
        "{hashes:?}"
    );
    assert_eq!(hashes[1], hash(Some(&overlay(5))));
}

#[test]
fn the_committed_schema_of_an_overlay_is_the_one_the_code_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/overlay.schema.json");
    let made = format!(
        "{}\n",
        serde_json::to_string_pretty(&overlay_schema()).unwrap()
    );
    if std::env::var_os("WRITE_README").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "run make readme");
}

#[test]
fn the_documented_overlay_is_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/overlay.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let overlays: Vec<_> = blocks
        .filter(|block| block.starts_with("overlay:"))
        .collect();
    let [text] = overlays[..] else {
        panic!("{overlays:?}")
    };
    let rules = source(
        "rules.yaml",
        "domain: default/eg/http
descriptors:
- key: httproute/default/app/rule/0/match/0/*
  descriptors:
  - {key: rule-0-match-0, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: rule-1-match-0, rate_limit: {unit: minute, requests_per_unit: 100}}
",
    );
    let loaded = load_overlaid(&[rules], Some(&source("overlay.yaml", text)), APART);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        limit(rule(&loaded, "rule-0-match-0")),
        (100, "token_bucket", 20)
    );
    assert!(rule(&loaded, "rule-1-match-0").over_limit.is_some());
}

/// What the policy of a gateway becomes: a level for every entry, the id included.
const WITH_ID: &str = "
domain: gateway
descriptors:
  - key: route
    value: chat
    descriptors:
      - key: rule-0-match-0
        descriptors:
          - key: rule-0-match-1
            rate_limit: { unit: hour, requests_per_unit: 1000 }
";

#[test]
fn a_level_that_is_the_id_of_reservations_is_no_part_of_the_bucket() {
    let rules = source("rules.yaml", WITH_ID);
    let overlay = |key: &str| {
        let entry =
            format!("{{domain: gateway, reserve: {{key: {key}, amount: 400, expires: 5m}}}}");
        source("overlay.yaml", &format!("overlay: [{entry}]"))
    };
    let plain = load_overlaid(std::slice::from_ref(&rules), None, APART).unwrap();
    let loaded = load_overlaid(
        std::slice::from_ref(&rules),
        Some(&overlay("rule-0-match-1")),
        APART,
    )
    .unwrap();
    let entries = [
        ("route", "chat"),
        ("rule-0-match-0", "ann"),
        ("rule-0-match-1", "id"),
    ];
    let entries = entries.map(|(key, value)| Entry {
        key: key.as_bytes(),
        value: value.as_bytes(),
    });
    let levels = |loaded: &LoadedRules, entries: &[Entry<'_>]| match loaded
        .rules
        .find(b"gateway", entries)
    {
        Match::Rules(matched) => Some((matched.entries, matched.rules[0].full_name())),
        _ => None,
    };
    let user = "gateway.route_chat.rule-0-match-0".to_owned();
    assert_eq!(
        levels(&plain, &entries),
        Some((3, format!("{user}.rule-0-match-1")))
    );
    assert_eq!(levels(&plain, &entries[..2]), None);
    assert_eq!(levels(&loaded, &entries), Some((2, user.clone())));
    assert_eq!(
        levels(&loaded, &entries[..2]),
        Some((2, user)),
        "a look without an id"
    );

    // A key without a level: the id comes after all levels.
    let loaded = load_overlaid(&[rules], Some(&overlay("stream_id")), APART).unwrap();
    let id = Entry {
        key: b"stream_id",
        value: b"id",
    };
    let entries = [&entries[..], &[id]].concat();
    assert_eq!(levels(&loaded, &entries).map(|(many, _)| many), Some(3));
}

#[test]
fn another_reservation_needs_permission() {
    let rules = source(
        "rules.yaml",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 9, reserve: {key: id, amount: 9}}}]\n",
    );
    for (amount, raises) in [(9, false), (3, true)] {
        let overlay = format!("overlay: [{{domain: d, reserve: {{key: id, amount: {amount}}}}}]\n");
        let read = load_overlaid(
            std::slice::from_ref(&rules),
            Some(&source("overlay.yaml", &overlay)),
            APART,
        );
        assert_eq!(read.is_err(), raises, "{amount}");
    }
}
