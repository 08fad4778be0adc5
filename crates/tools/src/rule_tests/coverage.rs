//! The rules that tests reached: those that a request matched, counted or not.
//!
//! A rules file that several files of tests name is counted once. Rules that only a `reload` names
//! need not be reached.

use std::ops::Range;
use std::sync::Arc;

use tollgate_limiter::{Allowance, Rule};

use crate::rule_tests::test_file::RuleFiles;
use tollgate_admin_api::{LimitFigures, rule_name};

/// The rules that tests reached.
#[derive(Debug, Default)]
pub struct Coverage {
    sets: Vec<CoveredRules>,
}

/// The rules of some files.
#[derive(Debug)]
struct CoveredRules {
    files: Arc<RuleFiles>,
    /// Whether a file of tests is about them.
    is_required: bool,
    reached: Vec<bool>,
}

/// A rule that no test reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnreachedRule {
    /// The first of its files.
    pub file: String,
    /// Its name.
    pub rule: String,
    /// Its limit, in words.
    pub limit: String,
}

// === impl Coverage ===

impl Coverage {
    /// Counts these rules as to be reached.
    pub(super) fn require(&mut self, files: &Arc<RuleFiles>) {
        self.set(files).is_required = true;
    }

    /// Notes that a request matched these rules.
    pub(super) fn reach(&mut self, files: &Arc<RuleFiles>, rules: Range<usize>) {
        if rules.is_empty() {
            return;
        }
        // All lines of a file of limits count as one rule: that of the first form.
        let form = files.all().get(rules.start).map_or(0, form);
        let rules = rules.start.saturating_sub(form)..rules.end.saturating_sub(form);
        if let Some(reached) = self.set(files).reached.get_mut(rules) {
            reached.fill(true);
        }
    }

    fn set(&mut self, files: &Arc<RuleFiles>) -> &mut CoveredRules {
        let is_same = |set: &CoveredRules| {
            Arc::ptr_eq(&set.files, files) || set.files.sources == files.sources
        };
        let position = self.sets.iter().position(is_same).unwrap_or_else(|| {
            self.sets.push(CoveredRules {
                files: Arc::clone(files),
                is_required: false,
                reached: vec![false; files.all().len()],
            });
            self.sets.len() - 1
        });
        #[allow(clippy::indexing_slicing)] // it was found or pushed
        &mut self.sets[position]
    }

    /// Each rule that counts, the first of its files, and whether it was reached.
    fn counted(&self) -> impl Iterator<Item = (&str, &Rule, bool)> {
        let required = self.sets.iter().filter(|set| set.is_required);
        required.flat_map(|set| {
            let file = set.files.sources.first();
            let file = file.map_or("", |source| source.name.as_str());
            let rules = set.files.all().iter().zip(&set.reached);
            rules
                .filter(|(rule, _)| form(rule) == 0)
                .map(move |(rule, reached)| (file, rule, *reached))
        })
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.counted().count()
    }

    /// How many rules tests reached.
    pub fn reached(&self) -> usize {
        self.counted().filter(|(.., reached)| *reached).count()
    }

    /// The share of the rules that tests reached, in percent; 100 where there are none.
    #[allow(clippy::cast_precision_loss)] // numbers of rules
    pub fn percent(&self) -> f64 {
        match self.rules() {
            0 => 100.0,
            rules => self.reached() as f64 * 100.0 / rules as f64,
        }
    }

    /// The rules that no test reached.
    pub fn unreached(&self) -> Vec<UnreachedRule> {
        let unreached = self.counted().filter(|(.., reached)| !reached);
        let unreached = unreached.map(|(file, rule, _)| UnreachedRule {
            file: file.to_owned(),
            rule: rule_name(rule),
            limit: limit_text(rule),
        });
        unreached.collect()
    }
}

// === impl RuleFiles ===

impl RuleFiles {
    fn all(&self) -> &[Rule] {
        self.rules.loaded.rules.rules()
    }
}

/// Which rule this is of those of a file of limits: they count as one.
fn form(rule: &Rule) -> usize {
    rule.lines.as_ref().map_or(0, |lines| lines.form)
}

fn limit_text(rule: &Rule) -> String {
    if let Some(lines) = &rule.lines {
        return format!("by value, from {}", lines.table.source());
    }
    match &rule.allowance {
        Allowance::Unlimited => "unlimited".to_owned(),
        Allowance::Limited { limit, algorithm } => LimitFigures::of(limit, *algorithm).text,
    }
}
