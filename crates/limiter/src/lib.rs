#![doc = include_str!("../README.md")]
//!
//! # Files
//!
//! Each file uses only the files above it in this table.
//!
//! | file | content |
//! | --- | --- |
//! | `named` | [`named!`]: enums whose variants have names |
//! | `time` | [`Timestamp`], [`Unit`], [`Calendar`], [`Span`], [`Weekday`] |
//! | `reservation` | [`Step`], [`Cost`], [`Expiry`], [`ReserveRule`]: hits that are settled later |
//! | `limit` | [`Window`], [`Rate`], [`CountRefused`], [`Limit`]: valid by construction; [`Penalty`] |
//! | `descriptor` | [`Request`], [`Descriptor`], [`Entry`], [`Operation`], [`Override`] |
//! | `algorithm` | [`Algorithm`], [`State`], [`Outcome`] and the table [`ALGORITHMS`] |
//! | `address` | [`Address`], [`Prefix`]: values that are IP addresses |
//! | `pattern` | [`Pattern`], [`PatternMatcher`], [`PatternCompiler`]: wildcards and regexes |
//! | `values` | [`Values`], [`LevelValues`]: the values of a level, and their text in labels |
//! | `allowance` | [`Allowance`]: a limit and its algorithm |
//! | `limit_table` | [`LimitTable`], [`LimitTableBuilder`]: limits by the value of an entry |
//! | `rule` | [`Rule`], [`Level`], [`Candidate`], [`OverLimitResponse`]: one configured limit |
//! | `descriptor_matcher` | [`MatchKind`], [`AddNodeError`]; finds the child node that matches an entry |
//! | `reachability` | [`Shadowed`]: levels that no entry reaches |
//! | `overrides` | [`RuleOverride`]: limits of single descriptors, for a time |
//! | `rule_set` | [`RuleSet`], [`MatchedRules`], [`OnUndecided`]: the configured tree of rules |
//! | `key` | [`Key`], [`KeyHasher`], [`BucketIdentity`]: the identity of one bucket |
//! | `check` | [`Check`], [`PlannedCheck`], [`LimitOrigin`]: one question about one bucket |
//! | `penalty_state` | [`PenaltyState`]: callers that a limit refuses often are refused for a time |
//! | `planned_steps` | the steps of reservations in a plan, and shared budgets |
//! | `plan` | [`Plan`], [`PlanBuffer`], [`DescriptorPlan`]: a request against the rules |
//! | `decision` | [`Decision`], [`Status`], [`Tally`]: a plan and its outcomes |
//!
//! What it deliberately does not do: read files, ask the time, await, log, or choose a hash
//! function (the caller brings a [`KeyHasher`]).

#![forbid(unsafe_code)]

pub mod address;
pub mod algorithm;
pub mod allowance;
pub mod check;
pub mod decision;
pub mod descriptor;
mod descriptor_matcher;
pub mod key;
pub mod limit;
pub mod limit_table;
mod named;
mod overrides;
pub mod pattern;
pub mod penalty_state;
pub mod plan;
mod planned_steps;
mod reachability;
pub mod reservation;
pub mod rule;
pub mod rule_set;
pub mod time;
pub mod values;

pub use address::{Address, Prefix, PrefixError};
pub use algorithm::{
    ALGORITHMS, Algorithm, AlgorithmOption, ENDED_AT_ONCE_MAX, ID_RECORDS_MAX, LEDGER_RECORDS_MAX,
    LeasePolicy, Ledger, Mark, Marks, Outcome, REGISTER_MAX, SavedRecord, Settled, State,
};
pub use allowance::Allowance;
pub use check::{Check, LimitOrigin, PlannedCheck};
pub use decision::{Code, CurrentLimit, Decision, Modes, Status, Tally};
pub use descriptor::{Descriptor, Entry, Hits, Holder, Operation, Override, Request};
pub use key::{BucketIdentity, BucketNaming, Digest, Key, KeyHasher};
pub use limit::{CountRefused, Limit, LimitError, PENALTY_SECONDS_MAX, Penalty, Rate, Window};
pub use limit_table::{
    AddLineError, LimitTable, LimitTableBuilder, LineForm, RuleLines, TABLE_FORMS_MAX,
    TABLE_LINES_MAX, TableDifference, TableLine,
};
pub use overrides::{OverrideCounts, OverrideEffect, RuleOverride, WithoutEffect};
pub use pattern::{
    MATCHING_STEPS_MAX, Pattern, PatternCompiler, PatternError, PatternMatcher, StepBudget,
};
pub use penalty_state::PenaltyState;
pub use plan::{DescriptorPlan, Plan, PlanBuffer};
pub use reservation::{
    Cost, CostError, EXPIRY_MS_MAX, Estimate, EstimateScope, Expiry, OnExpiry, Otherwise,
    ReservationOutcome, ReserveAmount, ReserveRule, Step,
};
pub use rule::{
    Candidate, IdentityValue, Level, LimitFromRequest, MetadataValue, NotifyShares,
    OverLimitResponse, Overriding, Placeholder, Rule, Template,
};
pub use rule_set::{
    ANY_TEXT, AddNodeError, DomainRules, Match, MatchKind, MatchedRules, OnUndecided, Parent,
    RegexWords, RuleSet, Shadowed, ShadowedPart, TraceStep,
};
pub use time::{Calendar, Span, Timestamp, Unit, Weekday};
pub use values::{LevelValues, Values};
