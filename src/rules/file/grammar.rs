//! The grammar of a rules file: one table of mappings and fields.
//!
//! The loader takes its names from the table. The JSON Schema and the table of fields in
//! `docs/rules.md` are generated from it, so an editor and the service agree. A [`Mapping`] lists
//! its [`Field`]s; a field has its origin, the type of its value and a description. Mappings refer
//! to one another, so the tables below are the whole grammar.
//!
//! To add a field: add it here, read its value in the file of this folder that loads the mapping,
//! and run `make readme`.
//!
//! What it deliberately does not do: read values (`fields`), or hold what two fields mean together
//! (`descriptor`, `rate_limit`).

use crate::rules::file::grammar_field::{
    ANY_NUMBER, Field, Grammar, Kind, Mapping, choice, reference, tollgate,
};
use crate::rules::file::grammar_reserve::{BUDGET, COST, RESERVE, RESERVE_OF_LIMIT};
use tollgate_limiter::algorithm::SEGMENTS_MAX;
use tollgate_limiter::{ALGORITHMS, AlgorithmOption, CountRefused, OnStoreFailure, Weekday};

/// A whole file.
pub(crate) static ROOT: Mapping = Mapping {
    name: "rules",
    about: "The rules of one domain.",
    fields: &[
        reference(
            "domain",
            Kind::Text,
            "The domain that Envoy's rate limit filter sends; required.",
        ),
        reference(
            "descriptors",
            Kind::MappingList(&DESCRIPTOR),
            "The descriptors of this domain.",
        ),
        ALL_OR_NOTHING,
        ON_STORE_FAILURE,
    ],
};

/// One level of the tree.
pub(crate) static DESCRIPTOR: Mapping = Mapping {
    name: "descriptor",
    about: "One entry of a descriptor: its key, its values, and the limits that apply if it is the last entry.",
    fields: &[
        reference(
            "key",
            Kind::Text,
            "The key of the entry; required. A * makes it a pattern.",
        ),
        reference(
            "value",
            Kind::Text,
            "The exact value; a * makes it a pattern. Default: any other value.",
        ),
        tollgate(
            "values",
            Kind::TextList { or_one: false },
            "Any of these values; each has its own bucket.",
        ),
        tollgate(
            "cidr",
            Kind::TextList { or_one: true },
            "Addresses in any of these prefixes; the longest prefix wins.",
        ),
        tollgate(
            "ipv6_prefix",
            Kind::Integer(1..=128),
            "The prefix length, in bits, within which IPv6 addresses share a bucket.",
        ),
        tollgate(
            "regex",
            Kind::Text,
            "A regular expression that matches the whole value, as bytes.",
        ),
        reference(
            "rate_limit",
            Kind::Mapping(&LIMIT),
            "The limit that applies.",
        ),
        tollgate(
            "rate_limits",
            Kind::MappingList(&LIMIT),
            "Several limits; the tightest one sets the status.",
        ),
        OVER_LIMIT_OF_LEVEL,
        reference(
            "descriptors",
            Kind::MappingList(&DESCRIPTOR),
            "The next entries of the descriptor.",
        ),
        SHADOW_MODE,
        reference(
            "quota_mode",
            Kind::Boolean,
            "A quota: the request is refused only if all quotas are over their limits.",
        ),
        reference(
            "detailed_metric",
            Kind::Boolean,
            "The labels of metrics hold every value as the request sent it.",
        ),
        reference(
            "value_to_metric",
            Kind::Boolean,
            "This level's label of metrics holds the value as the request sent it.",
        ),
        reference(
            "share_threshold",
            Kind::Boolean,
            "All values that match share one bucket.",
        ),
        reference(
            "metadata",
            Kind::AnyMapping,
            "Returned as dynamic metadata if the descriptor passed.",
        ),
    ],
};

/// A limit.
pub(crate) static LIMIT: Mapping = Mapping {
    name: "limit",
    about: "A limit: the number of requests, the window and the algorithm.",
    fields: &[
        UNIT,
        UNIT_MULTIPLIER,
        REQUESTS_PER_UNIT,
        UNLIMITED,
        NAME,
        REPLACES,
        ALGORITHM,
        BURST,
        SEGMENTS,
        REFILL,
        CALENDAR,
        TIME_ZONE,
        WEEK_START,
        COUNT_REFUSED,
        HOLDER_KEY,
        SLOT_SECONDS,
        RESERVE_OF_LIMIT,
        COST,
        BUDGET,
        RLQS,
        CANDIDATE_OF_LIMIT,
    ],
};

/// A limit that is tried beside the one in force. The rule keeps its name and what it replaces.
pub(crate) static CANDIDATE: Mapping = Mapping {
    name: "candidate",
    about: "A limit that is decided for every request in a bucket of its own, counted, and never enforced.",
    fields: &[
        UNIT,
        UNIT_MULTIPLIER,
        REQUESTS_PER_UNIT,
        UNLIMITED,
        ALGORITHM,
        BURST,
        SEGMENTS,
        REFILL,
        CALENDAR,
        TIME_ZONE,
        WEEK_START,
        COUNT_REFUSED,
        HOLDER_KEY,
        SLOT_SECONDS,
    ],
};

const UNIT: Field = reference(
    "unit",
    Kind::Unit,
    "The unit of the window. A month is 30 days and a year 365, except with `calendar`.",
);

const UNIT_MULTIPLIER: Field = tollgate(
    "unit_multiplier",
    Kind::Integer(1..=u32::MAX),
    "The number of units in the window. Default: 1.",
);

pub(super) const REQUESTS_PER_UNIT: Field = reference(
    "requests_per_unit",
    Kind::Integer(ANY_NUMBER),
    "The number of requests; 0 refuses all.",
);

const UNLIMITED: Field = reference(
    "unlimited",
    Kind::Boolean,
    "Requests pass and are not counted. It excludes all other fields but `candidate`.",
);

pub(super) const NAME: Field = reference(
    "name",
    Kind::Text,
    "The name of the limit: returned with the status, and used by `replaces`.",
);

const REPLACES: Field = reference(
    "replaces",
    Kind::MappingList(&REPLACED),
    "The limits that are not counted if this one matches the same request.",
);

pub(super) const ALGORITHM: Field = tollgate(
    "algorithm",
    Kind::Enum {
        words: algorithm_names,
        ignore_case: false,
    },
    "The algorithm. Default: fixed_window.",
);

pub(super) const BURST: Field = choice(
    "burst",
    AlgorithmOption::Burst,
    Kind::Integer(1..=u32::MAX),
    "The number of requests that may pass at once.",
);

pub(super) const SEGMENTS: Field = choice(
    "segments",
    AlgorithmOption::Segments,
    Kind::Integer(1..=SEGMENTS_MAX as u32),
    "The number of segments of a sliding window.",
);

const REFILL: Field = choice(
    "refill",
    AlgorithmOption::Refill,
    Kind::Enum {
        words: refill_names,
        ignore_case: false,
    },
    "How the bucket refills: continuously, or at each edge of a window. Default: continuous.",
);

const CALENDAR: Field = choice(
    "calendar",
    AlgorithmOption::Calendar,
    Kind::Boolean,
    "Windows are calendar days, weeks, months or years.",
);

const TIME_ZONE: Field = choice(
    "time_zone",
    AlgorithmOption::Calendar,
    Kind::Text,
    "The IANA time zone of the calendar, such as Europe/Paris. Default: UTC.",
);

const WEEK_START: Field = choice(
    "week_start",
    AlgorithmOption::Calendar,
    Kind::Enum {
        words: weekday_names,
        ignore_case: true,
    },
    "The day on which weeks begin. Default: monday.",
);

pub(super) const COUNT_REFUSED: Field = choice(
    "count_refused",
    AlgorithmOption::CountRefused,
    Kind::Enum {
        words: count_refused_names,
        ignore_case: false,
    },
    "Which limits count refused hits: none, the one that refused, or all that were checked.",
);

const HOLDER_KEY: Field = choice(
    "holder_key",
    AlgorithmOption::Slots,
    Kind::Text,
    "The key of the entry that identifies the holder of a slot; with Envoy, x-request-id.",
);

const SLOT_SECONDS: Field = choice(
    "slot_seconds",
    AlgorithmOption::Slots,
    Kind::Integer(1..=u32::MAX),
    "How long a slot is held without a refund, in seconds.",
);

const RLQS: Field = tollgate(
    "rlqs",
    Kind::Boolean,
    "The limit is apportioned over the proxies that report to the rate limit quota service. A check of it is an error.",
);

pub(super) const ALL_OR_NOTHING: Field = tollgate(
    "all_or_nothing",
    Kind::Boolean,
    "A request takes hits from all its limits, or from none if one refuses. Default: --all-or-nothing.",
);

pub(super) const ON_STORE_FAILURE: Field = tollgate(
    "on_store_failure",
    Kind::Enum {
        words: || OnStoreFailure::ALL.map(OnStoreFailure::name).to_vec(),
        ignore_case: false,
    },
    "The response when the shared store makes no decision. Default: --on-store-failure.",
);

pub(super) const OVER_LIMIT_OF_LEVEL: Field = tollgate(
    "over_limit",
    Kind::Mapping(&OVER_LIMIT),
    "The response sent to the client when a limit refuses.",
);

pub(super) const SHADOW_MODE: Field = reference(
    "shadow_mode",
    Kind::Boolean,
    "Hits are counted and measured, and never refused.",
);

pub(super) const CANDIDATE_OF_LIMIT: Field = tollgate(
    "candidate",
    Kind::Mapping(&CANDIDATE),
    "A limit that is decided beside this one and never enforced.",
);

/// A reference to a rule that is replaced.
pub(crate) static REPLACED: Mapping = Mapping {
    name: "replaced",
    about: "A limit that is not counted where this one applies.",
    fields: &[reference(
        "name",
        Kind::Text,
        "The name of that limit; required.",
    )],
};

/// The response on a refusal.
pub(crate) static OVER_LIMIT: Mapping = Mapping {
    name: "over_limit",
    about: "The response sent to the client when a limit refuses. {limit}, {window} and {retry_after_seconds} are filled in.",
    fields: &[
        tollgate("body", Kind::Text, "The body of the response."),
        tollgate("headers", Kind::Headers, "Headers of the response."),
    ],
};

/// Every mapping.
pub(crate) static MAPPINGS: [&Mapping; 7] = [
    &ROOT,
    &DESCRIPTOR,
    &LIMIT,
    &RESERVE,
    &CANDIDATE,
    &REPLACED,
    &OVER_LIMIT,
];

/// The grammar of rules files.
pub(crate) static RULES: Grammar = Grammar {
    mappings: &NAMED,
    is_reference: true,
    is_overlay: false,
};

/// The grammar of overlays: its messages know the names of rules files.
pub(crate) static OVERLAY: Grammar = Grammar {
    mappings: &NAMED,
    is_reference: true,
    is_overlay: true,
};

/// The mappings that messages name. What a candidate may have, a limit may have.
static NAMED: [&Mapping; 6] = [&ROOT, &DESCRIPTOR, &LIMIT, &RESERVE, &REPLACED, &OVER_LIMIT];

/// The fields of a limit that are choices of its algorithm, in the order of the table.
pub(crate) fn choices() -> impl Iterator<Item = (&'static str, AlgorithmOption)> {
    let fields = LIMIT.fields.iter();
    fields.filter_map(|field| Some((field.name, field.choice?)))
}

/// The names and aliases of all algorithms.
pub(crate) fn algorithm_names() -> Vec<&'static str> {
    let spelled = ALGORITHMS.iter().flat_map(|algorithm| {
        let aliases = algorithm.aliases().iter().copied();
        [algorithm.name()].into_iter().chain(aliases)
    });
    spelled.collect()
}

fn refill_names() -> Vec<&'static str> {
    vec!["continuous", "interval"]
}

fn weekday_names() -> Vec<&'static str> {
    Weekday::ALL.map(Weekday::name).to_vec()
}

fn count_refused_names() -> Vec<&'static str> {
    CountRefused::ALL.map(CountRefused::name).to_vec()
}
