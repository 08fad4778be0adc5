//! How much a load reports.

/// How many errors, and how many warnings, are reported in one run. Further ones are counted.
pub const DIAGNOSTICS_MAX: usize = 100;

/// After so many errors the rest of the files is not walked.
pub(super) const ERRORS_COUNTED_MAX: usize = 20_000;

/// How long a domain, key, value or name may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
