//! Lists, prefixes and regular expressions by hand: what they match, and what they do not.
//!
//! What it deliberately does not do: parse a rules file, or order one kind before another
//! (`every_kind`).

use tollgate::rules::patterns::Automata;
use tollgate_limiter::{
    AddNodeError, Entry, Level, Parent, Pattern, PatternCompiler, PatternError, Prefix,
    PrefixError, RuleSet, StepBudget, Values,
};

use super::found_by;
use tollgate_limiter::Unit;
use tollgate_test_model::fixtures::{Tree, called, limited};

fn level(values: Values) -> Level {
    Level {
        values: values.into(),
        ..Level::new("k", "")
    }
}

fn prefixes(texts: &[&str]) -> Values {
    Values::Prefixes(
        texts
            .iter()
            .map(|text| Prefix::parse(text).unwrap())
            .collect(),
    )
}

fn list(texts: &[&str]) -> Values {
    Values::List(texts.iter().map(|&text| text.to_owned()).collect())
}

/// A tree in which each of these has a rule named by its index.
fn tree(all: &[Values]) -> Tree {
    all.iter().enumerate().fold(
        Tree::compiled_by(Automata::default()),
        |tree, (place, values)| {
            let rule = called(&place.to_string(), limited(1, Unit::Minute));
            tree.with_levels(&[level(values.clone())], rule)
        },
    )
}

fn find(tree: &Tree, value: impl AsRef<[u8]>) -> Option<usize> {
    let value = value.as_ref();
    found_by(&tree.rules, &[Entry { key: b"k", value }])
}

/// Whether a regular expression matches a value.
fn matches(regex: &str, value: impl AsRef<[u8]>) -> bool {
    Automata::default().check(regex).unwrap();
    find(&tree(&[Values::Regex(regex.to_owned())]), value).is_some()
}

#[test]
fn the_longest_prefix_wins_in_any_order() {
    let tree = tree(&[
        prefixes(&["0.0.0.0/0"]),
        prefixes(&["10.0.0.0/8", "192.168.0.0/16"]),
        prefixes(&["10.1.0.0/16"]),
        prefixes(&["10.1.2.3"]),
        prefixes(&["10.1.0.0/17"]),
    ]);
    for (value, place) in [
        ("1.2.3.4", 0),
        ("10.2.0.0", 1),
        ("192.168.255.255", 1),
        ("192.169.0.0", 0),
        ("10.1.128.0", 2),
        ("10.1.127.255", 4),
        ("10.1.2.3", 3),
        ("10.1.2.4", 4),
    ] {
        assert_eq!(find(&tree, value), Some(place), "{value}");
    }
}

#[test]
fn one_address_has_many_spellings() {
    let tree = tree(&[
        prefixes(&["10.0.0.0/8"]),
        prefixes(&["2001:db8::/32"]),
        prefixes(&["::/0"]),
    ]);
    for (value, place) in [
        ("10.1.2.3", Some(0)),
        ("::ffff:10.1.2.3", Some(0)),
        ("::FFFF:0a01:0203", Some(0)),
        ("0:0:0:0:0:ffff:10.1.2.3", Some(0)),
        ("::10.1.2.3", Some(2)),   // not mapped: an address of version 6
        ("::ffff:11.1.2.3", None), // version 4, of which ::/0 holds none
        ("11.1.2.3", None),
        ("2001:db8::", Some(1)),
        ("2001:0DB8:0000:0000:0000:0000:0000:0001", Some(1)),
        ("2001:db9::1", Some(2)),
        // A text that is not an address is in no prefix.
        ("", None),
        ("10.1.2", None),
        ("10.1.2.3.4", None),
        ("010.1.2.3", None),
        ("10.1.2.3 ", None),
        ("10.1.2.3:80", None),
        ("10.1.2.256", None),
        ("[2001:db8::1]", None),
        ("2001:db8::1%eth0", None),
        ("2001:db8::1::1", None),
        ("localhost", None),
    ] {
        assert_eq!(find(&tree, value), place, "{value}");
    }
    assert_eq!(find(&tree, b"10.1.2.\xff"), None);
    assert_eq!(find(&tree, vec![b':'; 100_000]), None);
}

#[test]
fn prefixes_are_read_or_refused() {
    for (text, spelled) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", "10.0.0.1/32"),
        ("10.0.0.1/32", "10.0.0.1/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00::/8", "fd00::/8"),
        ("::1", "::1/128"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.0.0.1", "10.0.0.1/32"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("10.0.0.0/08", "10.0.0.0/8"),
    ] {
        assert_eq!(
            format!("{:#}", Prefix::parse(text).unwrap()),
            spelled,
            "{text}"
        );
    }
    for text in [
        "",
        "/8",
        "x/8",
        "10.0.0/8",
        "10.0.0.0.0",
        " 10.0.0.0/8",
        "::x/8",
        "10.0.0.0,::1",
    ] {
        assert_eq!(Prefix::parse(text), Err(PrefixError::NoAddress), "{text}");
    }
    for (text, most) in [
        ("10.0.0.0/33", 32),
        ("10.0.0.0/", 32),
        ("10.0.0.0/+8", 32),
        ("10.0.0.0/-8", 32),
        ("10.0.0.0/8/8", 32),
        ("10.0.0.0/256", 32),
        ("::/129", 128),
        ("::ffff:0:0/129", 128),
    ] {
        assert_eq!(
            Prefix::parse(text),
            Err(PrefixError::Length(most)),
            "{text}"
        );
    }
    for (text, network, host) in [
        ("10.0.0.1/8", "10.0.0.0/8", "10.0.0.1/32"),
        ("fd00::1/8", "fd00::/8", "fd00::1/128"),
        ("::ffff:10.0.0.1/104", "10.0.0.0/8", "10.0.0.1/32"),
        ("::ffff:0:0/95", "::fffe:0:0/95", "0.0.0.0/32"), // a prefix of version 6 that cuts the map
    ] {
        let error = PrefixError::HostBits {
            network: Prefix::parse(network).unwrap(),
            host: Prefix::parse(host).unwrap(),
        };
        assert_eq!(Prefix::parse(text), Err(error), "{text}");
    }
}

#[test]
fn a_list_matches_its_values_and_nothing_else() {
    let tree = tree(&[list(&["free", "trial"]), list(&["paid", "10.0.0.1"])]);
    assert_eq!(find(&tree, "free"), Some(0));
    assert_eq!(find(&tree, "trial"), Some(0));
    assert_eq!(find(&tree, "paid"), Some(1));
    assert_eq!(find(&tree, "10.0.0.1"), Some(1));
    for other in ["", "fre", "freee", "Free", "free|trial", "::ffff:10.0.0.1"] {
        assert_eq!(find(&tree, other), None, "{other}");
    }
}

#[test]
fn a_regex_matches_the_whole_value_as_bytes() {
    // Both anchors hold for every branch, and no comment or flag removes them.
    for regex in [
        "a|b",
        "(?x) a | b # either",
        "(?x)a|b#",
        "(?:a)|b",
        "^a|b$",
        "(?m)^a$|^b$",
        "(?i)A|B",
    ] {
        for (value, expected) in [
            ("a", true),
            ("b", true),
            ("ab", false),
            ("xa", false),
            ("a\n", false),
            ("", false),
        ] {
            assert_eq!(matches(regex, value), expected, "{regex} and {value:?}");
        }
    }
    // `.` matches any byte.
    for value in [
        &b""[..],
        b"\n",
        b"\xff",
        b"\0",
        "é".as_bytes(),
        b"a\r\n\xff\xfe",
    ] {
        assert!(matches(".*", value), "{value:?}");
        assert!(matches("(?s).*", value), "{value:?}");
        assert_eq!(matches(".", value), value.len() == 1, "{value:?}");
        assert!(matches("x?.*y?", value), "{value:?}");
    }
    assert!(!matches("(?-s).*", "\n"));
    assert!(matches(r"\xff+", b"\xff\xff"));
    assert!(!matches(r"\xff", "ÿ"));
    assert!(matches("[^a]", b"\xff"));
    // Beyond ASCII a letter is its bytes.
    assert!(matches("é+", "éé"));
    assert!(!matches("é", b"\xc3"));
    assert!(!matches("(?i)é", "É"));
    assert!(matches("(?i)straße", "STRAßE"));
    assert!(matches(r"\d+", "0123"));
    assert!(!matches(r"\d+", "١"));
    assert!(matches(r"a\b.*", "a!"));
    assert!(!matches(r"a\b.*", "ab"));
    assert!(matches(r"/v\d+/(items|orders)/.*", "/v12/orders/"));
    assert!(matches("a$.*", "a"));
    assert!(!matches("a$.*", "ab"));
    assert!(matches("(?:)", ""));
    assert!(matches("a{3,5}", "aaaa"));
    assert!(!matches("a{3,5}", "aaaaaa"));
}

#[test]
fn an_expression_without_a_table_of_its_own_matches_the_same() {
    // 2^18 states half-way, more than the table may have.
    let regex = "(?:a|b)*a(?:a|b){18}";
    let made = Automata::default()
        .compile(&[Pattern::Regex(regex)])
        .unwrap();
    assert!(format!("{made:?}").contains("Slow"), "{made:?}");
    let value = |tail: usize| format!("abba{}", "b".repeat(tail));
    for (tail, expected) in [
        (18, true),
        (17, false),
        (19, false),
        (15, true),
        (14, false),
    ] {
        // The nineteenth from the end must be an `a`: here the last one, or the first.
        assert_eq!(matches(regex, value(tail)), expected, "{tail}");
    }
    assert!(!matches(regex, "a\n"));
}

#[test]
fn patterns_that_do_not_fit_into_one_automaton_go_into_several_and_keep_their_order() {
    let texts: Vec<_> = (0..40)
        .map(|n| match n {
            17 => "/v1/x/*".to_owned(), // of another sort than its neighbours
            n => format!("/v1/*/item{n:02}/*/sub{n:02}/*"),
        })
        .collect();
    let mut patterns: Vec<_> = texts.iter().map(|text| Pattern::Wildcard(text)).collect();
    patterns.push(Pattern::Regex("/v[0-9]/.*"));
    let made = Automata::default().compile(&patterns).unwrap();
    assert!(
        format!("{made:?}").starts_with("GroupedMatcher"),
        "{made:?}"
    );
    let all = |value: &str| {
        let mut all = Vec::new();
        made.each_match(value.as_bytes(), &StepBudget::unlimited(), &mut |one| {
            all.push(one);
        });
        all.sort_unstable();
        all.dedup();
        all
    };
    for (value, expected) in [
        ("/v1/y/item05/item30/-/sub30/sub05/", &[5, 30, 40][..]),
        ("/v1/y/item30/item05/-/sub30/sub05/", &[5, 30, 40]),
        ("/v1/x/item05/item30/-/sub30/sub05/", &[5, 17, 30, 40]),
        ("/v1/x/item38/sub38/item39/-/sub39/", &[17, 39, 40]),
        ("/v1/x/item20/sub21/", &[17, 40]),
        ("/v2/y", &[40]),
        ("/v1/item01/-/sub01/", &[40]), // one slash cannot be two
        ("/w", &[]),
    ] {
        assert_eq!(all(value), expected, "{value}");
        assert_eq!(
            made.first_match(value.as_bytes(), &StepBudget::unlimited()),
            expected.first().copied(),
            "{value}"
        );
    }
}

#[test]
fn siblings_alike_are_refused_item_by_item() {
    let mut rules = RuleSet::default();
    rules.add_domain("d");
    let mut add = |values| rules.add_node(Parent::Domain("d"), level(values)).map(drop);
    assert_eq!(add(list(&["a", "b"])), Ok(()));
    assert_eq!(
        add(list(&["c", "a", "d", "c"])),
        Err(AddNodeError::DuplicateItems(vec![1, 3]))
    );
    assert_eq!(
        add(list(&["c", "d"])),
        Ok(()),
        "what was refused left nothing behind"
    );
    assert_eq!(add(prefixes(&["10.0.0.0/8", "fd00::/8"])), Ok(()));
    assert_eq!(
        add(prefixes(&["10.0.0.0/9", "::ffff:10.0.0.0/104"])),
        Err(AddNodeError::DuplicateItems(vec![1]))
    );
    assert_eq!(add(prefixes(&["10.0.0.0/9"])), Ok(()));
    assert_eq!(add(Values::Regex("a".to_owned())), Ok(()));
    assert_eq!(
        add(Values::Regex("a".to_owned())),
        Err(AddNodeError::Duplicate)
    );
    assert_eq!(add(Values::Regex("(?:a)".to_owned())), Ok(()));
    // The same text in another kind is distinct.
    for value in ["a", "10.0.0.0/8", "a*"] {
        assert_eq!(add(Values::from_text(value)), Ok(()), "{value}");
    }
    for values in [
        list(&["a"]),
        prefixes(&["::1"]),
        Values::Regex("a".to_owned()),
    ] {
        let level = Level {
            values: values.into(),
            ..Level::new("k*", "")
        };
        let added = rules.add_node(Parent::Domain("d"), level);
        assert_eq!(added, Err(AddNodeError::WildcardKey));
    }
}

#[test]
fn a_pattern_error_names_the_first_node() {
    let mut rules = RuleSet::default();
    rules.add_domain("d");
    let node = rules.add_node(Parent::Domain("d"), level(Values::Regex("(".to_owned())));
    let wrong = rules.compile(&mut Automata::default()).unwrap_err();
    assert_eq!(wrong.len(), 1);
    assert_eq!(Ok(wrong[0].0), node);
    assert!(matches!(&wrong[0].1, PatternError::Syntax(words) if words.contains("unclosed group")));
}
