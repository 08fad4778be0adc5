//! Wildcards and regular expressions, compiled into automata
//! ([`PatternCompiler`](tollgate_limiter::PatternCompiler)).
//!
//! A value is untrusted input and must cost one step a byte, whatever it is and however many
//! patterns there are. All patterns of a key become one NFA, and that a dense DFA, built whole when
//! rules are loaded: matching is then one table look-up a byte, without a lock, a cache or an
//! allocation.
//!
//! Patterns may need more states than they are worth (twenty of `/v1/*/x/*/y` can be half matched
//! in a million ways); then a few of them at a time get a DFA. How many is learnt on the way, and
//! what did not fit together is not tried again. Wildcards with several stars are matched by their
//! fixed parts instead (`sequences`), in one pass however many there are. All attempts share a
//! budget of steps, so that no rules file takes long to load. A single expression that does not fit
//! goes to the crate's meta engine, which makes states on demand and, when that does not pay,
//! simulates the NFA: still one pass over the value. Its caches are shared between threads, so it
//! is the second choice, and only for an NFA so small that the cost of the worst value is
//! acceptable.
//!
//! The cost of matching is counted in steps (`limiter::Steps`). A request that takes too many is
//! refused, and so are rules of which each byte of a value would take too many.
//!
//! Everything is on bytes: `.` is any byte, also line feed and 0xFF, so that no such byte evades a
//! rule, and a letter beyond ASCII is its bytes in UTF-8. The whole value must match. The anchors
//! are put into the parsed expression, not into its text, where `a|b` or a comment would swallow
//! them. A pattern that ends in "anything" ends its search there: "matched already" is then no
//! state of its own, which would double those of all others.
//!
//! | file | what |
//! | --- | --- |
//! | `compiler` | groups patterns so that each group fits one automaton |
//! | `budget` | the bounds on memory and steps |
//! | `pattern` | one parsed pattern, and what it is compiled together with |
//! | `regex` | texts into parsed expressions, and errors |
//! | `combined_nfa` | many patterns into one NFA |
//! | `matchers` | the matchers of compiled patterns |
//! | `sequences` | the matcher of wildcards with several stars |
//! | `words` | the words of a regular expression that has few |
//!
//! What it deliberately does not do: Unicode classes and case (`(?u)` is rejected), captures, the
//! position of a rule.

mod budget;
mod combined_nfa;
mod compiler;
mod matchers;
mod pattern;
mod regex;
mod sequences;
mod words;

pub use self::budget::{ALL_BYTES_MAX, ALL_STEPS_MAX, KEY_BYTES_MAX, REGEX_BYTES_MAX};
pub use self::compiler::Automata;
pub use self::regex::RegexError;
pub use self::words::regex_words;
