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
    ANY_NUMBER, Kind, Mapping, Origin, choice, reference, tollgate,
};
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
            "What Envoy's rate limit filter names; required.",
        ),
        reference(
            "descriptors",
            Kind::MappingList(&DESCRIPTOR),
            "What may be asked in this domain.",
        ),
        tollgate(
            "all_or_nothing",
            Kind::Boolean,
            "A request takes from all its limits or, when one refuses, from none.",
        ),
        tollgate(
            "on_store_failure",
            Kind::Enum {
                words: || OnStoreFailure::ALL.map(OnStoreFailure::name).to_vec(),
                ignore_case: false,
            },
            "What a request is answered when the store that replicas share does not decide.",
        ),
    ],
};

/// One level of the tree.
pub(crate) static DESCRIPTOR: Mapping = Mapping {
    name: "descriptor",
    about: "One entry of a descriptor: its key, which values of it, and what applies when it is the last.",
    fields: &[
        reference(
            "key",
            Kind::Text,
            "The key of the entry; required. With * a pattern.",
        ),
        reference(
            "value",
            Kind::Text,
            "Exactly this value; with * a pattern; absent: any other value.",
        ),
        tollgate(
            "values",
            Kind::TextList { or_one: false },
            "Any of these values, each with a bucket of its own.",
        ),
        tollgate(
            "cidr",
            Kind::TextList { or_one: true },
            "Addresses in any of these prefixes; the longest prefix wins.",
        ),
        tollgate(
            "ipv6_prefix",
            Kind::Integer(1..=128),
            "IPv6 addresses that agree in so many bits share a bucket.",
        ),
        tollgate(
            "regex",
            Kind::Text,
            "The whole value, as bytes, matches this regular expression.",
        ),
        reference(
            "rate_limit",
            Kind::Mapping(&LIMIT),
            "The limit that applies.",
        ),
        tollgate(
            "rate_limits",
            Kind::MappingList(&LIMIT),
            "Several limits; the tightest answers.",
        ),
        tollgate(
            "over_limit",
            Kind::Mapping(&OVER_LIMIT),
            "What the caller's caller sees on a refusal.",
        ),
        reference(
            "descriptors",
            Kind::MappingList(&DESCRIPTOR),
            "What may follow this entry.",
        ),
        reference(
            "shadow_mode",
            Kind::Boolean,
            "Counted and measured, never refused.",
        ),
        reference(
            "quota_mode",
            Kind::Boolean,
            "One of several ways to pass: refused only when all quotas are over.",
        ),
        reference(
            "detailed_metric",
            Kind::Boolean,
            "Labels of metrics hold every value as it came.",
        ),
        reference(
            "value_to_metric",
            Kind::Boolean,
            "This level's label of metrics holds the value as it came.",
        ),
        reference(
            "share_threshold",
            Kind::Boolean,
            "All values that fit share one bucket.",
        ),
        reference(
            "metadata",
            Kind::AnyMapping,
            "Goes back in dynamic metadata when the descriptor passed.",
        ),
    ],
};

/// A limit.
pub(crate) static LIMIT: Mapping = Mapping {
    name: "limit",
    about: "How many, in how long, counted how.",
    fields: &[
        reference(
            "unit",
            Kind::Unit,
            "The window; a month is 30 days and a year 365 unless `calendar`.",
        ),
        tollgate(
            "unit_multiplier",
            Kind::Integer(1..=u32::MAX),
            "The window is so many units.",
        ),
        reference(
            "requests_per_unit",
            Kind::Integer(ANY_NUMBER),
            "How many; 0 refuses everything.",
        ),
        reference(
            "unlimited",
            Kind::Boolean,
            "Never counted, always passes; stands alone.",
        ),
        reference(
            "name",
            Kind::Text,
            "Goes out with the status; what `replaces` names.",
        ),
        reference(
            "replaces",
            Kind::MappingList(&REPLACED),
            "Where both match one request, these are not counted.",
        ),
        tollgate(
            "algorithm",
            Kind::Enum {
                words: algorithm_names,
                ignore_case: false,
            },
            "How hits are counted.",
        ),
        choice(
            "burst",
            AlgorithmOption::Burst,
            Kind::Integer(1..=u32::MAX),
            "How many may come at once.",
        ),
        choice(
            "segments",
            AlgorithmOption::Segments,
            Kind::Integer(1..=SEGMENTS_MAX as u32),
            "In how many parts a sliding window moves.",
        ),
        choice(
            "refill",
            AlgorithmOption::Refill,
            Kind::Enum {
                words: refill_names,
                ignore_case: false,
            },
            "By and by, or all at each edge of a window.",
        ),
        choice(
            "calendar",
            AlgorithmOption::Calendar,
            Kind::Boolean,
            "Days, weeks, months and years as people know them.",
        ),
        choice(
            "time_zone",
            AlgorithmOption::Calendar,
            Kind::Text,
            "Whose calendar: an IANA name such as Europe/Paris; UTC unless said.",
        ),
        choice(
            "week_start",
            AlgorithmOption::Calendar,
            Kind::Enum {
                words: weekday_names,
                ignore_case: true,
            },
            "The day on which weeks begin; monday unless said.",
        ),
        choice(
            "count_refused",
            AlgorithmOption::CountRefused,
            Kind::Enum {
                words: count_refused_names,
                ignore_case: false,
            },
            "Which limits count refused hits: none, the one that refused, or all that were asked.",
        ),
        choice(
            "holder_key",
            AlgorithmOption::Slots,
            Kind::Text,
            "The key of the entry that says who holds a slot; for Envoy, of x-request-id.",
        ),
        choice(
            "slot_seconds",
            AlgorithmOption::Slots,
            Kind::Integer(1..=u32::MAX),
            "How long a slot is held when nobody frees it.",
        ),
    ],
};

/// A reference to a rule that is replaced.
pub(crate) static REPLACED: Mapping = Mapping {
    name: "replaced",
    about: "A limit that is not counted where this one applies.",
    fields: &[reference("name", Kind::Text, "Its name; required.")],
};

/// The response on a refusal.
pub(crate) static OVER_LIMIT: Mapping = Mapping {
    name: "over_limit",
    about: "What the caller's caller sees on a refusal. {limit}, {window} and {retry_after_seconds} are filled in.",
    fields: &[
        tollgate("body", Kind::Text, "The body of the answer."),
        tollgate("headers", Kind::Headers, "Headers of the answer."),
    ],
};

/// Every mapping.
pub(crate) static MAPPINGS: [&Mapping; 5] = [&ROOT, &DESCRIPTOR, &LIMIT, &REPLACED, &OVER_LIMIT];

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

/// The origin of a field of this name in any mapping.
pub(crate) fn origin_of(name: &str) -> Option<Origin> {
    let mut fields = MAPPINGS.iter().flat_map(|mapping| mapping.fields);
    fields
        .find(|field| field.name == name)
        .map(|field| field.origin)
}
