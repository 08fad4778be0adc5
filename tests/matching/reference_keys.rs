//! The names of counters in Envoy's reference service: those of its own test, and buckets without
//! one.
//!
//! What it deliberately does not do: count (`tests/twin` does), append the start of a window
//! (`store/redis/key` does).

use std::num::{NonZeroU16, NonZeroU32};

use tollgate::store_redis::{REFERENCE_KEY_BYTES_MAX, reference_key};
use tollgate_limiter::{CountRefused, Hits, Level, Limit, Override, Plan, Prefix, Unit, Values};

use tollgate_test_model::fixtures::{
    Asked, Tree, TwoHashes, counted, limited, per, replacing, request_in, take, take_within,
};

/// Each check's name; `-` for one without.
fn names(tree: &Tree, asked: &[Asked<'_>]) -> Vec<String> {
    let request = request_in(Tree::DOMAIN, asked);
    let mut plan = Plan::new(&tree.rules, &request, &TwoHashes);
    assert!(
        plan.checks()
            .iter()
            .all(|check| check.bucket_name.is_none())
    );
    plan.name_buckets(&request, reference_key);
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let checks = plan.checks().iter();
    checks
        .map(|check| check.bucket_name.as_deref().map_or("-".to_owned(), name))
        .collect()
}

fn expected(names: &[&str]) -> Vec<String> {
    let domain = Tree::DOMAIN;
    let whole = |name: &&str| match *name {
        "-" => "-".to_owned(),
        name => format!("{domain}_{name}_"),
    };
    names.iter().map(whole).collect()
}

fn level(key: &str, value: &str, share_threshold: bool) -> Level {
    Level {
        share_threshold,
        ..Level::new(key, value)
    }
}

#[test]
fn it_is_the_domain_and_every_key_and_value_as_sent() {
    let tree = Tree::new()
        .with(&[("key", "value")], limited(1, Unit::Second))
        .with(
            &[("key2", "value2"), ("subkey2", "")],
            limited(1, Unit::Minute),
        )
        .with(&[("any", "")], limited(1, Unit::Year));
    let asked = [
        take(&[("key", "value")], 1),
        take(&[("key2", "value2"), ("subkey2", "subvalue2")], 1),
        take(&[("any", "")], 1),
        take(&[("key", "other")], 1),
        // A request's own limit counts where a rule's would.
        take_within(&[("key", "value")], 1, Override::Limit(per(5, Unit::Hour))),
        take_within(
            &[("not", "configured")],
            1,
            Override::Limit(per(5, Unit::Hour)),
        ),
    ];
    let named = [
        "key_value",
        "key2_value2_subkey2_subvalue2",
        "any_",
        "key_value",
        "not_configured",
    ];
    assert_eq!(names(&tree, &asked), expected(&named));
}

#[test]
fn texts_meet_there_that_do_not_meet_here() {
    let tree = Tree::new()
        .with(&[("a", "")], limited(1, Unit::Second))
        .with(&[("a_b", "")], limited(1, Unit::Minute));
    let asked = [take(&[("a", "b_c")], 1), take(&[("a_b", "c")], 1)];
    assert_eq!(names(&tree, &asked), expected(&["a_b_c", "a_b_c"]));
    let request = request_in(Tree::DOMAIN, &asked);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    assert_ne!(plan.checks()[0].key, plan.checks()[1].key);
}

#[test]
fn a_shared_bucket_is_named_by_its_pattern() {
    let tree = Tree::new()
        .with_levels(
            &[
                level("files", "top/*", true),
                level("files", "nested/*", true),
            ],
            limited(1, Unit::Second),
        )
        .with_levels(&[level("apart", "x*", false)], limited(1, Unit::Second));
    let asked = [
        take(&[("files", "top/1"), ("files", "nested/2")], 1),
        take(&[("apart", "x1")], 1),
    ];
    let named = ["files_top/*_files_nested/*", "apart_x1"];
    assert_eq!(names(&tree, &asked), expected(&named));
}

/// The reference service looks for the key as sent at the front of the joined pattern `key_value`,
/// and removes it only there.
#[test]
fn a_pattern_in_the_key_is_part_of_the_shared_bucket() {
    for (key, value, sent, name) in [
        ("a*", "*", ("ab", "v"), "ab_a*_*"),
        ("a*", "x*", ("ab", "x1"), "ab_a*_x*"),
        ("a*", "x", ("ab", "x"), "ab_a*_x"),
        ("*", "*", ("ab", "v"), "ab_*_*"),
        ("*", "v_*", ("*_v", "v_1"), "*_v_*"),
        // No value is configured.
        ("a*", "", ("ab", "v"), "ab_a*"),
        ("a*", "", ("a*", "v"), "a*_a*"),
        // The value sent is the pattern's own text.
        ("a*", "x*", ("a*", "x*"), "a*_x*"),
        ("a*", "x*", ("a*", "x1"), "a*_x*"),
        ("ab", "x*", ("ab", "x1"), "ab_x*"),
    ] {
        let shared = Tree::new().with_levels(&[level(key, value, true)], limited(1, Unit::Day));
        let entries = [sent];
        let asked = [take(&entries, 1)];
        assert_eq!(names(&shared, &asked), expected(&[name]), "{key} {value}");
        let apart = Tree::new().with_levels(&[level(key, value, false)], limited(1, Unit::Day));
        let as_sent = format!("{}_{}", sent.0, sent.1);
        assert_eq!(
            names(&apart, &asked),
            expected(&[&as_sent]),
            "{key} {value}"
        );
    }
}

#[test]
fn checks_unknown_to_the_reference_have_no_reference_key() {
    let once = NonZeroU32::MIN;
    let minute = per(9, Unit::Minute);
    let of = |values: Values, share_threshold, ipv6_prefix| Level {
        values: values.into(),
        share_threshold,
        ipv6_prefix,
        ..Level::new("k", "")
    };
    let list = || Values::List(vec!["10.0.0.1".to_owned()]);
    let prefixes = || Values::Prefixes(vec![Prefix::parse("10.0.0.0/8").unwrap()]);
    let plain = || of(Values::Any, false, None);
    for (level, limit, algorithm, name) in [
        (plain(), minute, "fixed_window", "k_10.0.0.1"),
        (
            plain(),
            minute.with_count_refused(CountRefused::Blocking),
            "fixed_window",
            "k_10.0.0.1",
        ),
        (
            plain(),
            minute.with_count_refused(CountRefused::None),
            "fixed_window",
            "-",
        ),
        (
            plain(),
            minute.with_count_refused(CountRefused::All),
            "fixed_window",
            "-",
        ),
        (
            plain(),
            Limit::per(9, Unit::Minute, NonZeroU32::new(2).unwrap()),
            "fixed_window",
            "-",
        ),
        (plain(), minute, "token_bucket", "-"),
        (
            plain(),
            minute.with_segments(NonZeroU16::MIN),
            "sliding_window",
            "-",
        ),
        (plain(), Limit::in_flight(9, once), "concurrency", "-"),
        (of(Values::Any, true, None), minute, "fixed_window", "-"),
        (
            of(Values::Any, false, Some(64)),
            minute,
            "fixed_window",
            "-",
        ),
        (
            of(list(), false, None),
            minute,
            "fixed_window",
            "k_10.0.0.1",
        ),
        (of(list(), true, None), minute, "fixed_window", "-"),
        (of(prefixes(), false, None), minute, "fixed_window", "-"),
    ] {
        let tree = Tree::new().with_levels(std::slice::from_ref(&level), counted(limit, algorithm));
        let asked = [take(&[("k", "10.0.0.1")], 1)];
        assert_eq!(
            names(&tree, &asked),
            expected(&[name]),
            "{level:?} {limit:?} {algorithm}"
        );
    }
    // Two limits of one descriptor would collide when their windows begin together, also where only
    // one is left.
    let both = [limited(1, Unit::Second), limited(5, Unit::Minute)];
    let tree = Tree::new().with_all(&[("k", "")], both);
    assert_eq!(
        names(&tree, &[take(&[("k", "v")], 1)]),
        expected(&["-", "-"])
    );
    let replaced = [
        tollgate_test_model::fixtures::called("gone", limited(1, Unit::Second)),
        replacing(&["gone"], limited(5, Unit::Minute)),
    ];
    let tree = Tree::new().with_all(&[("k", "")], replaced);
    assert_eq!(names(&tree, &[take(&[("k", "v")], 1)]), expected(&["-"]));
}

#[test]
fn a_name_that_is_too_long_is_none() {
    let tree = Tree::new().with(&[("k", "")], limited(1, Unit::Second));
    let rest = Tree::DOMAIN.len() + "_k__".len();
    for (len, has) in [
        (REFERENCE_KEY_BYTES_MAX - rest, true),
        (REFERENCE_KEY_BYTES_MAX - rest + 1, false),
    ] {
        let value = "v".repeat(len);
        let entries = [("k", value.as_str())];
        let names = names(&tree, &[take(&entries, 1)]);
        assert_eq!(names[0] != "-", has, "{len}");
    }
    let look = take(&[("k", "v")], 0);
    assert_eq!(look.hits, Hits::PEEK);
    assert_eq!(names(&tree, &[look]), expected(&["k_v"]));
}
