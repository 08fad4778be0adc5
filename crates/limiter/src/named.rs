//! Enums whose variants have names: in rules files, in settings, in metrics, in requests.

/// Declares an enum with a name for each variant. It has `ALL` and `NAMES`, in the order of the
/// variants, and `name`.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $enum:ident {$(
            $(#[$variant_meta:meta])+
            $variant:ident = $name:literal,
        )+}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        $visibility enum $enum {$(
            $(#[$variant_meta])+
            $variant,
        )+}

        impl $enum {
            /// Every variant.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The names of all variants.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($name),+];

            /// Its name.
            #[inline]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}
