//! Lists, prefixes and regular expressions beside values and patterns: a naive matcher, and
//! random siblings on which both must agree.
//!
//! How: siblings are a list, searched once for each kind from the top. An address is a string of
//! bits, and a prefix is its beginning. Regular expressions come from a small language of their
//! own, whose matcher tries everything: from each position the set of positions where a part can
//! end. A `*` is tried at every length.
//!
//! What it deliberately does not do: be fast, or go deeper than two levels.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate::rules::patterns::Automata;
use tollgate_limiter::{Entry, Level, MatchKind, Parent, Prefix, RuleSet, Unit, Values};

use super::found_by;
use tollgate_test_model::fixtures::{Tree, called, glob, limited};
use tollgate_test_model::random_cases;

/// A regular expression.
#[derive(Clone, Debug)]
pub(crate) enum Regex {
    Byte(u8),
    AnyByte,
    OneOf(Vec<u8>),
    Row(Vec<Regex>),
    Either(Vec<Regex>),
    Many(Box<Regex>),
    Maybe(Box<Regex>),
}

/// A level as configured.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Value(String),
    List(Vec<String>),
    Prefixes(Vec<(IpAddr, u8)>),
    Regex(Regex),
}

pub(super) type Sibling = (String, Kind);

/// The index of a similar sibling, and choices for it; a byte to change; or anything instead.
pub(super) type Wanted = (Index, Vec<usize>, Option<(Index, u8)>, Option<Vec<u8>>);

// === the naive matcher ===

impl Regex {
    fn text(&self) -> String {
        let joined = |parts: &[Self], by: &str| {
            let parts: Vec<_> = parts.iter().map(Self::text).collect();
            format!("(?:{})", parts.join(by))
        };
        let byte = |byte: &u8| format!("\\x{byte:02X}");
        match self {
            Self::Byte(one) => byte(one),
            Self::AnyByte => ".".to_owned(),
            Self::OneOf(bytes) => {
                format!("[{}]", bytes.iter().map(byte).collect::<String>())
            }
            Self::Row(parts) => joined(parts, ""),
            Self::Either(parts) => joined(parts, "|"),
            Self::Many(part) => format!("(?:{})*", part.text()),
            Self::Maybe(part) => format!("(?:{})?", part.text()),
        }
    }

    /// Where a match that begins here can end.
    fn ends(&self, text: &[u8], from: usize) -> BTreeSet<usize> {
        let one = |fits: bool| fits.then_some(from + 1).into_iter().collect();
        match self {
            Self::Byte(byte) => one(text.get(from) == Some(byte)),
            Self::AnyByte => one(from < text.len()),
            Self::OneOf(bytes) => one(text.get(from).is_some_and(|byte| bytes.contains(byte))),
            Self::Row(parts) => parts.iter().fold(BTreeSet::from([from]), |froms, part| {
                let ends = froms.into_iter().flat_map(|from| part.ends(text, from));
                ends.collect()
            }),
            Self::Either(parts) => parts
                .iter()
                .flat_map(|part| part.ends(text, from))
                .collect(),
            Self::Many(part) => {
                let mut all = BTreeSet::from([from]);
                loop {
                    let more: BTreeSet<_> =
                        all.iter().flat_map(|from| part.ends(text, *from)).collect();
                    let before = all.len();
                    all.extend(more);
                    if all.len() == before {
                        return all;
                    }
                }
            }
            Self::Maybe(part) => {
                let mut ends = part.ends(text, from);
                ends.insert(from);
                ends
            }
        }
    }

    fn matches(&self, text: &[u8]) -> bool {
        self.ends(text, 0).contains(&text.len())
    }

    /// A text that it matches, chosen by these numbers.
    fn sample(&self, choices: &mut impl Iterator<Item = usize>) -> Vec<u8> {
        let mut choose = |among: usize| choices.next().unwrap_or(0) % among;
        match self {
            Self::Byte(byte) => vec![*byte],
            Self::AnyByte => vec![[b'a', b'\n', 0xff][choose(3)]],
            Self::OneOf(bytes) => vec![bytes[choose(bytes.len())]],
            Self::Row(parts) => parts.iter().flat_map(|part| part.sample(choices)).collect(),
            Self::Either(parts) => parts[choose(parts.len())].sample(choices),
            Self::Many(part) => {
                let times = choose(3);
                (0..times).flat_map(|_| part.sample(choices)).collect()
            }
            Self::Maybe(part) if choose(2) == 0 => part.sample(choices),
            Self::Maybe(_) => Vec::new(),
        }
    }
}

/// An address as a string of bits, of either version.
fn bits(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("4{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("6{:0128b}", address.to_bits()),
    }
}

fn prefix_bits((address, length): (IpAddr, u8)) -> String {
    bits(address)[..=usize::from(length)].to_owned()
}

fn holds(prefix: (IpAddr, u8), value: &[u8]) -> bool {
    let address = str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    address.is_some_and(|address| bits(address).starts_with(&prefix_bits(prefix)))
}

/// The indices of all siblings that an entry matches, the one that it finds first.
fn fitting(siblings: &[&Sibling], key: &[u8], value: &[u8]) -> Vec<usize> {
    let mut all: Vec<(u32, usize)> = Vec::new();
    for (place, (of, kind)) in siblings.iter().enumerate() {
        let here = of.as_bytes() == key;
        let rank = match kind {
            Kind::Value(one) if here && !one.is_empty() && one.as_bytes() == value => Some(0),
            Kind::List(list) if here && list.iter().any(|one| one.as_bytes() == value) => Some(1),
            Kind::Prefixes(prefixes) if here => prefixes
                .iter()
                .filter(|prefix| holds(**prefix, value))
                .map(|(_, length)| 200 - u32::from(*length))
                .min(),
            Kind::Value(one)
                if (of.contains('*') || one.contains('*'))
                    && glob(of.as_bytes(), key)
                    && (one.is_empty() || glob(one.as_bytes(), value)) =>
            {
                Some(300)
            }
            Kind::Regex(regex) if here && regex.matches(value) => Some(400),
            Kind::Value(one) if here && one.is_empty() => Some(500),
            _ => None,
        };
        all.extend(rank.map(|rank| (rank, place)));
    }
    all.sort_unstable();
    all.into_iter().map(|(_, place)| place).collect()
}

impl Kind {
    pub(super) fn values(&self) -> Values {
        match self {
            Self::Value(value) => Values::from_text(value),
            Self::List(list) => Values::List(list.clone()),
            Self::Prefixes(prefixes) => {
                let spelt = |(address, length): &(IpAddr, u8)| {
                    Prefix::parse(&format!("{address}/{length}")).unwrap()
                };
                Values::Prefixes(prefixes.iter().map(spelt).collect())
            }
            Self::Regex(regex) => Values::Regex(regex.text()),
        }
    }

    /// A value that matches, or almost.
    fn sample(&self, choices: &[usize]) -> Vec<u8> {
        let first = choices.first().copied().unwrap_or(0);
        match self {
            Self::Value(value) => value.replace('*', ["", "a", "ab"][first % 3]).into_bytes(),
            Self::List(list) => list[first % list.len()].clone().into_bytes(),
            Self::Prefixes(prefixes) => {
                let (address, length) = prefixes[first % prefixes.len()];
                spelled(within(address, length, choices), first).into_bytes()
            }
            Self::Regex(regex) => regex.sample(&mut choices.iter().copied()),
        }
    }
}

/// An address in a prefix, with random bits after the prefix.
fn within(address: IpAddr, length: u8, choices: &[usize]) -> IpAddr {
    let filling = choices.iter().fold(0_u128, |all, one| {
        all.rotate_left(17) ^ (*one as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    });
    match address {
        IpAddr::V4(address) => {
            let free = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            let filling = u32::try_from(filling >> 96).unwrap();
            Ipv4Addr::from_bits(address.to_bits() | (filling & free)).into()
        }
        IpAddr::V6(address) => {
            let free = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() | (filling & free)).into()
        }
    }
}

/// One of the spellings of an address.
fn spelled(address: IpAddr, which: usize) -> String {
    match (address, which % 4) {
        (IpAddr::V4(address), 1) => address.to_ipv6_mapped().to_string(),
        (IpAddr::V4(address), 2) => {
            let [_, _, _, _, _, _, high, low] = address.to_ipv6_mapped().segments();
            format!("0:0:0:0:0:FFFF:{high:X}:{low:04X}")
        }
        (IpAddr::V4(address), 3) => format!("{address} "),
        (IpAddr::V6(address), 1) => address.segments().map(|one| format!("{one:04X}")).join(":"),
        (IpAddr::V6(address), 2) => format!("[{address}]"),
        (address, _) => address.to_string(),
    }
}

/// Adds siblings, except duplicates. Rules are named by their index among those kept.
pub(super) fn configured(siblings: &[Sibling]) -> (RuleSet, Vec<&Sibling>) {
    let mut rules = RuleSet::default();
    rules.add_domain(Tree::DOMAIN);
    let nodes = add(&mut rules, Parent::Domain(Tree::DOMAIN), siblings);
    rules.compile(&mut Automata::default()).unwrap();
    (
        rules,
        nodes.into_iter().map(|(_, sibling)| sibling).collect(),
    )
}

/// Adds siblings below a parent, and their nodes, except duplicates.
fn add<'s>(
    rules: &mut RuleSet,
    parent: Parent<'_>,
    siblings: impl IntoIterator<Item = &'s Sibling>,
) -> Vec<(usize, &'s Sibling)> {
    let mut kept = Vec::new();
    for sibling in siblings {
        let level = Level {
            values: sibling.1.values().into(),
            ..Level::new(&sibling.0, "")
        };
        if let Ok(node) = rules.add_node(parent, level) {
            let name = rules.rules().len().to_string();
            rules.set_rules(node, [called(&name, limited(1, Unit::Minute))]);
            kept.push((node, sibling));
        }
    }
    kept
}

// === what proptest makes ===

fn regexes() -> impl Strategy<Value = Regex> {
    let bytes = select(&[b'a', b'b', b'1', b'.', b'\n', 0xff][..]);
    let leaf = prop_oneof![
        3 => bytes.clone().prop_map(Regex::Byte),
        1 => Just(Regex::AnyByte),
        1 => vec(bytes, 1..=3).prop_map(Regex::OneOf),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            3 => vec(inner.clone(), 0..=3).prop_map(Regex::Row),
            2 => vec(inner.clone(), 1..=3).prop_map(Regex::Either),
            2 => inner.clone().prop_map(|part| Regex::Many(Box::new(part))),
            1 => inner.prop_map(|part| Regex::Maybe(Box::new(part))),
        ]
    })
}

/// Few addresses, so that prefixes overlap.
fn prefixes() -> impl Strategy<Value = (IpAddr, u8)> {
    let v4 = (
        select(&[0x0a00_0001_u32, 0x0a01_0203, 0xc0a8_0001][..]),
        0..=32_u8,
    );
    let v6 = (
        select(&[0xfd00_u128 << 112, 0xfd00_0001_u128 << 96 | 5, 1, 0][..]),
        0..=128_u8,
    );
    prop_oneof![
        v4.prop_map(|(bits, length)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            (Ipv4Addr::from_bits(bits & mask).into(), length)
        }),
        v6.prop_map(|(bits, length)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            (Ipv6Addr::from_bits(bits & mask).into(), length)
        }),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(select(&['a', 'b', '*', '.', '1'][..]), 0..=4)
            .prop_map(|letters| letters.into_iter().collect()),
        select(&["10.0.0.1", "10.*", "::1", "fd00::*", "::ffff:10.0.0.1", "*"][..])
            .prop_map(str::to_owned),
    ]
}

pub(super) fn siblings() -> impl Strategy<Value = Sibling> {
    let items = select(&["a", "b", "ab", "1", "10.0.0.1", "fd00::", "é"][..]);
    let kind = prop_oneof![
        4 => texts().prop_map(Kind::Value),
        2 => vec(items.prop_map(str::to_owned), 1..=3).prop_map(Kind::List),
        3 => vec(prefixes(), 1..=3).prop_map(Kind::Prefixes),
        3 => regexes().prop_map(Kind::Regex),
    ];
    let key = select(&["k", "k", "k", "k", "kk", "k*", "*"][..]);
    (key.prop_map(str::to_owned), kind)
}

/// A value like that of one sibling, perhaps with a byte changed, or any value.
pub(super) fn values() -> impl Strategy<Value = Wanted> {
    let byte = select(&[b'a', b'b', b'1', b'.', b':', b'*', b'\n', 0, 0xff][..]);
    (
        any::<Index>(),
        vec(any::<usize>(), 1..=8),
        proptest::option::weighted(0.2, (any::<Index>(), byte.clone())),
        proptest::option::weighted(0.1, vec(byte, 0..=4)),
    )
}

/// The value that is wanted.
pub(super) fn sampled(
    siblings: &[Sibling],
    (index, choices, changed, anything): Wanted,
) -> Vec<u8> {
    let mut value = match anything {
        Some(value) => value,
        None => siblings[index.index(siblings.len())].1.sample(&choices),
    };
    if let Some((index, byte)) = changed
        && !value.is_empty()
    {
        let place = index.index(value.len());
        value[place] = byte;
    }
    value
}

proptest! {
    #![proptest_config(random_cases(3_000))]

    #[test]
    fn an_entry_finds_the_rule_of_the_naive_search(
        siblings in vec(siblings(), 1..=8),
        key in select(&["k", "k", "k", "kk", "k*", "other"][..]),
        wanted in vec(values(), 1..=6),
    ) {
        let (rules, kept) = configured(&siblings);
        for wanted in wanted {
            let value = sampled(&siblings, wanted);
            let entry = Entry { key: key.as_bytes(), value: &value };
            let expected = fitting(&kept, key.as_bytes(), &value);
            prop_assert_eq!(
                found_by(&rules, &[entry]), expected.first().copied(),
                "{:?} of {:?}", value.escape_ascii().to_string(), kept
            );
            // The trace agrees, and lists the other matches.
            let steps = rules.trace(Tree::DOMAIN.as_bytes(), &[entry]);
            let told = steps[0].matched.iter().chain(&steps[0].other_matches);
            let told: Vec<Values> = told.map(|(_, level)| (*level.values).clone()).collect();
            let expected: Vec<Values> = expected.iter().map(|place| kept[*place].1.values()).collect();
            prop_assert_eq!(told, expected, "{:?} of {:?}", value.escape_ascii().to_string(), kept);
        }
    }

    #[test]
    fn a_second_entry_is_searched_below_the_first_alone(
        parents in vec((siblings(), vec(siblings(), 0..=3)), 1..=4),
        first in (values(), select(&["k", "kk", "k*"][..])),
        second in (values(), select(&["k", "kk", "k*"][..])),
    ) {
        let (level, below): (Vec<_>, Vec<_>) = parents.into_iter().unzip();
        let mut rules = RuleSet::default();
        rules.add_domain(Tree::DOMAIN);
        let parents = add(&mut rules, Parent::Domain(Tree::DOMAIN), &level);
        let children: Vec<_> = parents
            .iter()
            .map(|(node, parent)| {
                let place = level.iter().position(|one| std::ptr::eq(one, *parent)).unwrap();
                let first_rule = rules.rules().len();
                (first_rule, add(&mut rules, Parent::Node(*node), &below[place]))
            })
            .collect();
        rules.compile(&mut Automata::default()).unwrap();
        let all: Vec<_> = below.concat();
        let value = sampled(&level, first.0);
        let value_below = sampled(if all.is_empty() { &level } else { &all }, second.0);
        let path = [
            Entry { key: first.1.as_bytes(), value: &value },
            Entry { key: second.1.as_bytes(), value: &value_below },
        ];
        let search = |siblings: &[(usize, &Sibling)], entry: &Entry<'_>| {
            let siblings: Vec<_> = siblings.iter().map(|(_, sibling)| *sibling).collect();
            fitting(&siblings, entry.key, entry.value).first().copied()
        };
        let parent = search(&parents, &path[0]);
        prop_assert_eq!(found_by(&rules, &path[..1]), parent);
        let expected = parent.and_then(|parent| {
            let (first_rule, children) = &children[parent];
            Some(first_rule + search(children, &path[1])?)
        });
        prop_assert_eq!(found_by(&rules, &path), expected, "{:?}", rules);
    }

    #[test]
    fn a_pattern_matches_as_the_naive_matcher_does(
        pattern in "[ab_*]{0,6}",
        text in "[ab_]{0,8}",
    ) {
        let siblings = [("k".to_owned(), Kind::Value(pattern.clone()))];
        let (rules, _) = configured(&siblings);
        let found = found_by(&rules, &[Entry { key: b"k", value: text.as_bytes() }]);
        let matches = pattern.is_empty() || glob(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(found.is_some(), matches, "{:?} and {:?}", pattern, text);
    }

    #[test]
    fn many_expressions_together_match_what_each_matches_alone(
        regexes in vec(regexes(), 1..=6),
        choices in vec(any::<usize>(), 1..=8),
    ) {
        let siblings: Vec<Sibling> = regexes
            .iter()
            .map(|regex| ("k".to_owned(), Kind::Regex(regex.clone())))
            .collect();
        let (rules, kept) = configured(&siblings);
        for (_, kind) in &siblings {
            let value = kind.sample(&choices);
            let first = fitting(&kept, b"k", &value).first().copied();
            prop_assert!(first.is_some(), "{:?}", kind);
            prop_assert_eq!(found_by(&rules, &[Entry { key: b"k", value: &value }]), first);
        }
    }
}

#[test]
fn kinds_of_values_are_distinguished() {
    let sibling = |kind| ("k".to_owned(), kind);
    let siblings = [
        sibling(Kind::Value(String::new())),
        sibling(Kind::Regex(Regex::Many(Box::new(Regex::AnyByte)))),
        sibling(Kind::Value("1*".to_owned())),
        sibling(Kind::Prefixes(vec![("10.0.0.0".parse().unwrap(), 8)])),
        sibling(Kind::Prefixes(vec![("10.1.0.0".parse().unwrap(), 16)])),
        sibling(Kind::List(vec!["10.1.2.3".to_owned()])),
        sibling(Kind::Value("10.1.2.3".to_owned())),
    ];
    let (mut from, value) = (siblings.len(), b"10.1.2.3");
    let expected = [
        MatchKind::Exact,
        MatchKind::Listed,
        MatchKind::Prefix(Prefix::parse("10.1.0.0/16").unwrap()),
        MatchKind::Prefix(Prefix::parse("10.0.0.0/8").unwrap()),
        MatchKind::Wildcard,
        MatchKind::Regex,
        MatchKind::Default,
    ];
    // Each wins once those before it are removed.
    for (gone, expected) in expected.into_iter().enumerate() {
        from = siblings.len() - gone;
        let (rules, _) = configured(&siblings[..from]);
        let entry = Entry { key: b"k", value };
        let steps = rules.trace(Tree::DOMAIN.as_bytes(), &[entry]);
        assert_eq!(steps[0].matched.map(|(how, _)| how), Some(expected));
        assert_eq!(steps[0].other_matches.len(), from - 1);
    }
    assert_eq!(from, 1);
}
