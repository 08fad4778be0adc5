//! The entries of an overlay applied to loaded rules.
//!
//! The first entry that matches a limit applies, and no other. So one place says what a limit
//! becomes, and an entry that sets nothing keeps later entries from its limits.

use std::collections::HashMap;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::agreement;
use crate::file::loader::Loader;
use crate::file::overlay::entry::{Entry, Found};
use crate::file::overlay::limit::overlaid;
use crate::file::overlay::raise::{
    COUNT_REFUSED_HELP, RAISE_HELP, Raise, ReplacedNames, raise_of_count_refused, raises_of_domain,
    raises_of_rule,
};
use crate::file::rate_limit::{same_bucket, share_bucket};
use crate::file::{Code, Diagnostic, FieldPlace, Reader};
use tollgate_limiter::{Allowance, Rule, RuleSet};

/// A rule that an entry has changed.
type Changed<'e, 'n> = (&'e Entry<'n>, Rule);

/// Applies the entries, and reports what does not fit, what lets more pass and what matches
/// nothing. With errors the rules are not to be used.
pub(in crate::file) fn apply(loader: &mut Loader<'_>, entries: &[Entry<'_>]) {
    let Loader {
        reader,
        rules,
        origins,
        ..
    } = loader;
    apply_to_domains(reader, entries, rules);
    let replaced = replaced_names(rules);
    let mut changed = Vec::new();
    for rule in rules.rules() {
        // A file of limits says what its lines are; an overlay changes the rule of the others.
        if rule.allowance == Allowance::Unlimited || rule.lines.is_some() {
            continue;
        }
        let Some(entry) = first_match(entries, rule) else {
            continue;
        };
        origins.set_entry(rule.index, entry.fields.span.at.line);
        if entry.is_valid
            && let Some(after) = apply_to_rule(reader, entry, rule, &replaced)
            && after != *rule
        {
            changed.push((entry, after));
        }
    }
    for (entry, rule) in &changed {
        rules.replace_rule(rule.index, rule.clone());
        take_id_off_the_path(reader, rules, entry, rule);
    }
    check_descriptors(reader, rules, &changed);
    check_budgets(reader, rules, &changed);
    warn_without_match(reader, entries);
}

fn apply_to_domains(reader: &mut Reader<'_>, entries: &[Entry<'_>], rules: &mut RuleSet) {
    for domain in rules.domains() {
        let name = domain.as_bytes();
        let (mut all_or_nothing, mut on_store_failure) = (None, None);
        let matching =
            |entry: &&Entry<'_>| entry.is_about_domains() && entry.matches_domain(&domain);
        for entry in entries.iter().filter(matching) {
            entry.found.set(Found::Match);
            if !entry.is_valid {
                continue;
            }
            let (whole, answer) = (rules.all_or_nothing(name), rules.on_store_failure(name));
            let raises = raises_of_domain(entry, whole, answer);
            report_raises(reader, entry, raises, RAISE_HELP, &domain);
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
fn first_match<'e, 'n>(entries: &'e [Entry<'n>], rule: &Rule) -> Option<&'e Entry<'n>> {
    let mut first = None;
    for entry in entries {
        if first.is_some() && entry.found.get() != Found::Nothing || !entry.matches(rule) {
            continue;
        }
        entry.found.set(match first {
            None => Found::Match,
            Some(_) => Found::Hidden,
        });
        first = first.or(Some(entry));
    }
    first
}

/// Checks what the limits of one descriptor must not have in common.
fn check_descriptors(reader: &mut Reader<'_>, rules: &RuleSet, changed: &[Changed<'_, '_>]) {
    for (entry, rule) in changed {
        let others = rules.rules().iter().filter(|other| {
            let levels = rule.path.last().zip(other.path.last());
            other.index != rule.index
                && other.lines.is_none()
                && levels.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        });
        for other in others {
            check_beside(reader, entry, rule, other);
        }
        if rule.replaces.contains(&rule.name) {
            let message = "the limit replaces limits of this name, itself included";
            let at = entry.fields.at("name");
            let error = Diagnostic::error(Code::InvalidReplaces, at, message);
            report_about(reader, entry, rule, error.help("use another name"));
        }
    }
}

/// Moves a limit up whose last level is the id of its reservations. Makers of rules such as Envoy
/// Gateway write a level for every entry, and the id is no part of a bucket.
fn take_id_off_the_path(
    reader: &mut Reader<'_>,
    rules: &mut RuleSet,
    entry: &Entry<'_>,
    rule: &Rule,
) {
    let last = rule.path.last().map(|level| &level.key);
    if rule.reserve.is_none() || last != rule.holder_key.as_ref() || rules.move_up(rule.index) {
        return;
    }
    let message =
        "the level of the id must have one limit and no value, below a level without a limit";
    let error = Diagnostic::error(Code::ConflictingKeys, entry.fields.at("reserve"), message);
    let error = error.help("set `key` to the key of an entry that the rules have no level for");
    report_about(reader, entry, rule, error);
}

/// Checks that limits of one budget still agree.
fn check_budgets(reader: &mut Reader<'_>, rules: &RuleSet, changed: &[Changed<'_, '_>]) {
    let entry_of: HashMap<usize, &Entry<'_>> = changed
        .iter()
        .map(|(entry, rule)| (rule.index, *entry))
        .collect();
    let mut first_of = HashMap::new();
    for rule in rules.rules() {
        let Some(shared) = agreement::shared(rule) else {
            continue;
        };
        let first: &Rule = first_of.entry(shared).or_insert(rule);
        let Some(what) = agreement::difference(first, rule) else {
            continue;
        };
        let mut changed = [rule, first].into_iter();
        let blamed = changed.find_map(|rule| Some((*entry_of.get(&rule.index)?, rule)));
        if let Some((entry, rule)) = blamed {
            let message = format!("the other limits of its budget have another {what}");
            let error = Diagnostic::error(Code::ConflictingKeys, entry.fields.span, message);
            let error = error.help("let the entry match all limits of the budget, or none");
            report_about(reader, entry, rule, error);
        }
    }
}

fn warn_without_match(reader: &mut Reader<'_>, entries: &[Entry<'_>]) {
    for entry in entries.iter().filter(|one| one.is_valid) {
        let (message, help) = match entry.found.get() {
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
        let at = entry.fields.at("domain");
        reader.report(Diagnostic::warning(Code::UnmatchedEntry, at, message).help(help));
    }
}

/// The rule with what the entry sets; none, and a report, when that is not possible.
fn apply_to_rule(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    rule: &Rule,
    replaced: &ReplacedNames,
) -> Option<Rule> {
    let name = rule.full_name();
    let overlaid = about(reader, entry, &name, |reader| overlaid(reader, entry, rule))?;
    let raises = raises_of_rule(entry, rule, &overlaid, replaced);
    report_raises(reader, entry, raises, RAISE_HELP, &name);
    let weaker = raise_of_count_refused(entry, rule, &overlaid);
    report_raises(reader, entry, weaker, COUNT_REFUSED_HELP, &name);
    Some(overlaid)
}

/// Reports what lets more pass without permission.
fn report_raises(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    raises: impl IntoIterator<Item = Raise>,
    help: &str,
    name: &str,
) {
    if entry.may_raise {
        return;
    }
    for (field, message) in raises {
        let error = Diagnostic::error(Code::RaisedLimit, entry.fields.at(field), message);
        let error = error.label("lets more pass than the rules").help(help);
        about(reader, entry, name, |reader| reader.report(error));
    }
}

/// Reports two limits of one descriptor that cannot be beside one another.
fn check_beside(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &Rule, other: &Rule) {
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
    let error = Diagnostic::error(Code::Duplicate, entry.fields.at(field), message);
    let help = "exclude the descriptor by an entry that sets nothing, before this one";
    report_about(reader, entry, rule, error.help(help));
}

fn report_about(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &Rule, error: Diagnostic) {
    about(reader, entry, &rule.full_name(), |reader| {
        reader.report(error);
    });
}

/// Runs `report`, and makes what it reports about the entry and the rule of this name. An error
/// without a place gets the entry's. A warning without a place is removed, and so is what was
/// reported before.
fn about<T>(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    name: &str,
    report: impl FnOnce(&mut Reader<'_>) -> T,
) -> T {
    let marked = (reader.report.errors.len(), reader.report.warnings.len());
    let result = report(reader);
    let FieldPlace { span, path } = entry.fields.path.at(entry.fields.span);
    let path = format!("{path}, applied to {}", excerpt(name));
    let all = &mut reader.report;
    keep_new(&mut all.errors, marked.0, |error| {
        if error.span.at.line == 0 {
            error.span = span;
        }
        error.related.retain(|related| related.span.at.line > 0);
        path.clone_into(&mut error.path);
        true
    });
    keep_new(&mut all.warnings, marked.1, |warning| {
        path.clone_into(&mut warning.path);
        warning.span.at.line > 0
    });
    result
}

/// Completes the diagnostics after the first `known`, and removes those that are not kept or repeat
/// another.
fn keep_new(
    all: &mut Vec<Diagnostic>,
    known: usize,
    mut complete: impl FnMut(&mut Diagnostic) -> bool,
) {
    for mut one in all.split_off(known.min(all.len())) {
        let is_kept = complete(&mut one);
        let is_same = |other: &Diagnostic| {
            (other.found.file, other.code, other.span, &other.message)
                == (one.found.file, one.code, one.span, &one.message)
        };
        if is_kept && !all.iter().any(is_same) {
            all.push(one);
        }
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
