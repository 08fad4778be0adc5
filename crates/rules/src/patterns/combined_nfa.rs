//! Many patterns combined into one NFA: regular expressions side by side, wildcards as a trie.
//!
//! Why a trie: with a state of its own for each of `*bot*` and `*crawler*`, a state of the DFA
//! would be a set of those, and a thousand words would take a thousand times longer to compile. In
//! a trie, all words begin in one state.
//!
//! What it deliberately does not do: decide which pattern comes first; all that match are found.

use regex_automata::nfa::thompson::{Builder, NFA, State, Transition};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;

use crate::patterns::budget::KEY_BYTES_MAX;
use crate::patterns::pattern::ParsedPattern;
use crate::patterns::regex::nfa;

/// A trie of wildcards.
struct Trie {
    /// The root first, and each node before those below it.
    nodes: Vec<TrieNode>,
}

/// There may be hundreds of thousands, so a node is small.
#[derive(Default)]
struct TrieNode {
    /// Sorted by the byte.
    next: Vec<(u8, u32)>,
    /// The node after a star.
    star: Option<u32>,
    /// It follows a star, and accepts any bytes.
    is_star: bool,
    /// The patterns that end here, and where the value must end.
    ends: Vec<(usize, ValueEnd)>,
}

/// Where a value ends.
#[derive(Clone, Copy, Eq, PartialEq)]
enum ValueEnd {
    /// Here, with the pattern.
    Here,
    /// Here or later.
    Anywhere,
}

/// How many nodes there may be: each becomes a state of about so many bytes.
const NODES_MAX: usize = KEY_BYTES_MAX / 32;

/// Combines patterns into one NFA; a pattern's number is its position. None when it would be too
/// large.
pub(crate) fn combined_nfa<'r>(
    patterns: impl Iterator<Item = &'r ParsedPattern<'r>>,
) -> Option<NFA> {
    let mut builder = Builder::new();
    builder.set_utf8(false);
    builder.set_size_limit(Some(KEY_BYTES_MAX)).ok()?;
    let mut trie = Trie::new();
    let mut starts = Vec::new();
    let mut ends = Vec::new();
    for (index, pattern) in patterns.enumerate() {
        builder.start_pattern().ok()?;
        // The start of a single pattern is only for searches for one pattern, and there are none.
        let start = match pattern {
            ParsedPattern::Stars(text) => {
                trie.add(text, index)?;
                let end = builder.add_match().ok()?;
                ends.push(end);
                end
            }
            ParsedPattern::Regex(hir) => {
                let start = copy_nfa(&mut builder, &nfa(hir, KEY_BYTES_MAX)?)?;
                starts.push(start);
                ends.push(StateID::ZERO);
                start
            }
        };
        builder.finish_pattern(start).ok()?;
    }
    if trie.is_used() {
        starts.push(trie.states(&mut builder, &ends)?);
    }
    let start = builder.add_union(starts).ok()?;
    builder.build(start, start).ok()
}

/// Adds the states of the NFA of one pattern, and gives its start.
fn copy_nfa(builder: &mut Builder, nfa: &NFA) -> Option<StateID> {
    // Each state becomes one state, so all numbers are moved by the number of states before.
    let moved_by = builder.add_fail().ok()?.as_usize().checked_add(1)?;
    let moved = |state: StateID| StateID::new(state.as_usize().checked_add(moved_by)?).ok();
    let transition = |old: &Transition| {
        Some(Transition {
            next: moved(old.next)?,
            ..*old
        })
    };
    for state in nfa.states() {
        let added = match state {
            State::ByteRange { trans } => builder.add_range(transition(trans)?),
            State::Sparse(sparse) => {
                let transitions = sparse.transitions.iter().map(transition);
                builder.add_sparse(transitions.collect::<Option<_>>()?)
            }
            State::Dense(dense) => {
                let transitions = (u8::MIN..=u8::MAX).filter_map(|byte| {
                    let next = moved(dense.matches_byte(byte)?);
                    Some(next.map(|next| Transition {
                        start: byte,
                        end: byte,
                        next,
                    }))
                });
                builder.add_sparse(transitions.collect::<Option<_>>()?)
            }
            State::Look { look, next } => builder.add_look(moved(*next)?, *look),
            State::Union { alternates } => {
                let alternates = alternates.iter().map(|next| moved(*next));
                builder.add_union(alternates.collect::<Option<_>>()?)
            }
            State::BinaryUnion { alt1, alt2 } => {
                builder.add_union(vec![moved(*alt1)?, moved(*alt2)?])
            }
            State::Capture { next, .. } => builder.add_union(vec![moved(*next)?]),
            State::Fail => builder.add_fail(),
            State::Match { .. } => builder.add_match(),
        };
        added.ok()?;
    }
    moved(nfa.start_anchored())
}

// === impl Trie ===

impl Trie {
    fn new() -> Self {
        Self {
            nodes: vec![TrieNode::default()],
        }
    }

    /// Whether it holds any pattern.
    fn is_used(&self) -> bool {
        self.nodes.len() > 1 || self.nodes.iter().any(|node| !node.ends.is_empty())
    }

    /// Adds a pattern. None when there would be too many nodes.
    fn add(&mut self, text: &str, pattern: usize) -> Option<()> {
        let mut node = 0;
        let fixed = text.trim_end_matches('*');
        for byte in fixed.bytes() {
            node = match byte {
                b'*' => self.after_star(node)?,
                byte => self.after(node, byte)?,
            };
        }
        let end = if fixed.len() < text.len() {
            ValueEnd::Anywhere
        } else {
            ValueEnd::Here
        };
        self.nodes.get_mut(node)?.ends.push((pattern, end));
        Some(())
    }

    fn after(&mut self, node: usize, byte: u8) -> Option<usize> {
        let next = &mut self.nodes.get_mut(node)?.next;
        match next.binary_search_by_key(&byte, |(byte, _)| *byte) {
            Ok(at) => next.get(at).map(|(_, below)| *below as usize),
            Err(at) => {
                let below = u32::try_from(self.nodes.len()).ok()?;
                self.nodes.get_mut(node)?.next.insert(at, (byte, below));
                self.push(TrieNode::default())
            }
        }
    }

    /// The node after a star. Stars in a row are one.
    fn after_star(&mut self, node: usize) -> Option<usize> {
        let new = u32::try_from(self.nodes.len()).ok()?;
        let above = self.nodes.get_mut(node)?;
        if above.is_star {
            return Some(node);
        }
        if let Some(star) = above.star {
            return Some(star as usize);
        }
        above.star = Some(new);
        self.push(TrieNode {
            is_star: true,
            ..TrieNode::default()
        })
    }

    fn push(&mut self, node: TrieNode) -> Option<usize> {
        self.nodes.push(node);
        let last = self.nodes.len().checked_sub(1)?;
        (last < NODES_MAX).then_some(last)
    }

    /// Adds a state for each node, from the last to the root, and gives the root's. The patterns
    /// end in these states.
    fn states(&self, builder: &mut Builder, ends: &[StateID]) -> Option<StateID> {
        let mut states = vec![StateID::ZERO; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate().rev() {
            let state = |node: &u32| states.get(*node as usize).copied();
            let mut ways: Vec<StateID> = Vec::new();
            for (pattern, end) in &node.ends {
                let matched = ends.get(*pattern).copied()?;
                ways.push(match end {
                    ValueEnd::Anywhere => matched,
                    ValueEnd::Here => builder.add_look(matched, Look::End).ok()?,
                });
            }
            if !node.next.is_empty() {
                let next = node.next.iter().map(|(byte, below)| {
                    Some(Transition {
                        start: *byte,
                        end: *byte,
                        next: state(below)?,
                    })
                });
                let next = next.collect::<Option<_>>()?;
                ways.push(builder.add_sparse(next).ok()?);
            }
            if let Some(star) = &node.star {
                ways.push(state(star)?);
            }
            let itself = if node.is_star {
                let itself = builder.add_empty().ok()?;
                let any = Transition {
                    start: u8::MIN,
                    end: u8::MAX,
                    next: itself,
                };
                ways.push(builder.add_range(any).ok()?);
                Some(itself)
            } else {
                None
            };
            let mut made = match ways.as_slice() {
                [way] => *way,
                _ => builder.add_union(ways).ok()?,
            };
            if let Some(itself) = itself {
                builder.patch(itself, made).ok()?;
                made = itself;
            }
            *states.get_mut(number)? = made;
        }
        states.first().copied()
    }
}
