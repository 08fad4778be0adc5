//! `tollgate check RULES`: reports every error of rules files at once.

use std::path::PathBuf;

use clap::Args;

use super::{Exit, rules_argument};
use crate::settings::RulesSettings;
use tollgate_limiter::RuleSet;

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(super) struct Check {
    /// A rules file, or a directory of them
    #[arg(env = "TOLLGATE_RULES")]
    rules: Option<PathBuf>,

    #[command(flatten)]
    settings: RulesSettings,
}

// === impl Check ===

impl Check {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let rules = match rules_argument::load(self.rules.as_deref(), &self.settings)? {
            Ok(rules) => rules,
            Err(exit) => return Ok(exit),
        };
        let named = self
            .rules
            .or(self.settings.runtime_root)
            .unwrap_or_default();
        print_line!(
            "{}: good, {}",
            named.display(),
            summary(&rules.loaded.rules)
        );
        Ok(Exit::Success)
    }
}

/// `3 limits in 1 domain`
fn summary(rules: &RuleSet) -> String {
    let count = |number: usize, one: &str| {
        let plural = if number == 1 { "" } else { "s" };
        format!("{number} {one}{plural}")
    };
    let limits = count(rules.rules().len(), "limit");
    format!("{limits} in {}", count(rules.domain_count(), "domain"))
}
