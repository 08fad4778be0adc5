//! The memory and time that patterns may take to compile and to match.

use tollgate_limiter::MATCHING_STEPS_MAX;

/// How large the NFA of one regular expression may be: one of letters alone, as long as a text may
/// be, fits.
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// How large the NFA of all patterns of one key may be.
pub const KEY_BYTES_MAX: usize = 10 << 20;

/// How large one DFA may be: so many times its NFA, no more than `DENSE_BYTES_MAX`, and
/// `DENSE_BYTES_MIN` is always worth a try. A DFA as large as a trie of the patterns fits; one that
/// doubles with each of them is given up soon.
pub(crate) const DENSE_PER_NFA_BYTE: usize = 64;
pub(crate) const DENSE_BYTES_MIN: usize = 512 << 10;
pub(crate) const DENSE_BYTES_MAX: usize = 8 << 20;

/// How much it may take to make it, in the same way: what takes more has states that are large
/// sets, and takes long.
pub(crate) const MAKING_PER_NFA_BYTE: usize = 16;

/// With how much the first attempt is made, and how many times more each other has.
pub(crate) const MAKING_FIRST_BYTES: usize = 2 << 10;
pub(crate) const MAKING_GROWTH: usize = 8;

/// How many steps each byte of a value may take at one level: so that a value of a kilobyte takes
/// no more than a request may.
pub(crate) const STEPS_PER_BYTE_MAX: u64 = MATCHING_STEPS_MAX / 1_024;

/// How large an NFA may be that no DFA was made of: at worst each byte of a value costs a step in
/// each of its states.
pub(crate) const LAZY_BYTES_MAX: usize = 16 << 10;

/// How many steps a byte of a text counts as that is matched by its fixed parts: each becomes a
/// state, and is visited twice.
pub(crate) const SEQUENCES_STEPS_PER_BYTE: usize = 64;

/// What an expression without a DFA is reckoned to take: caches for the threads that match at one
/// time.
pub(crate) const LAZY_COST_BYTES: usize = 4 << 20;

/// How large its cache of states may grow, for each thread that matches at one time.
pub(crate) const LAZY_CACHE_BYTES: usize = 256 << 10;

/// How much all automata of one rule set may take.
pub const ALL_BYTES_MAX: usize = 128 << 20;

/// How much work the tables of one rule set may be, made or given up: a step is one byte of the
/// sets of NFA states that its states stand for, followed for one class of bytes. That is what the
/// time of determinizing goes by.
pub const ALL_STEPS_MAX: usize = 3 << 27;

/// How many of them a pattern is worth where not all fit into one table.
pub(crate) const STEPS_PER_PATTERN: usize = 1 << 20;

/// Which part of what is left the patterns that wait may take; each is tried in groups of several
/// sizes.
pub(crate) const WAITING_SHARE: usize = 4;

/// Which part of the steps left the attempt may take to have all patterns of a key in one table.
pub(crate) const ALL_TOGETHER_SHARE: usize = 4;

/// How much looking at an expression counts for each byte of its NFA: a thousand that only repeat
/// cost time as well.
pub(crate) const CHECKS_PER_BYTE: usize = 4;

/// How much automata may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Of memory.
    pub(crate) bytes: usize,
    /// Of time.
    pub(crate) steps: usize,
}
