//! The grammar of an overlay file: its mappings, with fields of the grammar of rules.

use crate::file::grammar::{
    ALL_OR_NOTHING, LIMIT_FROM_REQUEST, ON_STORE_FAILURE, OVER_LIMIT, OVER_LIMIT_OF_LEVEL,
};
use crate::file::grammar_field::tollgate;
use crate::file::grammar_limit::{
    ALGORITHM, BURST, CANDIDATE, CANDIDATE_OF_LIMIT, CHARGED, COUNT_REFUSED, LEASE, NAME, NOTIFY,
    REQUESTS_PER_UNIT, RESERVE, RESERVE_OF_LIMIT, SEGMENTS, SHADOW_MODE,
};
use crate::file::{Kind, Mapping};

/// A whole file.
pub(crate) static ROOT: Mapping = Mapping {
    name: "overlay",
    place: "the root of an overlay",
    about: "Additions to rules of another owner.",
    fields: &[tollgate("overlay", Kind::MappingList(&ENTRY), "The entries; the first one that matches a limit applies.").required("")],
};

/// One entry.
pub(crate) static ENTRY: Mapping = Mapping {
    name: "entry",
    place: "an entry of an overlay",
    about: "What is matched, and what is set there. An entry that sets nothing leaves its limits as they are.",
    fields: &[
        tollgate("domain", Kind::Text, "The domain of the rules; required. A * makes it a pattern.").required(""),
        tollgate("path", Kind::MappingList(&LEVEL), "The levels that lead to the limit, outermost first. Default: every limit of the domain."),
        REQUESTS_PER_UNIT,
        ALGORITHM,
        BURST,
        SEGMENTS,
        COUNT_REFUSED,
        CHARGED,
        ALL_OR_NOTHING,
        ON_STORE_FAILURE,
        OVER_LIMIT_OF_LEVEL,
        LIMIT_FROM_REQUEST,
        SHADOW_MODE,
        NAME,
        CANDIDATE_OF_LIMIT,
        RESERVE_OF_LIMIT,
        LEASE,
        NOTIFY,
        tollgate("may_raise", Kind::Boolean, "The entry may let more pass than the rules. Default: false."),
    ],
};

/// One level of an entry's path.
pub(crate) static LEVEL: Mapping = Mapping {
    name: "level",
    place: "an entry of `path`",
    about: "A level of the rules: its key, and its value.",
    fields: &[
        tollgate("key", Kind::Text, "The key as the rules write it; required. A * makes it a pattern.").required(""),
        tollgate("value", Kind::Text, "The value as the rules write it; a * makes it a pattern. Default: whatever is there."),
    ],
};

/// Every mapping.
pub(crate) static MAPPINGS: [&Mapping; 6] =
    [&ROOT, &ENTRY, &LEVEL, &CANDIDATE, &RESERVE, &OVER_LIMIT];
