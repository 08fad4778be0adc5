//! Rules files: valid ones, errors and their messages, and the cost of the worst ones.
//!
//! The loader is compared with the reference's grammar and messages, row by row. Most of that needs
//! no service, so these tests are one binary.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `refused` | the reference's errors: message, position, path and advice |
//! | `accepted` | valid spellings of the grammar and of YAML 1.1, and their results |
//! | `limits` | the fields of a limit, of `rate_limits` and of `over_limit` |
//! | `limits_from` | files of limits by value: both formats, errors, changes, memory |
//! | `quotas` | limits that are apportioned over proxies |
//! | `reserve` | reservations, prices and budgets of limits |
//! | `misplaced` | known names in wrong places; several errors in several files |
//! | `bounds` | bounds of one file: depth, aliases, lengths, number of errors |
//! | `broken` | broken files and what `check` prints for each |
//! | `hostile_snippets` | snippets of long lines and strange characters, many errors |
//! | `candidates` | candidates of single rules, and the set of only them |
//! | `files` | the files of a path, and their order |
//! | `warnings` | warnings of rules that load and do not do what was meant |
//! | `foreign` | files of other programs |
//! | `watching` | changes to files, seen by polling; each test polls |
//! | `schema` | the JSON Schema agrees with the loader |
//! | `values` | lists, prefixes and regular expressions: results and errors |
//! | `test_files` | files of tests: diagnostics, schema, odd texts |
//! | `convert` | files of limitador and AspNetCoreRateLimit as rules |
//! | `fuzz` | mutations of the files below `fuzz/corpus`, and hostile shapes |
//!
//! What it deliberately does not do: start a service (`tests/service`), start a process
//! (`tests/process`), sleep.
// A test fails by a panic.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod accepted;
mod bounds;
mod broken;
mod candidates;
mod convert;
mod files;
mod foreign;
mod fuzz;
mod hostile_snippets;
mod limits;
mod limits_from;
mod misplaced;
mod overlay;
mod quotas;
mod reading;
mod refused;
mod reserve;
mod schema;
mod test_files;
mod values;
mod warnings;
mod watching;
