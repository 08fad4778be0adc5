//! Wildcards, all matched in one pass over a value by the fixed parts between their stars.
//!
//! Why no DFA: of a wildcard with several stars one part may be found and the next not, and a DFA
//! needs a state for each combination of these. Instead, one Aho-Corasick automaton finds every
//! fixed part wherever it occurs. A pattern waits for one part at a time, and takes the first
//! occurrence after the part before it; no later one can do better. So a value takes a step a byte,
//! one for each occurrence of a part, and one for each part of each pattern that is found, whatever
//! the number of patterns.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use aho_corasick::automaton::OverlappingState;
use aho_corasick::{AhoCorasick, MatchKind};

use crate::patterns::budget::WILDCARD_STATES_MAX;
use tollgate_limiter::{PatternMatcher, StepBudget};

/// A matcher of wildcards.
pub(crate) struct Sequences {
    /// Finds the parts.
    automaton: AhoCorasick,
    /// By the number of a part: the patterns whose first part it is, in order. Of a pattern without
    /// a part between two stars, that is its prefix, or else its suffix.
    begin_with: Vec<Vec<u32>>,
    /// The patterns without a fixed part.
    any: Vec<u32>,
    patterns: Vec<Sequence>,
}

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
    /// Whether the patterns whose first part it is have been started.
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
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut all_parts: Vec<&str> = Vec::new();
        let mut begin_with: Vec<Vec<u32>> = Vec::new();
        let mut any = Vec::new();
        let mut patterns = Vec::with_capacity(texts.len());
        for text in texts {
            let (prefix, rest) = match text.split_once('*') {
                Some((prefix, rest)) => (prefix, Some(rest)),
                None => (*text, None),
            };
            let ends = rest.map(|rest| rest.rsplit_once('*').unwrap_or(("", rest)));
            let (between, suffix) = ends.unzip();
            let between = between.unwrap_or_default().split('*');
            let mut parts: Vec<&str> = between.filter(|part| !part.is_empty()).collect();
            let is_short = parts.is_empty();
            if is_short {
                let ends = [prefix, suffix.unwrap_or_default()];
                parts.extend(ends.into_iter().find(|part| !part.is_empty()));
            }
            let mut known = Vec::with_capacity(parts.len());
            for part in parts {
                let new = u32::try_from(all_parts.len()).ok()?;
                let number = *numbers.entry(part).or_insert(new);
                if number == new {
                    all_parts.push(part);
                    begin_with.push(Vec::new());
                }
                known.push(number);
            }
            let pattern = u32::try_from(patterns.len()).ok()?;
            match known.first() {
                Some(first) => begin_with.get_mut(*first as usize)?.push(pattern),
                None => any.push(pattern),
            }
            if is_short {
                known.clear();
            }
            patterns.push(Sequence {
                prefix: prefix.as_bytes().into(),
                parts: known.into(),
                suffix: suffix.map(|suffix| suffix.as_bytes().into()),
            });
        }
        if states(&all_parts) > WILDCARD_STATES_MAX {
            return None;
        }
        let mut builder = AhoCorasick::builder();
        let automaton = builder.match_kind(MatchKind::Standard).build(&all_parts);
        Some(Self {
            automaton: automaton.ok()?,
            begin_with,
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
        self.begin_with
            .len()
            .saturating_mul(of_part)
            .saturating_add(self.automaton.memory_usage())
            .saturating_add(of_patterns.sum())
    }

    /// Calls `found` with each pattern that matches; it gives the number below which patterns are
    /// still wanted.
    fn search(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(u32) -> u32) {
        PROGRESS.with_borrow_mut(|progress| {
            progress.begin(self.begin_with.len(), self.patterns.len());
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
        steps.spend(self.text.len().saturating_add(1));
        let sequences = self.sequences;
        for pattern in &sequences.any {
            self.wait_for(*pattern, 0, 0, found);
        }
        let mut state = OverlappingState::start();
        while !steps.is_exhausted() && self.below > 0 {
            let searched = sequences
                .automaton
                .try_find_overlapping(self.text, &mut state);
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
            for &pattern in self.sequences.begin_with.get(number as usize)? {
                looked_at = looked_at.saturating_add(1);
                let Sequence { prefix, parts, .. } =
                    self.sequences.patterns.get(pattern as usize)?;
                if pattern >= self.below {
                    break;
                }
                if !self.text.starts_with(prefix) {
                    continue;
                }
                if prefix.len() <= start && !parts.is_empty() {
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
