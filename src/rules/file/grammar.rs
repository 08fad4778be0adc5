//! What may stand where in a rules file: one table, from which the loader knows its names and the JSON Schema is made.
//!
//! Why a table: a name that the loader knows and the schema does not, or the other way round, would make an editor contradict
//! the service. How: a [`Mapping`] lists its [`Field`]s; a field says whose name it is, what its value may be and what it is
//! for. Mappings hold one another, so the tables below are all there is.
//!
//! What it deliberately does not do: read values (`fields`), or know what two fields mean together (`mod`, `rate_limit`).

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
    pub(crate) whose: Whose,
    pub(crate) kind: Kind,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// Whose a name is that means something somewhere in a rules file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Whose {
    /// Of the reference's grammar.
    References,
    /// What tollgate adds.
    Ours,
}

/// What a value may be.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text.
    Text,
    /// One of these words; in any case where that is said.
    Word {
        words: fn() -> Vec<&'static str>,
        any_case: bool,
    },
    /// A unit, or beside `unlimited` any text that is none.
    Unit,
    /// True or false.
    Truth,
    /// A whole number.
    Number(RangeInclusive<u32>),
    /// A mapping.
    Mapping(&'static Mapping),
    /// A list of mappings.
    Mappings(&'static Mapping),
    /// A list of texts; also one alone where that is said.
    Texts { or_one: bool },
    /// Names and texts, whatever the names.
    Headers,
    /// A mapping of anything.
    Anything,
}

const fn references(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        whose: Whose::References,
        kind,
        about,
    }
}

const fn ours(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        whose: Whose::Ours,
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
        references(
            "domain",
            Kind::Text,
            "What Envoy's rate limit filter names; required.",
        ),
        references(
            "descriptors",
            Kind::Mappings(&DESCRIPTOR),
            "What may be asked in this domain.",
        ),
        ours(
            "all_or_nothing",
            Kind::Truth,
            "A request takes from all its limits or, when one refuses, from none.",
        ),
        ours(
            "on_store_failure",
            Kind::Word {
                words: || OnStoreFailure::ALL.map(OnStoreFailure::name).to_vec(),
                any_case: false,
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
        references(
            "key",
            Kind::Text,
            "The key of the entry; required. With * a pattern.",
        ),
        references(
            "value",
            Kind::Text,
            "Exactly this value; with * a pattern; absent: any other value.",
        ),
        ours(
            "values",
            Kind::Texts { or_one: false },
            "Any of these values, each with a bucket of its own.",
        ),
        ours(
            "cidr",
            Kind::Texts { or_one: true },
            "Addresses in any of these prefixes; the longest prefix wins.",
        ),
        ours(
            "ipv6_prefix",
            Kind::Number(1..=128),
            "IPv6 addresses that agree in so many bits share a bucket.",
        ),
        ours(
            "regex",
            Kind::Text,
            "The whole value, as bytes, matches this regular expression.",
        ),
        references(
            "rate_limit",
            Kind::Mapping(&LIMIT),
            "The limit that applies.",
        ),
        ours(
            "rate_limits",
            Kind::Mappings(&LIMIT),
            "Several limits; the tightest answers.",
        ),
        ours(
            "over_limit",
            Kind::Mapping(&OVER_LIMIT),
            "What the caller's caller sees on a refusal.",
        ),
        references(
            "descriptors",
            Kind::Mappings(&DESCRIPTOR),
            "What may follow this entry.",
        ),
        references(
            "shadow_mode",
            Kind::Truth,
            "Counted and measured, never refused.",
        ),
        references(
            "quota_mode",
            Kind::Truth,
            "One of several ways to pass: refused only when all quotas are over.",
        ),
        references(
            "detailed_metric",
            Kind::Truth,
            "Labels of metrics hold every value as it came.",
        ),
        references(
            "value_to_metric",
            Kind::Truth,
            "This level's label of metrics holds the value as it came.",
        ),
        references(
            "share_threshold",
            Kind::Truth,
            "All values that fit share one bucket.",
        ),
        references(
            "metadata",
            Kind::Anything,
            "Goes back in dynamic metadata when the descriptor passed.",
        ),
    ],
};

/// A limit.
pub(crate) static LIMIT: Mapping = Mapping {
    name: "limit",
    about: "How many, in how long, counted how.",
    fields: &[
        references(
            "unit",
            Kind::Unit,
            "The window; a month is 30 days and a year 365 unless `calendar`.",
        ),
        ours(
            "unit_multiplier",
            Kind::Number(1..=u32::MAX),
            "The window is so many units.",
        ),
        references(
            "requests_per_unit",
            Kind::Number(ANY_NUMBER),
            "How many; 0 refuses everything.",
        ),
        references(
            "unlimited",
            Kind::Truth,
            "Never counted, always passes; stands alone.",
        ),
        references(
            "name",
            Kind::Text,
            "Goes out with the status; what `replaces` names.",
        ),
        references(
            "replaces",
            Kind::Mappings(&REPLACED),
            "Where both match one request, these are not counted.",
        ),
        ours(
            "algorithm",
            Kind::Word {
                words: algorithms,
                any_case: false,
            },
            "How hits are counted.",
        ),
        ours(
            "burst",
            Kind::Number(1..=u32::MAX),
            "How many may come at once.",
        ),
        ours(
            "segments",
            Kind::Number(1..=SEGMENTS_MAX as u32),
            "In how many parts a sliding window moves.",
        ),
        ours(
            "refill",
            Kind::Word {
                words: refills,
                any_case: false,
            },
            "By and by, or all at each edge of a window.",
        ),
        ours(
            "calendar",
            Kind::Truth,
            "Days, weeks, months and years as people know them.",
        ),
        ours(
            "time_zone",
            Kind::Text,
            "Whose calendar: an IANA name such as Europe/Paris; UTC unless said.",
        ),
        ours(
            "week_start",
            Kind::Word {
                words: days,
                any_case: true,
            },
            "The day on which weeks begin; monday unless said.",
        ),
        ours(
            "count_refused",
            Kind::Word {
                words: counted,
                any_case: false,
            },
            "Which limits count refused hits: none, the one that refused, or all that were asked.",
        ),
        ours(
            "holder_key",
            Kind::Text,
            "The key of the entry that says who holds a slot; for Envoy, of x-request-id.",
        ),
        ours(
            "slot_seconds",
            Kind::Number(1..=u32::MAX),
            "How long a slot is held when nobody frees it.",
        ),
    ],
};

/// A rule that another replaces.
pub(crate) static REPLACED: Mapping = Mapping {
    name: "replaced",
    about: "A limit that is not counted where this one applies.",
    fields: &[references("name", Kind::Text, "Its name; required.")],
};

/// What a refusal looks like.
pub(crate) static OVER_LIMIT: Mapping = Mapping {
    name: "over_limit",
    about: "What the caller's caller sees on a refusal. {limit}, {window} and {retry_after_seconds} are filled in.",
    fields: &[
        ours("body", Kind::Text, "The body of the answer."),
        ours("headers", Kind::Headers, "Headers of the answer."),
    ],
};

/// Every mapping there is.
pub(crate) static MAPPINGS: [&Mapping; 5] = [&ROOT, &DESCRIPTOR, &LIMIT, &REPLACED, &OVER_LIMIT];

pub(crate) fn algorithms() -> Vec<&'static str> {
    let spelled = ALGORITHMS.iter().flat_map(|algorithm| {
        let aliases = algorithm.aliases().iter().copied();
        [algorithm.name()].into_iter().chain(aliases)
    });
    spelled.collect()
}

fn refills() -> Vec<&'static str> {
    vec!["continuous", "interval"]
}

fn days() -> Vec<&'static str> {
    Weekday::ALL.map(Weekday::name).to_vec()
}

fn counted() -> Vec<&'static str> {
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

// === impl Whose ===

impl Whose {
    /// Whose this name is, if it means something anywhere.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut fields = MAPPINGS.iter().flat_map(|mapping| mapping.fields);
        fields
            .find(|field| field.name == name)
            .map(|field| field.whose)
    }
}
