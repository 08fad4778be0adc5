//! Overrides: limits of single descriptors, in place of those of the rule that they meet.
//!
//! The model looks through a list. Every descriptor of a small alphabet is asked, with every choice
//! of three overrides.

use tollgate_limiter::{
    Code, DescriptorPlan, Level, Modes, Outcome, OverrideEffect, Plan, Rule, RuleOverride, Unit,
    WithoutEffect,
};

use tollgate_test_model::fixtures::{
    Buckets, Path, Tree, TwoHashes, at, called, entries, limited, request, take, unlimited,
};

/// What the model says of a descriptor: its limits, by their numbers of requests.
type Limits = Option<Vec<u64>>;

fn tree() -> Tree {
    Tree::new()
        .with(&[("user", "")], called("own", limited(10, Unit::Minute)))
        .with(&[("user", ""), ("path", "")], limited(5, Unit::Minute))
        .with_all(
            &[("user", "two")],
            [limited(3, Unit::Minute), limited(30, Unit::Hour)],
        )
        .with(&[("free", "")], unlimited())
        .with_bare(&[("bare", "")])
}

const ASKED: [Path<'static>; 8] = [
    &[("user", "a")],
    &[("user", "b")],
    &[("user", "two")],
    &[("user", "a"), ("path", "x")],
    &[("user", "a"), ("path", "y")],
    &[("free", "a")],
    &[("bare", "a")],
    &[("user", "a"), ("path", "x"), ("path", "x")],
];

fn over<'o>(path: Path<'o>, effect: OverrideEffect<'o>) -> RuleOverride<'o> {
    RuleOverride {
        domain: Tree::DOMAIN.as_bytes(),
        entries: entries(path),
        effect,
    }
}

fn planned(tree: &Tree, path: Path<'_>) -> Limits {
    let request = request(&[take(path, 1)]);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    match &plan.descriptors()[0] {
        DescriptorPlan::NoLimit => None,
        DescriptorPlan::Unlimited => Some(Vec::new()),
        DescriptorPlan::Checks(checks) => {
            let checks = &plan.checks()[checks.clone()];
            let numbers = checks.iter().map(|check| check.limit.requests());
            Some(numbers.collect())
        }
    }
}

#[test]
fn every_descriptor_has_its_override_and_no_other_as_a_list_says() {
    let own = [limited(100, Unit::Minute)];
    let pair = [limited(7, Unit::Minute), limited(70, Unit::Day)];
    let effects: [(OverrideEffect<'_>, Limits); 4] = [
        (OverrideEffect::Limits(&own), Some(vec![100])),
        (OverrideEffect::Limits(&pair), Some(vec![7, 70])),
        (OverrideEffect::Unlimited, Some(Vec::new())),
        (OverrideEffect::Blocked(at(9_000)), None),
    ];
    let mut tree = tree();
    let before: Vec<Limits> = ASKED.iter().map(|path| planned(&tree, path)).collect();
    for first in ASKED {
        for second in ASKED {
            for shift in 0..effects.len() {
                let set = [(first, shift), (second, (shift + 1) % effects.len())];
                let overrides = set.map(|(path, effect)| over(path, effects[effect].0));
                tree.rules.set_overrides(overrides);
                for (path, before) in ASKED.iter().zip(&before) {
                    let of = set.iter().rev().find(|(of, _)| of == path);
                    let expected = match (of, before) {
                        // No rule, no override.
                        (_, None) | (None, _) => before.clone(),
                        (Some((_, 3)), Some(limits)) => Some(vec![0; limits.len().max(1)]),
                        (Some((_, effect)), _) => effects[*effect].1.clone(),
                    };
                    assert_eq!(planned(&tree, path), expected, "{path:?} of {set:?}");
                }
            }
        }
    }
    tree.rules.set_overrides([]);
    let after: Vec<Limits> = ASKED.iter().map(|path| planned(&tree, path)).collect();
    assert_eq!(after, before, "none is left");
}

#[test]
fn rules_as_written_do_not_change() {
    let mut tree = tree();
    let written = |tree: &Tree| -> Vec<Rule> { tree.rules.rules().to_vec() };
    let before = written(&tree);
    let own = [limited(100, Unit::Minute)];
    tree.rules.set_overrides([
        over(ASKED[0], OverrideEffect::Limits(&own)),
        over(ASKED[1], OverrideEffect::Unlimited),
    ]);
    assert_eq!(written(&tree), before);
    assert_eq!(tree.rules.written_rules().count(), before.len());
    // Counters and names are those of the rule.
    let request = request(&[take(ASKED[0], 1)]);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    let rule = plan.matched().next().unwrap().rules[0].clone();
    assert_eq!((rule.index, &*rule.name), (0, "own"));
}

#[test]
fn overrides_are_counted_at_the_rules_whose_place_they_take() {
    let levels = |key: &str| [Level::new(key, "")];
    let mut tree = Tree::new()
        .with_levels(&levels("user"), limited(10, Unit::Minute))
        .with_levels(&levels("other"), limited(10, Unit::Minute));
    let set = [ASKED[0], ASKED[1], ASKED[0], &[("no", "a")]];
    let set = set.map(|path| over(path, OverrideEffect::Unlimited));
    tree.rules.set_overrides(set);
    let counts = tree.rules.override_counts();
    let of_rules: Vec<_> = tree
        .rules
        .rules()
        .iter()
        .map(|rule| counts.of_rule(rule))
        .collect();
    assert_eq!(of_rules, [Some(2), None]);
}

#[test]
fn counts_go_on_when_a_limit_is_raised_and_when_its_time_has_come() {
    let mut tree = tree();
    let mut buckets = Buckets::default();
    let mut passes = |tree: &Tree, hits: u64| {
        let request = request(&[take(ASKED[0], hits)]);
        buckets.decide(&tree.rules, &request, at(1_200)).code == Code::Ok
    };
    assert!(passes(&tree, 10));
    assert!(!passes(&tree, 1));
    let raised = [limited(100, Unit::Minute)];
    tree.rules
        .set_overrides([over(ASKED[0], OverrideEffect::Limits(&raised))]);
    // What only the lower limit refused does not count.
    assert!(passes(&tree, 90));
    assert!(!passes(&tree, 1));
    tree.rules.set_overrides([]);
    assert!(!passes(&tree, 1));
}

#[test]
fn a_block_refuses_until_its_time_whatever_the_store_says_and_counts_nothing() {
    let mut tree = tree();
    let mut buckets = Buckets::default();
    tree.rules
        .set_overrides([over(ASKED[0], OverrideEffect::Blocked(at(9_000)))]);
    let mut decide = |tree: &Tree, hits: u64, is_undecided: bool| {
        let request = request(&[take(ASKED[0], hits)]);
        let plan = Plan::new(&tree.rules, &request, &TwoHashes);
        let outcomes = buckets.apply(plan.checks(), at(1_200)).into_iter();
        let mut outcomes: Vec<Option<Outcome>> = outcomes.map(Some).collect();
        if is_undecided {
            outcomes.fill(None);
        }
        plan.refuse_blocked(&mut outcomes, || at(1_200));
        let status = plan.decide(&outcomes, Code::Ok, Modes::default()).statuses[0];
        (status.code, status.until_reset_us, status.can_retry)
    };
    let blocked = (Code::OverLimit, Some(7_800_000_000), true);
    for (hits, is_undecided) in [(1, false), (0, false), (20, false), (1, true)] {
        assert_eq!(decide(&tree, hits, is_undecided), blocked, "{hits}");
    }
    tree.rules.set_overrides([]);
    assert_eq!(decide(&tree, 10, false).0, Code::Ok, "nothing was counted");
}

#[test]
fn an_override_without_effect_says_why() {
    let proxies = Rule {
        rlqs: true,
        ..limited(10, Unit::Minute)
    };
    let held = Rule {
        holder_key: Some("id".to_owned()),
        ..limited(10, Unit::Minute)
    };
    let tree = tree()
        .with(&[("proxies", "")], proxies)
        .with(&[("held", "")], held);
    let why = |domain: &'static str, path: Path<'_>| {
        let one = RuleOverride {
            domain: domain.as_bytes(),
            ..over(path, OverrideEffect::Unlimited)
        };
        tree.rules.overridden_by(&one).map(<[Rule]>::len)
    };
    assert_eq!(why("no", ASKED[0]), Err(WithoutEffect::UnknownDomain));
    assert_eq!(why(Tree::DOMAIN, ASKED[0]), Ok(1));
    assert_eq!(why(Tree::DOMAIN, ASKED[2]), Ok(2));
    assert_eq!(why(Tree::DOMAIN, ASKED[6]), Err(WithoutEffect::NoRule));
    assert_eq!(
        why(Tree::DOMAIN, &[("no", "a")]),
        Err(WithoutEffect::NoRule)
    );
    assert_eq!(
        why(Tree::DOMAIN, &[("proxies", "a")]),
        Err(WithoutEffect::Rlqs)
    );
    let with_holder: [(&str, &str); 2] = [("held", "a"), ("id", "1")];
    assert_eq!(
        why(Tree::DOMAIN, &with_holder),
        Err(WithoutEffect::NamesHolder)
    );
    assert_eq!(why(Tree::DOMAIN, &[("held", "a")]), Ok(1));
}
