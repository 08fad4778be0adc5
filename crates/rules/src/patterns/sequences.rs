//! Wildcards, all matched in one pass over a value by the fixed parts between their stars.
//!
//! Why no DFA: of a wildcard with several stars one part may be found and the next not, and a DFA
//! needs a state for each combination of these. Instead, one Aho-Corasick automaton finds every
//! fixed part between two stars wherever it occurs. A pattern waits for one part at a time, and
//! takes the first occurrence after the part before it; no later one can do better.
//!
//! A pattern begins at its prefix, at its suffix, or at its first part between two stars: at the
//! one that the fewest patterns have. So of `tenant-*-1`, `tenant-*-2` and so on, a value begins
//! only those with its suffix. A value takes a step a byte, one for each occurrence of a part, and
//! one for each pattern that begins or whose next part is found, whatever the number of patterns.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use aho_corasick::automaton::OverlappingState;
use aho_corasick::{AhoCorasick, MatchKind};

use crate::patterns::budget::WILDCARD_STATES_MAX;
use tollgate_limiter::{PatternMatcher, StepBudget};

/// A matcher of wildcards.
pub(crate) struct Sequences {
    /// Finds the parts.
    automaton: AhoCorasick,
    /// By the number of a part: the patterns that begin at it, in order.
    begin_at_part: Vec<Vec<u32>>,
    /// The patterns that begin at their prefix.
    begin_at_prefix: EndTexts,
    /// Those that begin at their suffix. The texts are in reverse.
    begin_at_suffix: EndTexts,
    /// The patterns without a fixed part.
    any: Vec<u32>,
    patterns: Vec<Sequence>,
}

/// Texts at one end of a value, sorted, each with its patterns in order.
struct EndTexts(Vec<(Box<[u8]>, Vec<u32>)>);

/// One wildcard.
struct Sequence {
    /// The prefix that a value must have.
    prefix: Box<[u8]>,
    /// The numbers of the parts between stars, in order.
    parts: Box<[u32]>,
    /// The suffix that a value must have; none without a star, where the value ends after the
    /// prefix.
    suffix: Option<Box<[u8]>>,
}

/// A wildcard, split at its stars.
struct Split<'p> {
    prefix: &'p str,
    parts: Vec<&'p str>,
    suffix: Option<&'p str>,
}

/// A text that values of a pattern have.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum Trigger<'p> {
    Prefix(&'p str),
    Suffix(&'p str),
    Part(&'p str),
}

/// The state of a search, kept by each thread and reused.
#[derive(Default)]
struct Progress {
    /// The number of the current value. Entries of another value count as empty.
    value: u64,
    parts: Vec<PartProgress>,
    patterns: Vec<PatternProgress>,
}

#[derive(Clone, Copy, Default)]
struct PartProgress {
    value: u64,
    /// The first of the patterns that wait for it.
    waiting: Option<u32>,
    /// Whether the patterns that begin at it have begun.
    begun: bool,
}

#[derive(Clone, Copy, Default)]
struct PatternProgress {
    /// The next pattern that waits for the same part.
    next: Option<u32>,
    /// The index of the part that it waits for.
    part: usize,
    /// The end of the part before that.
    after: usize,
}

/// A search in progress.
struct Search<'s> {
    sequences: &'s Sequences,
    progress: &'s mut Progress,
    text: &'s [u8],
    /// Only patterns below this number are wanted.
    below: u32,
}

thread_local! {
    /// Matching a value allocates nothing, and threads share nothing.
    static PROGRESS: RefCell<Progress> = RefCell::default();
}

/// How many states an automaton of these parts has: one for each of their different beginnings.
fn states(parts: &[&str]) -> usize {
    let mut sorted = parts.to_vec();
    sorted.sort_unstable();
    let before = [""].into_iter().chain(sorted.iter().copied());
    let own = sorted.iter().zip(before).map(|(part, before)| {
        let pairs = part.bytes().zip(before.bytes());
        let shared = pairs.take_while(|(one, other)| one == other).count();
        part.len().saturating_sub(shared)
    });
    own.sum()
}

// === impl Sequences ===

impl Sequences {
    /// None when they are too large.
    pub(crate) fn new(texts: &[&str]) -> Option<Self> {
        let splits: Vec<Split<'_>> = texts.iter().map(|text| Split::of(text)).collect();
        let mut shared: HashMap<Trigger<'_>, usize> = HashMap::new();
        for trigger in splits.iter().flat_map(Split::triggers) {
            *shared.entry(trigger).or_default() += 1;
        }
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut all_parts: Vec<&str> = Vec::new();
        let mut begin_at_part: Vec<Vec<u32>> = Vec::new();
        let (mut prefixes, mut suffixes) = (BTreeMap::new(), BTreeMap::new());
        let mut any = Vec::new();
        let mut patterns = Vec::with_capacity(texts.len());
        for split in &splits {
            let mut parts = Vec::with_capacity(split.parts.len());
            for part in &split.parts {
                let new = u32::try_from(all_parts.len()).ok()?;
                let number = *numbers.entry(part).or_insert(new);
                if number == new {
                    all_parts.push(part);
                    begin_at_part.push(Vec::new());
                }
                parts.push(number);
            }
            let rarest = split.triggers().min_by_key(|trigger| shared.get(trigger));
            let begun_there: &mut Vec<u32> = match rarest {
                Some(Trigger::Prefix(text)) => prefixes.entry(text.bytes().collect()).or_default(),
                Some(Trigger::Suffix(text)) => {
                    suffixes.entry(text.bytes().rev().collect()).or_default()
                }
                Some(Trigger::Part(_)) => begin_at_part.get_mut(*parts.first()? as usize)?,
                None => &mut any,
            };
            begun_there.push(u32::try_from(patterns.len()).ok()?);
            patterns.push(Sequence {
                prefix: split.prefix.as_bytes().into(),
                parts: parts.into(),
                suffix: split.suffix.map(|suffix| suffix.as_bytes().into()),
            });
        }
        if states(&all_parts) > WILDCARD_STATES_MAX {
            return None;
        }
        let mut builder = AhoCorasick::builder();
        let automaton = builder.match_kind(MatchKind::Standard).build(&all_parts);
        Some(Self {
            automaton: automaton.ok()?,
            begin_at_part,
            begin_at_prefix: EndTexts(prefixes.into_iter().collect()),
            begin_at_suffix: EndTexts(suffixes.into_iter().collect()),
            any,
            patterns,
        })
    }

    /// The memory that it takes, with the state of one thread.
    pub(crate) fn bytes(&self) -> usize {
        let of_patterns = self.patterns.iter().map(|pattern| {
            let texts = pattern
                .prefix
                .len()
                .saturating_add(pattern.suffix.as_deref().map_or(0, <[u8]>::len));
            let parts = pattern.parts.len().saturating_mul(size_of::<u32>());
            let own = size_of::<Sequence>() + size_of::<PatternProgress>() + size_of::<u32>();
            texts.saturating_add(parts).saturating_add(own)
        });
        let of_part = size_of::<Vec<u32>>() + size_of::<PartProgress>();
        self.begin_at_part
            .len()
            .saturating_mul(of_part)
            .saturating_add(self.automaton.memory_usage())
            .saturating_add(self.begin_at_prefix.bytes())
            .saturating_add(self.begin_at_suffix.bytes())
            .saturating_add(of_patterns.sum())
    }

    /// Calls `found` with each pattern that matches; it gives the number below which patterns are
    /// still wanted.
    fn search(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(u32) -> u32) {
        PROGRESS.with_borrow_mut(|progress| {
            progress.begin(self.begin_at_part.len(), self.patterns.len());
            let search = Search {
                sequences: self,
                progress,
                text,
                below: u32::MAX,
            };
            search.run(steps, found);
        });
    }
}

impl PatternMatcher for Sequences {
    fn first_match(&self, text: &[u8], steps: &StepBudget) -> Option<usize> {
        let mut first = None;
        self.search(text, steps, &mut |pattern| {
            first = Some(pattern);
            pattern
        });
        first.map(|pattern| pattern as usize)
    }

    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize)) {
        self.search(text, steps, &mut |pattern| {
            found(pattern as usize);
            u32::MAX
        });
    }
}

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (patterns, bytes) = (self.patterns.len(), self.bytes());
        write!(f, "Sequences({patterns} patterns, {bytes} bytes)")
    }
}

// === impl Split ===

impl<'p> Split<'p> {
    fn of(text: &'p str) -> Self {
        let Some((prefix, rest)) = text.split_once('*') else {
            return Self {
                prefix: text,
                parts: Vec::new(),
                suffix: None,
            };
        };
        let (between, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let parts = between.split('*').filter(|part| !part.is_empty());
        Self {
            prefix,
            parts: parts.collect(),
            suffix: Some(suffix),
        }
    }

    /// Where it may begin.
    fn triggers(&self) -> impl Iterator<Item = Trigger<'p>> {
        let text = |text: &&str| !text.is_empty();
        let prefix = Some(self.prefix).filter(text).map(Trigger::Prefix);
        let suffix = self.suffix.filter(text).map(Trigger::Suffix);
        let part = self.parts.first().copied().map(Trigger::Part);
        [prefix, suffix, part].into_iter().flatten()
    }
}

// === impl EndTexts ===

impl EndTexts {
    /// Calls `found` with the patterns of each text that begins these bytes. Each byte takes as
    /// many steps as the search for it among the texts that have all bytes before it.
    fn each<'b>(
        &self,
        bytes: impl Iterator<Item = &'b u8>,
        steps: &StepBudget,
        mut found: impl FnMut(&[u32]),
    ) {
        let mut left = self.0.as_slice();
        for (at, byte) in bytes.enumerate() {
            if left.is_empty() || steps.is_exhausted() {
                return;
            }
            steps.spend(left.len().ilog2() as usize + 1);
            let begin = left.partition_point(|(text, _)| text.get(at) < Some(byte));
            let end = left.partition_point(|(text, _)| text.get(at) <= Some(byte));
            left = left.get(begin..end).unwrap_or_default();
            if let Some((text, patterns)) = left.first()
                && text.len() == at.saturating_add(1)
            {
                steps.spend(patterns.len());
                found(patterns);
            }
        }
    }

    fn bytes(&self) -> usize {
        let texts = self.0.iter().map(|(text, _)| text.len());
        let own = self
            .0
            .len()
            .saturating_mul(size_of::<(Box<[u8]>, Vec<u32>)>());
        texts.fold(own, usize::saturating_add)
    }
}

// === impl Progress ===

impl Progress {
    /// Begins a value. The state grows with the largest set.
    fn begin(&mut self, parts: usize, patterns: usize) {
        self.value = self.value.saturating_add(1);
        if self.parts.len() < parts {
            self.parts.resize(parts, PartProgress::default());
        }
        if self.patterns.len() < patterns {
            self.patterns.resize(patterns, PatternProgress::default());
        }
    }

    fn part(&mut self, number: u32) -> Option<&mut PartProgress> {
        let part = self.parts.get_mut(number as usize)?;
        if part.value != self.value {
            *part = PartProgress {
                value: self.value,
                ..PartProgress::default()
            };
        }
        Some(part)
    }
}

// === impl Search ===

impl Search<'_> {
    fn run(mut self, steps: &StepBudget, found: &mut dyn FnMut(u32) -> u32) {
        let (sequences, text) = (self.sequences, self.text);
        steps.spend(1);
        self.begin(&sequences.any, found);
        let prefixes = &sequences.begin_at_prefix;
        prefixes.each(text.iter(), steps, |begun| self.begin(begun, found));
        let suffixes = &sequences.begin_at_suffix;
        suffixes.each(text.iter().rev(), steps, |begun| self.begin(begun, found));
        if sequences.begin_at_part.is_empty() {
            return;
        }
        steps.spend(text.len());
        let mut state = OverlappingState::start();
        while !steps.is_exhausted() && self.below > 0 {
            let searched = sequences.automaton.try_find_overlapping(text, &mut state);
            let Some(occurrence) = searched.ok().and_then(|()| state.get_match()) else {
                return;
            };
            let looked_at = self.occurs(
                occurrence.pattern().as_u32(),
                (occurrence.start(), occurrence.end()),
                found,
            );
            steps.spend(looked_at.unwrap_or_default().saturating_add(1));
        }
    }

    /// Begins those of these patterns whose prefix the value has.
    fn begin(&mut self, patterns: &[u32], found: &mut dyn FnMut(u32) -> u32) {
        for pattern in patterns {
            let sequence = self.sequences.patterns.get(*pattern as usize);
            if let Some(Sequence { prefix, .. }) = sequence
                && self.text.starts_with(prefix)
            {
                self.wait_for(*pattern, 0, prefix.len(), found);
            }
        }
    }

    /// Advances the patterns that wait for a part. Gives how many it visited.
    fn occurs(
        &mut self,
        number: u32,
        (start, end): (usize, usize),
        found: &mut dyn FnMut(u32) -> u32,
    ) -> Option<usize> {
        let part = self.progress.part(number)?;
        // The list is detached first, because patterns may wait for the same part again.
        let mut waiting = part.waiting.take();
        let begins = !std::mem::replace(&mut part.begun, true);
        let mut looked_at: usize = 0;
        while let Some(pattern) = waiting {
            looked_at = looked_at.saturating_add(1);
            let so_far = *self.progress.patterns.get(pattern as usize)?;
            waiting = so_far.next;
            if so_far.after <= start {
                self.wait_for(pattern, so_far.part.saturating_add(1), end, found);
            } else {
                self.wait_for(pattern, so_far.part, so_far.after, found);
            }
        }
        if begins {
            for &pattern in self.sequences.begin_at_part.get(number as usize)? {
                looked_at = looked_at.saturating_add(1);
                let Sequence { prefix, .. } = self.sequences.patterns.get(pattern as usize)?;
                if pattern >= self.below {
                    break;
                }
                if !self.text.starts_with(prefix) {
                    continue;
                }
                if prefix.len() <= start {
                    self.wait_for(pattern, 1, end, found);
                } else {
                    self.wait_for(pattern, 0, prefix.len(), found);
                }
            }
        }
        Some(looked_at)
    }

    /// Makes a pattern wait for its next part, which begins at or after `after`. A pattern without
    /// another part may match.
    fn wait_for(
        &mut self,
        pattern: u32,
        part: usize,
        after: usize,
        found: &mut dyn FnMut(u32) -> u32,
    ) {
        let Some(sequence) = self.sequences.patterns.get(pattern as usize) else {
            return;
        };
        if pattern >= self.below {
            return;
        }
        let Some(number) = sequence.parts.get(part) else {
            let rest = self.text.get(after..).unwrap_or_default();
            let is_end = match &sequence.suffix {
                Some(suffix) => rest.ends_with(suffix),
                None => rest.is_empty(),
            };
            if is_end {
                self.below = found(pattern);
            }
            return;
        };
        let Some(waits_for) = self.progress.part(*number) else {
            return;
        };
        let next = waits_for.waiting.replace(pattern);
        if let Some(so_far) = self.progress.patterns.get_mut(pattern as usize) {
            *so_far = PatternProgress { next, part, after };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the pattern matches: tries every length for every star.
    fn glob(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
            Some((letter, rest)) => text
                .split_first()
                .is_some_and(|(first, text)| first == letter && glob(rest, text)),
        }
    }

    /// Pseudo-random numbers, the same for the same seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % bound
        }

        fn text(&mut self, letters: &[u8], longest: usize) -> String {
            let length = self.below(longest + 1);
            let letters = (0..length).map(|_| char::from(letters[self.below(letters.len())]));
            letters.collect()
        }

        /// A pattern with any number of stars.
        fn pattern(&mut self) -> String {
            let mut pattern = self.text(b"ab", 2);
            if self.below(8) == 0 {
                return pattern;
            }
            for _ in 0..self.below(4) {
                pattern.push('*');
                pattern.push_str(["a", "b", "ab", "ba", "aa", "aba"][self.below(6)]);
            }
            pattern.push('*');
            pattern.push_str(&self.text(b"ab", 2));
            pattern
        }
    }

    #[test]
    fn matches_equal_those_of_a_naive_search() {
        let mut random = Random(1);
        let mut matches = 0;
        for _ in 0..300 {
            let patterns: Vec<String> = (0..=random.below(12)).map(|_| random.pattern()).collect();
            let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let sequences = Sequences::new(&texts).unwrap();
            for _ in 0..40 {
                let value = random.text(b"aab", 12);
                let expected: Vec<usize> = (0..patterns.len())
                    .filter(|at| glob(patterns[*at].as_bytes(), value.as_bytes()))
                    .collect();
                let mut each = Vec::new();
                let steps = StepBudget::unlimited();
                sequences.each_match(value.as_bytes(), &steps, &mut |one| each.push(one));
                each.sort_unstable();
                assert_eq!(each, expected, "{patterns:?} {value}");
                let first = sequences.first_match(value.as_bytes(), &steps);
                assert_eq!(first, expected.first().copied(), "{patterns:?} {value}");
                matches += expected.len();
            }
        }
        assert!(matches > 5_000, "{matches}: patterns meet values");
    }

    #[test]
    fn patterns_that_share_an_end_or_a_part_take_steps_by_the_value_and_not_by_their_number() {
        for form in [
            "tenant-*-{n}",
            "{n}-*-tenant",
            "*part*-{n}",
            "{n}-*part*",
            "tenant-*part*-{n}",
            "{n}-*part*-tenant",
            "{n}*",
            "*{n}",
        ] {
            for count in [50, 5_000] {
                let pattern = |n: usize| form.replace("{n}", &format!("{n:05}"));
                let patterns: Vec<String> = (0..count).map(pattern).collect();
                let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
                let sequences = Sequences::new(&texts).unwrap();
                let last = count - 1;
                for between in [
                    "a",
                    "part",
                    &"part".repeat(500),
                    &"00049-tenant".repeat(100),
                ] {
                    let value = pattern(last).replace('*', between);
                    let steps = StepBudget::unlimited();
                    let found = sequences.first_match(value.as_bytes(), &steps);
                    assert_eq!(found, Some(last), "{value}");
                    // A byte, the occurrences of parts, and the search of an end.
                    let (taken, bytes) = (u64::MAX - steps.remaining(), value.len() as u64);
                    assert!(
                        taken <= 2 * bytes + 200,
                        "{form} {count}: {taken} of {bytes}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_search_ends_when_its_steps_is_exhausted() {
        let sequences = Sequences::new(&["*a*b*", "*a*c*"]).unwrap();
        let value = [b'a'; 1_000];
        let steps = StepBudget::new(500);
        assert_eq!(sequences.first_match(&value, &steps), None);
        assert!(steps.is_exhausted());
        // Another value begins with its own steps.
        let steps = StepBudget::new(500);
        assert_eq!(sequences.first_match(b"xaxcx", &steps), Some(1));
        assert!(!steps.is_exhausted());
    }
}
