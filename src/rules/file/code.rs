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
    // Errors.
    Invalid "invalid" "A value that the rules grammar does not allow."

    ForeignFile "foreign-file" "A file of another program: limitador, AspNetCoreRateLimit, Docker Compose, Kubernetes, Envoy."

    // Warnings.
    MisplacedKey "misplaced-key" "A known key in a mapping where it has no effect."
    NoEffect "no-effect" "A field that never takes effect."
    Unreachable "unreachable" "A descriptor, or an item of its list, whose values other descriptors take."
    MissingRequests "missing-requests-per-unit" "A limit without `requests_per_unit`, which is a limit of 0."
    DuplicateKey "duplicate-key" "A key that a mapping has more than once; the last one applies."
    OctalNumber "octal-number" "A number that begins with 0 and is therefore octal."
    UnknownReplacedName "unknown-replaced-name" "A name in `replaces` that no limit of the domain has."
    NoDescriptors "no-descriptors" "A file without descriptors."
    SmallBurst "small-burst" "A `burst` that `refill: interval` can never fill with a window's requests."
    NoLimit "no-limit" "A descriptor that has no limit and changes nothing."
}
