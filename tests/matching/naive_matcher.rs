//! A naive matcher, and random trees on which it and the real one must agree.
//!
//! How: a level is a list searched three times from the top, and a `*` is tried at every length.
//! Few letters are used, and most descriptors are made from what is configured, with text for each
//! `*` and a letter left out now and then, so that patterns match values.
//!
//! What it deliberately does not do: be fast. A pattern with five `*` takes a while.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate::rules::patterns::Automata;
use tollgate_limiter::Parent;
use tollgate_limiter::{Level, RuleSet, Unit};

use super::found_by;
use tollgate_test_model::fixtures::{Tree, called, entries, glob, limited};

/// A node of the tree, before duplicates are refused.
type Node = (String, String, Vec<(String, String)>);

/// A node as configured: key, value, the index of its rule, and its children.
type Kept<'n> = (&'n str, &'n str, usize, Vec<(&'n str, &'n str, usize)>);

/// How an entry of a descriptor is made.
#[derive(Clone, Debug)]
enum Wanted {
    Any(String, String),
    /// Like a configured one.
    Like(Index, Filling),
}

/// The text for each `*`, and the letter left out.
#[derive(Clone, Debug)]
struct Filling {
    stars: Vec<String>,
    left_out: Option<Index>,
}

// === the naive matcher ===

/// The index of the sibling that an entry finds.
fn place(siblings: &[(&str, &str)], entry: (&str, &str)) -> Option<usize> {
    let (key, value) = entry;
    let exact = |one: &(&str, &str)| *one == entry && !value.is_empty();
    let wildcard = |one: &(&str, &str)| {
        (one.0.contains('*') || one.1.contains('*'))
            && glob(one.0.as_bytes(), key.as_bytes())
            && (one.1.is_empty() || glob(one.1.as_bytes(), value.as_bytes()))
    };
    let default = |one: &(&str, &str)| *one == (key, "");
    let first = |matches: &dyn Fn(&(&str, &str)) -> bool| siblings.iter().position(matches);
    first(&exact)
        .or_else(|| first(&wildcard))
        .or_else(|| first(&default))
}

/// The index of the rule that a path of one or two entries finds.
fn expected(kept: &[Kept<'_>], path: &[(&str, &str)]) -> Option<usize> {
    let level: Vec<_> = kept.iter().map(|one| (one.0, one.1)).collect();
    let (_, _, rule, children) = &kept[place(&level, path[0])?];
    let Some(entry) = path.get(1) else {
        return Some(*rule);
    };
    let level: Vec<_> = children.iter().map(|one| (one.0, one.1)).collect();
    Some(children[place(&level, *entry)?].2)
}

/// Adds nodes, except duplicates. Rules are named by their index.
fn configured(nodes: &[Node]) -> (RuleSet, Vec<Kept<'_>>) {
    let mut rules = RuleSet::default();
    rules.add_domain(Tree::DOMAIN);
    let mut add = |parent, key: &str, value: &str| {
        let node = rules.add_node(parent, Level::new(key, value)).ok()?;
        let place = rules.rules().len();
        let rule = called(&place.to_string(), limited(1, Unit::Minute));
        rules.set_rules(node, [rule]);
        Some((node, place))
    };
    let mut kept = Vec::new();
    for (key, value, children) in nodes {
        let Some((node, place)) = add(Parent::Domain(Tree::DOMAIN), key, value) else {
            continue;
        };
        let children = children
            .iter()
            .filter_map(|(key, value)| {
                let (_, place) = add(Parent::Node(node), key, value)?;
                Some((key.as_str(), value.as_str(), place))
            })
            .collect();
        kept.push((key.as_str(), value.as_str(), place, children));
    }
    rules.compile(&mut Automata::default()).unwrap();
    (rules, kept)
}

// === impl Wanted ===

impl Wanted {
    fn entry<'n>(&self, siblings: impl Iterator<Item = (&'n str, &'n str)>) -> (String, String) {
        let siblings: Vec<_> = siblings.collect();
        match self {
            Self::Like(index, filling) if !siblings.is_empty() => {
                let (key, value) = siblings[index.index(siblings.len())];
                (filling.put_in(key), filling.put_in(value))
            }
            Self::Like(..) => (String::new(), String::new()),
            Self::Any(key, value) => (key.clone(), value.clone()),
        }
    }
}

impl Filling {
    fn put_in(&self, pattern: &str) -> String {
        let mut stars = self.stars.iter().cycle();
        let mut text: String = pattern
            .split_inclusive('*')
            .map(|part| match part.strip_suffix('*') {
                Some(part) => part.to_owned() + stars.next().map_or("", |star| star),
                None => part.to_owned(),
            })
            .collect();
        if let Some(index) = self.left_out
            && !text.is_empty()
        {
            text.remove(index.index(text.len()));
        }
        text
    }
}

// === what proptest makes ===

fn texts() -> impl Strategy<Value = String> {
    vec(select(&['a', 'b', '_', '*', '*'][..]), 0..=6)
        .prop_map(|letters| letters.into_iter().collect())
}

fn keys() -> impl Strategy<Value = String> {
    select(&["a", "b", "a_b", "a*", "*"][..]).prop_map(str::to_owned)
}

fn fillings() -> impl Strategy<Value = Filling> {
    let star = select(&["", "", "a", "b", "ab", "_"][..]).prop_map(str::to_owned);
    (vec(star, 1..=5), option::of(any::<Index>()))
        .prop_map(|(stars, left_out)| Filling { stars, left_out })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        1 => (keys(), texts()).prop_map(|(key, value)| Wanted::Any(key, value)),
        3 => (any::<Index>(), fillings()).prop_map(|(index, filling)| Wanted::Like(index, filling)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_pattern_matches_as_the_naive_matcher_does(
        pattern in texts(),
        filling in fillings(),
    ) {
        let text = filling.put_in(&pattern);
        let (rules, _) = configured(&[("k".to_owned(), pattern.clone(), Vec::new())]);
        let found = found_by(&rules, &entries(&[("k", &text)]));
        let matches = pattern.is_empty() || glob(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(found.is_some(), matches, "{:?} and {:?}", pattern, text);
    }

    #[test]
    fn a_descriptor_finds_the_rule_of_the_naive_search(
        nodes in vec((keys(), texts(), vec((keys(), texts()), 0..=3)), 1..=6),
        first in wanted(),
        second in option::of(wanted()),
    ) {
        let (rules, kept) = configured(&nodes);
        let first = first.entry(kept.iter().map(|one| (one.0, one.1)));
        let children = kept.iter().flat_map(|one| &one.3).map(|one| (one.0, one.1));
        let second = second.map(|second| second.entry(children));
        let path: Vec<(&str, &str)> = [Some(&first), second.as_ref()]
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        prop_assert_eq!(found_by(&rules, &entries(&path)), expected(&kept, &path));
    }
}
