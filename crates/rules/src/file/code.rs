//! The codes of diagnostics: stable names, so that scripts can tell diagnostics apart.
//!
//! A code is never renamed and never reused. To add one, add a line to the table. `docs/rules.md`
//! and the schema of `check --format json` list the codes from this table.

/// Declares the codes: the variant, its name, and what it reports.
macro_rules! codes {
    ($($variant:ident $name:literal $about:literal)*) => {
        /// What a diagnostic reports.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Code {
            $(#[doc = $about] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it reports, in one line.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)*
                }
            }
        }
    };
}

codes! {
    // Errors: files.
    UnreadableFile "unreadable-file" "A file or directory that cannot be read."
    NotUtf8 "not-utf8" "A file that is not UTF-8 text."
    NoFiles "no-files" "A directory without rules files."
    TooLarge "too-large" "A file, a list, a text or a tree beyond its bound."

    // Errors: YAML.
    YamlSyntax "yaml-syntax" "A text that is not YAML."
    InvalidMerge "invalid-merge" "A merge (`<<`) of something that is not a mapping."
    InvalidKey "invalid-key" "A key that is not text."

    // Errors: keys and types.
    UnknownKey "unknown-key" "A key that does not exist."
    MisplacedKey "misplaced-key" "A key in a mapping where it has no effect; a warning for keys of envoyproxy/ratelimit."
    MissingKey "missing-key" "A required key that is absent or empty."
    WrongType "wrong-type" "A value of another type: text, number, boolean, list or mapping."
    OutOfRange "out-of-range" "A number outside of its range."
    UnknownValue "unknown-value" "A word that is none of the possible ones."

    // Errors: meaning.
    ConflictingKeys "conflicting-keys" "Keys or settings that contradict one another."
    Duplicate "duplicate" "A domain, descriptor, value, limit or header that exists already."
    InvalidAddress "invalid-address" "An address prefix that cannot be used."
    InvalidPattern "invalid-pattern" "A regular expression or wildcard that cannot be used."
    InvalidCalendar "invalid-calendar" "A calendar window that does not exist."
    InvalidHeader "invalid-header" "A response header that cannot be sent."
    InvalidLine "invalid-line" "A line of a file of limits that is not in its format."
    InvalidReplaces "invalid-replaces" "An entry of `replaces` that names nothing or its own limit."

    RaisedLimit "raised-limit" "An entry of an overlay that lets more pass, without `may_raise: true`."

    ForeignFile "foreign-file" "A file of another program: limitador, AspNetCoreRateLimit, Docker Compose, Kubernetes, Envoy."

    // Warnings.
    NoEffect "no-effect" "A field that never takes effect."
    Unreachable "unreachable" "A descriptor, or an item of its list, whose values other descriptors take."
    MissingRequests "missing-requests-per-unit" "A limit without `requests_per_unit`, which is a limit of 0."
    IgnoredDocument "ignored-document" "A YAML document after the first one of a file, which is not read."
    DuplicateKey "duplicate-key" "A key that a mapping has more than once; the last one applies."
    OctalNumber "octal-number" "A number that begins with 0 and is therefore octal."
    UnknownReplacedName "unknown-replaced-name" "A name in `replaces` that no limit of the domain has."
    NoDescriptors "no-descriptors" "A file without descriptors."
    SmallBurst "small-burst" "A `burst` that `refill: interval` can never fill with a window's requests."
    LiteralValue "literal-value" "A `value` that looks like an address prefix or a regular expression, and is compared as text."
    UnmatchedEntry "unmatched-entry" "An entry of an overlay that matches no limit, or only limits that earlier entries take."
    NoLimit "no-limit" "A descriptor that has no limit and changes nothing."
}
