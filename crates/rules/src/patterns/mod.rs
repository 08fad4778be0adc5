//! Wildcards and regular expressions, compiled into automata
//! ([`PatternCompiler`](tollgate_limiter::PatternCompiler)).
//!
//! A value is untrusted input and must cost about one step a byte, whatever it is and however many
//! patterns there are. There are two engines. All patterns of a key become one dense DFA, built
//! whole when rules are loaded: matching is then one table look-up a byte, without a lock, a cache
//! or an allocation. Wildcards that do not fit into it are matched in one pass by their fixed parts
//! (`sequences`).
//!
//! Expressions may need more states than they are worth; then a few of them at a time get a DFA.
//! How many is learnt on the way. All attempts share a budget of steps, so that no rules file takes
//! long to load. A single expression that does not fit goes to the crate's meta engine, which makes
//! states on demand and, when that does not pay, simulates the NFA: still one pass over the value.
//! Its caches are shared between threads, so it is the second choice, and only for an NFA so small
//! that the cost of the worst value is acceptable.
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
//! | `compiler` | groups patterns so that each group fits one matcher |
//! | `budget` | the bounds on memory and steps |
//! | `regex` | texts into parsed expressions and NFAs, and errors |
//! | `matchers` | the matchers of regular expressions |
//! | `sequences` | the matcher of wildcards |
//! | `words` | the words of a regular expression that has few |
//!
//! What it deliberately does not do: Unicode classes and case (`(?u)` is rejected), captures, the
//! position of a rule.

mod budget;
mod compiler;
mod matchers;
mod regex;
mod sequences;
mod words;

pub use self::budget::{ALL_BYTES_MAX, ALL_STEPS_MAX, KEY_BYTES_MAX, REGEX_BYTES_MAX};
pub use self::compiler::Automata;
pub use self::regex::RegexError;
pub use self::words::regex_words;
