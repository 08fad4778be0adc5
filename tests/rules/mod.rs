//! Rules files: valid ones, errors and their messages, and the cost of the worst ones.
//!
//! The loader is compared with the reference's grammar and messages, row by row. Most of that needs
//! no service, so these tests are one binary.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `snapshots` | the texts below `cases/`: errors, warnings, and the rules that were read |
//! | `broken` | broken files and what `check` prints for each |
//! | `overlay` | overlays: errors, and their effect |
//! | `accepted` | valid texts that a case cannot hold |
//! | `limits` | which algorithms have which fields |
//! | `limits_from` | files of limits by value: both formats, errors, changes, memory |
//! | `requests` | descriptors of HTTP requests, by the vectors of the clients |
//! | `reserve` | reservations with every algorithm and below overlays |
//! | `misplaced` | known names in wrong places |
//! | `bounds` | bounds of one file: depth, aliases, lengths, number of errors |
//! | `hostile_snippets` | snippets of long lines and strange characters, many errors |
//! | `candidates` | the set of only the candidates |
//! | `files` | the files of a path, and their order |
//! | `warnings` | the page of rules lists every warning |
//! | `foreign` | files of other programs |
//! | `watching` | changes to files, seen by polling; each test polls |
//! | `schema` | the JSON Schema agrees with the loader |
//! | `values` | lists, prefixes and regular expressions: what matches, and bounds |
//! | `test_files` | files of tests: diagnostics, schema, odd texts |
//! | `convert` | files of limitador and AspNetCoreRateLimit as rules |
//! | `fuzz` | mutations of the files below `fuzz/corpus`, and hostile shapes |
//!
//! What it deliberately does not do: start a service (`tests/service`), start a process
//! (`tests/process`), sleep.
// A test fails by a panic.

mod accepted;
mod bounds;
mod broken;
mod candidates;
mod convert;
mod files;
mod foreign;
mod fuzz;
mod hostile_snippets;
mod isolation;
mod limits;
mod limits_from;
mod misplaced;
mod overlay;
mod reading;
mod requests;
mod reserve;
mod schema;
mod snapshots;
mod test_files;
mod values;
mod warnings;
mod watching;
