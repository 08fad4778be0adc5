//! The rules that `check` and `explain` are about: found and read as `serve` would.
//!
//! What it deliberately does not do: look for changes.

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use crate::config::reload::{self, LoadError, Rules};
use crate::config::rules_file::Options;
use crate::config::rules_path::RulesPath;

/// Which rules, and how they go together.
#[derive(Args, Debug)]
pub(super) struct RulesArgument {
    /// A rules file, or a directory of them
    #[arg(env = "TOLLGATE_RULES")]
    rules: PathBuf,

    /// Whether several files may hold rules of one domain
    #[arg(long, env = "MERGE_DOMAIN_CONFIG", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = crate::config::settings::truth)]
    merge_domain_config: bool,
}

// === impl RulesArgument ===

impl RulesArgument {
    pub(super) fn path(&self) -> std::path::Display<'_> {
        self.rules.display()
    }

    /// The rules, or how the process ends after everything wrong with them was said. Warnings are said either way.
    pub(super) fn load(&self) -> anyhow::Result<Result<Rules, Exit>> {
        let options = Options {
            merge_domains: self.merge_domain_config,
        };
        match reload::load(&RulesPath::Path(self.rules.clone()), options) {
            Ok(rules) => {
                for warning in &rules.loaded.warnings {
                    eprintln!("warning: {warning}");
                }
                Ok(Ok(rules))
            }
            Err(LoadError::Problems(problems)) => {
                for problem in &problems {
                    eprintln!("{problem}");
                }
                let many = if problems.len() == 1 {
                    "problem"
                } else {
                    "problems"
                };
                eprintln!("{} {many}; the rules would not be taken", problems.len());
                Ok(Err(Exit::Failure))
            }
            Err(error) => Err(error.into()),
        }
    }
}
