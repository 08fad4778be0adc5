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
//! | `calendar` | [`Calendar`], [`Span`], [`Weekday`]: windows that begin when people think they do |
//! | `limit` | [`Unit`], [`Window`], [`Rate`], [`CountRefused`], [`Limit`]: what cannot be built wrong |
//! | `descriptor` | [`Request`], [`Descriptor`], [`Entry`], [`Hits`], [`Operation`], [`Override`]: the question as asked |
//! | `algorithm` | [`Algorithm`], [`State`], [`Outcome`], [`AlgorithmOption`], the table [`ALGORITHMS`]; one file each |
//! | `address` | [`Address`], [`Prefix`]: values that are IP addresses |
//! | `pattern` | [`Pattern`], [`PatternMatcher`], [`PatternCompiler`]: stars and regular expressions, many at once |
//! | `values` | [`Values`], [`LevelValues`]: which values a level speaks of, and their text in labels |
//! | `rule` | [`Rule`], [`Level`], [`Allowance`], [`OverLimit`]: one configured limit |
//! | `descriptor_matcher` | how an entry finds its node among those that follow one node |
//! | `store_failure` | [`OnStoreFailure`]: what is answered when the shared store does not decide |
//! | `rule_set` | [`RuleSet`], [`MatchedRules`]: the configured tree, and how a descriptor finds its rules |
//! | `key` | [`Key`]: the identity of one bucket |
//! | `plan` | [`Check`], [`PlannedCheck`], [`Plan`], [`PlanBuffer`]: a request against the rules |
//! | `decision` | [`Decision`], [`Status`], [`Tally`]: a plan and its outcomes |

pub mod timestamp;

pub mod calendar;

pub mod limit;

pub mod descriptor;

pub mod algorithm;

pub mod address;

pub mod pattern;

pub mod values;

pub mod rule;

mod descriptor_matcher;

pub mod store_failure;

pub mod rule_set;

pub mod key;

pub mod plan;

pub mod decision;

pub use address::{Address, Prefix, PrefixError};
pub use algorithm::{
    ALGORITHMS, Algorithm, AlgorithmOption, LeasePolicy, Mark, Marks, Outcome, REGISTER_MAX, State,
};
pub use calendar::{Calendar, Span, Weekday};
pub use decision::{Code, CurrentLimit, Decision, Modes, Status, Tally};
pub use descriptor::{Descriptor, Entry, Hits, Holder, Operation, Override, Request};
pub use key::{Digest, Key, KeyHasher};
pub use limit::{CountRefused, Limit, LimitError, Rate, Unit, Window};
pub use pattern::{
    MATCHING_STEPS_MAX, Pattern, PatternCompiler, PatternError, PatternMatcher, StepBudget,
};
pub use plan::{Check, DescriptorPlan, LimitOrigin, Plan, PlanBuffer, PlannedCheck};
pub use rule::{
    Allowance, IdentityValue, Level, MetadataValue, OverLimitResponse, Placeholder, Rule, Template,
};
pub use rule_set::{
    AddNodeError, DomainRules, Match, MatchKind, MatchedRules, Parent, RuleSet, TraceStep,
};
pub use store_failure::OnStoreFailure;
pub use timestamp::Timestamp;
pub use values::{LevelValues, Values};
