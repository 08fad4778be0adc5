//! Rules files as operators write them: what is taken, what is refused and in which words, and what
//! it costs to read the worst of them.
//!
//! Why one binary of its own: the loader is held against the reference's own grammar and its own
//! sentences, row by row, and most of that needs no service. How:
//!
//! | file | what it holds |
//! | --- | --- |
//! | `refused` | every row of the reference's table of refusals: its sentence, our position, path and advice |
//! | `accepted` | what the grammar and YAML 1.1 let an operator write, and what it comes to |
//! | `limits` | what stands in a limit, in `rate_limits` and under `over_limit`: what is taken, what is refused |
//! | `misplaced` | right names in wrong places; several problems in several files in one run |
//! | `bounds` | what one file may cost: depth, aliases, lengths, how many problems are told |
//! | `files` | which files a path means, and in which order |
//! | `looking` | changes to files, seen by looking; each test looks by hand |
//! | `schema` | the JSON Schema and the loader agree, on every text of the files above and on every file there is |
//! | `values` | lists, prefixes and regular expressions: what they come to, and each refusal with its place |
//! | `fuzz` | a few thousand mutations of the files below `fuzz/corpus`, and hostile shapes of two sizes |
//!
//! What it deliberately does not do: ask a service (`tests/service`), start a process
//! (`tests/process`), sleep.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod accepted;
mod bounds;
mod files;
mod fuzz;
mod limits;
mod looking;
mod misplaced;
mod reading;
mod refused;
mod schema;
mod values;
