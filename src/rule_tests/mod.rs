//! Files of tests of rules: requests at chosen times, and the answers that they are to get.
//!
//! A test runs on the pipeline and the memory partition of the service, under a manual clock
//! (`simulation`). A file is read like a rules file: by a table of its mappings and fields, with
//! every error at once, each with its place.
//!
//! | file | what |
//! | --- | --- |
//! | `grammar`, `grammar_expect` | the table of mappings and fields; reader and JSON Schema use it |
//! | [`schema`] | the JSON Schema |
//! | `load`, `rule_files`, `settings`, `steps`, `expectations` | a file as tests |
//! | `quota_steps`, `quota_runner`, `rates` | steps that play proxies of a quota |
//! | `requests`, `json_requests` | requests in each of their forms |
//! | `moments` | times and durations as a file has them |
//! | `test_file` | what a file says |
//! | `runner` | runs a test |
//! | `differences` | an answer compared with what was expected |
//! | `coverage` | the rules that tests reached |
//! | `watched_path` | whether files of a run have changed |
//!
//! What it deliberately does not do: print (`cli::test`), read the system's clock.

mod coverage;
mod differences;
mod expectations;
mod grammar;
mod grammar_expect;
mod json_requests;
mod load;
mod moments;
mod quota_runner;
mod quota_steps;
mod rates;
mod requests;
mod rule_files;
mod runner;
mod schema;
mod settings;
mod steps;
mod test_file;
mod watched_path;

pub use self::coverage::{Coverage, UnreachedRule};
pub use self::differences::Difference;
pub use self::load::{LoadFailure, load};
pub use self::quota_runner::{PlayedProxies, PlayedProxy};
pub use self::runner::{Explained, Failure, TestResult, run, run_on, simulation};
pub use self::schema::schema;
pub use self::test_file::{RuleFiles, Test, TestFile};
pub use self::watched_path::WatchedPath;

/// How large a file of tests may be, in bytes.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// How many tests a file may have.
pub const TESTS_MAX: usize = 10_000;

/// How many steps a test may have.
pub const STEPS_MAX: usize = 10_000;

/// How often one step may ask.
pub const TIMES_MAX: u32 = 1_000_000;

/// How often the steps of one file may ask together.
pub const ASKS_MAX: u64 = 10_000_000;

/// How many proxies one step may have.
pub const PROXIES_MAX: usize = 100;

/// The largest weight of a proxy, as in the service.
pub const WEIGHT_MAX: u32 = 1_000;

/// How many seconds the proxies of one file may play together: the time of each step, and the time
/// in which its proxies become idle, for each proxy.
pub const PROXY_SECONDS_MAX: u64 = 10_000_000;

/// How many bytes the buckets of one test may take.
pub const MEMORY_MAX: usize = 256 << 20;

#[cfg(test)]
mod quota_tests;
#[cfg(test)]
mod tests;
