//! The part of the grammar of a file of tests that says what is expected.

use tollgate_limiter::ReservationOutcome;

use crate::rules::file::{ANY_NUMBER, Field, Kind, Mapping, tollgate};

/// What the answers are to be.
pub(super) static EXPECT: Mapping = Mapping {
    name: "expect",
    about: "What the answers are to be: all but `admitted` is of the last one. Or what proxies are to pass.",
    fields: &[
        tollgate(
            "admitted",
            Kind::Integer(ANY_NUMBER),
            "How many of the requests pass.",
        ),
        VERDICT,
        REMAINING,
        RULE,
        tollgate(
            "retry_after",
            Kind::Wait,
            "The time until the request can pass, in whole seconds, rounded up; `never` if it cannot.",
        ),
        RESET_AFTER,
        tollgate(
            "headers",
            Kind::Headers,
            "Headers of the answer by name; null for a header that is absent.",
        ),
        tollgate("body", Kind::Text, "The body of the answer."),
        tollgate(
            "reservation",
            Kind::Enum {
                words: || RESERVATION_RESULTS.map(|(word, _)| word).to_vec(),
                ignore_case: false,
            },
            "What became of the reservation.",
        ),
        tollgate(
            "reserved",
            Kind::Integer(ANY_NUMBER),
            "The hits that were reserved, of a settled reservation.",
        ),
        tollgate(
            "committed",
            Kind::Integer(ANY_NUMBER),
            "The true amount, of a settled reservation.",
        ),
        tollgate(
            "passed",
            Kind::ByName(&Kind::RateRange),
            "The requests a second that pass at each proxy, by its name: a number, or `LOW to HIGH`. Over the last ten seconds of a `quota` step, or all of a shorter one.",
        ),
        tollgate(
            "total",
            Kind::RateRange,
            "The same for all proxies together.",
        ),
        tollgate(
            "highest_total",
            Kind::RateRange,
            "The most that pass at all proxies in any ten seconds that end in a `quota` step, a second.",
        ),
        tollgate(
            "abandoned",
            Kind::Boolean,
            "Whether the service abandons the bucket of a `quota` step: no rule fits its id, or it is idle.",
        ),
        tollgate(
            "descriptors",
            Kind::MappingList(&EXPECTED_DESCRIPTOR),
            "What the answer says of each descriptor, in the order of the request.",
        ),
    ],
};

/// The fields that describe what proxies pass.
pub(super) const OF_QUOTAS: [&str; 4] = ["passed", "total", "highest_total", "abandoned"];

/// What an answer is to say of one descriptor.
pub(super) static EXPECTED_DESCRIPTOR: Mapping = Mapping {
    name: "expected_descriptor",
    about: "What the answer says of one descriptor.",
    fields: &[VERDICT, REMAINING, RULE, RESET_AFTER],
};

const VERDICT: Field = tollgate(
    "verdict",
    Kind::Enum {
        words: || VERDICTS.to_vec(),
        ignore_case: false,
    },
    "Whether it passes.",
);

const REMAINING: Field = tollgate(
    "remaining",
    Kind::Integer(ANY_NUMBER),
    "The hits that are left.",
);

const RULE: Field = tollgate(
    "rule",
    Kind::Text,
    "The rule that decided, as `tollgate explain` and `/limits` name it; `none` if no limit applied.",
);

const RESET_AFTER: Field = tollgate(
    "reset_after",
    Kind::Wait,
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
