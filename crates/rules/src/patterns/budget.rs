//! The memory and time that patterns may take to compile and to match.

use tollgate_limiter::MATCHING_STEPS_MAX;

/// How large the NFA of one regular expression may be: one of letters alone fits, as long as a text
/// may be.
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// How large the NFA of one DFA may be: patterns of a key that need more are compiled in groups.
pub const KEY_BYTES_MAX: usize = 10 << 20;

/// How large one DFA may be: so many times its NFA, at most `DENSE_BYTES_MAX`, and at least
/// `DENSE_BYTES_MIN` is tried. A DFA as large as a trie of the patterns fits; one that doubles with
/// each pattern is given up soon.
pub(crate) const DENSE_PER_NFA_BYTE: usize = 64;
pub(crate) const DENSE_BYTES_MIN: usize = 512 << 10;
pub(crate) const DENSE_BYTES_MAX: usize = 8 << 20;

/// How much memory determinization may take, as a multiple of the NFA: what takes more has states
/// that are large sets, and takes long.
pub(crate) const MAKING_PER_NFA_BYTE: usize = 16;

/// The memory of the first attempt, and the growth of each further one.
pub(crate) const MAKING_FIRST_BYTES: usize = 2 << 10;
pub(crate) const MAKING_GROWTH: usize = 8;

/// How many steps each byte of a value may take at one level: a value of a kilobyte then takes no
/// more than a request may.
pub(crate) const STEPS_PER_BYTE_MAX: u64 = MATCHING_STEPS_MAX / 1_024;

/// How large an NFA without a DFA may be: at worst each byte of a value takes a step in each of its
/// states.
pub(crate) const LAZY_BYTES_MAX: usize = 16 << 10;

/// How many states the automaton of all wildcards of one key may have: each takes about so many
/// bytes.
pub(crate) const WILDCARD_STATES_MAX: usize = KEY_BYTES_MAX / 32;

/// How many steps a byte of a wildcard counts: each byte becomes a state, and is visited twice.
pub(crate) const SEQUENCES_STEPS_PER_BYTE: usize = 64;

/// The memory that an expression without a DFA counts: caches for the threads that match at one
/// time.
pub(crate) const LAZY_COST_BYTES: usize = 4 << 20;

/// How large its cache of states may grow, for each thread that matches at one time.
pub(crate) const LAZY_CACHE_BYTES: usize = 256 << 10;

/// How much memory all automata of one rule set may take.
pub const ALL_BYTES_MAX: usize = 128 << 20;

/// How much work the DFAs of one rule set may take, used or given up. A step is one byte of the
/// sets of NFA states that its states stand for, followed for one class of bytes. The time of
/// determinization is proportional to that.
pub const ALL_STEPS_MAX: usize = 3 << 27;

/// How many steps an expression may take when not all fit into one DFA.
pub(crate) const STEPS_PER_PATTERN: usize = 1 << 20;

/// The part of the remaining budget that the waiting expressions may take; each is tried in groups
/// of several sizes.
pub(crate) const WAITING_SHARE: usize = 4;

/// The part of the remaining steps that may be spent on one DFA for all expressions of a key.
pub(crate) const ALL_TOGETHER_SHARE: usize = 4;

/// The same for all patterns of a key that has wildcards, of the steps above
/// `SEQUENCES_STEPS_KEPT`.
pub(crate) const WITH_WILDCARDS_SHARE: usize = 16;

/// The steps that DFAs of wildcards leave for wildcards that do not fit into one: however many keys
/// have such wildcards, these steps are spent on the wildcards' bytes only.
pub(crate) const SEQUENCES_STEPS_KEPT: usize = ALL_STEPS_MAX / 4;

/// How much a check of an expression counts for each byte of its NFA: a thousand expressions that
/// only repeat cost time as well.
pub(crate) const CHECKS_PER_BYTE: usize = 4;

/// The budget of all automata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Memory.
    pub(crate) bytes: usize,
    /// Time.
    pub(crate) steps: usize,
}
