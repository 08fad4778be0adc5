//! Draws cases from a seed: the whole grammar that both services know, and requests that mostly
//! find a rule.
//!
//! Most cases are [`Names::Plain`]. In the others the two services differ on purpose, and what
//! comes after such a difference cannot be compared: keys and values run together when they are
//! joined by `_`, or patterns have stars anywhere.
//!
//! What it deliberately does not do: leave out what differs.

use crate::oracle::case::{Case, Domain, Limit, Node, OracleDescriptor, OracleRequest};
use tollgate_test_support::seeded_rng::SeededRng;

const DOMAINS: [&str; 4] = ["d", "shop", "d_k", "Öl"];
const KEYS: [&str; 8] = ["k", "a", "user", "ip", "path", "K", "schlüssel", "x:y"];
const VALUES: [&str; 13] = [
    "v",
    "w",
    "v1",
    "10.0.0.1",
    "10.0.0.0/8",
    "[::1]:80",
    "1234.5.6.7890",
    "a10.0.0.1b",
    "x/y",
    "a b",
    "é",
    "true",
    "12",
];
const PATTERNS: [&str; 5] = ["v*", "*", "x/*", "10.*", "w*"];
const JOINED_KEYS: [&str; 4] = ["a", "a_b", "a_b_c", "k"];
const JOINED_VALUES: [&str; 5] = ["b", "b_c", "c", "c_c", "b*"];
const STARRED_KEYS: [&str; 7] = ["k", "a", "a_b", "a_b_c", "a*", "*", "k_v"];
const STARRED_VALUES: [&str; 8] = ["b", "b_c", "c", "v", "v*", "*b", "a*c", "b*c*"];
/// Addends above what a counter is likely to hold.
const HITS: &[u64] = &[100, 1_000_000, 0xffff_ffff, 0x1_0000_0000, 1 << 40];
const NAMES: [&str; 3] = ["n", "m", "premium"];

/// What keys, values and patterns a case has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Names {
    Plain,
    /// Some are the same when they are joined.
    Joined,
    /// The same, and stars stand anywhere.
    Starred,
}

/// Lines that may stand in a descriptor: some are right, some are wrong, some are right elsewhere.
const IN_A_DESCRIPTOR: &[&str] = &[
    "x: 1",
    "Key: k",
    "metadata: {a: b}",
    "metadata: {1: 2}",
    "metadata:",
    "value: 1.5",
    "value: 1e3",
    "value: .inf",
    "value: 5",
    "value: 0x1F",
    "value: 007",
    "value: 1_000",
    "value: true",
    "value: yes",
    "value: 2001-01-01",
    "value: 9223372036854775808",
    "value: [a]",
    "value: {a: b}",
    "value: {key: b}",
    "value: null",
    "value: ~",
    "value:",
    "value: ''",
    "value: !!str 5",
    "value: |-\n    v",
    "key: ''",
    "key:",
    "key: ~",
    "key: 5",
    "key: yes",
    "key: [k]",
    "shadow_mode: 'true'",
    "shadow_mode: 1",
    "shadow_mode: y",
    "shadow_mode: tRue",
    "shadow_mode: OFF",
    "shadow_mode: []",
    "quota_mode: on",
    "quota_mode: maybe",
    "detailed_metric: No",
    "rate_limit: {}",
    "rate_limit:",
    "rate_limit: x",
    "rate_limit: []",
    "rate_limit: [{unit: day}]",
    "rate_limit: {unit: day, unit: hour, requests_per_unit: 3}",
    "rate_limit: {unit: [day], unit: hour, requests_per_unit: 3}",
    "descriptors: {}",
    "descriptors: x",
    "descriptors: [a]",
    "descriptors: [[{key: k}]]",
    "descriptors:",
    "descriptors: []",
    "descriptors: [{}]",
    "descriptors: [{key: c}, {key: c}]",
    "descriptors: [{key: c}, {key: c, value: ''}]",
    "descriptors: [{key: c, value: d_e}, {key: c_d, value: e}]",
    "descriptors: [{key: c, value: d}, {key: c_d}]",
    "unit: day",
    "requests_per_unit: 5",
    "domain: other",
    "name: n",
    "share_threshold: true",
    "5: five",
    "true: x",
    "null: x",
    "regex: a",
    "values: [a]",
    "rate_limits: [{unit: day, requests_per_unit: 1}]",
    "<<: {value: v}",
    "<<: x",
];

/// The same in a limit.
const IN_A_LIMIT: &[&str] = &[
    "x: 1",
    "unit: Day",
    "unit: WEEK",
    "unit: days",
    "unit: ''",
    "unit:",
    "unit: unknown",
    "unit: [day]",
    "unit: 5",
    "unit: ' day'",
    "requests_per_unit: -1",
    "requests_per_unit: 4294967295",
    "requests_per_unit: 4294967296",
    "requests_per_unit: '5'",
    "requests_per_unit: 1.5",
    "requests_per_unit: 5.0",
    "requests_per_unit: 1e3",
    "requests_per_unit: x",
    "requests_per_unit:",
    "requests_per_unit: 0x10",
    "requests_per_unit: 0b11",
    "requests_per_unit: 0o17",
    "requests_per_unit: 010",
    "requests_per_unit: 1_000",
    "requests_per_unit: +5",
    "requests_per_unit: true",
    "unlimited: true",
    "unlimited: yes",
    "unlimited: 1",
    "unlimited: false",
    "unlimited:",
    "name: 5",
    "name: true",
    "name: []",
    "name:",
    "replaces: [{name: }]",
    "replaces: [{name: n}]",
    "replaces: [{}]",
    "replaces: [n]",
    "replaces: {name: n}",
    "replaces: [{x: n}]",
    "replaces: []",
    "replaces:",
    "shadow_mode: true",
    "key: k",
    "burst: 5",
    "unit_multiplier: 2",
    "metadata: {a: b}",
];

/// The same at the top of a file.
const AT_THE_ROOT: &[&str] = &[
    "x: 1",
    "domain: ''",
    "domain:",
    "domain: 5",
    "domain: [d]",
    "domain: 1.5",
    "descriptors:",
    "descriptors: []",
    "descriptors: {}",
    "descriptors: x",
    "unit: day",
    "key: k",
    "all_or_nothing: true",
    "[",
    "a",
    "\tdomain: d",
    "- domain: d",
    "domain: d\ndomain: e",
    "domain: *d",
    "%YAML 1.1",
    "---",
    "...",
    "---\ndomain: second",
    "? domain\n: d",
];

// === impl Names ===

impl Names {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &KEYS,
            Self::Joined => &JOINED_KEYS,
            Self::Starred => &STARRED_KEYS,
        }
    }

    fn values(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &VALUES,
            Self::Joined => &JOINED_VALUES,
            Self::Starred => &STARRED_VALUES,
        }
    }
}

/// A case whose rules both services accept, unless its names are starred.
pub(crate) fn case(seed: u64) -> Case {
    let mut chance = SeededRng::of_seed(seed);
    let names = match chance.below(12) {
        0 => Names::Starred,
        1 => Names::Joined,
        _ => Names::Plain,
    };
    let mut case = Case {
        seed,
        spelling: chance.below(u64::MAX),
        domain: chance.pick(&DOMAINS),
        extra: Vec::new(),
        descriptors: level(&mut chance, names, 0),
        requests: Vec::new(),
    };
    let quotas = chance.once_in(3);
    calm(&mut case.descriptors, quotas);
    let refunds = chance.once_in(12);
    // A few descriptors are asked for again and again, so that limits are met.
    let mut wanted: Vec<_> = (0..chance.between(1, 5))
        .map(|_| entries(&mut chance, &case.descriptors, names))
        .collect();
    if names == Names::Joined {
        let twins = wanted.iter().map(|entries| twin(&mut chance, entries));
        let twins: Vec<_> = twins.collect();
        wanted.extend(twins);
    }
    case.requests = (0..chance.between(4, 16))
        .map(|_| request(&mut chance, &case.descriptors, &wanted, names, refunds))
        .collect();
    case
}

/// A case whose rules file has a line too many, or one in the place of another.
pub(crate) fn spoilt(seed: u64) -> Case {
    let mut chance = SeededRng::of_seed(seed ^ 0x5eed);
    let mut case = case(seed);
    case.requests.clear();
    if !chance.once_in(6) {
        spoil(&mut chance, &mut case);
    }
    case
}

fn spoil(chance: &mut SeededRng, case: &mut Case) {
    fn nth(nodes: &mut [Node], mut number: usize) -> Option<&mut Node> {
        for node in nodes {
            if number == 0 {
                return Some(node);
            }
            number -= 1;
            let below = count(&node.children);
            if number < below {
                return nth(&mut node.children, number);
            }
            number -= below;
        }
        None
    }
    fn count(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| 1 + count(&node.children)).sum()
    }
    let nodes = count(&case.descriptors);
    if nodes == 0 || chance.once_in(10) {
        return case.extra.push(chance.pick(AT_THE_ROOT));
    }
    let node = nth(&mut case.descriptors, chance.position(nodes)).unwrap();
    match &mut node.limit {
        Some(limit) if chance.once_in(2) => limit.extra.push(chance.pick(IN_A_LIMIT)),
        _ => {
            node.extra.push(chance.pick(IN_A_DESCRIPTOR));
        }
    }
}

/// Siblings, no two of which are alike even when joined.
fn level(chance: &mut SeededRng, names: Names, depth: usize) -> Vec<Node> {
    let count = chance.pick(match depth {
        0 => &[1, 2, 3, 4, 5],
        1 => &[0, 0, 1, 2],
        2 => &[0, 0, 1],
        _ => &[0],
    });
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..count {
        let mut one = node(chance, names, depth);
        let composite = |node: &Node| match node.value.as_str() {
            "" => node.key.clone(),
            value => format!("{}_{value}", node.key),
        };
        if nodes
            .iter()
            .any(|other| composite(other) == composite(&one))
        {
            continue;
        }
        one.children = level(chance, names, depth + 1);
        nodes.push(one);
    }
    nodes
}

fn node(chance: &mut SeededRng, names: Names, depth: usize) -> Node {
    let keys = match names {
        // Few keys, so that siblings share them.
        Names::Plain => &KEYS[..chance.pick(&[2, 3, 8])],
        _ => names.keys(),
    };
    let key = chance.pick(keys).to_owned();
    let value = match chance.below(4) {
        0 => "",
        1 if names == Names::Plain => chance.pick(&PATTERNS),
        // Two default rules that both services tell apart, though not their counters.
        1 | 2 if names == Names::Joined => "",
        _ => chance.pick(names.values()),
    };
    let limited = depth == 2 || !chance.once_in(5);
    let mut node = Node {
        key,
        value: value.to_owned(),
        limit: limited.then(|| limit(chance)),
        shadow_mode: chance.once_in(8),
        quota_mode: chance.once_in(4),
        detailed_metric: chance.once_in(5),
        value_to_metric: chance.once_in(5),
        ..Node::default()
    };
    let ends_with_star = if node.value.is_empty() {
        node.key.ends_with('*')
    } else {
        node.value.ends_with('*')
    };
    node.share_threshold = ends_with_star && chance.once_in(2);
    node
}

fn limit(chance: &mut SeededRng) -> Limit {
    let unlimited = chance.once_in(12);
    let named = chance.once_in(3);
    let name = if named { chance.pick(&NAMES) } else { "" };
    let other = chance.pick(&NAMES);
    let replaces = chance.once_in(5) && other != name;
    Limit {
        // Mostly long windows, which seldom turn while a request is under way.
        unit: chance.pick(&[1, 2, 3, 3, 4, 4, 5, 6, 6, 7]),
        requests_per_unit: chance.pick(&[0, 1, 2, 3, 4, 5, 7, 10, 20, 100, 1_000_000, u32::MAX]),
        unlimited,
        name,
        replaces: if replaces { vec![other] } else { Vec::new() },
        extra: Vec::new(),
    }
}

/// Without quotas where there are to be none: they differ in every answer that they refuse.
fn calm(nodes: &mut [Node], quotas: bool) {
    for node in nodes {
        node.quota_mode &= quotas;
        calm(&mut node.children, quotas);
    }
}

/// Entries that walk down the rules, or stray from them.
fn entries(chance: &mut SeededRng, nodes: &[Node], names: Names) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let mut level = nodes;
    loop {
        if level.is_empty() || chance.once_in(12) {
            // What no rule says, or one level too many.
            if entries.is_empty() || chance.once_in(6) {
                let key = chance.pick(names.keys()).to_owned();
                entries.push((key, chance.pick(names.values()).to_owned()));
            }
            return entries;
        }
        let node = &level[chance.position(level.len())];
        let fill = |chance: &mut SeededRng, text: &str| {
            let filling = ["", "1", "x", "b", "b_c", "/z"];
            let mut stars = text.split('*');
            let mut filled = stars.next().unwrap().to_owned();
            for part in stars {
                filled += if names != Names::Plain || !chance.once_in(10) {
                    chance.pick(&filling)
                } else {
                    "*"
                };
                filled += part;
            }
            filled
        };
        let key = fill(chance, &node.key);
        let value = match node.value.as_str() {
            // An empty value finds a default rule as well.
            "" if chance.once_in(8) => String::new(),
            "" => chance.pick(names.values()).to_owned(),
            value => fill(chance, value),
        };
        entries.push((key, value));
        if node.children.is_empty() || chance.once_in(3) {
            if chance.once_in(15) {
                continue;
            }
            return entries;
        }
        level = &node.children;
    }
}

/// Other entries that are the same text when they are joined, if there are any.
fn twin(chance: &mut SeededRng, entries: &[(String, String)]) -> Vec<(String, String)> {
    let other = |(key, value): &(String, String)| {
        let whole = format!("{key}_{value}");
        let splits: Vec<_> = whole.match_indices('_').collect();
        let (split, _) = chance.pick(&splits);
        (whole[..split].to_owned(), whole[split + 1..].to_owned())
    };
    entries.iter().map(other).collect()
}

fn request(
    chance: &mut SeededRng,
    nodes: &[Node],
    wanted: &[Vec<(String, String)>],
    names: Names,
    refunds: bool,
) -> OracleRequest {
    let domain = match chance.below(40) {
        0 => Domain::Unknown,
        1 if chance.once_in(3) => Domain::Empty,
        _ => Domain::Own,
    };
    let hits_addend = chance.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 10]);
    let count = if chance.once_in(60) {
        0
    } else {
        chance.pick(&[1, 1, 1, 2, 2, 3, 4])
    };
    let descriptors = (0..count).map(|_| {
        let mut entries = if chance.once_in(50) {
            Vec::new()
        } else if chance.once_in(4) {
            entries(chance, nodes, names)
        } else {
            wanted[chance.position(wanted.len())].clone()
        };
        if chance.once_in(80)
            && let Some((_, value)) = entries.last_mut()
        {
            *value = "long".repeat(chance.pick(&[40, 150]));
        }
        let hits = match chance.below(12) {
            0 => Some(0),
            1 | 2 => Some(chance.between(1, 12)),
            3 => Some(chance.pick(HITS)),
            _ => None,
        };
        OracleDescriptor {
            entries,
            hits,
            negative: refunds && chance.once_in(10),
            limit: chance
                .once_in(12)
                .then(|| (chance.pick(&[0, 1, 3, 8, 50]), chance.position(7) + 1)),
        }
    });
    let descriptors = descriptors.collect();
    OracleRequest {
        domain,
        hits_addend,
        descriptors,
    }
}
