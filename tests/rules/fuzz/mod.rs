//! Fuzz tests of the rules loader: mutations of a corpus, and files made to be expensive.
//!
//! Why here and not only in `fuzz/`, which `make fuzz` runs for any length of time: that needs a
//! nightly compiler. How: a generator with fixed seeds mutates the same corpus, so every run reads
//! the same few thousand files. Each hostile shape is read in two sizes, and the allocations of the
//! larger are bounded by those of the smaller. Allocations are counted, not timed, so a loaded
//! machine makes no difference. (In time, saphyr-parser is linear on all these shapes too.)
//!
//! What it deliberately does not do: check that the resulting rules are correct (`accepted`).

mod shapes;

use std::sync::atomic::{AtomicUsize, Ordering};

use allocation_counter::measure;
use tollgate::rules::file::{DIAGNOSTICS_MAX, load};
use tollgate::rules::path::Source;
use tollgate_test_support::corpus;

use crate::rules::reading::{MERGED, read, source};

/// Number of mutations of the corpus.
const MUTATIONS: usize = 6_000;

/// Tokens of YAML and of the grammar.
const PIECES: &[&str] = &[
    "&a ",
    "*a",
    "<<: *a",
    "<<: [*a, *b]\n",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "? ",
    "\n",
    "\n  ",
    "\t",
    "'",
    "\"",
    "|\n",
    ">\n",
    "#",
    "---\n",
    "...\n",
    "!!str ",
    "!x ",
    "%YAML 1.1\n",
    "~",
    "null",
    "1e3",
    ".inf",
    "-1",
    "0x",
    "0b2",
    "9223372036854775808",
    "domain: d\n",
    "descriptors:\n",
    "key: k\n",
    "rate_limit: {unit: day}\n",
    "unlimited: true\n",
    "rate_limits: [{unit: day}]\n",
    "rate_limits:\n",
    "over_limit: {body: '{limit}'}\n",
    "algorithm: concurrency\n",
    "segments: 6\n",
    "calendar: true\n",
    "time_zone: Asia/Tokyo\n",
    "unit_multiplier: 999\n",
    "metadata: {a: b}\n",
    "share_threshold: yes\n",
    "replaces: [{name: n}]\n",
    "values: [a, b]\n",
    "cidr: [10.0.0.0/8, '::/0']\n",
    "regex: '(a|b)*c?'\n",
    "ipv6_prefix: 64\n",
    "value: a*\n",
    "{1000}",
    "(?u)",
    "/33",
    "\u{feff}",
    "\u{2028}",
    "\u{85}",
    "é",
    "🦀",
    "\0",
    "\\x",
    "\\u00",
    "\r",
];

/// Marsaglia's xorshift: the same numbers on every machine.
pub(crate) struct Random(u64);

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    fn pick<'p, T: ?Sized>(&mut self, from: &[&'p T]) -> &'p T {
        from[self.below(from.len())]
    }
}

/// The files of the corpus, as text.
fn rules_files() -> Vec<(String, String)> {
    let files = corpus::files("rules_file").into_iter();
    let texts = files.map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes).into_owned()));
    texts.collect()
}

/// A text after one to eight changes: bytes removed, doubled, moved or replaced, pieces of grammar
/// or halves of other files inserted.
pub(crate) fn mutated(random: &mut Random, text: &str, other: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(40)).min(bytes.len());
        match random.below(7) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let doubled = bytes[at..end].to_vec();
                bytes.splice(at..at, doubled);
            }
            2 => bytes.truncate(at),
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(7),
            4 => {
                let from = random.below(other.len());
                bytes.splice(at..end, other.as_bytes()[from..].iter().copied());
            }
            5 => {
                let many = 1 + random.below(80);
                let piece = random.pick(PIECES).repeat(many);
                bytes.splice(at..at, piece.into_bytes());
            }
            _ => drop(bytes.splice(at..at, random.pick(PIECES).bytes())),
        }
        bytes.truncate(8 << 10);
    }
    // Text that is not UTF-8 never reaches the loader.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads files with any content, and checks the reported problems against the bounds.
fn read_and_check_bounds(sources: &[Source]) {
    let told = match load(sources, MERGED) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => {
            assert!(
                !problems.errors.is_empty(),
                "rejected without a problem: {sources:?}"
            );
            problems.errors
        }
    };
    assert!(told.len() <= DIAGNOSTICS_MAX);
    for problem in told {
        let file = sources.iter().find(|source| source.name == problem.file);
        let text = &file.expect("an existing file").text;
        // A carriage return alone ends a line as well, and the parser counts the end of a file as
        // one more.
        let lines = text.matches(['\n', '\r']).count() + 1;
        assert!(
            problem.span.at.line >= 1 && problem.span.at.column >= 1,
            "{problem}"
        );
        assert!(problem.span.at.line <= lines + 1, "{problem}");
        assert!(
            !problem.message.is_empty() && !problem.help.is_empty(),
            "{problem:?}"
        );
        assert!(problem.to_string().len() < 2_000, "{problem}");
    }
}

/// Runs the check on each item, on several threads. Allocations are counted by thread.
fn in_parallel<T: Sync>(all: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(one);
                }
            });
        }
    });
    assert!(next.into_inner() >= all.len() + threads);
}

#[test]
fn the_corpus_files_are_valid_or_invalid_as_named() {
    let corpus = rules_files();
    assert!(corpus.len() >= 20, "{}", corpus.len());
    for (name, text) in corpus {
        let verdict = read(&text);
        assert_eq!(
            verdict.is_ok(),
            name.starts_with("good-"),
            "{name}: {verdict:?}"
        );
        read_and_check_bounds(&[source(&name, &text)]);
    }
}

#[test]
fn no_file_content_ends_the_process() {
    let corpus = rules_files();
    let texts: Vec<&str> = corpus.iter().map(|(_, text)| text.as_str()).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..MUTATIONS {
        let (text, other) = (random.pick(&texts), random.pick(&texts));
        let one = source("one.yaml", &mutated(&mut random, text, other));
        if random.below(8) == 0 {
            let two = source("two.yaml", &mutated(&mut random, other, text));
            read_and_check_bounds(&[one, two]);
        } else {
            read_and_check_bounds(&[one]);
        }
    }
}

#[test]
fn every_prefix_of_a_valid_file_is_read_or_rejected() {
    for (name, text) in rules_files()
        .iter()
        .filter(|(name, _)| name.starts_with("good-"))
    {
        for (end, _) in text.char_indices() {
            read_and_check_bounds(&[source(name, &text[..end])]);
        }
    }
}

#[test]
fn allocations_grow_linearly_with_the_file() {
    in_parallel(shapes::SHAPES, |(name, shape)| {
        let cost = |bytes: usize| {
            let files = [source("hostile.yaml", &shape(bytes))];
            let cost = measure(|| read_and_check_bounds(&files));
            (files[0].text.len() as u64, cost)
        };
        let (small_bytes, small) = cost(12 << 10);
        let (large_bytes, large) = cost(48 << 10);
        // The file is four times larger; half as much again is for tables that grow by
        // doubling, and a constant for the start.
        let allowed = |small: u64| small * large_bytes / small_bytes * 3 / 2 + (256 << 10);
        assert!(
            large.bytes_total <= allowed(small.bytes_total),
            "{name}: {small:?} became {large:?}"
        );
        assert!(
            large.count_total <= allowed(small.count_total),
            "{name}: {small:?} became {large:?}"
        );
        // The cost of a byte of any shape: nodes are a few words each.
        assert!(
            large.bytes_total / large_bytes < 800,
            "{name}: {large:?} for {large_bytes} bytes"
        );
        assert!(
            large.bytes_max / large_bytes < 440,
            "{name}: {large:?} for {large_bytes} bytes"
        );
    });
}

#[test]
fn the_allocations_of_any_patterns_are_bounded() {
    in_parallel(shapes::PATTERNS, |(name, shape)| {
        for bytes in [24 << 10, 96 << 10] {
            let files = [source("hostile.yaml", &shape(bytes))];
            let cost = measure(|| read_and_check_bounds(&files));
            // Automata and failed attempts to build them have their own bound, however large the
            // file is.
            assert!(cost.bytes_max < 100 << 20, "{name}, {bytes}: {cost:?}");
            assert!(cost.bytes_total < 480 << 20, "{name}, {bytes}: {cost:?}");
            assert!(cost.count_total < 1_500_000, "{name}, {bytes}: {cost:?}");
        }
    });
}

#[test]
fn a_large_valid_file_is_accepted() {
    for (name, line) in [
        (
            "a pattern for each of many keys",
            "- {key: kN, value: 'aN*b'}\n",
        ),
        (
            "a regex for each of many keys",
            "- {key: kN, regex: '/vN/[a-z]+'}\n",
        ),
        (
            "many regexes of one key",
            "- {key: k, regex: '/api/vN/[a-z]+/\\d+'}\n",
        ),
        (
            "half done in every way",
            "- {key: k, regex: '.*vN.*[0-9]{3}'}\n",
        ),
    ] {
        let lines = (0..3_000).map(|n| line.replace('N', &n.to_string()));
        let text = format!("domain: d\ndescriptors:\n{}", lines.collect::<String>());
        let loaded = load(&[source("much.yaml", &text)], MERGED);
        assert!(loaded.is_ok(), "{name}: {}", loaded.unwrap_err());
    }
}
