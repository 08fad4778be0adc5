//! `tollgate check RULES`: everything that is wrong with rules files, at once.

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use crate::app::{AppError, load_rules};
use crate::limiter::RuleSet;

/// What `check` was told.
#[derive(Args, Debug)]
pub(super) struct Check {
    /// A rules file, or a directory of them
    #[arg(env = "TOLLGATE_RULES")]
    rules: PathBuf,
}

// === impl Check ===

impl Check {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match load_rules(&self.rules) {
            Ok(rules) => {
                println!("{}", summary(&self.rules.display().to_string(), &rules));
                Ok(Exit::Success)
            }
            Err(AppError::Rules(problems)) => {
                for problem in &problems {
                    eprintln!("{problem}");
                }
                let many = if problems.len() == 1 {
                    "problem"
                } else {
                    "problems"
                };
                eprintln!("{} {many}; the rules would not be taken", problems.len());
                Ok(Exit::Failure)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// `edge.yaml: good, 3 limits in 1 domain`
fn summary(path: &str, rules: &RuleSet) -> String {
    let count = |number: usize, one: &str| {
        let plural = if number == 1 { "" } else { "s" };
        format!("{number} {one}{plural}")
    };
    format!(
        "{path}: good, {} in {}",
        count(rules.rules().len(), "limit"),
        count(rules.domain_count(), "domain"),
    )
}
