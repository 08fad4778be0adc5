//! Levels that are reported as never reached: no entry reaches them.
//!
//! How: random siblings, and random entries made from what is configured. The entries are those of
//! `every_kind`, whose obvious matcher the real one equals. Cases by hand show that every kind of
//! level is reported at all.
//!
//! What it deliberately does not do: show that every level that is not reached is reported. That
//! is not promised.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::rules::patterns::{Automata, regex_words};
use tollgate_limiter::{
    Entry, Level, MatchKind, Parent, Prefix, RuleSet, Shadowed, ShadowedPart, StepBudget, Values,
};

use super::every_kind::{configured, sampled, siblings, values};
use super::found_by;
use tollgate_test_model::fixtures::Tree;
use tollgate_test_model::random_cases;

fn shadowed(rules: &RuleSet, regexes: &[String]) -> Vec<Shadowed> {
    let regexes = regexes.iter();
    let words: HashMap<_, _> = regexes
        .filter_map(|regex| Some((regex.as_str(), regex_words(regex)?)))
        .collect();
    let words = |regex: &str| words.get(regex).map(Vec::as_slice);
    rules.shadowed(&words, &StepBudget::unlimited())
}

fn regexes(levels: impl Iterator<Item = Values>) -> Vec<String> {
    let regexes = levels.filter_map(|values| match values {
        Values::Regex(regex) => Some(regex),
        _ => None,
    });
    regexes.collect()
}

/// Whether an entry that finds a level contradicts what is reported of it.
fn contradicts(one: &Shadowed, level: &Level, entry: &Entry<'_>, kind: MatchKind) -> bool {
    match one.part {
        ShadowedPart::Level => true,
        ShadowedPart::AllButOwnText => {
            entry.key != level.key.as_bytes() || entry.value != level.values.text().as_bytes()
        }
        ShadowedPart::Item(index) => match &*level.values {
            Values::List(values) => values[index].as_bytes() == entry.value,
            Values::Prefixes(prefixes) => kind == MatchKind::Prefix(prefixes[index]),
            values => panic!("no list: {values:?}"),
        },
    }
}

proptest! {
    #![proptest_config(random_cases(3_000))]

    #[test]
    fn no_entry_reaches_what_is_reported(
        siblings in vec(siblings(), 1..=8),
        key in select(&["k", "k", "k", "kk", "k*", "*", "other"][..]),
        wanted in vec(values(), 1..=12),
    ) {
        let (rules, kept) = configured(&siblings);
        let reported = shadowed(&rules, &regexes(kept.iter().map(|(_, kind)| kind.values())));
        for one in &reported {
            prop_assert!(one.node != one.by && one.by < kept.len(), "{one:?} of {kept:?}");
        }
        for wanted in wanted {
            let value = sampled(&siblings, wanted);
            let entry = Entry { key: key.as_bytes(), value: &value };
            let Some(place) = found_by(&rules, &[entry]) else {
                continue;
            };
            let steps = rules.trace(Tree::DOMAIN.as_bytes(), &[entry]);
            let (kind, level) = steps[0].matched.unwrap();
            for one in reported.iter().filter(|one| one.node == place) {
                prop_assert!(
                    !contradicts(one, level, &entry, kind),
                    "{one:?}, and {:?} reaches it: {kept:?}", value.escape_ascii().to_string()
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(random_cases(2_000))]

    #[test]
    fn without_a_node_that_changes_nothing_no_sibling_matches(
        siblings in vec(siblings(), 1..=6),
        key in select(&["k", "k", "k", "kk", "k*", "*"][..]),
        wanted in vec(values(), 1..=8),
    ) {
        let mut rules = RuleSet::default();
        rules.add_domain(Tree::DOMAIN);
        for (key, kind) in &siblings {
            let level = Level {
                values: kind.values().into(),
                ..Level::new(key, "")
            };
            // Duplicates are refused.
            let _ = rules.add_node(Parent::Domain(Tree::DOMAIN), level);
        }
        rules.compile(&mut Automata::default()).unwrap();
        let idle = rules.nodes_without_effect();
        let idle: Vec<_> = idle.iter().map(|node| rules.level(*node).unwrap()).collect();
        for wanted in wanted {
            let value = sampled(&siblings, wanted);
            let entry = Entry { key: key.as_bytes(), value: &value };
            let steps = rules.trace(Tree::DOMAIN.as_bytes(), &[entry]);
            if let Some((_, level)) = steps[0].matched
                && idle.contains(&level)
            {
                prop_assert_eq!(&steps[0].other_matches, &[], "{:?}", siblings);
            }
        }
    }
}

/// What is reported of levels of these keys and values: the node, the part, and a node that takes
/// it.
fn reported(levels: &[(&str, Values)]) -> Vec<(usize, ShadowedPart, usize)> {
    let mut rules = RuleSet::default();
    rules.add_domain("d");
    for (key, values) in levels {
        let level = Level {
            values: values.clone().into(),
            ..Level::new(key, "")
        };
        rules.add_node(Parent::Domain("d"), level).unwrap();
    }
    rules.compile(&mut Automata::default()).unwrap();
    let all = shadowed(
        &rules,
        &regexes(levels.iter().map(|(_, values)| values.clone())),
    );
    let all = all.into_iter();
    all.map(|one| (one.node, one.part, one.by)).collect()
}

fn text(text: &str) -> Values {
    Values::from_text(text)
}

fn regex(regex: &str) -> Values {
    Values::Regex(regex.to_owned())
}

fn list(values: &[&str]) -> Values {
    Values::List(values.iter().map(|&value| value.to_owned()).collect())
}

fn cidr(prefixes: &[&str]) -> Values {
    let prefixes = prefixes.iter().map(|text| Prefix::parse(text).unwrap());
    Values::Prefixes(prefixes.collect())
}

use ShadowedPart::{AllButOwnText as Own, Item, Level as Whole};

#[test]
fn patterns_are_shadowed_by_earlier_ones_that_match_more() {
    for (first, second, is_shadowed) in [
        ("*", "a*", true),
        ("a*", "ab*", true),
        ("*b", "a*b", true),
        ("a*c", "a*b*c", true),
        ("*a*b*", "*ab*", true),
        ("a**", "a*", true),
        ("*ab*", "*a*b*", false),
        ("a*a", "a*", false),
        ("a*", "*", false),
        ("a*", "*a", false),
        ("a*b", "ab*", false),
        ("/v1/*/x/*", "/v1/*/x/y/*", true),
        ("/v1/*/x/*", "/v1/*/y", false),
    ] {
        let found = reported(&[("k", text(first)), ("k", text(second))]);
        let expected = is_shadowed.then_some((1, Own, 0));
        assert_eq!(found.first().copied(), expected, "{first} {second}");
    }
}

#[test]
fn keys_with_stars_are_shadowed_as_keys_and_values_are_matched() {
    for (levels, expected) in [
        // A wildcard beats a default, wherever it is written.
        (&[("user", ""), ("user*", "")][..], &[(0, Whole, 1)][..]),
        (&[("user*", ""), ("user_*", "")], &[(1, Whole, 0)]),
        (&[("user*", ""), ("user_*", "a*")], &[(1, Own, 0)]),
        (&[("user*", "a*"), ("user_*", "ab")], &[(1, Own, 0)]),
        (&[("user*", "a*"), ("user_*", "")], &[]),
        (&[("user*", "a"), ("user_*", "a*")], &[]),
        (&[("user*", ""), ("user_x", "a*")], &[(1, Own, 0)]),
        (&[("user*", ""), ("user_x", "a")], &[]),
        (&[("user_*", ""), ("user*", "")], &[]),
    ] {
        let levels: Vec<_> = levels
            .iter()
            .map(|(key, value)| (*key, text(value)))
            .collect();
        assert_eq!(reported(&levels), expected, "{levels:?}");
    }
}

#[test]
fn a_default_and_regexes_are_shadowed_by_what_matches_all_their_values() {
    let any = || text("");
    for (levels, expected) in [
        (vec![any(), text("*")], &[(0, Whole, 1)][..]),
        (vec![any(), regex(".*")], &[(0, Whole, 1)]),
        (vec![any(), regex(".+")], &[]),
        (vec![any(), text("a*")], &[]),
        (vec![regex("/api/v1/.*"), text("/api/*")], &[(0, Whole, 1)]),
        (vec![regex("a.*"), regex("ab.*")], &[(1, Whole, 0)]),
        (vec![regex("(a.*)"), regex("a.*?")], &[(1, Whole, 0)]),
        (vec![regex("ab.*"), regex("a.*")], &[]),
        (vec![regex("^free$"), text("free")], &[(0, Whole, 1)]),
        (
            vec![regex("free|trial"), list(&["trial", "free"])],
            &[(0, Whole, 1)],
        ),
        (vec![regex("free|trial"), text("free")], &[]),
        (
            vec![regex("free|a.*"), text("free"), text("a*")],
            &[(0, Whole, 1)],
        ),
        (
            vec![regex(r"10\.0\.0\.1"), cidr(&["10.0.0.0/8"])],
            &[(0, Whole, 1)],
        ),
        // The byte that stands for any text is one byte to a regular expression.
        (vec![regex("a[^b]"), regex("a.*")], &[]),
        (vec![regex(r"a\xff"), regex("a.*")], &[]),
        // An expression without words is not reported, even if it is shadowed.
        (vec![regex("a.b"), text("a*b")], &[]),
    ] {
        let told = format!("{levels:?}");
        let levels: Vec<_> = levels.into_iter().map(|values| ("k", values)).collect();
        assert_eq!(reported(&levels), expected, "{told}");
    }
}

#[test]
fn items_of_lists_and_prefixes_are_shadowed_one_by_one() {
    for (levels, expected) in [
        (
            vec![list(&["free", "trial"]), text("trial")],
            &[(0, Item(1), 1)][..],
        ),
        (vec![list(&["free"]), text("free")], &[(0, Whole, 1)]),
        (vec![list(&["free"]), text("*")], &[]),
        (vec![cidr(&["10.0.0.0/8"]), cidr(&["10.1.0.0/16"])], &[]),
        (vec![cidr(&["10.0.0.0/8"]), cidr(&["0.0.0.0/0"])], &[]),
        (
            vec![cidr(&["0.0.0.0/0"]), cidr(&["0.0.0.0/1", "128.0.0.0/1"])],
            &[(0, Whole, 1)],
        ),
        (
            vec![
                cidr(&["10.0.0.0/8", "11.0.0.0/8"]),
                cidr(&["10.0.0.0/9", "10.128.0.0/10"]),
                cidr(&["10.192.0.0/10"]),
            ],
            &[(0, Item(0), 1)],
        ),
        (
            vec![cidr(&["fd00::/8"]), cidr(&["fd00::/9", "fd80::/9"])],
            &[(0, Whole, 1)],
        ),
        (vec![cidr(&["::/0"]), cidr(&["0.0.0.0/0"])], &[]),
        // Prefixes of one level are redundant, and the level is reached.
        (
            vec![cidr(&["10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9"])],
            &[],
        ),
    ] {
        let told = format!("{levels:?}");
        let levels: Vec<_> = levels.into_iter().map(|values| ("k", values)).collect();
        assert_eq!(reported(&levels), expected, "{told}");
    }
}

#[test]
fn a_search_without_steps_reports_nothing() {
    let mut rules = RuleSet::default();
    rules.add_domain("d");
    for value in ["a*", "ab*"] {
        rules
            .add_node(Parent::Domain("d"), Level::new("k", value))
            .unwrap();
    }
    rules.compile(&mut Automata::default()).unwrap();
    assert_eq!(rules.shadowed(&|_| None, &StepBudget::unlimited()).len(), 1);
    assert_eq!(rules.shadowed(&|_| None, &StepBudget::new(1)), []);
}
