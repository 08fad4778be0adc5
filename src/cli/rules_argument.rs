//! Loads the rules of `explain`, as `serve` would.
//!
//! What it deliberately does not do: watch for changes.

use std::path::Path;

use super::Exit;
use super::check_format::stderr_is_coloured;
use crate::rules::reload::{self, LoadError, Rules};
use crate::settings::RulesSettings;

/// The error when no rules are named.
pub(super) const NO_RULES: &str =
    "error: no rules given; pass a file or a directory, or set TOLLGATE_RULES or RUNTIME_ROOT";

/// The rules, or the exit code after all errors were printed. Warnings are printed in both cases.
pub(super) fn load(
    rules: Option<&Path>,
    settings: &RulesSettings,
) -> anyhow::Result<Result<Rules, Exit>> {
    let Some(path) = settings.path(rules) else {
        eprintln!("{NO_RULES}");
        return Ok(Err(Exit::Usage));
    };
    match reload::load(&path, settings.into()) {
        Ok(rules) => {
            for warning in &rules.loaded.warnings {
                eprintln!("{}\n", warning.render(stderr_is_coloured()));
            }
            Ok(Ok(rules))
        }
        Err(LoadError::Diagnostics(report)) => {
            eprintln!("{}\n", report.render(stderr_is_coloured()));
            eprintln!("error: the rules are invalid");
            Ok(Err(Exit::Failure))
        }
        Err(error) => Err(error.into()),
    }
}
