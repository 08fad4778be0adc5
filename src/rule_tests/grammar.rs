//! The grammar of a file of tests: one table of mappings and fields.
//!
//! To add a field: add it here, read its value in the file of this folder that reads the mapping,
//! and run `make readme`.

use tollgate_limiter::{OnExpiry, Unit};

use crate::rule_tests::grammar_expect::{EXPECT, EXPECTED_DESCRIPTOR};
use crate::rule_tests::requests::carried_units;
use crate::rule_tests::{TIMES_MAX, WEIGHT_MAX};
use crate::rules::file::{ANY_NUMBER, Grammar, Kind, Mapping, tollgate};

/// A whole file.
pub(super) static ROOT: Mapping = Mapping {
    name: "tests",
    about: "Tests of rules.",
    fields: &[
        tollgate(
            "rules",
            Kind::TextList { or_one: true },
            "The rules file, or directory of rules files, beside this file; or a list of them. Required.",
        ),
        tollgate(
            "overlay",
            Kind::Text,
            "The overlay that is added to the rules, and to those of each `reload`: a file beside this one.",
        ),
        tollgate(
            "settings",
            Kind::Headers,
            "Settings of `tollgate serve` by the names of their flags, such as `all_or_nothing: true`.",
        ),
        tollgate(
            "tests",
            Kind::MappingList(&TEST),
            "The tests; required. Each begins without buckets.",
        ),
    ],
};

/// A test.
pub(super) static TEST: Mapping = Mapping {
    name: "test",
    about: "Requests at chosen times, and the answers that they are to get.",
    fields: &[
        tollgate(
            "name",
            Kind::Text,
            "The name of the test; required, and unique in its file.",
        ),
        tollgate(
            "start",
            Kind::Time,
            "The time at which the test starts: RFC 3339, with an optional [Zone]; required.",
        ),
        tollgate(
            "steps",
            Kind::MappingList(&STEP),
            "What happens, in order; required.",
        ),
    ],
};

/// A step.
pub(super) static STEP: Mapping = Mapping {
    name: "step",
    about: "One of `ask`, `request`, `reserve`, `extend`, `commit`, `release`, `quota`, `after`, `at`, `reload`, `refund` and `reset`.",
    fields: &[
        tollgate(
            "ask",
            Kind::TextOrMapping(&ASK),
            "A request: `DOMAIN KEY=VALUE,KEY=VALUE`, descriptors separated by `;`, or its long form.",
        ),
        tollgate(
            "request",
            Kind::AnyMapping,
            "A request as Envoy's protobuf JSON.",
        ),
        tollgate(
            "reserve",
            Kind::TextOrMapping(&ASK),
            "Reserves the hits of a request, written as for `ask`, as the API does. Needs `id`.",
        ),
        tollgate(
            "extend",
            Kind::TextOrMapping(&ASK),
            "Moves the expiry of a reservation. Needs `id` and `expires`.",
        ),
        tollgate(
            "commit",
            Kind::TextOrMapping(&ASK),
            "Settles a reservation by `hits`. Needs `id`.",
        ),
        tollgate(
            "release",
            Kind::TextOrMapping(&ASK),
            "Settles a reservation and gives back all of it. Needs `id`.",
        ),
        tollgate(
            "quota",
            Kind::TextOrMapping(&ASK),
            "Proxies share the limit of a bucket by the quota service (RLQS). Its id is written as for `ask`. Needs `proxies` and `for`.",
        ),
        tollgate(
            "proxies",
            Kind::ByName(&Kind::Rate),
            "The requests a second that each proxy offers, by its name. A proxy that is left out disconnects.",
        ),
        tollgate(
            "weights",
            Kind::ByName(&WEIGHT),
            "The weights of proxies by their names. Default: 1.",
        ),
        tollgate(
            "for",
            Kind::Duration,
            "How long the proxies send requests, in tenths of a second; the clock moves forward by it.",
        ),
        tollgate(
            "restart",
            Kind::Boolean,
            "The service restarts before the step: it then assigns nothing for a time to live. Default: false.",
        ),
        tollgate(
            "id",
            Kind::Text,
            "The id of the reservation; `{n}` is the number of the request.",
        ),
        tollgate(
            "expires",
            Kind::Duration,
            "When the reservation ends by itself. Default: as the rule says, else 60s.",
        ),
        tollgate(
            "on_expiry",
            Kind::Enum {
                words: || OnExpiry::ALL.map(OnExpiry::name).to_vec(),
                ignore_case: false,
            },
            "What happens to its hits then. Default: as the rule says, else `charge`.",
        ),
        tollgate(
            "times",
            Kind::Integer(1..=TIMES_MAX),
            "How often the request is sent. Default: 1.",
        ),
        tollgate(
            "hits",
            Kind::Integer(ANY_NUMBER),
            "The hits of the request; 0 takes none. Default: 1.",
        ),
        tollgate(
            "every",
            Kind::Duration,
            "The time between two of these requests. Default: 0s.",
        ),
        tollgate(
            "expect",
            Kind::Mapping(&EXPECT),
            "What the answers are to be.",
        ),
        tollgate("after", Kind::Duration, "The clock moves forward by this."),
        tollgate(
            "at",
            Kind::Time,
            "The clock is set to this time, in either direction.",
        ),
        tollgate(
            "reload",
            Kind::TextList { or_one: true },
            "Rules files that take the place of the rules; buckets stay.",
        ),
        tollgate(
            "refund",
            Kind::TextOrMapping(&ASK),
            "A request whose hits go back to its limits, written as for `ask`.",
        ),
        tollgate(
            "reset",
            Kind::TextOrMapping(&ASK),
            "A descriptor whose buckets are forgotten, written as for `ask`.",
        ),
    ],
};

/// A weight of a proxy.
static WEIGHT: Kind = Kind::Integer(1..=WEIGHT_MAX);

/// A request in its long form.
pub(super) static ASK: Mapping = Mapping {
    name: "ask",
    about: "A request in its long form. `{n}` in a value is the number of the request, from 1 to `times`.",
    fields: &[
        tollgate("domain", Kind::Text, "The domain; required."),
        tollgate(
            "descriptors",
            Kind::MappingList(&DESCRIPTOR),
            "The descriptors; required.",
        ),
    ],
};

/// A descriptor of a request.
pub(super) static DESCRIPTOR: Mapping = Mapping {
    name: "descriptor",
    about: "A descriptor of a request.",
    fields: &[
        tollgate(
            "entries",
            Kind::MappingList(&ENTRY),
            "The entries; required.",
        ),
        tollgate(
            "holder",
            Kind::Mapping(&ENTRY),
            "The holder of a slot (`algorithm: concurrency`): the last entry.",
        ),
        tollgate(
            "hits",
            Kind::Integer(ANY_NUMBER),
            "The hits of this descriptor. Default: the hits of the request.",
        ),
        tollgate(
            "limit",
            Kind::Mapping(&OVERRIDE),
            "A limit that the request carries in place of the rule's.",
        ),
    ],
};

/// An entry of a descriptor.
pub(super) static ENTRY: Mapping = Mapping {
    name: "request_entry",
    about: "An entry of a descriptor.",
    fields: &[
        tollgate("key", Kind::Text, "The key; required."),
        tollgate("value", Kind::Text, "The value. Default: empty."),
    ],
};

/// A limit that a request carries.
pub(super) static OVERRIDE: Mapping = Mapping {
    name: "override",
    about: "A limit that a request carries.",
    fields: &[
        tollgate(
            "requests_per_unit",
            Kind::Integer(ANY_NUMBER),
            "The number of requests; required.",
        ),
        tollgate(
            "unit",
            Kind::Enum {
                words: || carried_units().map(Unit::name).collect(),
                ignore_case: true,
            },
            "The unit of the window; required.",
        ),
        tollgate(
            "unit_multiplier",
            Kind::Integer(1..=u32::MAX),
            "The number of units in the window. Default: 1.",
        ),
    ],
};

/// The grammar of files of tests.
pub(super) static TESTS: Grammar = Grammar {
    mappings: &MAPPINGS,
    sign: "tests",
    is_reference: false,
    is_overlay: false,
};

/// Every mapping.
pub(super) static MAPPINGS: [&Mapping; 9] = [
    &ROOT,
    &TEST,
    &STEP,
    &ASK,
    &DESCRIPTOR,
    &ENTRY,
    &OVERRIDE,
    &EXPECT,
    &EXPECTED_DESCRIPTOR,
];
