//! Which rule a descriptor finds, by hand from the reference service's rules. `every_kind` has the
//! random cases.
//!
//! The rules: one level of the tree for each entry. At each level an exact value wins over the
//! patterns of that level in the order configured, and these over the key's default. The branch
//! taken is final. Only the node of the *last* entry counts. The reference service compares joined
//! text; keys and values are compared separately here.
//!
//! Why not in the limiter's own tests: the patterns are compiled by the service's automata, which
//! the limiter takes as an argument. `reference_keys` is here for the same reason: the names are
//! the Redis store's.
//!
//! What it deliberately does not do: parse a rules file, or count.
// A test fails by a panic.

mod every_kind;
mod growth;
mod kinds;
mod reference_keys;
mod shadowed;

use tollgate::rules::patterns::Automata;
use tollgate_limiter::Parent;
use tollgate_limiter::{AddNodeError, Entry, Level, Match, RuleSet, Unit};

use tollgate_test_model::fixtures::{Path, Tree, called, entries, limited};

/// A tree in which each path has a rule that is named by its index in the list.
fn tree(paths: &[Path<'_>]) -> Tree {
    paths.iter().enumerate().fold(
        Tree::compiled_by(Automata::default()),
        |tree, (place, path)| tree.with(path, called(&place.to_string(), limited(1, Unit::Minute))),
    )
}

/// The index of the rule that the descriptor finds.
fn found(tree: &Tree, path: Path<'_>) -> Option<usize> {
    found_by(&tree.rules, &entries(path))
}

fn found_by(rules: &RuleSet, entries: &[Entry<'_>]) -> Option<usize> {
    match rules.find(Tree::DOMAIN.as_bytes(), entries) {
        Match::Rules(matched) => Some(matched.rules[0].name.parse().unwrap()),
        Match::None => None,
        Match::UnknownDomain => panic!("the domain is known"),
    }
}

#[test]
fn exact_beats_wildcard_beats_default() {
    let tree = tree(&[&[("k", "")], &[("k", "v*")], &[("k", "v1")]]);
    assert_eq!(found(&tree, &[("k", "v1")]), Some(2));
    assert_eq!(found(&tree, &[("k", "v2")]), Some(1));
    assert_eq!(found(&tree, &[("k", "w")]), Some(0));
    assert_eq!(found(&tree, &[("other", "v1")]), None);
    assert_eq!(found(&tree, &[("K", "v1")]), None); // case matters
    assert_eq!(found(&tree, &[("k", "V1")]), Some(0));
}

#[test]
fn the_first_wildcard_configured_wins() {
    let one_way = tree(&[&[("k", "a*")], &[("k", "*b")]]);
    let other_way = tree(&[&[("k", "*b")], &[("k", "a*")]]);
    // Both patterns match in both orders. The more specific one has no precedence.
    assert_eq!(found(&one_way, &[("k", "ab")]), Some(0));
    assert_eq!(found(&other_way, &[("k", "ab")]), Some(0));
    assert_eq!(found(&one_way, &[("k", "xb")]), Some(1));
    assert_eq!(
        found(&tree(&[&[("k", "*")], &[("k", "abc*")]]), &[("k", "abcd")]),
        Some(0)
    );
}

/// Pattern, value, whether it matches.
const PATTERNS: &[(&str, &str, bool)] = &[
    ("*", "", true),
    ("*", "anything", true),
    ("a*", "a", true), // zero characters are enough
    ("a*", "ab", true),
    ("a*", "ba", false),
    ("*a", "a", true),
    ("*a", "ba", true),
    ("*a", "ab", false),
    ("a*b", "ab", true),
    ("a*b", "axxb", true),
    ("a*b", "axxbx", false),
    ("a*a", "a", false), // one a cannot be both ends
    ("a*a", "aa", true),
    ("ab*ba", "aba", false),
    ("ab*ba", "abba", true),
    ("a*b*c", "abc", true),
    ("a*b*c", "a-b-c", true),
    ("a*b*c", "acb", false),
    ("a*b*b", "ab", false), // the middle b is not the last b
    ("a*b*b", "abb", true),
    ("*aa*aa*", "aaa", false),
    ("*aa*aa*", "aaaa", true),
    ("*ab*ba*", "aba", false),
    ("*b*a*", "ab", false), // in order
    ("**", "", true),
    ("a**b", "ab", true),
    ("***a***", "xax", true),
    ("/api/*/items/*", "/api/v1/items/42", true),
    ("/api/*/items/*", "/api/items/42", false), // two slashes stand between, and there is one
    ("*.example.com", ".example.com", true),
    ("*.example.com", "example.com", false),
    ("a?", "ab", false), // no other character is special
];

#[test]
fn stars_stand_for_zero_or_more_bytes_in_order_and_without_overlap() {
    for &(pattern, value, matches) in PATTERNS {
        let tree = tree(&[&[("k", pattern)]]);
        let found = found(&tree, &[("k", value)]);
        assert_eq!(found.is_some(), matches, "{pattern:?} and {value:?}");
    }
}

#[test]
fn the_text_of_a_pattern_is_an_exact_match_of_it() {
    // The first pattern also matches the second's text, and comes first. Exact comes before both.
    let tree = tree(&[&[("k", "*")], &[("k", "files/*")]]);
    assert_eq!(found(&tree, &[("k", "files/*")]), Some(1));
    assert_eq!(found(&tree, &[("k", "files/a")]), Some(0));
}

#[test]
fn stars_in_keys_work_and_do_not_reach_the_value() {
    let tree = tree(&[&[("x-*", "")], &[("y-*", "on")], &[("x-b", "")]]);
    assert_eq!(found(&tree, &[("x-a", "anything")]), Some(0));
    assert_eq!(found(&tree, &[("x-", "")]), Some(0));
    assert_eq!(found(&tree, &[("x-b", "anything")]), Some(0)); // a wildcard beats a default, in keys too
    assert_eq!(found(&tree, &[("y-a", "on")]), Some(1));
    assert_eq!(found(&tree, &[("y-a", "off")]), None);
    // Joined with `_` this would be y-a_on.
    assert_eq!(found(&tree, &[("y-a_on", "")]), None);
}

#[test]
fn only_the_node_of_the_last_entry_counts() {
    let tree = tree(&[
        &[("a", "1")],
        &[("a", "1"), ("b", "2"), ("c", "3")],
        &[("d", "4")],
    ]);
    assert_eq!(found(&tree, &[("a", "1")]), Some(0)); // deeper nodes do not matter
    assert_eq!(found(&tree, &[("a", "1"), ("b", "2")]), None); // a node on the way, without a rule
    assert_eq!(found(&tree, &[("a", "1"), ("b", "2"), ("c", "3")]), Some(1));
    assert_eq!(found(&tree, &[("d", "4"), ("e", "5")]), None); // the path runs out: not the rule on the way
    assert_eq!(
        found(&tree, &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]),
        None
    );
    assert_eq!(found(&tree, &[("b", "2")]), None); // paths begin at the root
    assert_eq!(found(&tree, &[]), None);
}

#[test]
fn the_branch_taken_is_final() {
    // The exact node has no child c; the wildcard's and the default's have one.
    let tree = tree(&[
        &[("a", "1"), ("b", "")],
        &[("a", "1*"), ("c", "")],
        &[("a", ""), ("c", "")],
        &[("a", ""), ("d", "")],
    ]);
    assert_eq!(found(&tree, &[("a", "1"), ("b", "x")]), Some(0));
    assert_eq!(found(&tree, &[("a", "1"), ("c", "x")]), None);
    assert_eq!(found(&tree, &[("a", "12"), ("c", "x")]), Some(1));
    assert_eq!(found(&tree, &[("a", "12"), ("d", "x")]), None);
    assert_eq!(found(&tree, &[("a", "2"), ("d", "x")]), Some(3));
}

#[test]
fn a_node_without_a_rule_lets_its_value_through() {
    let tree = tree(&[&[("ip", "")]]).with_bare(&[("ip", "10.0.0.1")]);
    assert_eq!(found(&tree, &[("ip", "10.0.0.1")]), None);
    assert_eq!(found(&tree, &[("ip", "10.0.0.2")]), Some(0));
}

#[test]
fn an_empty_value_tries_patterns_and_then_the_default() {
    assert_eq!(found(&tree(&[&[("k", "")]]), &[("k", "")]), Some(0));
    let tree = tree(&[&[("k", "")], &[("k", "v")], &[("k", "*")]]);
    assert_eq!(found(&tree, &[("k", "")]), Some(2));
    assert_eq!(found(&tree, &[("", "")]), None);
}

#[test]
fn keys_and_values_do_not_run_together() {
    let tree = tree(&[&[("a", "b_c")], &[("a_b", "c")], &[("p", "q")]]);
    assert_eq!(found(&tree, &[("a", "b_c")]), Some(0));
    assert_eq!(found(&tree, &[("a_b", "c")]), Some(1));
    assert_eq!(found(&tree, &[("a_b_c", "")]), None);
    // The reference service would fall back to the map key p_q.
    assert_eq!(found(&tree, &[("p_q", "unknown")]), None);
}

#[test]
fn siblings_alike_and_unknown_parents_are_refused() {
    let mut rules = RuleSet::default();
    assert!(rules.add_domain("d"));
    assert!(!rules.add_domain("d"));
    let root = Parent::Domain("d");
    let mut add = |parent, key, value| rules.add_node(parent, Level::new(key, value));
    let node = add(root, "k", "v").unwrap();
    assert_eq!(add(root, "k", "v"), Err(AddNodeError::Duplicate));
    assert!(add(root, "k", "").is_ok());
    assert_eq!(add(root, "k", ""), Err(AddNodeError::Duplicate));
    assert!(add(root, "k", "*").is_ok());
    assert_eq!(add(root, "k", "*"), Err(AddNodeError::Duplicate));
    // The same pair under another parent is another node.
    assert!(add(Parent::Node(node), "k", "v").is_ok());
    assert_eq!(add(Parent::Node(99), "k", "v"), Err(AddNodeError::NoParent));
    assert_eq!(
        add(Parent::Domain("e"), "k", "v"),
        Err(AddNodeError::NoParent)
    );
}

#[test]
fn domains_are_apart_and_compared_byte_by_byte() {
    let tree = tree(&[&[("k", "")]]);
    let find = |domain: &[u8]| tree.rules.find(domain, &entries(&[("k", "v")]));
    assert!(matches!(find(b"domain"), Match::Rules(_)));
    for other in [&b"Domain"[..], b"domain ", b"", b"dom\xff"] {
        assert_eq!(find(other), Match::UnknownDomain);
    }
}

#[test]
fn values_need_not_be_text_nor_short() {
    let tree = tree(&[&[("k", "")], &[("k", "a*z")], &[("k", "*nothing*")]]);
    let find = |value: &[u8]| found_by(&tree.rules, &[Entry { key: b"k", value }]);
    assert_eq!(find(b"\xff\xfe"), Some(0));
    assert_eq!(find(b"a\xff\x00z"), Some(1));
    let long = |first: u8, last: u8| {
        let mut value = vec![b'n'; 60 * 1_024];
        value[0] = first;
        *value.last_mut().unwrap() = last;
        value
    };
    assert_eq!(find(&long(b'a', b'z')), Some(1));
    assert_eq!(find(&long(b'a', b'n')), Some(0));
    assert_eq!(
        found_by(
            &tree.rules,
            &[Entry {
                key: &long(b'k', b'k'),
                value: b"v"
            }]
        ),
        None
    );
}
