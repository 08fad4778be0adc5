//! What rate limiting is: the vocabulary, the arithmetic, and nothing else.
//!
//! Why a room of its own: everything tollgate promises is promised here, so it must be readable and testable
//! without a socket, a clock or a runtime. How: `std` only, time comes in as an argument, and each file below uses
//! only those above it. This folder compiles alone with bare `rustc` (`tests/tidy.rs` does it).
//!
//! What it deliberately does not do: read files, ask the time, await, log, hash by itself (the keyed hash comes in
//! behind [`key::KeyHasher`]).
//!
//! | file | nouns |
//! | --- | --- |
//! | `timestamp` | [`Timestamp`]: microseconds since 1970, saturating |
//! | `descriptor` | [`Request`], [`Descriptor`], [`Entry`], [`Hits`], [`Override`]: the question as asked |
//! | `limit` | [`Unit`], [`Window`], [`Rate`], [`Limit`]: what cannot be built wrong |
//! | `algorithm` | [`Algorithm`], [`State`], [`Outcome`], the table [`ALGORITHMS`]; one file each |
//! | `pattern` | text with stars |
//! | `rule` | [`Rule`], [`Level`], [`Allowance`]: one configured limit |
//! | `rule_set` | [`RuleSet`]: the configured tree, and how a descriptor finds its rule |
//! | `key` | [`Key`]: the identity of one bucket |
//! | `plan` | [`Check`], [`Plan`]: a request against the rules |
//! | `decision` | [`Decision`], [`Status`], [`Tally`]: a plan and its outcomes |

pub mod timestamp;

pub mod descriptor;

pub mod limit;

pub mod algorithm;

mod pattern;

pub mod rule;

pub mod rule_set;

pub mod key;

pub mod plan;

pub mod decision;

pub use algorithm::{ALGORITHMS, Algorithm, Outcome, State};
pub use decision::{Code, CurrentLimit, Decision, Modes, Status, Tally};
pub use descriptor::{Descriptor, Entry, Hits, Override, Request};
pub use key::{Digest, Key, KeyHasher};
pub use limit::{Limit, LimitError, Rate, Unit, Window};
pub use plan::{Check, Line, Plan, Subject};
pub use rule::{Allowance, Level, Rule, Value};
pub use rule_set::{How, Match, Parent, RuleSet, Step};
pub use timestamp::Timestamp;
