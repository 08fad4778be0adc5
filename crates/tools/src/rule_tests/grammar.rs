//! The grammar of a file of tests: one table of mappings and fields. The JSON Schema, for
//! completion and checks in an editor, is generated from it.
//!
//! To add a field: add it here, read its value in the file of this folder that reads the mapping,
//! and run `make readme`.

use serde_json::{Map, Value, json};
use tollgate_engine::pipeline::NoLimit;
use tollgate_limiter::{OnExpiry, ReservationOutcome, Unit};

use tollgate_rules::file::{
    ANY_NUMBER, Field, Grammar, Kind, Mapping, object_of, reference, tollgate,
};

/// How often one step may ask.
pub(super) const TIMES_MAX: u32 = 1_000_000;

/// The largest weight of a proxy, as in the service.
pub(super) const WEIGHT_MAX: u32 = 1_000;

/// A field; its description follows.
const fn field(name: &'static str, kind: Kind) -> Field {
    tollgate(name, kind, "")
}

const fn one_of(words: fn() -> Vec<&'static str>) -> Kind {
    Kind::Enum {
        words,
        ignore_case: false,
    }
}

/// A whole file.
pub(super) static ROOT: Mapping = Mapping {
    name: "tests",
    place: "the root of a file of tests",
    about: "Tests of rules.",
    fields: &[
        field("rules", Kind::TextList { or_one: true }).about(
            "The rules file, or directory of rules files, beside this file; or a list of them. Required.",
        ),
        field("overlay", Kind::Text).about(
            "The overlay that is added to the rules, and to those of each `reload`: a file beside this one.",
        ),
        field("settings", Kind::Headers).about(
            "Settings of `tollgate serve` by the names of their flags, such as `all_or_nothing: true`.",
        ),
        field("tests", Kind::MappingList(&TEST))
            .about("The tests; required. Each begins without buckets."),
    ],
};

/// A test.
pub(super) static TEST: Mapping = Mapping {
    name: "test",
    place: "a test",
    about: "Requests at chosen times, and the answers that they are to get.",
    fields: &[
        field("name", Kind::Text).about("The name of the test; required, and unique in its file."),
        field("start", Kind::Time).about(
            "The time at which the test starts: RFC 3339, with an optional [Zone]; required.",
        ),
        field("steps", Kind::MappingList(&STEP)).about("What happens, in order; required."),
    ],
};

/// A step.
pub(super) static STEP: Mapping = Mapping {
    name: "step",
    place: "a step",
    about: "One of `ask`, `request`, `reserve`, `extend`, `commit`, `release`, `quota`, `after`, `at`, `reload`, `refund` and `reset`.",
    fields: &[
        field("ask", Kind::TextOrMapping(&ASK)).about(
            "A request: `DOMAIN KEY=VALUE,KEY=VALUE`, descriptors separated by `;`, or its long form.",
        ),
        field("request", Kind::AnyMapping).about("A request as Envoy's protobuf JSON."),
        field("reserve", Kind::TextOrMapping(&ASK)).about(
            "Reserves the hits of a request, written as for `ask`, as the API does. Needs `id`.",
        ),
        field("extend", Kind::TextOrMapping(&ASK))
            .about("Moves the expiry of a reservation. Needs `id` and `expires`."),
        field("commit", Kind::TextOrMapping(&ASK))
            .about("Settles a reservation by `hits`. Needs `id`."),
        field("release", Kind::TextOrMapping(&ASK))
            .about("Settles a reservation and gives back all of it. Needs `id`."),
        field("quota", Kind::TextOrMapping(&ASK)).about(
            "Proxies share the limit of a bucket by the quota service (RLQS). Its id is written as for `ask`. Needs `proxies` and `for`.",
        ),
        field("proxies", Kind::ByName(&Kind::Rate)).about(
            "The requests a second that each proxy offers, by its name. A proxy that is left out disconnects.",
        ),
        field("weights", Kind::ByName(&WEIGHT))
            .about("The weights of proxies by their names. Default: 1."),
        field("for", Kind::Duration).about(
            "How long the proxies send requests, in tenths of a second; the clock moves forward by it.",
        ),
        field("restart", Kind::Boolean).about(
            "The service restarts before the step: it then assigns nothing for a time to live. Default: false.",
        ),
        field("id", Kind::Text)
            .about("The id of the reservation; `{n}` is the number of the request."),
        field("expires", Kind::Duration)
            .about("When the reservation ends by itself. Default: as the rule says, else 60s."),
        field(
            "on_expiry",
            one_of(|| OnExpiry::ALL.map(OnExpiry::name).to_vec()),
        )
        .about("What happens to its hits then. Default: as the rule says, else `charge`."),
        field("times", Kind::Integer(1..=TIMES_MAX))
            .about("How often the request is sent. Default: 1."),
        field("hits", Kind::Integer(ANY_NUMBER))
            .about("The hits of the request; 0 takes none. Default: 1."),
        field("every", Kind::Duration)
            .about("The time between two of these requests. Default: 0s."),
        field("expect", Kind::Mapping(&EXPECT)).about("What the answers are to be."),
        field("after", Kind::Duration).about("The clock moves forward by this."),
        field("at", Kind::Time).about("The clock is set to this time, in either direction."),
        field("reload", Kind::TextList { or_one: true })
            .about("Rules files that take the place of the rules; buckets stay."),
        field("refund", Kind::TextOrMapping(&ASK))
            .about("A request whose hits go back to its limits, written as for `ask`."),
        field("reset", Kind::TextOrMapping(&ASK))
            .about("A descriptor whose buckets are forgotten, written as for `ask`."),
    ],
};

/// The fields of which a step has exactly one.
pub(super) const ACTIONS: [&str; 12] = [
    "ask", "request", "reserve", "extend", "commit", "release", "quota", "after", "at", "reload",
    "refund", "reset",
];

/// Those of them that send requests.
pub(super) const REQUESTS: [&str; 7] = [
    "ask", "request", "refund", "reserve", "extend", "commit", "release",
];

/// The fields that say more of some steps, and the steps that have them.
pub(super) const OF_SOME: [(&str, &[&str]); 7] = [
    ("id", &["reserve", "extend", "commit", "release"]),
    ("expires", &["reserve", "extend"]),
    ("on_expiry", &["reserve"]),
    ("proxies", &["quota"]),
    ("weights", &["quota"]),
    ("for", &["quota"]),
    ("restart", &["quota"]),
];

/// The fields that say more of a request.
pub(super) const OF_REQUESTS: [&str; 4] = ["times", "hits", "every", "expect"];

/// A weight of a proxy.
static WEIGHT: Kind = Kind::Integer(1..=WEIGHT_MAX);

/// A request in its long form.
pub(super) static ASK: Mapping = Mapping {
    name: "ask",
    place: "`ask`",
    about: "A request in its long form. `{n}` in a value is the number of the request, from 1 to `times`.",
    fields: &[
        field("domain", Kind::Text).about("The domain; required."),
        field("descriptors", Kind::MappingList(&DESCRIPTOR)).about("The descriptors; required."),
    ],
};

/// A descriptor of a request.
pub(super) static DESCRIPTOR: Mapping = Mapping {
    name: "descriptor",
    place: "a descriptor",
    about: "A descriptor of a request.",
    fields: &[
        field("entries", Kind::MappingList(&ENTRY)).about("The entries; required."),
        field("holder", Kind::Mapping(&ENTRY))
            .about("The holder of a slot (`algorithm: concurrency`): the last entry."),
        field("hits", Kind::Integer(ANY_NUMBER))
            .about("The hits of this descriptor. Default: the hits of the request."),
        field("limit", Kind::Mapping(&OVERRIDE))
            .about("A limit that the request carries in place of the rule's."),
    ],
};

/// An entry of a descriptor.
pub(super) static ENTRY: Mapping = Mapping {
    name: "request_entry",
    place: "an entry of a descriptor",
    about: "An entry of a descriptor.",
    fields: &[
        field("key", Kind::Text).about("The key; required."),
        field("value", Kind::Text).about("The value. Default: empty."),
    ],
};

/// The units that a limit of a request may have.
pub(super) fn carried_units() -> impl Iterator<Item = Unit> {
    Unit::ALL.into_iter().filter(|unit| *unit != Unit::Week)
}

/// A limit that a request carries.
pub(super) static OVERRIDE: Mapping = Mapping {
    name: "override",
    place: "`limit`",
    about: "A limit that a request carries.",
    fields: &[
        field("requests_per_unit", Kind::Integer(ANY_NUMBER))
            .about("The number of requests; required."),
        field(
            "unit",
            Kind::Enum {
                words: || carried_units().map(Unit::name).collect(),
                ignore_case: true,
            },
        )
        .about("The unit of the window; required."),
        field("unit_multiplier", Kind::Integer(1..=u32::MAX))
            .about("The number of units in the window. Default: 1."),
    ],
};

/// What the answers are to be.
pub(super) static EXPECT: Mapping = Mapping {
    name: "expect",
    place: "`expect`",
    about: "What the answers are to be: all but `admitted` is of the last one. Or what proxies are to pass.",
    fields: &[
        field("admitted", Kind::Integer(ANY_NUMBER)).about("How many of the requests pass."),
        VERDICT,
        REMAINING,
        RULE,
        field("retry_after", Kind::Wait).about(
            "The time until the request can pass, in whole seconds, rounded up; `never` if it cannot.",
        ),
        RESET_AFTER,
        field("headers", Kind::Headers)
            .about("Headers of the answer by name; null for a header that is absent."),
        field("body", Kind::Text).about("The body of the answer."),
        field(
            "no_limit",
            one_of(|| NoLimit::ALL.map(NoLimit::word).to_vec()),
        )
        .about("Why no limit applies. A step whose domain has no rules fails unless it expects that."),
        field(
            "reservation",
            one_of(|| RESERVATION_RESULTS.map(|(word, _)| word).to_vec()),
        )
        .about("What became of the reservation."),
        field("reserved", Kind::Integer(ANY_NUMBER))
            .about("The hits that were reserved, of a settled reservation."),
        field("committed", Kind::Integer(ANY_NUMBER))
            .about("The true amount, of a settled reservation."),
        field("passed", Kind::ByName(&Kind::RateRange)).about(
            "The requests a second that pass at each proxy, by its name: a number, or `LOW to HIGH`. Over the last ten seconds of a `quota` step, or all of a shorter one.",
        ),
        field("total", Kind::RateRange).about("The same for all proxies together."),
        field("highest_total", Kind::RateRange).about(
            "The most that pass at all proxies in any ten seconds that end in a `quota` step, a second.",
        ),
        field("abandoned", Kind::Boolean).about(
            "Whether the service abandons the bucket of a `quota` step: no rule fits its id, or it is idle.",
        ),
        field("descriptors", Kind::MappingList(&EXPECTED_DESCRIPTOR))
            .about("What the answer says of each descriptor, in the order of the request."),
    ],
};

/// The fields that describe what proxies pass.
pub(super) const OF_QUOTAS: [&str; 4] = ["passed", "total", "highest_total", "abandoned"];

/// What an answer is to say of one descriptor.
pub(super) static EXPECTED_DESCRIPTOR: Mapping = Mapping {
    name: "expected_descriptor",
    place: "an entry of `expect.descriptors`",
    about: "What the answer says of one descriptor.",
    fields: &[VERDICT, REMAINING, RULE, RESET_AFTER],
};

const VERDICT: Field = field("verdict", one_of(|| VERDICTS.to_vec())).about("Whether it passes.");

const REMAINING: Field =
    field("remaining", Kind::Integer(ANY_NUMBER)).about("The hits that are left.");

const RULE: Field = field("rule", Kind::Text).about(
    "The rule that decided, as `tollgate explain` and `/limits` name it; `none` if no limit applied.",
);

const RESET_AFTER: Field = field("reset_after", Kind::Wait).about(
    "The time until the limit resets, or until a retry can pass if it refused; in whole seconds, rounded up.",
);

/// What can become of a reservation, as a file has it.
pub(super) const RESERVATION_RESULTS: [(&str, ReservationOutcome); 9] = [
    ("reserved", ReservationOutcome::Reserved),
    ("refused", ReservationOutcome::Refused),
    ("too_many", ReservationOutcome::TooMany),
    ("settled", ReservationOutcome::Settled),
    ("settled_before", ReservationOutcome::SettledBefore),
    ("extended", ReservationOutcome::Extended),
    ("unknown", ReservationOutcome::Unknown),
    ("charged", ReservationOutcome::Charged),
    ("ignored", ReservationOutcome::Ignored),
];

/// The verdicts, as a file has them.
pub(super) const VERDICTS: [&str; 2] = ["OK", "OVER_LIMIT"];

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

// The JSON Schema.

/// The JSON Schema. A file of tests may have the settings of these flags.
pub fn schema(settings: &[String]) -> Value {
    let definitions: Map<String, Value> = MAPPINGS
        .iter()
        .map(|mapping| (mapping.name.to_owned(), object(mapping)))
        .collect();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tollgate file of tests",
        "$ref": reference(&ROOT),
        "$defs": definitions,
    });
    if let Some(field) = schema.pointer_mut("/$defs/tests/properties/settings") {
        let value = json!({
            "type": ["string", "number", "boolean", "array"],
            "items": { "type": ["string", "number", "boolean"] },
        });
        let names = settings.iter();
        let names = names.map(|flag| (flag.replace('-', "_"), value.clone()));
        let description = field.get("description").cloned();
        *field = json!({
            "type": ["object", "null"],
            "properties": names.collect::<Map<_, _>>(),
            "additionalProperties": false,
            "description": description,
        });
    }
    schema
}

fn object(mapping: &Mapping) -> Value {
    let required = match mapping.name {
        "tests" => json!(["rules", "tests"]),
        "test" => json!(["name", "start", "steps"]),
        "ask" => json!(["domain", "descriptors"]),
        "descriptor" => json!(["entries"]),
        "request_entry" => json!(["key"]),
        "override" => json!(["requests_per_unit", "unit"]),
        _ => json!([]),
    };
    let together = if mapping.name == "step" {
        step_constraints()
    } else {
        json!([true])
    };
    object_of(mapping, &required, &together)
}

fn is_set(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

fn none_of<'n>(names: impl IntoIterator<Item = &'n str>) -> Value {
    let names = names.into_iter();
    let fields = names.map(|name| (name.to_owned(), json!({ "type": "null" })));
    json!({ "properties": fields.collect::<Map<_, _>>() })
}

/// The constraints between the fields of a step.
fn step_constraints() -> Value {
    let without_expect = OF_REQUESTS.into_iter().filter(|name| *name != "expect");
    let only_of_some = OF_SOME.map(|(name, steps)| {
        let steps: Vec<_> = steps.iter().map(|step| is_set(step)).collect();
        json!({ "if": { "anyOf": steps }, "else": none_of([name]) })
    });
    let expected = EXPECT.fields.iter().map(|field| field.name);
    let expected_of_requests = expected.filter(|name| !OF_QUOTAS.contains(name));
    json!([
        { "oneOf": ACTIONS.map(is_set) },
        {
            "if": { "anyOf": REQUESTS.map(is_set) },
            "else": {
                "if": is_set("quota"),
                "then": none_of(without_expect),
                "else": none_of(OF_REQUESTS),
            },
        },
        { "allOf": only_of_some },
        { "if": is_set("quota"), "then": { "required": ["proxies", "for"] } },
        {
            "if": is_set("quota"),
            "then": { "properties": { "expect": none_of(expected_of_requests) } },
            "else": { "properties": { "expect": none_of(OF_QUOTAS) } },
        },
        { "if": is_set("request"), "then": none_of(["hits"]) },
    ])
}
