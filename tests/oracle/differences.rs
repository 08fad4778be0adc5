//! Every known difference from the reference, in one table. The migration guide shows it (`guide`).
//!
//! How: whatever differs and is not recognised as one of these by its cause fails the run. The run
//! in turn records which of them it met, and a long one (`make test-reference`) fails if it never
//! meets one.
//!
//! What it deliberately does not do: recognise them. That is done where things are compared:
//! `answers`, `files`, `counters`, `run`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A known difference.
pub(crate) struct Difference {
    pub(crate) id: &'static str,
    /// What it is about.
    pub(crate) what: &'static str,
    pub(crate) there: &'static str,
    pub(crate) here: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) shown: Shown,
}

/// What shows a difference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shown {
    /// Random requests, their counters and their metrics.
    ByRequests,
    /// Random rules files.
    ByFiles,
    /// Random requests, but only in the seconds or hours in which two windows begin together.
    AtSomeHours,
    /// An example of its own: it ends the reference, or needs more than rules and requests.
    ByExample,
}

/// How often each difference was met in this process.
static MET: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

const LATER: &str = "later versions of the reference do the same";

/// All of them, in the order of the guide.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        id: "joined-text",
        what: "`a` + `b_c` and `a_b` + `c`",
        there: "find the same rule, and a `*` reaches from a key into its value",
        here: "find two rules: keys and values are compared separately",
        reason: "a client that chooses a value cannot choose another rule",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "joined-counters",
        what: "the same two descriptors, under tollgate's own keys or in memory",
        there: "add to one counter",
        here: "have a counter each; under `TOLLGATE_STORE_KEYS=reference` they add to one",
        reason: "a client that chooses a value cannot use up another's limit",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "no-unit-in-names",
        what: "a limit per day and one per week on one descriptor, on the first day of the week, and other units alike",
        there: "add to one counter, whose name has no unit",
        here: "have a counter each; under `TOLLGATE_STORE_KEYS=reference` they add to one",
        reason: "two limits count the hits of two limits",
        shown: Shown::AtSomeHours,
    },
    Difference {
        id: "limits-in-requests",
        what: "a limit in a request (`limit` of a descriptor)",
        there: "adds to the counter of the rule with the same descriptor",
        here: "has its own counter; under `TOLLGATE_STORE_KEYS=reference` it adds to the rule's",
        reason: "a client with a limit of its own does not use up the rule's",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "raised-limits",
        what: "a limit that is raised within its window, after refused hits",
        there: "lets fewer more pass than it was raised by: refused hits count, unless its local cache refused them",
        here: "lets as many more pass as it was raised by; under `TOLLGATE_STORE_KEYS=reference` refused hits count",
        reason: "stores and caches agree",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "inner-stars",
        what: "a `*` that is not the last character of a pattern",
        there: "is a letter",
        here: "matches any text",
        reason: LATER,
        shown: Shown::ByRequests,
    },
    Difference {
        id: "inner-stars-shared",
        what: "`share_threshold` on such a pattern",
        there: "is refused; the message says `ending with '*'`",
        here: "is accepted; the message for other values says `containing '*'`",
        reason: LATER,
        shown: Shown::ByFiles,
    },
    Difference {
        id: "quotas",
        what: "a rule with `quota_mode` that is over its limit",
        there: "has the code OK, without `duration_until_reset`; the request passes",
        here: "has the code OVER_LIMIT; the request is refused if all its quotas are over",
        reason: LATER,
        shown: Shown::ByRequests,
    },
    Difference {
        id: "quota-metadata",
        what: "dynamic metadata",
        there: "has `quotaModeEnabled` and `quotaModeViolations`",
        here: "has neither; each descriptor's code says it",
        reason: LATER,
        shown: Shown::ByRequests,
    },
    Difference {
        id: "metadata",
        what: "`metadata` in a rules file",
        there: "is an unknown key",
        here: "is returned as dynamic metadata",
        reason: LATER,
        shown: Shown::ByFiles,
    },
    Difference {
        id: "refunds",
        what: "`is_negative_hits`",
        there: "is ignored, so the hits are taken",
        here: "gives hits back",
        reason: LATER,
        shown: Shown::ByRequests,
    },
    Difference {
        id: "looks-create-nothing",
        what: "a check without hits (`hits_addend: 0`)",
        there: "creates a counter that is 0",
        here: "writes nothing",
        reason: "such a check costs Redis no write",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "expiry",
        what: "the expiry of a counter",
        there: "is set with each hit",
        here: "is set with the first",
        reason: "a hit costs Redis one write less",
        shown: Shown::ByExample,
    },
    Difference {
        id: "unknown-units",
        what: "a limit in a request whose unit does not exist",
        there: "ends the process",
        here: "is ignored and counted; the rule applies",
        reason: "no request stops the service",
        shown: Shown::ByExample,
    },
    Difference {
        id: "not-utf8",
        what: "a key or value that is not UTF-8",
        there: "is an error, which Envoy lets pass by default",
        here: "is limited like any other",
        reason: "a client cannot avoid its limit with a stray byte",
        shown: Shown::ByExample,
    },
    Difference {
        id: "too-many-descriptors",
        what: "more than 512 descriptors in a request (`TOLLGATE_DESCRIPTORS_MAX`), and other bounds",
        there: "are decided, however many",
        here: "are refused",
        reason: "the work for one request is bounded",
        shown: Shown::ByExample,
    },
    Difference {
        id: "store-errors",
        what: "Redis is unreachable",
        there: "gRPC code UNKNOWN with the driver's text",
        here: "gRPC code UNAVAILABLE, within 10 ms; `TOLLGATE_ON_STORE_FAILURE` can decide instead",
        reason: "Envoy waits 20 ms for an answer",
        shown: Shown::ByExample,
    },
    Difference {
        id: "invalid-argument",
        what: "no domain, or no descriptors",
        there: "gRPC code UNKNOWN",
        here: "gRPC code INVALID_ARGUMENT, with the same message",
        reason: "separates mistakes of the caller from failures",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "headers-of-the-largest-limit",
        what: "response headers where 4294967295 requests are left",
        there: "are missing",
        here: "are sent",
        reason: "an answer is complete",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "near-limit-wraps",
        what: "`near_limit` where the near mark, rounded, is above the limit (`NEAR_LIMIT_RATIO=1`, large limits)",
        there: "jumps by almost 2^64",
        here: "does not grow",
        reason: "a counter does not jump",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "unknown-domains-counted",
        what: "`domain_not_found`",
        there: "grows by the descriptors of a request",
        here: "grows by the requests",
        reason: "a domain belongs to the request",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "unknown-domains-in-names",
        what: "an unknown domain in Prometheus",
        there: "is part of a metric's name",
        here: "is a label, `ratelimit_service_rate_limit_domain_not_found{domain}`, of 100 at most",
        reason: "a client cannot create metrics without bound",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "dots-in-labels",
        what: "a dot in a key or value, in Prometheus",
        there: "ends the label, and what follows is in the next one or dropped",
        here: "is part of the label",
        reason: "a label is the whole key and value",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "long-names",
        what: "a counter's name of more than 512 bytes",
        there: "is used",
        here: "is tollgate's own, of fixed length, also under `TOLLGATE_STORE_KEYS=reference`",
        reason: "a client cannot fill Redis with long names",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "long-labels",
        what: "a key and value of more than 128 bytes in metrics",
        there: "are used whole",
        here: "are cut",
        reason: "a client cannot fill metrics with long labels",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "metrics-of-starred-keys",
        what: "metrics of a rule with a `*` in its key",
        there: "have the key of each request in their names",
        here: "have the rule's key",
        reason: "a client cannot create metrics without bound",
        shown: Shown::ByRequests,
    },
    Difference {
        id: "number-of-unlimited",
        what: "`requests_per_unit` with `unlimited`, in `/rlconfig`",
        there: "is shown",
        here: "is shown as 0",
        reason: "nothing uses it",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "joined-duplicates",
        what: "`a` + `b_c` and `a_b` + `c` side by side in a rules file",
        there: "are refused as duplicates",
        here: "are two rules",
        reason: "keys and values are compared separately",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "names-of-tollgate",
        what: "names that only tollgate knows, such as `rate_limits`",
        there: "are unknown keys",
        here: "are described in [rules.md](../rules.md)",
        reason: "they are additions of tollgate",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "large-numbers",
        what: "`requests_per_unit` from 4294967296 to 9007199254740991",
        there: "is an error",
        here: "is a limit; Envoy's messages carry 4294967295 in its place",
        reason: "limits count bytes and money",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "merge-keys",
        what: "`<<` after a name that it also has",
        there: "replaces the value of that name",
        here: "never does",
        reason: "the YAML specification says so",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "names-twice",
        what: "a name twice in one mapping",
        there: "both values are checked, and the last counts; two `rate_limit` mappings are merged",
        here: "the last is checked and counts, and `check` warns of it",
        reason: "a value that does not count cannot be invalid",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "colons-in-braces",
        what: "`{unit:}`, a colon without a space in braces",
        there: "is a key that ends with a colon, which is unknown",
        here: "is `unit` without a value",
        reason: "the YAML specification says so",
        shown: Shown::ByFiles,
    },
    Difference {
        id: "values-in-messages",
        what: "a value that is not text in a message about a rules file",
        there: "is printed as Go prints it, such as `<nil>` or `map[key:k]`",
        here: "is printed as it is written, or as `a list`",
        reason: "the reader wrote YAML",
        shown: Shown::ByFiles,
    },
];

/// Records that this difference was met.
pub(crate) fn met(id: &'static str) {
    assert!(
        DIFFERENCES.iter().any(|difference| difference.id == id),
        "no difference is called {id}"
    );
    let mut met = MET.lock().unwrap_or_else(PoisonError::into_inner);
    *met.entry(id).or_default() += 1;
}

/// How often the differences were met that this shows: those that were, and those that never were.
pub(crate) fn seen(shown: Shown) -> (Vec<String>, Vec<&'static str>) {
    let met = MET.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut seen, mut never) = (Vec::new(), Vec::new());
    for difference in DIFFERENCES.iter().filter(|one| one.shown == shown) {
        match met.get(difference.id) {
            Some(times) => seen.push(format!("{} {times}", difference.id)),
            None => never.push(difference.id),
        }
    }
    (seen, never)
}
