//! The JSON of the admin listener: one type for each response, written by `admin` and read by
//! `tollgate top`, `tap`, `reset`, `shadow` and `explain --last`.
//!
//! Why one module: server and commands cannot disagree about a field. `docs/admin.schema.json`
//! describes the same types for everybody else.
//!
//! Times are RFC 3339 in UTC with milliseconds. A field that does not apply is null, never absent,
//! except the fields that only candidates, reservations, costs, budgets and quotas have.
//!
//! What it deliberately does not do: read the values (`admin`, `top_keys`, `decisions`). `text` has
//! the texts that several of them share.

mod candidate;
mod decisions;
mod events;
mod limit_figures;
mod limits;
mod merged;
mod partitions;
mod quotas;
mod requests;
mod reserve;
mod text;
mod top;

pub use self::candidate::{
    CandidateCounts, CandidateLimit, CandidateOrigin, CandidateRule, CandidateState,
};
pub use self::decisions::{
    DecisionRecord, Decisions, DescriptorRecord, Reason, ReservationRecord, Verdict,
};
pub use self::events::{RulesState, SkippedEvent, StateEvent};
pub use self::limit_figures::LimitFigures;
pub use self::limits::{Hits, LimitState, Limits, LimitsFrom, Rates, ReservationCounts};
pub use self::merged::{FailedReplica, MergedTop};
pub use self::partitions::{LeaseState, NodeState, PartitionState, Partitions, StoreState};
pub use self::quotas::{QuotaBucket, QuotaFigures, QuotaRule, QuotaStream, Quotas};
pub use self::requests::{
    ApiError, ResetBucket, ResetRequest, ResetResponse, ShadowRequest, ShadowResponse, ShadowedRule,
};
pub use self::reserve::ReserveFigures;
pub use self::text::{instance_name, parse_entries, parse_time, rule_name, time_text};
pub use self::top::{Entry, RankBy, Top, TopKey, ValueMode, Window};
