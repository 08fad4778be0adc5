//! The cost of finding a node: the same among ten siblings and among thousands, and never an
//! allocation.
//!
//! How: by counts, not by time. Allocations are counted directly. Matchers are counted by a
//! compiler that wraps the real one and records each use. A matcher reads its text at most twice,
//! once for wildcards and once for expressions, and a pass takes a step a byte. Values, lists and
//! prefixes are hash tables (`descriptor_matcher`), prefixes with one look-up for each length, of
//! which there are no more than bits.
//!
//! What it deliberately does not do: measure time (`make bench` does).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocation_counter::measure;
use tollgate::rules::patterns::Automata;
use tollgate_limiter::{
    Entry, Level, Match, MatchKind, Parent, Pattern, PatternCompiler, PatternError, PatternMatcher,
    Prefix, RuleSet, StepBudget, Unit, Values,
};

use tollgate_test_model::fixtures::limited;

/// Counts the uses of an automaton.
#[derive(Default)]
struct Counting {
    automata: Automata,
    made: usize,
    asked: Arc<AtomicUsize>,
}

struct Counted(Arc<dyn PatternMatcher>, Arc<AtomicUsize>);

impl PatternCompiler for Counting {
    fn compile(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let made = self.automata.compile(patterns)?;
        let shown = format!("{made:?}");
        let passes = shown.matches("Dense(").count() + shown.matches("Sequences(").count();
        assert!(
            passes <= 2 && !shown.contains("Slow"),
            "one pass for wildcards, one for expressions: {made:?}"
        );
        self.made += 1;
        Ok(Arc::new(Counted(made, Arc::clone(&self.asked))))
    }
}

impl PatternMatcher for Counted {
    fn first_match(&self, text: &[u8], steps: &StepBudget) -> Option<usize> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.first_match(text, steps)
    }

    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize)) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.each_match(text, steps, found);
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// This many siblings of each kind below one key.
fn many_rules(count: usize) -> (RuleSet, Counting) {
    let mut rules = RuleSet::default();
    rules.add_domain("d");
    let mut add = |values: Values| {
        let level = Level {
            values: values.into(),
            ..Level::new("k", "")
        };
        let node = rules.add_node(Parent::Domain("d"), level).unwrap();
        rules.set_rules(node, [limited(1, Unit::Minute)]);
    };
    for n in 0..count {
        add(Values::from_text(&format!("exact-{n}")));
        add(Values::List(vec![format!("list-{n}"), format!("more-{n}")]));
        let (high, low) = (n / 256, n % 256);
        let v4 = Prefix::parse(&format!("10.{high}.{low}.0/24")).unwrap();
        let v6 = Prefix::parse(&format!("fd00:{n:x}::/32")).unwrap();
        add(Values::Prefixes(vec![v4, v6]));
        add(Values::from_text(&format!("wild-{n}-*")));
        add(Values::from_text(&format!("*-end-{n}")));
        add(Values::Regex(format!("regex-{n}-[a-z]+")));
    }
    add(Values::Any);
    let mut compiler = Counting::default();
    rules.compile(&mut compiler).unwrap();
    assert_eq!(
        compiler.made, 1,
        "all patterns of a level are one automaton"
    );
    (rules, compiler)
}

#[test]
fn finding_costs_the_same_among_ten_siblings_and_among_two_thousand() {
    for count in [10, 2_000] {
        let (rules, compiler) = many_rules(count);
        let last = count - 1;
        for (value, how, asked) in [
            (format!("exact-{last}"), "Exact", 0),
            (format!("list-{last}"), "Listed", 0),
            (format!("10.{}.{}.77", last / 256, last % 256), "Prefix", 0),
            (format!("fd00:{last:x}:1::9"), "Prefix", 0),
            (format!("wild-{last}-x"), "Wildcard", 1),
            (format!("x-end-{last}"), "Wildcard", 1),
            (format!("regex-{last}-x"), "Regex", 1),
            ("anything".to_owned(), "Default", 1),
        ] {
            let entry = [Entry {
                key: b"k",
                value: value.as_bytes(),
            }];
            compiler.asked.store(0, Ordering::Relaxed);
            let cost = measure(|| {
                assert!(
                    matches!(rules.find(b"d", &entry), Match::Rules(_)),
                    "{value}"
                );
            });
            assert_eq!(cost.count_total, 0, "{value} among {count}");
            assert_eq!(
                compiler.asked.load(Ordering::Relaxed),
                asked,
                "{value} among {count}"
            );
            let steps = rules.trace(b"d", &entry);
            let found = steps[0].matched.map(|(found, _)| found).unwrap();
            assert!(format!("{found:?}").starts_with(how), "{value}: {found:?}");
        }
    }
}

#[test]
fn keys_with_stars_cost_two_automata_and_no_allocation() {
    for count in [3, 1_000] {
        let mut rules = RuleSet::default();
        rules.add_domain("d");
        for n in 0..count {
            for value in ["on-*", "off-*", ""] {
                let level = Level::new(&format!("x-{n}-*"), value);
                let node = rules.add_node(Parent::Domain("d"), level).unwrap();
                rules.set_rules(node, [limited(1, Unit::Minute)]);
            }
        }
        let mut compiler = Counting::default();
        rules.compile(&mut compiler).unwrap();
        let key = format!("x-{}-key", count - 1);
        let entry = [Entry {
            key: key.as_bytes(),
            value: b"off-1",
        }];
        let cost = measure(|| {
            assert!(matches!(rules.find(b"d", &entry), Match::Rules(_)));
        });
        assert_eq!(cost.count_total, 0);
        assert_eq!(
            compiler.asked.load(Ordering::Relaxed),
            2,
            "the keys', and the one that fits"
        );
        let found = rules.trace(b"d", &entry)[0].matched;
        assert_eq!(
            found.map(|(how, level)| (how, level.label())),
            Some((MatchKind::Wildcard, format!("x-{}-*_off-*", count - 1)))
        );
    }
}

/// Values of two kilobytes that match many of the patterns, and their parts again and again.
fn long_values() -> [Vec<u8>; 3] {
    let of_all = (0..400)
        .map(|n| format!("v{n}."))
        .collect::<Vec<_>>()
        .concat();
    let hits = format!("{of_all}{}", "x".repeat(2_000 - of_all.len().min(1_900)));
    [
        hits.into_bytes(),
        b"v1x".repeat(700),
        "v77".repeat(700).into_bytes(),
    ]
}

#[test]
fn thousands_of_patterns_with_two_stars_take_steps_by_the_value_and_not_by_their_number() {
    for count in [50, 5_000] {
        let texts: Vec<_> = (0..count).map(|n| format!("*v{n}*x*")).collect();
        let patterns: Vec<_> = texts.iter().map(|text| Pattern::Wildcard(text)).collect();
        let made = Automata::default().compile(&patterns).unwrap();
        for value in long_values() {
            let steps = StepBudget::unlimited();
            let cost = measure(|| {
                made.first_match(&value, &steps);
            });
            let taken = u64::MAX - steps.remaining();
            // A byte, the occurrences that end there, and the matches found of 5,000 patterns.
            let bound = 4 * value.len() as u64;
            assert!(
                taken <= bound,
                "{count}: {taken} of {bound} for {}",
                value.len()
            );
            let again = measure(|| {
                made.first_match(&value, &steps);
            });
            assert_eq!(again.count_total, 0, "{count}: {cost:?}");
        }
    }
}
