//! What may stand where in a rules file: one table, from which the loader knows its names and the
//! JSON Schema is made.
//!
//! Why a table: a name that the loader knows and the schema does not, or the other way round, would
//! make an editor contradict the service. How: a [`Mapping`] lists its [`Field`]s; a field says
//! whose name it is, what its value may be and what it is for. Mappings hold one another, so the
//! tables below are all there is.
//!
//! What it deliberately does not do: read values (`fields`), or know what two fields mean together
//! (`mod`, `rate_limit`).

use std::ops::RangeInclusive;

use tollgate_limiter::algorithm::SEGMENTS_MAX;
use tollgate_limiter::{ALGORITHMS, CountRefused, OnStoreFailure, Weekday};

/// A mapping of a rules file.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What it is called in the schema.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
    /// What may stand in it, in the order in which people are told.
    pub(crate) fields: &'static [Field],
}

/// A name and what may stand behind it.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) origin: Origin,
    pub(crate) kind: Kind,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// Origin a name is that means something somewhere in a rules file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// Of the reference's grammar.
    Reference,
    /// What tollgate adds.
    Tollgate,
}

/// What a value may be.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text.
    Text,
    /// One of these words; in any case where that is said.
    Enum {
        words: fn() -> Vec<&'static str>,
        ignore_case: bool,
    },
    /// A unit, or beside `unlimited` any text that is none.
    Unit,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer(RangeInclusive<u32>),
    /// A mapping.
    Mapping(&'static Mapping),
    /// A list of mappings.
    MappingList(&'static Mapping),
    /// A list of texts; also one alone where that is said.
    TextList { or_one: bool },
    /// Names and texts, whatever the names.
    Headers,
    /// A mapping of anything.
    AnyMapping,
}

const fn reference(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        origin: Origin::Reference,
        kind,
        about,
    }
}

const fn tollgate(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        origin: Origin::Tollgate,
        kind,
        about,
    }
}

const ANY_NUMBER: RangeInclusive<u32> = 0..=u32::MAX;

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
        tollgate(
            "burst",
            Kind::Integer(1..=u32::MAX),
            "How many may come at once.",
        ),
        tollgate(
            "segments",
            Kind::Integer(1..=SEGMENTS_MAX as u32),
            "In how many parts a sliding window moves.",
        ),
        tollgate(
            "refill",
            Kind::Enum {
                words: refill_names,
                ignore_case: false,
            },
            "By and by, or all at each edge of a window.",
        ),
        tollgate(
            "calendar",
            Kind::Boolean,
            "Days, weeks, months and years as people know them.",
        ),
        tollgate(
            "time_zone",
            Kind::Text,
            "Origin calendar: an IANA name such as Europe/Paris; UTC unless said.",
        ),
        tollgate(
            "week_start",
            Kind::Enum {
                words: weekday_names,
                ignore_case: true,
            },
            "The day on which weeks begin; monday unless said.",
        ),
        tollgate(
            "count_refused",
            Kind::Enum {
                words: count_refused_names,
                ignore_case: false,
            },
            "Which limits count refused hits: none, the one that refused, or all that were asked.",
        ),
        tollgate(
            "holder_key",
            Kind::Text,
            "The key of the entry that says who holds a slot; for Envoy, of x-request-id.",
        ),
        tollgate(
            "slot_seconds",
            Kind::Integer(1..=u32::MAX),
            "How long a slot is held when nobody frees it.",
        ),
    ],
};

/// A rule that another replaces.
pub(crate) static REPLACED: Mapping = Mapping {
    name: "replaced",
    about: "A limit that is not counted where this one applies.",
    fields: &[reference("name", Kind::Text, "Its name; required.")],
};

/// What a refusal looks like.
pub(crate) static OVER_LIMIT: Mapping = Mapping {
    name: "over_limit",
    about: "What the caller's caller sees on a refusal. {limit}, {window} and {retry_after_seconds} are filled in.",
    fields: &[
        tollgate("body", Kind::Text, "The body of the answer."),
        tollgate("headers", Kind::Headers, "Headers of the answer."),
    ],
};

/// Every mapping there is.
pub(crate) static MAPPINGS: [&Mapping; 5] = [&ROOT, &DESCRIPTOR, &LIMIT, &REPLACED, &OVER_LIMIT];

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

// === impl Mapping ===

impl Mapping {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// The names that belong here, for people.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.fields.iter().map(|field| field.name).collect();
        names.join(", ")
    }
}

// === impl Origin ===

impl Origin {
    /// Origin this name is, if it means something anywhere.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut fields = MAPPINGS.iter().flat_map(|mapping| mapping.fields);
        fields
            .find(|field| field.name == name)
            .map(|field| field.origin)
    }
}
