#![doc = include_str!("../README.md")]
//!
//! # Files
//!
//! Each file uses only the files above it in this table.
//!
//! | file | content |
//! | --- | --- |
//! | `named` | [`named!`]: enums whose variants have names |
//! | `timestamp` | [`Timestamp`]: microseconds since 1970, saturating |
//! | `calendar` | [`Calendar`], [`Span`], [`Weekday`]: windows that follow a calendar |
//! | `unit` | [`Unit`]: the units of time in rules files |
//! | `limit` | [`Window`], [`Rate`], [`CountRefused`], [`Limit`]: valid by construction |
//! | `descriptor` | [`Request`], [`Descriptor`], [`Entry`], [`Operation`], [`Override`] |
//! | `algorithm` | [`Algorithm`], [`State`], [`Outcome`] and the table [`ALGORITHMS`] |
//! | `address` | [`Address`], [`Prefix`]: values that are IP addresses |
//! | `pattern` | [`Pattern`], [`PatternMatcher`], [`PatternCompiler`]: wildcards and regexes |
//! | `values` | [`Values`], [`LevelValues`]: the values of a level, and their text in labels |
//! | `rule` | [`Rule`], [`Level`], [`Allowance`], [`Candidate`], [`OverLimitResponse`]: one configured limit |
//! | `allowance` | [`Allowance`]: a limit and its algorithm |
//! | `limit_table` | [`LimitTable`]: limits by the value of an entry |
//! | `limit_table_builder` | [`LimitTableBuilder`]: fills a table |
//! | `node_match` | [`MatchKind`], [`AddNodeError`] |
//! | `automaton`, `prefix_table`, `wildcard_keys` | the parts of `descriptor_matcher` |
//! | `descriptor_matcher` | finds the child node that matches an entry |
//! | `reachability` | [`Shadowed`]: levels that no entry reaches |
//! | `on_undecided` | [`OnUndecided`]: the answer to a request without a decision |
//! | `overrides` | [`RuleOverride`]: limits of single descriptors, for a time |
//! | `rule_set` | [`RuleSet`], [`MatchedRules`]: the configured tree of rules |
//! | `key` | [`Key`], [`KeyHasher`], [`BucketIdentity`]: the identity of one bucket |
//! | `check` | [`Check`], [`PlannedCheck`], [`LimitOrigin`]: one question about one bucket |
//! | `penalty`, `penalty_state` | [`Penalty`]: callers that a limit refuses often are refused for a time |
//! | `replacements` | the rules that other matched rules replace |
//! | `planned_steps` | the steps of reservations in a plan, and shared budgets |
//! | `plan` | [`Plan`], [`PlanBuffer`], [`DescriptorPlan`]: a request against the rules |
//! | `decision` | [`Decision`], [`Status`], [`Tally`]: a plan and its outcomes |
//!
//! What it deliberately does not do: read files, ask the time, await, log, or choose a hash
//! function (the caller brings a [`KeyHasher`]).

#![forbid(unsafe_code)]

mod named;

pub mod timestamp;

pub mod calendar;

pub mod unit;

pub mod limit;

pub mod descriptor;

pub mod algorithm;

pub mod address;

pub mod pattern;

pub mod values;

pub mod allowance;

pub mod limit_table;

mod limit_table_builder;

pub mod rule;

mod overrides;

mod node_match;

mod automaton;

mod prefix_table;

mod wildcard_keys;

mod descriptor_matcher;

mod reachability;

mod on_undecided;

pub mod rule_set;

pub mod key;

pub mod check;

mod replacements;

pub mod reservation;

mod planned_steps;

pub mod plan;

pub mod penalty;

pub mod penalty_state;

pub mod decision;

pub use address::{Address, Prefix, PrefixError};
pub use algorithm::{
    ALGORITHMS, Algorithm, AlgorithmOption, ENDED_AT_ONCE_MAX, ID_RECORDS_MAX, LEDGER_RECORDS_MAX,
    LeasePolicy, Ledger, Mark, Marks, Outcome, REGISTER_MAX, SavedRecord, Settled, State,
};
pub use allowance::Allowance;
pub use calendar::{Calendar, Span, Weekday};
pub use check::{Check, LimitOrigin, PlannedCheck};
pub use decision::{Code, CurrentLimit, Decision, Modes, Status, Tally};
pub use descriptor::{Descriptor, Entry, Hits, Holder, Operation, Override, Request};
pub use key::{BucketIdentity, BucketNaming, Digest, Key, KeyHasher};
pub use limit::{CountRefused, Limit, LimitError, Rate, Window};
pub use limit_table::{LimitTable, LineForm, RuleLines, TableDifference, TableLine};
pub use limit_table_builder::{AddLineError, LimitTableBuilder, TABLE_FORMS_MAX, TABLE_LINES_MAX};
pub use on_undecided::OnUndecided;
pub use overrides::{OverrideCounts, OverrideEffect, RuleOverride, WithoutEffect};
pub use pattern::{
    MATCHING_STEPS_MAX, Pattern, PatternCompiler, PatternError, PatternMatcher, StepBudget,
};
pub use penalty::{PENALTY_SECONDS_MAX, Penalty};
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
    ANY_TEXT, AddNodeError, DomainRules, Match, MatchKind, MatchedRules, Parent, RegexWords,
    RuleSet, Shadowed, ShadowedPart, TraceStep,
};
pub use timestamp::Timestamp;
pub use unit::Unit;
pub use values::{LevelValues, Values};
