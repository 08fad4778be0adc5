//! The grammar of a file of tests: one table of mappings and fields, from which the JSON Schema is
//! generated (`schema`).
//!
//! To add a field: add it here, read its value in the file of this folder that reads the mapping,
//! and run `make readme`.

use tollgate_engine::pipeline::NoLimit;
use tollgate_limiter::{OnExpiry, ReservationOutcome, Unit};

use tollgate_rules::file::{
    ANY_NUMBER, Field, Grammar, Kind, LARGE_NUMBER, Mapping, one_of, tollgate,
};

/// How often one step may ask.
pub(super) const TIMES_MAX: u32 = 1_000_000;

/// The largest weight of a proxy, as in the service.
pub(super) const WEIGHT_MAX: u32 = 1_000;

/// A whole file.
pub(super) static ROOT: Mapping = Mapping {
    name: "tests",
    place: "the root of a file of tests",
    about: "Tests of rules.",
    fields: &[
        tollgate("rules", Kind::TextList { or_one: true }, "The rules file, or directory of rules files, beside this file; or a list of them. Required.").required("name the rules file: `rules: rules.yaml`"),
        tollgate("overlay", Kind::Text, "The overlay that is added to the rules, and to those of each `reload`: a file beside this one."),
        tollgate("settings", Kind::Headers, "Settings of `tollgate serve` by the names of their flags, such as `all_or_nothing: true`."),
        tollgate("tests", Kind::MappingList(&TEST), "The tests; required. Each begins without buckets.").required("add `tests:`, a list of `- name: TEXT` with `start` and `steps`"),
    ],
};

/// A test.
pub(super) static TEST: Mapping = Mapping {
    name: "test",
    place: "a test",
    about: "Requests at chosen times, and the answers that they are to get.",
    fields: &[
        tollgate("name", Kind::Text, "The name of the test; required, and unique in its file.").required("add `name: TEXT`"),
        tollgate("start", Kind::Time, "The time at which the test starts: RFC 3339, with an optional [Zone]; required.").required("add a time: `start: 2026-01-01T00:00:00Z`"),
        tollgate("steps", Kind::MappingList(&STEP), "What happens, in order; required.").required("add `steps:`, a list of `- ask: …`"),
    ],
};

/// A step.
pub(super) static STEP: Mapping = Mapping {
    name: "step",
    place: "a step",
    about: "One of `ask`, `request`, `reserve`, `extend`, `commit`, `release`, `quota`, `after`, `at`, `reload`, `refund` and `reset`.",
    fields: &[
        tollgate("ask", Kind::TextOrMapping(&ASK), "A request: `DOMAIN KEY=VALUE,KEY=VALUE`, descriptors separated by `;`, or its long form."),
        tollgate("request", Kind::AnyMapping, "A request as Envoy's protobuf JSON."),
        tollgate("reserve", Kind::TextOrMapping(&ASK), "Reserves the hits of a request, written as for `ask`, as the API does. Needs `id`."),
        tollgate("extend", Kind::TextOrMapping(&ASK), "Moves the expiry of a reservation. Needs `id` and `expires`."),
        tollgate("commit", Kind::TextOrMapping(&ASK), "Settles a reservation by `hits`. Needs `id`."),
        tollgate("release", Kind::TextOrMapping(&ASK), "Settles a reservation and gives back all of it. Needs `id`."),
        tollgate("quota", Kind::TextOrMapping(&ASK), "Proxies share the limit of a bucket by the quota service (RLQS). Its id is written as for `ask`. Needs `proxies` and `for`."),
        tollgate("proxies", Kind::ByName(&Kind::Rate), "The requests a second that each proxy offers, by its name. A proxy that is left out disconnects."),
        tollgate("weights", Kind::ByName(&WEIGHT), "The weights of proxies by their names. Default: 1."),
        tollgate("for", Kind::Duration, "How long the proxies send requests, in tenths of a second; the clock moves forward by it."),
        tollgate("restart", Kind::Boolean, "The service restarts before the step: it then assigns nothing for a time to live. Default: false."),
        tollgate("id", Kind::Text, "The id of the reservation; `{n}` is the number of the request."),
        tollgate("expires", Kind::Duration, "When the reservation ends by itself. Default: as the rule says, else 60s."),
        tollgate("on_expiry", one_of(|| OnExpiry::NAMES.to_vec()), "What happens to its hits then. Default: as the rule says, else `charge`."),
        tollgate("times", Kind::Integer(1..=TIMES_MAX as u64), "How often the request is sent. Default: 1."),
        tollgate("hits", Kind::Integer(LARGE_NUMBER), "The hits of the request; 0 takes none. Default: 1."),
        tollgate("every", Kind::Duration, "The time between two of these requests. Default: 0s."),
        tollgate("expect", Kind::Mapping(&EXPECT), "What the answers are to be."),
        tollgate("after", Kind::Duration, "The clock moves forward by this."),
        tollgate("at", Kind::Time, "The clock is set to this time, in either direction."),
        tollgate("reload", Kind::TextList { or_one: true }, "Rules files that take the place of the rules; buckets stay."),
        tollgate("refund", Kind::TextOrMapping(&ASK), "A request whose hits go back to its limits, written as for `ask`."),
        tollgate("reset", Kind::TextOrMapping(&ASK), "A descriptor whose buckets are forgotten, written as for `ask`."),
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
static WEIGHT: Kind = Kind::Integer(1..=WEIGHT_MAX as u64);

/// A request in its long form.
pub(super) static ASK: Mapping = Mapping {
    name: "ask",
    place: "`ask`",
    about: "A request in its long form. `{n}` in a value is the number of the request, from 1 to `times`.",
    fields: &[
        tollgate("domain", Kind::Text, "The domain; required.").required("add `domain: NAME`"),
        tollgate("descriptors", Kind::MappingList(&DESCRIPTOR), "The descriptors; required.").required("add `descriptors:`, a list of `- entries: …`"),
    ],
};

/// A descriptor of a request.
pub(super) static DESCRIPTOR: Mapping = Mapping {
    name: "descriptor",
    place: "a descriptor",
    about: "A descriptor of a request.",
    fields: &[
        tollgate("entries", Kind::MappingList(&ENTRY), "The entries; required.").required("add `entries:`, a list of `- {key: KEY, value: VALUE}`"),
        tollgate("holder", Kind::Mapping(&ENTRY), "The holder of a slot (`algorithm: concurrency`): the last entry."),
        tollgate("hits", Kind::Integer(LARGE_NUMBER), "The hits of this descriptor. Default: the hits of the request."),
        tollgate("limit", Kind::Mapping(&OVERRIDE), "A limit that the request carries in place of the rule's."),
    ],
};

/// An entry of a descriptor.
pub(super) static ENTRY: Mapping = Mapping {
    name: "request_entry",
    place: "an entry of a descriptor",
    about: "An entry of a descriptor.",
    fields: &[
        tollgate("key", Kind::Text, "The key; required.").required("add `key: NAME`"),
        tollgate("value", Kind::Text, "The value. Default: empty."),
    ],
};

/// The units that a limit of a request may have.
fn carried_units() -> Vec<&'static str> {
    let units = Unit::ALL.into_iter().filter(|unit| *unit != Unit::Week);
    units.map(Unit::name).collect()
}

/// A limit that a request carries.
pub(super) static OVERRIDE: Mapping = Mapping {
    name: "override",
    place: "`limit`",
    about: "A limit that a request carries.",
    fields: &[
        tollgate("requests_per_unit", Kind::Integer(ANY_NUMBER), "The number of requests; required.").required("add `requests_per_unit: NUMBER`"),
        tollgate("unit", Kind::Enum { words: carried_units, ignore_case: true }, "The unit of the window; required.").required("add `unit: minute`"),
        tollgate("unit_multiplier", Kind::Integer(1..=u32::MAX as u64), "The number of units in the window. Default: 1."),
    ],
};

/// What the answers are to be.
pub(super) static EXPECT: Mapping = Mapping {
    name: "expect",
    place: "`expect`",
    about: "What the answers are to be: all but `admitted` is of the last one. Or what proxies are to pass.",
    fields: &[
        tollgate("admitted", Kind::Integer(LARGE_NUMBER), "How many of the requests pass."),
        VERDICT,
        REMAINING,
        RULE,
        tollgate("retry_after", Kind::Wait, "The time until the request can pass, in whole seconds, rounded up; `never` if it cannot."),
        RESET_AFTER,
        tollgate("headers", Kind::Headers, "Headers of the answer by name; null for a header that is absent."),
        tollgate("body", Kind::Text, "The body of the answer."),
        tollgate("no_limit", one_of(|| NoLimit::NAMES.to_vec()), "Why no limit applies. A step whose domain has no rules fails unless it expects that."),
        tollgate("reservation", one_of(|| RESERVATION_RESULTS.map(|(word, _)| word).to_vec()), "What became of the reservation."),
        tollgate("reserved", Kind::Integer(LARGE_NUMBER), "The hits that were reserved, of a settled reservation."),
        tollgate("committed", Kind::Integer(LARGE_NUMBER), "The true amount, of a settled reservation."),
        tollgate("passed", Kind::ByName(&Kind::RateRange), "The requests a second that pass at each proxy, by its name: a number, or `LOW to HIGH`. Over the last ten seconds of a `quota` step, or all of a shorter one."),
        tollgate("total", Kind::RateRange, "The same for all proxies together."),
        tollgate("highest_total", Kind::RateRange, "The most that pass at all proxies in any ten seconds that end in a `quota` step, a second."),
        tollgate("abandoned", Kind::Boolean, "Whether the service abandons the bucket of a `quota` step: no rule fits its id, or it is idle."),
        tollgate("descriptors", Kind::MappingList(&EXPECTED_DESCRIPTOR), "What the answer says of each descriptor, in the order of the request."),
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

const VERDICT: Field = tollgate("verdict", one_of(|| VERDICTS.to_vec()), "Whether it passes.");
const REMAINING: Field = tollgate("remaining", Kind::Integer(LARGE_NUMBER), "The hits that are left.");
const RULE: Field = tollgate("rule", Kind::Text, "The rule that decided, as `tollgate explain` and `/limits` name it; `none` if no limit applied.");
const RESET_AFTER: Field = tollgate("reset_after", Kind::Wait, "The time until the limit resets, or until a retry can pass if it refused; in whole seconds, rounded up.");

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
