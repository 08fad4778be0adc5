//! The grammar of a rules file: one table of mappings and fields.
//!
//! The loader takes its names from the table. The JSON Schema and the table of fields in
//! `docs/rules.md` are generated from it, so an editor and the service agree. A [`Mapping`] lists
//! its [`Field`]s; a field has its origin, the type of its value and a description. Mappings refer
//! to one another, so the root leads to the whole grammar.
//!
//! To add a field: add it to its mapping, read its value in the file of this folder that loads the
//! mapping, and run `make readme`.
//!
//! What it deliberately does not do: hold the fields of limits (`grammar_limit`), read values
//! (`fields`), or hold what two fields mean together (`descriptor`, `rate_limit`).

use crate::file::grammar_field::{one_of, reference, tollgate};
use crate::file::grammar_limit::{CANDIDATE, LIMIT, PENALTY, REPLACED, RESERVE, SHADOW_MODE};
use crate::file::{Field, Grammar, Kind, Mapping};
use tollgate_limiter::{LimitFromRequest, OnUndecided};

/// A whole file.
pub(crate) static ROOT: Mapping = Mapping {
    name: "rules",
    place: "the root of the file",
    about: "The rules of one domain.",
    fields: &[
        reference("domain", Kind::Text, "The domain that Envoy's rate limit filter sends; required.").required(""),
        reference("descriptors", Kind::MappingList(&DESCRIPTOR), "The descriptors of this domain."),
        ALL_OR_NOTHING,
        ON_STORE_FAILURE,
        LIMIT_FROM_REQUEST,
        tollgate(
            "requests",
            Kind::Mapping(&REQUESTS),
            "How descriptors are made of HTTP requests, for proxies that send the request itself.",
        ),
        tollgate("plans", Kind::ByName(&PLAN), "Limits by names, which descriptors and files of limits of all files may have as their `plan`."),
    ],
};

/// One level of the tree.
pub(crate) static DESCRIPTOR: Mapping = Mapping {
    name: "descriptor",
    place: "a descriptor",
    about: "One entry of a descriptor: its key, its values, and the limits that apply if it is the last entry.",
    fields: &[
        reference("key", Kind::Text, "The key of the entry; required. A * makes it a pattern.").required(""),
        reference("value", Kind::Text, "The exact value; a * makes it a pattern. Default: any other value."),
        tollgate("values", Kind::TextList { or_one: false }, "Any of these values; each has its own bucket."),
        tollgate("cidr", Kind::TextList { or_one: true }, "Addresses in any of these prefixes; the longest prefix wins."),
        tollgate("ipv6_prefix", Kind::Integer(1..=128), "The prefix length, in bits, within which IPv6 addresses share a bucket."),
        tollgate("regex", Kind::Text, "A regular expression that matches the whole value, as bytes."),
        reference("rate_limit", Kind::Mapping(&LIMIT), "The limit that applies."),
        tollgate("rate_limits", Kind::MappingList(&LIMIT), "Several limits; the tightest one sets the status."),
        tollgate("plan", Kind::Text, "The name of a plan, whose limits apply."),
        tollgate("limits_from", Kind::Text, "A .csv or .jsonl file with a limit for each of many values; `rate_limit` is for the others."),
        OVER_LIMIT_OF_LEVEL,
        reference("descriptors", Kind::MappingList(&DESCRIPTOR), "The next entries of the descriptor."),
        LIMIT_FROM_REQUEST,
        SHADOW_MODE,
        reference("quota_mode", Kind::Boolean, "A quota: the request is refused only if all quotas are over their limits."),
        reference("detailed_metric", Kind::Boolean, "The labels of metrics hold every value as the request sent it."),
        reference("value_to_metric", Kind::Boolean, "This level's label of metrics holds the value as the request sent it."),
        reference("share_threshold", Kind::Boolean, "All values that match share one bucket."),
        reference("metadata", Kind::AnyMapping, "Returned as dynamic metadata if the descriptor passed."),
    ],
};

/// The limits of a plan.
static PLAN: Kind = Kind::MappingOrList(&LIMIT);

pub(super) const ALL_OR_NOTHING: Field = tollgate("all_or_nothing", Kind::Boolean, "A request takes hits from all its limits, or from none if one refuses. Default: --all-or-nothing.");
pub(super) const ON_STORE_FAILURE: Field = tollgate("on_store_failure", one_of(|| OnUndecided::NAMES.to_vec()), "The response when the shared store makes no decision. Default: --on-store-failure.");
pub(super) const LIMIT_FROM_REQUEST: Field = tollgate("limit_from_request", one_of(|| LimitFromRequest::NAMES.to_vec()), "What a limit that a request carries does: replace the rule, or adjust its number and window. Default: adjust, or replace in a file without fields of tollgate.");
pub(super) const OVER_LIMIT_OF_LEVEL: Field = tollgate("over_limit", Kind::Mapping(&OVER_LIMIT), "The response sent to the client when a limit refuses.");

/// The response on a refusal.
pub(crate) static OVER_LIMIT: Mapping = Mapping {
    name: "over_limit",
    place: "`over_limit`",
    about: "The response sent to the client when a limit refuses. {limit}, {window} and {retry_after_seconds} are filled in.",
    fields: &[
        tollgate("body", Kind::Text, "The body of the response."),
        tollgate("headers", Kind::Headers, "Headers of the response."),
    ],
};

/// How descriptors are made of HTTP requests.
pub(crate) static REQUESTS: Mapping = Mapping {
    name: "requests",
    place: "`requests`",
    about: "How descriptors are made of HTTP requests, for proxies that send the request itself.",
    fields: &[
        tollgate(
            "trusted_proxies",
            Kind::TextList { or_one: false },
            "Addresses and prefixes of proxies whose forwarding headers are read. Default: none.",
        ),
        tollgate(
            "skip_paths",
            Kind::TextList { or_one: false },
            "Path templates that pass without a check.",
        ),
        tollgate(
            "descriptors",
            Kind::MappingLists(&REQUEST_ENTRY),
            "A list of descriptors, each a list of entries.",
        ),
    ],
};

/// One entry of a descriptor of a request.
pub(crate) static REQUEST_ENTRY: Mapping = Mapping {
    name: "request_entry",
    place: "an entry of `requests`",
    about: "One entry of a descriptor: its key, and exactly one source of its value.",
    fields: &[
        tollgate("key", Kind::Text, "The key of the entry; required.").required(""),
        tollgate("value", Kind::Text, "A fixed value."),
        tollgate(
            "header",
            Kind::Text,
            "The values of this header, joined by commas; missing if empty.",
        ),
        tollgate("method", Kind::Boolean, "`true`: the method."),
        tollgate(
            "path",
            Kind::Boolean,
            "`true`: the path without the query, as sent.",
        ),
        tollgate(
            "path_templates",
            Kind::TextList { or_one: false },
            "The first of these templates that matches the path.",
        ),
        tollgate(
            "remote_address",
            Kind::Boolean,
            "`true`: the address of the client, behind the trusted proxies.",
        ),
        tollgate(
            "default",
            Kind::Text,
            "The value where the source has none. Default: the descriptor is left out.",
        ),
    ],
};

/// Every mapping.
pub(crate) static MAPPINGS: [&Mapping; 10] = [
    &ROOT,
    &REQUESTS,
    &REQUEST_ENTRY,
    &DESCRIPTOR,
    &LIMIT,
    &PENALTY,
    &RESERVE,
    &CANDIDATE,
    &REPLACED,
    &OVER_LIMIT,
];

/// The grammar of rules files.
pub(crate) static RULES: Grammar = Grammar {
    mappings: &NAMED,
    sign: "descriptors",
    is_reference: true,
    is_overlay: false,
};

/// The grammar of overlays: its messages know the names of rules files.
pub(crate) static OVERLAY: Grammar = Grammar {
    mappings: &NAMED,
    sign: "overlay",
    is_reference: true,
    is_overlay: true,
};

/// The mappings that messages name. What a candidate may have, a limit may have.
static NAMED: [&Mapping; 7] = [&ROOT, &DESCRIPTOR, &LIMIT, &PENALTY, &RESERVE, &REPLACED, &OVER_LIMIT];
