//! The entries of an overlay applied to loaded rules.
//!
//! The first entry that matches a limit applies, and no other. So one place says what a limit
//! becomes, and an entry that sets nothing keeps later entries from its limits.

use std::collections::HashMap;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::budgets;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::loader::Loader;
use crate::file::overlay::Overlay;
use crate::file::overlay::entry::{Entry, Found};
use crate::file::overlay::raise::{
    COUNT_REFUSED_HELP, RAISE_HELP, Raise, ReplacedNames, raise_of_count_refused, raises_of_domain,
    raises_of_rule,
};
use crate::file::rate_limit::{same_bucket, share_bucket};
use crate::file::rule_origin::RuleOrigins;
use tollgate_limiter::{Allowance, Rule, RuleSet};

// === impl Overlay ===

impl Overlay<'_> {
    /// Applies the entries, and reports what does not fit, what lets more pass and what matches
    /// nothing. With errors the rules are not to be used.
    pub(in crate::file) fn apply(&mut self, rules: &mut RuleSet, origins: &mut RuleOrigins) {
        self.apply_to_domains(rules);
        let replaced = replaced_names(rules);
        let mut changed = Vec::new();
        for (index, rule) in rules.rules().iter().enumerate() {
            // A file of limits says what its lines are; an overlay changes the rule of the others.
            if rule.allowance == Allowance::Unlimited || rule.lines.is_some() {
                continue;
            }
            let Some(position) = self.first_match(rule) else {
                continue;
            };
            let Some(entry) = self.entries.get(position) else {
                continue;
            };
            origins.set_entry(index, entry.fields.span.at.line);
            if entry.is_valid
                && let Some(after) = self.loader.apply(entry, rule, &replaced)
                && after != *rule
            {
                changed.push((index, position, after));
            }
        }
        for (index, position, rule) in &changed {
            rules.replace_rule(*index, rule.clone());
            self.take_id_off_the_path(rules, *position, rule);
        }
        self.check_descriptors(rules, &changed);
        self.check_budgets(rules, &changed);
        self.warn_without_match();
    }

    fn apply_to_domains(&mut self, rules: &mut RuleSet) {
        for domain in rules.domains() {
            let (mut all_or_nothing, mut on_store_failure) = (None, None);
            for entry in &mut self.entries {
                if !entry.is_about_domains() || !entry.matches_domain(&domain) {
                    continue;
                }
                entry.found = Found::Match;
                if !entry.is_valid {
                    continue;
                }
                let name = domain.as_bytes();
                let present = (rules.all_or_nothing(name), rules.on_store_failure(name));
                let raises = raises_of_domain(entry, present.0, present.1);
                self.loader
                    .report_raises(entry, (raises, RAISE_HELP), &domain);
                all_or_nothing = all_or_nothing.or(entry.all_or_nothing);
                on_store_failure = on_store_failure.or(entry.on_store_failure);
            }
            if let Some(whole) = all_or_nothing {
                rules.set_all_or_nothing(&domain, whole);
            }
            if let Some(answer) = on_store_failure {
                rules.set_on_store_failure(&domain, answer);
            }
        }
    }

    /// The first entry that matches a limit. Notes which others match it too.
    fn first_match(&mut self, rule: &Rule) -> Option<usize> {
        let mut first = None;
        for (position, entry) in self.entries.iter_mut().enumerate() {
            if first.is_some() && entry.found != Found::Nothing || !entry.matches(rule) {
                continue;
            }
            match first {
                None => {
                    first = Some(position);
                    entry.found = Found::Match;
                }
                Some(_) => entry.found = Found::Hidden,
            }
        }
        first
    }

    /// Checks what the limits of one descriptor must not have in common.
    fn check_descriptors(&mut self, rules: &RuleSet, changed: &[(usize, usize, Rule)]) {
        for (index, position, rule) in changed {
            let Some(entry) = self.entries.get(*position) else {
                continue;
            };
            let others = rules.rules().iter().filter(|other| {
                let levels = rule.path.last().zip(other.path.last());
                other.index != *index
                    && other.lines.is_none()
                    && levels.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
            });
            for other in others {
                self.loader.check_beside(entry, rule, other);
            }
            if rule.replaces.contains(&rule.name) {
                let message = "the limit replaces limits of this name, itself included";
                let error =
                    Diagnostic::error(Code::InvalidReplaces, entry.span_of("name"), message);
                let error = error.help("use another name");
                self.loader.about(entry, &rule.full_name(), |loader, path| {
                    loader.report(path, error);
                });
            }
        }
    }

    /// Moves a limit up whose last level is the id of its reservations. Makers of rules such as
    /// Envoy Gateway write a level for every entry, and the id is no part of a bucket.
    fn take_id_off_the_path(&mut self, rules: &mut RuleSet, position: usize, rule: &Rule) {
        let last = rule.path.last().map(|level| &level.key);
        if rule.reserve.is_none() || last != rule.holder_key.as_ref() || rules.move_up(rule.index) {
            return;
        }
        let Some(entry) = self.entries.get(position) else {
            return;
        };
        let message =
            "the level of the id must have one limit and no value, below a level without a limit";
        let error = Diagnostic::error(Code::ConflictingKeys, entry.span_of("reserve"), message);
        let error = error.help("set `key` to the key of an entry that the rules have no level for");
        self.loader.about(entry, &rule.full_name(), |loader, path| {
            loader.report(path, error);
        });
    }

    /// Checks that limits of one budget still agree.
    fn check_budgets(&mut self, rules: &RuleSet, changed: &[(usize, usize, Rule)]) {
        let entry_of: HashMap<usize, usize> = changed
            .iter()
            .map(|(index, position, _)| (*index, *position))
            .collect();
        let mut first_of = HashMap::new();
        for rule in rules.rules() {
            let Some(shared) = budgets::shared(rule) else {
                continue;
            };
            let first: &Rule = first_of.entry(shared).or_insert(rule);
            let Some(what) = budgets::difference(first, rule) else {
                continue;
            };
            let [first_entry, entry] = [first, rule].map(|rule| entry_of.get(&rule.index));
            let blamed = entry.map(|entry| (entry, rule));
            let blamed = blamed.or_else(|| first_entry.map(|entry| (entry, first)));
            let Some((Some(entry), rule)) =
                blamed.map(|(entry, rule)| (self.entries.get(*entry), rule))
            else {
                continue;
            };
            let message = format!("the other limits of its budget have another {what}");
            let span = entry.fields.span;
            let error = Diagnostic::error(Code::ConflictingKeys, span, message);
            let error = error.help("let the entry match all limits of the budget, or none");
            self.loader.about(entry, &rule.full_name(), |loader, path| {
                loader.report(path, error);
            });
        }
    }

    fn warn_without_match(&mut self) {
        for entry in self.entries.iter().filter(|one| one.is_valid) {
            let (message, help) = match entry.found {
                Found::Match => continue,
                Found::Hidden => (
                    "this entry never applies: earlier entries take every limit that it matches",
                    "move it before them, or remove it",
                ),
                Found::Nothing => (
                    "this entry matches no limit of the rules",
                    "compare it with the domains and keys of the rules; `tollgate explain` lists the keys of a domain",
                ),
            };
            let span = entry.span_of("domain");
            let warning = Diagnostic::warning(Code::UnmatchedEntry, span, message).help(help);
            let path = FieldPath::ROOT;
            self.loader
                .report(&path.item("overlay", entry.index), warning);
        }
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// The rule with what the entry sets; none, and a report, when that is not possible.
    fn apply(&mut self, entry: &Entry<'_>, rule: &Rule, replaced: &ReplacedNames) -> Option<Rule> {
        let name = rule.full_name();
        let overlaid = self.about(entry, &name, |loader, path| {
            loader.overlaid(entry, path, rule)
        })?;
        let raises = raises_of_rule(entry, (rule, &overlaid), replaced);
        self.report_raises(entry, (raises, RAISE_HELP), &name);
        let weaker = raise_of_count_refused(entry, (rule, &overlaid));
        self.report_raises(entry, (weaker, COUNT_REFUSED_HELP), &name);
        Some(overlaid)
    }

    /// Reports what lets more pass without permission.
    fn report_raises(
        &mut self,
        entry: &Entry<'_>,
        (raises, help): (impl IntoIterator<Item = Raise>, &'static str),
        name: &str,
    ) {
        if entry.may_raise {
            return;
        }
        for (field, message) in raises {
            let error = Diagnostic::error(Code::RaisedLimit, entry.span_of(field), message);
            let error = error.label("lets more pass than the rules").help(help);
            self.about(entry, name, |loader, path| loader.report(path, error));
        }
    }

    /// Reports two limits of one descriptor that cannot be beside one another.
    fn check_beside(&mut self, entry: &Entry<'_>, rule: &Rule, other: &Rule) {
        let candidates = rule.candidate.as_ref().zip(other.candidate.as_ref());
        let shared = candidates
            .is_some_and(|(one, other)| share_bucket(&one.allowance, &other.allowance))
            && rule.name == other.name;
        let (field, message) = if same_bucket(rule, other) {
            let message = "two limits of one descriptor with the same algorithm, window and name would share one bucket";
            ("algorithm", message)
        } else if shared {
            let message = "two candidates of one descriptor with the same algorithm, window and name would share one bucket";
            ("candidate", message)
        } else if other.replaces.contains(&rule.name) {
            let message = "another limit of the descriptor replaces limits of this name";
            ("name", message)
        } else {
            return;
        };
        let error = Diagnostic::error(Code::Duplicate, entry.span_of(field), message);
        let error =
            error.help("exclude the descriptor by an entry that sets nothing, before this one");
        self.about(entry, &rule.full_name(), |loader, path| {
            loader.report(path, error);
        });
    }

    /// Runs `report`, and makes what it reports about the entry and the rule of this name: what has
    /// no place gets the entry's, and what was reported before is left out.
    fn about<T>(
        &mut self,
        entry: &Entry<'_>,
        name: &str,
        report: impl FnOnce(&mut Self, &FieldPath<'_>) -> T,
    ) -> T {
        let path = FieldPath::ROOT;
        let path = path.item("overlay", entry.index);
        let marked = self.mark();
        let result = report(self, &path);
        let rule = format!("{path}, applied to {}", excerpt(name));
        self.place_since(marked, entry.fields.span, &rule);
        result
    }
}

/// The names that limits replace.
fn replaced_names(rules: &RuleSet) -> ReplacedNames {
    let each = rules.rules().iter().flat_map(|rule| {
        let names = rule.replaces.iter();
        names.map(|name| (Arc::clone(&rule.domain), name.clone()))
    });
    each.collect()
}
