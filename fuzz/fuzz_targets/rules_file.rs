//! Any bytes as a rules file: read or refused, never a panic, and diagnostics stay within their
//! bounds.
//!
//! `make fuzz` runs it for a minute. The same corpus is mutated in `tests/rules/fuzz` by every
//! `make test`.
//!
//! What it deliberately does not do: judge the rules.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::rules::file::{Options, DIAGNOSTICS_MAX, load};
use tollgate::rules::path::Source;

fuzz_target!(|text: &str| {
    let source = Source {
        name: "fuzzed.yaml".to_owned(),
        text: text.to_owned(),
    };
    let told = match load(&[source], Options::default()) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => {
            assert!(!problems.errors.is_empty());
            problems.errors
        }
    };
    assert!(told.len() <= DIAGNOSTICS_MAX);
    for problem in told {
        assert!(problem.span.at.line >= 1 && problem.span.at.column >= 1);
        assert!(problem.to_string().len() < 4_000);
    }
});
