//! The grammar of limits: a limit of a rules file, its candidate, and a line of a file of limits.
//!
//! The three have most of their fields in common. Each lists its own, in the order of its table in
//! the documentation.
//!
//! What it deliberately does not do: hold the fields of the levels above a limit (`grammar`).

use crate::file::grammar_field::{LARGE_NUMBER, Origin, choice, one_of, reference, tollgate};
use crate::file::{Field, Grammar, Kind, Mapping};
use tollgate_limiter::algorithm::SEGMENTS_MAX;
use tollgate_limiter::{
    ALGORITHMS, AlgorithmOption, CountRefused, EstimateScope, Limit, OnExpiry, Weekday,
};

/// A limit.
pub(crate) static LIMIT: Mapping = Mapping {
    name: "limit",
    place: "`rate_limit`",
    about: "A limit: the number of requests, the window and the algorithm.",
    fields: &[
        UNIT, UNIT_MULTIPLIER, REQUESTS_PER_UNIT, UNLIMITED, NAME, REPLACES, ALGORITHM, BURST,
        SEGMENTS, REFILL, CALENDAR, TIME_ZONE, WEEK_START, COUNT_REFUSED, CHARGED, HOLDER_KEY,
        SLOT_SECONDS, PENALTY_OF_LIMIT, RESERVE_OF_LIMIT, LEASE, COST, BUDGET, NOTIFY, RLQS,
        CANDIDATE_OF_LIMIT,
    ],
};

/// A limit that is tried beside the one in force. The rule keeps its name and what it replaces.
pub(crate) static CANDIDATE: Mapping = Mapping {
    name: "candidate",
    place: "`candidate`",
    about: "A limit that is decided for every request in a bucket of its own, counted, and never enforced.",
    fields: &[
        UNIT, UNIT_MULTIPLIER, REQUESTS_PER_UNIT, UNLIMITED, ALGORITHM, BURST, SEGMENTS, REFILL,
        CALENDAR, TIME_ZONE, WEEK_START, COUNT_REFUSED, CHARGED, HOLDER_KEY, SLOT_SECONDS,
    ],
};

/// The fields of a line of a file of limits besides `value`.
pub const LINE_FIELDS: [&str; 16] = [
    "unit", "requests_per_unit", "unit_multiplier", "algorithm", "burst", "segments", "refill", "calendar",
    "time_zone", "week_start", "count_refused", "charged", "slot_seconds", "unlimited", "shadow_mode", "plan",
];

/// A line of a file of limits: [`LINE_FIELDS`] in their order. The rule keeps its name and what it
/// replaces.
pub(super) static LINE: Mapping = Mapping {
    name: "line",
    place: "a line",
    about: "The limit of one value.",
    fields: &[
        UNIT, REQUESTS_PER_UNIT, UNIT_MULTIPLIER, ALGORITHM, BURST, SEGMENTS, REFILL, CALENDAR,
        TIME_ZONE, WEEK_START, COUNT_REFUSED, CHARGED, SLOT_SECONDS, UNLIMITED, SHADOW_MODE,
        PLAN_OF_LINE,
    ],
};

const UNIT: Field = reference("unit", Kind::Unit, "The unit of the window. A month is 30 days and a year 365, except with `calendar`.");
const UNIT_MULTIPLIER: Field = tollgate("unit_multiplier", Kind::Integer(1..=u32::MAX as u64), "The number of units in the window. Default: 1.");
pub(super) const REQUESTS_PER_UNIT: Field = reference("requests_per_unit", Kind::Integer(LARGE_NUMBER), "The number of requests; 0 refuses all.");
const UNLIMITED: Field = reference("unlimited", Kind::Boolean, "Requests pass and are not counted. It excludes all other fields but `candidate`.");
pub(super) const NAME: Field = reference("name", Kind::Text, "The name of the limit: returned with the status, and used by `replaces`.");
const REPLACES: Field = reference("replaces", Kind::MappingList(&REPLACED), "The limits that are not counted if this one matches the same request.");
pub(super) const ALGORITHM: Field = tollgate("algorithm", one_of(algorithm_names), "The algorithm. Default: fixed_window.");
pub(super) const BURST: Field = choice("burst", AlgorithmOption::Burst, Kind::Integer(1..=Limit::REQUESTS_MAX), "The number of requests that may pass at once.");
pub(super) const SEGMENTS: Field = choice("segments", AlgorithmOption::Segments, Kind::Integer(1..=SEGMENTS_MAX as u64), "The number of segments of a sliding window.");
const REFILL: Field = choice("refill", AlgorithmOption::Refill, one_of(|| vec!["continuous", "interval"]), "How the bucket refills: continuously, or at each edge of a window. Default: continuous.");
const CALENDAR: Field = choice("calendar", AlgorithmOption::Calendar, Kind::Boolean, "Windows are calendar days, weeks, months or years.");
const TIME_ZONE: Field = choice("time_zone", AlgorithmOption::Calendar, Kind::Text, "The IANA time zone of the calendar, such as Europe/Paris. Default: UTC.");
const WEEK_START: Field = choice("week_start", AlgorithmOption::Calendar, Kind::Enum { words: || Weekday::NAMES.to_vec(), ignore_case: true }, "The day on which weeks begin. Default: monday.");
pub(super) const COUNT_REFUSED: Field = choice("count_refused", AlgorithmOption::CountRefused, one_of(|| CountRefused::NAMES.to_vec()), "Which limits count refused hits: none, the one that refused, or all that were checked.");
pub(super) const CHARGED: Field = choice("charged", AlgorithmOption::CountRefused, one_of(|| vec!["at_once", "afterwards"]), "When requests are charged: at_once, or afterwards, when the work is done. Then every hit is counted, however few are left. Default: at_once.");
const HOLDER_KEY: Field = choice("holder_key", AlgorithmOption::Slots, Kind::Text, "The key of the entry that identifies the holder of a slot; with Envoy, x-request-id.");
const SLOT_SECONDS: Field = choice("slot_seconds", AlgorithmOption::Slots, Kind::Integer(1..=u32::MAX as u64), "How long a slot is held without a refund, in seconds.");
pub(super) const NOTIFY: Field = tollgate("notify", Kind::Percents, "The shares of the limit, in percent, at which an event is sent, once a window; `true` for 50, 80 and 100.");
const PENALTY_OF_LIMIT: Field = tollgate("penalty", Kind::Mapping(&PENALTY), "A caller that the limit refuses often is refused outright for a time.");
const RLQS: Field = tollgate("rlqs", Kind::Boolean, "The limit is apportioned over the proxies that report to the rate limit quota service. A check of it is an error.");
const PLAN_OF_LINE: Field = tollgate("plan", Kind::Text, "The name of a plan, whose limits the value has. It excludes all other fields but `shadow_mode`.");
pub(super) const SHADOW_MODE: Field = reference("shadow_mode", Kind::Boolean, "Hits are counted and measured, and never refused.");
pub(super) const CANDIDATE_OF_LIMIT: Field = tollgate("candidate", Kind::Mapping(&CANDIDATE), "A limit that is decided beside this one and never enforced.");

/// A reference to a rule that is replaced.
pub(crate) static REPLACED: Mapping = Mapping {
    name: "replaced",
    place: "an entry of `replaces`",
    about: "A limit that is not counted where this one applies.",
    fields: &[reference("name", Kind::Text, "The name of that limit; required.").required("")],
};

/// The grammar of files of limits.
pub(super) static LINES: Grammar = Grammar {
    mappings: &[&LINE],
    sign: "value",
    is_reference: false,
    is_overlay: false,
};

/// The fields of a limit that are choices of its algorithm, in the order of the table.
pub(crate) fn choices() -> impl Iterator<Item = (&'static str, AlgorithmOption)> {
    let fields = LIMIT.fields.iter();
    fields.filter_map(|field| Some((field.name, field.choice?)))
}

/// The fields of a limit that `unlimited` excludes. A limit can be tried where there is none.
pub(crate) fn excluded_by_unlimited() -> impl Iterator<Item = &'static str> {
    let ours = LIMIT.fields.iter().filter(|field| field.origin == Origin::Tollgate);
    ours.map(|field| field.name).filter(|name| *name != CANDIDATE.name)
}

/// The names and aliases of all algorithms.
fn algorithm_names() -> Vec<&'static str> {
    let spelled = ALGORITHMS.iter().flat_map(|algorithm| {
        let aliases = algorithm.facts().aliases.iter().copied();
        [algorithm.name()].into_iter().chain(aliases)
    });
    spelled.collect()
}

pub(super) const COST: Field = tollgate("cost", Kind::Decimal, "The price of a hit, with at most six decimals. What a request costs is rounded up. Default: 1.");
pub(super) const BUDGET: Field = tollgate("budget", Kind::Text, "The name of a bucket that limits share whose descriptors differ only in their last entry.");
pub(super) const RESERVE_OF_LIMIT: Field = tollgate("reserve", Kind::Mapping(&RESERVE), "Requests take an estimate before, and settle the true amount after.");
pub(super) const LEASE: Field = tollgate("lease", Kind::Boolean, "Whether callers may lease hits of the limit. Default: true.");

/// The largest factor of a penalty.
pub(super) const PENALTY_FACTOR_MAX: u32 = 100;

/// The penalty of a limit.
pub(crate) static PENALTY: Mapping = Mapping {
    name: "penalty",
    place: "`penalty`",
    about: "A penalty: a caller that the limit refuses often is refused outright for a time.",
    fields: &[
        tollgate("after", Kind::Integer(1..=u16::MAX as u64), "How many refusals begin a block; required.").required("add `after: 3`: so many refusals begin a block"),
        tollgate("within", Kind::Duration, "The span in which refusals are counted, from 1s to 365d. The first refusal begins it; required.").required("add `within: 10m`: refusals are counted for so long"),
        tollgate("block", Kind::Duration, "How long the first block is, from 1s to 365d; required.").required("add `block: 15m`: the caller is refused for so long"),
        tollgate("factor", Kind::Integer(1..=PENALTY_FACTOR_MAX as u64), "How many times longer the next block is. Default: 1."),
        tollgate("max", Kind::Duration, "How long the longest block is, and for how long after a block the next one is longer. Default: 1d, or `block` if that is longer."),
    ],
};

/// The reservations of a limit.
pub(crate) static RESERVE: Mapping = Mapping {
    name: "reserve",
    place: "`reserve`",
    about: "Reservations: an amount is taken under an id, and settled by the true amount.",
    fields: &[
        tollgate("key", Kind::Text, "The key of the last entry of a descriptor, whose value is the id. Default: only the API reserves."),
        tollgate("amount", Kind::Amount, "How much to reserve, in units of the limit: a number, or p50 to p99 of what commits said."),
        tollgate("floor", Kind::Integer(1..=Limit::REQUESTS_MAX), "The least that is reserved by a learnt amount, and the amount at first. Default: 1."),
        tollgate("ceiling", Kind::Integer(1..=Limit::REQUESTS_MAX), "The most that is reserved by a learnt amount. Default: what the limit can hold."),
        tollgate("per", one_of(|| EstimateScope::NAMES.to_vec()), "Whose commits an amount is learnt from: the rule's or each key's. Default: rule."),
        tollgate("expires", Kind::Duration, "How long a reservation is open unless it is settled, from 1s to 24h. Default: 60s."),
        tollgate("on_expiry", one_of(|| OnExpiry::NAMES.to_vec()), "What happens to the hits of a reservation that expires: charge or release. Default: charge."),
    ],
};
