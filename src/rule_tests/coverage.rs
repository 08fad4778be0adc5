//! The rules that tests reached: those that a request matched, counted or not.
//!
//! A rules file that several files of tests name is counted once. Rules that only a `reload` names
//! need not be reached.

use std::ops::Range;
use std::sync::Arc;

use crate::admin_api::{LimitFigures, rule_name};
use crate::rule_tests::test_file::RuleFiles;
use tollgate_limiter::{Allowance, Rule};

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
    /// Which rules count: of those of a file of limits only the first.
    counted: Vec<bool>,
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
        let all = files.rules.loaded.rules.rules();
        let form = all.get(rules.start).and_then(|rule| rule.lines.as_ref());
        let form = form.map_or(0, |lines| lines.form);
        let rules = rules.start.saturating_sub(form)..rules.end.saturating_sub(form);
        if let Some(reached) = self.set(files).reached.get_mut(rules) {
            reached.fill(true);
        }
    }

    fn set(&mut self, files: &Arc<RuleFiles>) -> &mut CoveredRules {
        let same = |set: &CoveredRules| {
            Arc::ptr_eq(&set.files, files) || set.files.sources == files.sources
        };
        let position = self.sets.iter().position(same).unwrap_or_else(|| {
            self.sets.push(CoveredRules {
                files: Arc::clone(files),
                is_required: false,
                reached: vec![false; files.rules.loaded.rules.rules().len()],
                counted: files
                    .rules
                    .loaded
                    .rules
                    .rules()
                    .iter()
                    .map(is_counted)
                    .collect(),
            });
            self.sets.len().saturating_sub(1)
        });
        #[allow(clippy::indexing_slicing)] // it was found or pushed
        &mut self.sets[position]
    }

    fn required(&self) -> impl Iterator<Item = &CoveredRules> {
        self.sets.iter().filter(|set| set.is_required)
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        let counted = |set: &CoveredRules| set.counted.iter().filter(|it| **it).count();
        self.required().map(counted).sum()
    }

    /// How many rules tests reached.
    pub fn reached(&self) -> usize {
        let each = self
            .required()
            .map(|set| set.reached.iter().filter(|it| **it).count());
        each.sum()
    }

    /// The share of the rules that tests reached, in percent; 100 where there are none.
    pub fn percent(&self) -> f64 {
        let (reached, rules) = (self.reached(), self.rules());
        if rules == 0 {
            return 100.0;
        }
        #[allow(clippy::cast_precision_loss)] // a number of rules
        let percent = reached as f64 * 100.0 / rules as f64;
        percent
    }

    /// The rules that no test reached.
    pub fn unreached(&self) -> Vec<UnreachedRule> {
        let sets = self.required().flat_map(|set| {
            let rules = set
                .files
                .rules
                .loaded
                .rules
                .rules()
                .iter()
                .zip(set.reached.iter().zip(&set.counted));
            let sources = &set.files.sources;
            let file = sources.first().map_or("", |source| &source.name);
            rules
                .filter(|(_, (reached, counted))| **counted && !**reached)
                .map(move |(rule, _)| UnreachedRule {
                    file: file.to_owned(),
                    rule: rule_name(rule),
                    limit: limit_text(rule),
                })
        });
        sets.collect()
    }
}

fn is_counted(rule: &Rule) -> bool {
    rule.lines.as_ref().is_none_or(|lines| lines.form == 0)
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
