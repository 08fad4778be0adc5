//! `tollgate check RULES`: everything that is wrong with rules files, at once.

use clap::Args;

use super::Exit;
use super::rules_argument::RulesArgument;
use crate::limiter::RuleSet;

/// What `check` was told.
#[derive(Args, Debug)]
pub(super) struct Check {
    #[command(flatten)]
    rules: RulesArgument,
}

// === impl Check ===

impl Check {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let rules = match self.rules.load()? {
            Ok(rules) => rules,
            Err(exit) => return Ok(exit),
        };
        println!(
            "{}: good, {}",
            self.rules.path(),
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
