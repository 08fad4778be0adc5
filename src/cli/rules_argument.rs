//! Loads the rules of `check` and `explain`, as `serve` would.
//!
//! What it deliberately does not do: watch for changes.

use std::path::Path;

use super::Exit;
use crate::rules::path::RulesPath;
use crate::rules::reload::{self, LoadError, Rules};
use crate::settings::RulesSettings;

/// The rules, or the exit code after all errors were printed. Warnings are printed in both cases.
pub(super) fn load(
    rules: Option<&Path>,
    settings: &RulesSettings,
) -> anyhow::Result<Result<Rules, Exit>> {
    let Some(path) = RulesPath::from_settings(settings, rules) else {
        eprintln!(
            "error: no rules given; pass a file or a directory, or set TOLLGATE_RULES or RUNTIME_ROOT"
        );
        return Ok(Err(Exit::Usage));
    };
    match reload::load(&path, settings.into()) {
        Ok(rules) => {
            for warning in &rules.loaded.warnings {
                eprintln!("warning: {warning}");
            }
            Ok(Ok(rules))
        }
        Err(LoadError::Diagnostics(problems)) => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            let many = if problems.len() == 1 {
                "problem"
            } else {
                "problems"
            };
            eprintln!("{} {many}; the rules are invalid", problems.len());
            Ok(Err(Exit::Failure))
        }
        Err(error) => Err(error.into()),
    }
}
