//! Wildcards and regular expressions as automata: the compiler behind [`PatternCompiler`].
//!
//! Why automata: a value comes from a stranger, and must cost one step a byte, whatever it is and
//! however many patterns there are. How: all patterns of a key become one NFA, and that a dense
//! DFA, built whole while rules are read: matching is then a table look-up a byte, without a lock,
//! a cache or an allocation. Patterns may need more states than are worth their memory (twenty of
//! `/v1/*/x/*/y` can be half done in a million ways); then a few of them at a time get a DFA; how
//! many is learnt on the way, and what did not fit together is not tried again. Texts with several
//! stars are matched by their fixed parts instead (`sequences`), in one pass however many there
//! are. All attempts share a budget of steps, so that no rules file takes long to read. A single
//! expression that does not fit even so goes to the crate's meta engine, which makes states as
//! values need them and, when they do not repay, steps through the NFA: still one pass over the
//! value. Its caches are shared between threads, so it is the second choice, and only for an NFA so
//! small that even the worst value is borne.
//!
//! What matching takes is counted in steps (`limiter::StepBudget`). A request that takes too many is
//! refused, and so are rules of which each byte of a value would take too many.
//!
//! Everything is on bytes: `.` is any byte, line feed and 0xFF too, so that nobody slips past a
//! rule by sending one, and a letter beyond ASCII is its bytes in UTF-8. The whole value must
//! match; the ends are put into the parsed expression, not into its text, where `a|b` or a comment
//! would swallow them. A pattern that ends in "anything" ends its search there: "matched already"
//! is then no state of its own, which would double those of all others.
//!
//! | file | what |
//! | --- | --- |
//! | `regex` | texts into parsed expressions, and why not |
//! | `combined_nfa` | many of them into one NFA |
//! | `matchers` | what matches |
//! | `sequences` | what matches texts with several stars, by their fixed parts |
//!
//! What it deliberately does not do: Unicode classes and case (`(?u)` is refused), captures, look
//! where a rule stands.

mod budget;
mod combined_nfa;
mod compiler;
mod matchers;
mod pattern;
mod regex;
mod sequences;

pub use self::budget::{ALL_BYTES_MAX, ALL_STEPS_MAX, KEY_BYTES_MAX, REGEX_BYTES_MAX};
pub use self::compiler::Automata;
pub use self::regex::RegexError;
