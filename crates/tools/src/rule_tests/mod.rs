//! Files of tests of rules: requests at chosen times, and the answers that they are to get.
//!
//! A test runs on the pipeline and the memory partition of the service, under a manual clock
//! (`simulation`). A file is read like a rules file: by a table of its mappings and fields, with
//! every error at once, each with its place.
//!
//! | file | what |
//! | --- | --- |
//! | `grammar` | the table of mappings and fields |
//! | `schema` | the JSON Schema of that table |
//! | `test_file` | what a file says |
//! | `load`, `steps`, `requests` | a file as tests |
//! | `values` | times, durations and rates as a file has them |
//! | `runner` | runs a test |
//! | `differences` | an answer compared with what was expected |
//! | `coverage` | the rules that tests reached |
//!
//! What it deliberately does not do: print (`cli::tools::test`), read the system's clock.

mod coverage;
mod differences;
#[rustfmt::skip] // A field has a line.
mod grammar;
mod load;
mod requests;
mod runner;
mod schema;
mod steps;
mod test_file;
mod values;

pub use self::coverage::{Coverage, UnreachedRule};
pub use self::differences::Difference;
pub use self::load::{LoadFailure, load};
pub use self::runner::{
    Explained, Failure, PlayedProxies, PlayedProxy, TestResult, run, run_on, simulation,
};
pub use self::schema::schema;
pub use self::test_file::{KnownSettings, RuleFiles, ServiceSettings, Test, TestFile, WatchedPath};

#[cfg(test)]
mod tests;
