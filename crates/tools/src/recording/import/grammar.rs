//! The table of mapping files: which fields each mapping has. The reader of rules files reads by
//! it.

use tollgate_rules::file::{Field, Grammar, Kind, Mapping, tollgate};

/// How a text, or the field that has it, is written.
pub(super) const TEXT_OR_FIELD: &str = "write a text, or `{field: NAME}`";

/// The root of a mapping file.
pub(super) static ROOT: Mapping = Mapping {
    name: "mapping",
    place: "the root of a mapping file",
    about: "How requests are in a log.",
    fields: &[
        tollgate("time", Kind::Mapping(&TIME), "When a request was decided.").required("name the field of the time: `time: {field: NAME, format: rfc3339}`"),
        tollgate("domain", Kind::TextOrMapping(&FIELD), "The domain of requests: a text, or `{field: NAME}`.").required(TEXT_OR_FIELD),
        tollgate("descriptors", Kind::MappingList(&DESCRIPTOR), "The descriptors of a request, in their order.").required("add `descriptors:`, a list of `- entries: [{key: KEY, field: FIELD}]`"),
        tollgate("hits", Kind::TextOrMapping(&FIELD), "The hits of a request: a number, or `{field: NAME}`; default: 1."),
        tollgate("verdict", Kind::Mapping(&VERDICT), "What the answer was. Without it, replayed verdicts are compared with none."),
    ],
};

/// A value that a field of the log has.
pub(super) static FIELD: Mapping = Mapping {
    name: "field",
    place: "`{field: NAME}`",
    about: "A value that a field of the log has.",
    fields: &[FIELD_NAME.required("add `field: NAME`")],
};

/// When a request was decided.
pub(super) static TIME: Mapping = Mapping {
    name: "time",
    place: "`time`",
    about: "When a request was decided.",
    fields: &[
        FIELD_NAME.required("add `field: NAME`"),
        tollgate("format", Kind::Text, "`rfc3339` (default), `unix_seconds`, `unix_milliseconds`, `unix_microseconds`, `unix_nanoseconds`, or a format of strptime such as `%d/%b/%Y:%H:%M:%S %z`."),
    ],
};

/// A descriptor of requests.
pub(super) static DESCRIPTOR: Mapping = Mapping {
    name: "mapped_descriptor",
    place: "an entry of `descriptors`",
    about: "A descriptor. A request that lacks a value of one of its entries does not have it.",
    fields: &[tollgate("entries", Kind::MappingList(&ENTRY), "Its entries, in their order.").required("add `entries:`, a list of `- {key: KEY, field: FIELD}`")],
};

/// An entry of a descriptor.
pub(super) static ENTRY: Mapping = Mapping {
    name: "mapped_entry",
    place: "an entry of `entries`",
    about: "An entry of a descriptor: a key with a value, or with the field that has the value.",
    fields: &[
        tollgate("key", Kind::Text, "Its key.").required("add `key: KEY`"),
        tollgate("value", Kind::Text, "Its value, the same in every request."),
        FIELD_NAME,
    ],
};

/// What the answer was.
pub(super) static VERDICT: Mapping = Mapping {
    name: "verdict",
    place: "`verdict`",
    about: "What the answer was.",
    fields: &[
        FIELD_NAME.required("add `field: NAME`"),
        tollgate("over_limit", Kind::TextList { or_one: true }, "Values of a refused request, such as `RL` or 429. Of flags that are joined by commas, one is enough.").required("add `over_limit: [VALUE]`"),
    ],
};

const FIELD_NAME: Field = tollgate("field", Kind::Text, "The name of a field: a column, a name in the JSON object, or a path of names with dots.");

/// The grammar of mapping files.
pub(super) static MAPPINGS: Grammar = Grammar {
    mappings: &[&ROOT, &FIELD, &TIME, &DESCRIPTOR, &ENTRY, &VERDICT],
    sign: "descriptors",
    is_reference: false,
    is_overlay: false,
};
