//! The types of the grammar's table: mappings, fields, and the types of values.

use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::file::corrections::nearest;
use crate::yaml::{Content, Node};
use tollgate_limiter::{AlgorithmOption, Limit};

/// How many names of a root are compared with a misspelt one.
const MISSPELT_MAX: usize = 20;

/// The mappings of a kind of file.
#[derive(Debug)]
pub struct Grammar {
    /// Every mapping, the root first.
    pub mappings: &'static [&'static Mapping],
    /// The field of the root by which such a file is known.
    pub sign: &'static str,
    /// Whether the reference reads such files: errors then begin with its words, and numbers that
    /// it rejects anywhere are errors.
    pub is_reference: bool,
    /// Whether these are overlays: a name of a rules file that is none of an overlay is an error.
    pub is_overlay: bool,
}

/// A mapping of a file.
#[derive(Debug)]
pub struct Mapping {
    /// Its name in the schema.
    pub name: &'static str,
    /// Where it is written, for messages.
    pub place: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its fields, in the order of messages and docs.
    pub fields: &'static [Field],
}

/// A field of a mapping.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// The type of its value.
    pub kind: Kind,
    /// What to do where it is missing; none if it may be. Empty in rules (`Reader::fields`).
    pub required: Option<&'static str>,
    /// The choice of an algorithm that this field makes. A limit may have the field only if its
    /// algorithm has the choice.
    pub choice: Option<AlgorithmOption>,
    /// What it is for.
    pub about: &'static str,
}

/// Where a field comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The reference's grammar.
    Reference,
    /// An addition of tollgate.
    Tollgate,
}

/// The type of a value.
#[derive(Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// One of these words.
    Enum {
        /// The words, in the order of messages.
        words: fn() -> Vec<&'static str>,
        /// Whether upper and lower case are the same.
        ignore_case: bool,
    },
    /// A unit; with `unlimited`, any text that is not a unit.
    Unit,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer(RangeInclusive<u64>),
    /// A number above 0 with at most six decimals.
    Decimal,
    /// A number of hits above 0, or a percentile such as `p95`.
    Amount,
    /// A mapping.
    Mapping(&'static Mapping),
    /// A list of mappings.
    MappingList(&'static Mapping),
    /// A list of lists of mappings.
    MappingLists(&'static Mapping),
    /// A mapping, or a list of them.
    MappingOrList(&'static Mapping),
    /// A list of texts; with `or_one`, also one text.
    TextList {
        /// Whether one text stands for a list of it.
        or_one: bool,
    },
    /// True or false, or a list of whole numbers from 1 to 100.
    Percents,
    /// A mapping of any names to texts.
    Headers,
    /// A mapping of any names to any values.
    AnyMapping,
    /// A mapping of any names to values of this type.
    ByName(&'static Kind),
    /// Requests a second: a number from 0 to [`RATE_MAX`] with at most three decimals.
    Rate,
    /// The same, or two of them as `LOW to HIGH`.
    RateRange,
    /// A text, or a mapping.
    TextOrMapping(&'static Mapping),
    /// A length of time, such as `500ms` or `1h30m`.
    Duration,
    /// A length of time in whole seconds, a number of seconds, or `never`.
    Wait,
    /// A time in RFC 3339, with an optional `[Zone]`.
    Time,
}

pub(super) const fn reference(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        origin: Origin::Reference,
        ..tollgate(name, kind, about)
    }
}

/// A field that is an addition of tollgate.
pub const fn tollgate(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        origin: Origin::Tollgate,
        kind,
        required: None,
        choice: None,
        about,
    }
}

/// One of these words, in lower case.
pub const fn one_of(words: fn() -> Vec<&'static str>) -> Kind {
    Kind::Enum {
        words,
        ignore_case: false,
    }
}

pub(super) const fn choice(
    name: &'static str,
    choice: AlgorithmOption,
    kind: Kind,
    about: &'static str,
) -> Field {
    Field {
        choice: Some(choice),
        ..tollgate(name, kind, about)
    }
}

/// The range of every number.
pub const ANY_NUMBER: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// The range of numbers that limits count.
pub const LARGE_NUMBER: RangeInclusive<u64> = 0..=Limit::REQUESTS_MAX;

/// The largest rate, in requests a second.
pub const RATE_MAX: u32 = 1_000_000_000;

// === impl Grammar ===

impl Grammar {
    /// Whether this is the root of such a file: it has the sign, perhaps misspelt, or no name that
    /// such files do not have.
    pub(crate) fn has_root(&self, root: &Node) -> bool {
        let Content::Mapping(pairs) = &root.content else {
            return false;
        };
        let names = || pairs.iter().map(|(key, _)| key.text().unwrap_or_default());
        let fields = || self.mappings.iter().take(1).flat_map(|root| root.fields);
        let is_misspelt = |(key, value): &(Rc<Node>, Rc<Node>)| {
            let name = key.text().filter(|_| value.text().is_none());
            name.is_some_and(|name| nearest(name, [self.sign]).is_some())
        };
        names().any(|name| name == self.sign)
            || names().all(|name| fields().any(|field| field.name == name))
            || pairs.iter().take(MISSPELT_MAX).any(is_misspelt)
    }

    /// Whether a text that is no YAML was meant as such a file: a line begins with the sign.
    pub(crate) fn is_in_text(&self, text: &str) -> bool {
        text.lines().any(|line| {
            let line = line.trim_start_matches([' ', '{', '"']);
            let after = line.strip_prefix(self.sign);
            after.is_some_and(|after| after.trim_start_matches(['"', ' ']).starts_with(':'))
        })
    }

    /// The fields of every mapping.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static Field> {
        self.mappings.iter().flat_map(|mapping| mapping.fields)
    }

    /// The first field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name)
    }

    /// The mappings that have a field, for messages. Fields of tollgate that have the name of one
    /// of the reference's are left out.
    pub(crate) fn homes(&self, field: &Field) -> String {
        let homes = self.mappings.iter().filter(|mapping| {
            let same = mapping.field(field.name);
            same.is_some_and(|same| same.origin == field.origin)
        });
        let homes: Vec<_> = homes.map(|mapping| mapping.place).collect();
        homes.join(" or ")
    }

    /// The words that precede the reference's message about a name; none in other files.
    pub(crate) fn config_error(&self) -> &'static str {
        if self.is_reference {
            "config error, "
        } else {
            ""
        }
    }
}

// === impl Field ===

impl Field {
    /// The same field, which must not be missing, with what to do where it is.
    #[must_use]
    pub const fn required(self, help: &'static str) -> Self {
        let required = Some(help);
        Self { required, ..self }
    }
}

// === impl Mapping ===

impl Mapping {
    /// Its fields that must not be missing, with what to do where one is.
    pub(crate) fn required(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let fields = self.fields.iter();
        fields.filter_map(|field| Some((field.name, field.required?)))
    }

    /// Its field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The names of its fields, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.fields.iter().map(|field| field.name).collect();
        names.join(", ")
    }
}
