//! The plan: which descriptors become checks, of which bucket, and which rules others replace.
//!
//! What it deliberately does not do: match wildcards or levels (`matching` does), or decide.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_limiter::key::hash_holder;
use tollgate_limiter::{
    Check, DescriptorPlan, Hits, KeyHasher, Limit, LimitOrigin, Override, Plan, Rule, Unit,
};

use tollgate_test_model::fixtures::{
    Asked, Buckets, Tree, TwoHashes, at, called, counted, limited, per, replacing, request,
    request_in, shadow, take, take_within, unlimited,
};

/// One letter a descriptor: `p`ass, `u`nlimited, a rule's `c`heck, an `o`verride's check.
fn letters(tree: &Tree, asked: &[Asked<'_>]) -> String {
    let request = request(asked);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    plan.descriptors()
        .iter()
        .map(|line| match line {
            DescriptorPlan::NoLimit => 'p',
            DescriptorPlan::Unlimited => 'u',
            DescriptorPlan::Checks(range) => {
                assert_eq!(range.len(), 1);
                match plan.planned_check(range.start).unwrap().origin {
                    LimitOrigin::Rule(_) => 'c',
                    LimitOrigin::Override => 'o',
                }
            }
        })
        .collect()
}

fn checks(tree: &Tree, asked: &[Asked<'_>]) -> Vec<Check> {
    let request = request(asked);
    Plan::new(&tree.rules, &request, &TwoHashes)
        .checks()
        .to_vec()
}

/// Each key has its own rule, each letter of `asked` is a key.
fn replaced(rules: &[(&'static str, Rule)], asked: &str) -> String {
    let tree = rules.iter().fold(Tree::new(), |tree, (key, rule)| {
        tree.with(&[(key, "")], rule.clone())
    });
    let paths: Vec<[(&str, &str); 1]> = asked.split("").map(|key| [(key, "v")]).collect();
    let asked: Vec<Asked<'_>> = paths
        .iter()
        .filter(|[(key, _)]| !key.is_empty())
        .map(|path| take(path, 1))
        .collect();
    letters(&tree, &asked)
}

fn named(name: &str) -> Rule {
    called(name, limited(1, Unit::Minute))
}

// === replaces ===

#[test]
fn a_rule_is_dropped_where_one_that_replaces_it_matches_too() {
    let rules = [("a", named("a")), ("b", replacing(&["a"], named("b")))];
    assert_eq!(replaced(&rules, "a"), "c");
    assert_eq!(replaced(&rules, "b"), "c");
    assert_eq!(replaced(&rules, "ab"), "pc");
    assert_eq!(replaced(&rules, "ba"), "cp"); // the order does not matter
    assert_eq!(replaced(&rules, "aba"), "pcp");
}

#[test]
fn every_rule_of_a_replaced_name_is_dropped_and_every_name_listed() {
    let rules = [
        ("a", named("same")),
        ("b", named("same")),
        ("c", named("other")),
        ("d", replacing(&["same", "other", "nobody"], named(""))),
    ];
    assert_eq!(replaced(&rules, "abc"), "ccc");
    assert_eq!(replaced(&rules, "abcd"), "pppc");
}

#[test]
fn a_replaced_rule_still_replaces() {
    let chain = [
        ("a", named("a")),
        ("b", replacing(&["a"], named("b"))),
        ("c", replacing(&["b"], named("c"))),
    ];
    assert_eq!(replaced(&chain, "abc"), "ppc");
    let circle = [
        ("a", replacing(&["b"], named("a"))),
        ("b", replacing(&["a"], named("b"))),
    ];
    assert_eq!(replaced(&circle, "ab"), "pp");
}

#[test]
fn an_unlimited_rule_replaces_and_cannot_be_replaced() {
    let rules = [
        ("a", named("a")),
        ("u", replacing(&["a"], called("u", unlimited()))),
        ("b", replacing(&["u"], named("b"))),
    ];
    assert_eq!(replaced(&rules, "au"), "pu");
    assert_eq!(replaced(&rules, "ub"), "uc");
}

#[test]
fn a_rule_without_a_name_is_never_replaced() {
    let rules = [("a", named("")), ("b", replacing(&["x"], named("")))];
    assert_eq!(replaced(&rules, "ab"), "cc");
}

#[test]
fn a_rule_that_names_itself_replaces_only_others_of_that_name() {
    let itself = || replacing(&["a"], named("a"));
    let rules = [("a", itself()), ("b", named("a")), ("c", itself())];
    assert_eq!(replaced(&rules, "a"), "c");
    assert_eq!(replaced(&rules, "aa"), "cc"); // one rule, reached twice
    assert_eq!(replaced(&rules, "ab"), "cp");
    assert_eq!(replaced(&rules, "ac"), "pp");
    assert_eq!(replaced(&rules, "abc"), "ppp");
}

#[test]
fn a_rule_in_shadow_mode_replaces_and_is_replaced() {
    let rules = [
        ("a", shadow(named("a"))),
        ("b", shadow(replacing(&["a"], named("b")))),
    ];
    assert_eq!(replaced(&rules, "ab"), "pc");
}

// === overrides ===

const K: &[(&str, &str)] = &[("k", "v")];

fn override_of(requests: u64, unit: Unit) -> Override {
    Override::Limit(per(requests, unit))
}

#[test]
fn an_override_skips_the_tree() {
    let tree = Tree::new()
        .with(K, replacing(&["other"], shadow(named("k"))))
        .with(&[("other", "")], named("other"))
        .with(&[("gold", "")], unlimited())
        .with(&[("x", "")], replacing(&["k"], named("x")));
    let five = override_of(5, Unit::Hour);
    // Where a rule would match, where none does, where it would be unlimited, with no entries at
    // all.
    for path in [K, &[("un", "known")], &[("gold", "")], &[]] {
        assert_eq!(letters(&tree, &[take_within(path, 1, five)]), "o");
    }
    // It neither replaces what the rule it skipped would have, nor is replaced.
    let asked = [
        take_within(K, 1, five),
        take(&[("other", "")], 1),
        take(&[("x", "")], 1),
    ];
    assert_eq!(letters(&tree, &asked), "occ");
    assert_eq!(
        letters(&tree, &[take(K, 1), take(&[("other", "")], 1)]),
        "cp"
    );

    let [ref check] = checks(&tree, &asked[..1])[..] else {
        panic!("one check")
    };
    assert_eq!(check.algorithm.name(), "fixed_window");
    assert_eq!(check.limit, per(5, Unit::Hour));
    assert_eq!(check.operation, Hits::Take(1).into());
}

#[test]
fn an_override_has_a_bucket_of_its_own() {
    let tree = Tree::new().with(K, limited(5, Unit::Minute));
    let minute = override_of(5, Unit::Minute);
    // The rule allows the same in the same window, but they do not share a bucket.
    let keys: Vec<_> = checks(
        &tree,
        &[
            take(K, 1),
            take_within(K, 1, minute),
            take_within(K, 1, override_of(9, Unit::Minute)),
            take_within(K, 1, override_of(5, Unit::Hour)),
        ],
    )
    .iter()
    .map(|check| check.key)
    .collect();
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[1], keys[2]); // another number of requests, the same bucket
    assert_ne!(keys[1], keys[3]); // another window, another

    let mut buckets = Buckets::default();
    let mut remaining = |asked| {
        let request = request(&[asked]);
        buckets.decide(&tree.rules, &request, at(1_234)).statuses[0].remaining
    };
    assert_eq!(remaining(take(K, 4)), 1);
    assert_eq!(remaining(take_within(K, 1, minute)), 4);
    assert_eq!(remaining(take(K, 0)), 1);
}

#[test]
fn an_override_without_a_usable_unit_is_not_obeyed_and_counted() {
    let tree = Tree::new().with(K, named("k"));
    let asked = [
        take_within(K, 1, Override::Invalid),
        take_within(&[("un", "known")], 1, Override::Invalid),
        take_within(K, 1, override_of(1, Unit::Day)),
    ];
    let request = request(&asked);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    assert_eq!(plan.invalid_overrides(), 2);
    // The third has a limit of its own.
    assert_eq!(plan.descriptors()[2], DescriptorPlan::Checks(1..2));
    assert!(matches!(
        plan.planned_check(1).unwrap().origin,
        LimitOrigin::Override
    ));
    assert_eq!(letters(&tree, &asked), "cpo"); // the rule, no rule, the override
}

// === duplicates and hits ===

#[test]
fn equal_descriptors_are_two_checks_of_one_bucket() {
    let tree = Tree::new().with(K, limited(10, Unit::Minute));
    let asked = [take(K, 1), take(K, 1)];
    let both = checks(&tree, &asked);
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].key, both[1].key);

    let mut buckets = Buckets::default();
    let request = request(&asked);
    let decision = buckets.decide(&tree.rules, &request, at(1_234));
    let remaining: Vec<u64> = decision.statuses.iter().map(|one| one.remaining).collect();
    assert_eq!(remaining, [9, 8]); // the second sees the first's hit
}

#[test]
fn a_check_asks_for_the_hits_of_its_descriptor() {
    // Which hits apply, of a descriptor's addend and the request's, is decided on the wire.
    let tree = Tree::new().with(&[("k", "")], limited(10, Unit::Minute));
    for hits in [
        Hits::PEEK,
        Hits::Take(1),
        Hits::Take(u64::MAX),
        Hits::Refund(3),
    ] {
        let asked = Asked {
            path: K,
            hits,
            limit: None,
        };
        assert_eq!(checks(&tree, &[asked])[0].operation, hits.into());
    }
    assert_eq!(Hits::PEEK, Hits::Take(0));
    let numbers = |hits: Hits| (hits.count(), hits.requested());
    assert_eq!(numbers(Hits::Take(7)), (7, 7));
    assert_eq!(numbers(Hits::Refund(7)), (7, 0));
    let given_back = Hits::Undo {
        hits: 7,
        taken_at: at(1_234),
    };
    assert_eq!(numbers(given_back), (7, 0));
}

#[test]
fn a_rule_counts_in_the_bucket_of_its_name_and_algorithm() {
    let key = |rule| checks(&Tree::new().with(K, rule), &[take(K, 1)])[0].key;
    let minute = per(10, Unit::Minute);
    let keys = [
        key(counted(minute, "fixed_window")),
        key(called("name", counted(minute, "fixed_window"))),
        key(counted(minute, "token_bucket")),
        key(counted(per(10, Unit::Hour), "fixed_window")),
    ];
    for (place, one) in keys.iter().enumerate() {
        assert!(!keys[..place].contains(one), "{place}");
    }
    // Neither the number of requests nor shadow mode makes another.
    assert_eq!(keys[0], key(shadow(limited(99, Unit::Minute))));
}

#[test]
fn a_check_carries_its_limit_and_algorithm() {
    let limit = Limit::new(7, Unit::Hour, NonZeroU32::new(3).unwrap(), Some(9)).unwrap();
    let tree = Tree::new().with(K, counted(limit, "token_bucket"));
    let check = checks(&tree, &[take(K, 1)])[0].clone();
    assert_eq!(check.limit, limit);
    assert_eq!(check.algorithm.name(), "token_bucket");
}

#[test]
fn only_concurrency_checks_carry_a_holder() {
    let held = Rule {
        holder_key: Some("id".to_owned()),
        ..counted(per(10, Unit::Minute), "concurrency")
    };
    let tree = Tree::new().with_all(K, [held, limited(10, Unit::Hour)]);
    let path = [K[0], ("id", "x")];
    let holders: Vec<_> = checks(&tree, &[take(&path, 1)])
        .iter()
        .map(|check| check.operation.holder)
        .collect();
    assert_eq!(holders, [Some(hash_holder(b"x", &TwoHashes)), None]);
}

/// Hashes, and counts the calls.
#[derive(Default)]
struct Counting(AtomicU32);

// === impl Counting ===

impl KeyHasher for Counting {
    type Digest = <TwoHashes as KeyHasher>::Digest;

    fn start(&self) -> Self::Digest {
        self.0.fetch_add(1, Ordering::Relaxed);
        TwoHashes.start()
    }
}

#[test]
fn an_unmatched_descriptor_costs_no_hash() {
    let tree = Tree::new()
        .with(K, limited(10, Unit::Minute))
        .with_bare(&[("bare", "")]);
    let cost = |domain, path| {
        let hasher = Counting::default();
        let request = request_in(domain, &[take(path, 1)]);
        let checks = Plan::new(&tree.rules, &request, &hasher).checks().len();
        (hasher.0.into_inner(), checks)
    };
    assert_eq!(cost(Tree::DOMAIN, K), (1, 1));
    assert_eq!(cost(Tree::DOMAIN, &[("unknown", "v")]), (0, 0));
    assert_eq!(cost(Tree::DOMAIN, &[("bare", "v")]), (0, 0));
    assert_eq!(cost("unknown", K), (0, 0));
}
