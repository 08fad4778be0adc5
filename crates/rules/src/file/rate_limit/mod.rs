//! The fields `rate_limit` and `rate_limits`: how many, in how long, counted how, and which rules a
//! limit replaces.
//!
//! This file reads what all limits have; `algorithm` chooses how one is counted, `window` and
//! `concurrency` read the rest of that, and `reserve` how requests pay.
//!
//! What it deliberately does not do: know the position in the tree (`descriptor`).

mod algorithm;
mod concurrency;
mod reserve;
mod window;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::grammar_limit;
use crate::file::loader::Loader;
use crate::yaml::{Content, Node};
use tollgate_limiter::{AlgorithmOption, Allowance, Candidate, Limit, Rule, Unit};

pub(super) use self::reserve::algorithms_that_reserve;

/// How many limits one descriptor may have.
const LIMITS_MAX: usize = 16;

// === impl Loader ===

impl Loader<'_> {
    /// The rules of a descriptor's `rate_limit` or `rate_limits`, made from `rule`. Empty when
    /// there are none, or when one is invalid.
    pub(crate) fn rate_limits(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        rule: &Rule,
    ) -> Vec<Rule> {
        let example = "rate_limits: [{unit: second, requests_per_unit: 10}, …]";
        let items = self.items(fields, path, "rate_limits", example);
        if let Some(one) = fields.given("rate_limit") {
            if fields.given("rate_limits").is_some() {
                let message = "'rate_limit' and 'rate_limits' on one descriptor";
                let span = fields.key_span("rate_limits");
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let first = fields.key_span("rate_limit");
                let error = error.related(first, "`rate_limit` is set here");
                self.report(path, error.help("put all limits into `rate_limits`"));
            }
            if matches!(one.content, Content::Sequence(_)) {
                let error =
                    Diagnostic::error(Code::WrongType, one.span, "cannot read a list as a mapping");
                let error = error.label("found a list");
                let help = "rename `rate_limit` to `rate_limits`, which holds several limits";
                let error = error.help(help);
                let key = fields.key_span("rate_limit");
                self.type_error(&path.field("rate_limit"), error.edit(key, "rate_limits"));
                return Vec::new();
            }
            let rule = self.rate_limit(one, &path.field("rate_limit"), rule.clone());
            return rule.into_iter().map(|(rule, _)| rule).collect();
        }
        if items.len() > LIMITS_MAX {
            let message = format!("more than {LIMITS_MAX} limits on one descriptor");
            let span = fields.key_span("rate_limits");
            self.error(Code::TooLarge, span, path, message, "use fewer limits");
            return Vec::new();
        }
        let mut rules: Vec<Rule> = Vec::with_capacity(items.len());
        // For each rule its position in the list, and the positions of the names that it replaces.
        let mut places = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let path = path.item("rate_limits", position);
            let Some((rule, replaces_at)) = self.rate_limit(item, &path, rule.clone()) else {
                continue;
            };
            if rule.allowance == Allowance::Unlimited && items.len() > 1 {
                let message = "an unlimited limit beside other limits";
                let help = "remove it, or the other limits";
                self.error(Code::ConflictingKeys, item.span, &path, message, help);
            }
            if let Some(index) = rules.iter().position(|other| same_bucket(other, &rule)) {
                let (message, help) = shared_bucket_words(&rule);
                let error = Diagnostic::error(Code::Duplicate, item.span, message);
                let place: Option<&(usize, Vec<Span>)> = places.get(index);
                let first = place.and_then(|(position, _)| items.get(*position));
                let error = match first {
                    Some(first) => error.related(first.span, "first defined here"),
                    None => error,
                };
                self.report(&path, error.help(help));
            }
            let keys = rules.iter().filter_map(holder_key);
            self.one_holder_key(holder_key(&rule), keys, (item.span, &path));
            self.candidate_beside(&rules, &rule, (item, &path));
            rules.push(rule);
            places.push((position, replaces_at));
        }
        // The limits of one descriptor always match together: a limit that one of them replaces
        // would never be counted.
        for (rule, (position, replaces_at)) in rules.iter().zip(places) {
            let path = path.item("rate_limits", position);
            for (entry, (name, at)) in rule.replaces.iter().zip(replaces_at).enumerate() {
                if rules.iter().any(|other| other.name == *name) {
                    self.replaces_itself(at, &path.item("replaces", entry));
                }
            }
        }
        rules
    }

    /// Reports a key of a last entry that differs from those of the limits before it.
    fn one_holder_key<'k>(
        &mut self,
        key: Option<HolderKey<'_>>,
        mut others: impl Iterator<Item = HolderKey<'k>>,
        (span, path): (Span, &FieldPath<'_>),
    ) {
        let Some((field, key)) = key else {
            return;
        };
        if let Some((other_field, other)) = others.find(|(_, other)| *other != key) {
            let message = format!(
                "{field} '{}' beside {other_field} '{}' on one descriptor",
                excerpt(key),
                excerpt(other)
            );
            let help = format!("use the same {field} in all limits of a descriptor");
            self.error(Code::ConflictingKeys, span, path, message, help);
        }
    }

    /// Reports a candidate that cannot be tried beside those of the limits before it.
    fn candidate_beside(
        &mut self,
        rules: &[Rule],
        rule: &Rule,
        (item, path): (&Node, &FieldPath<'_>),
    ) {
        let Some(candidate) = &rule.candidate else {
            return;
        };
        let of = |other: &Rule| Some((other.candidate.as_deref()?.clone(), other.name.clone()));
        let others: Vec<(Candidate, String)> = rules.iter().filter_map(of).collect();
        let path = path.field("candidate");
        if others.iter().any(|(other, name)| {
            share_bucket(&other.allowance, &candidate.allowance) && *name == rule.name
        }) {
            let message =
                "two candidates with the same algorithm, window and name would share one bucket";
            let help = "remove one of them, or give one another window or its limit a `name`";
            self.error(Code::Duplicate, item.span, &path, message, help);
        }
        let key = |candidate: &Candidate| candidate.holder_key.clone();
        let others: Vec<String> = others.iter().filter_map(|(other, _)| key(other)).collect();
        let own = key(candidate);
        let own = own.as_deref().map(|own| ("holder_key", own));
        let others = others.iter().map(|other| ("holder_key", other.as_str()));
        self.one_holder_key(own, others, (item.span, &path));
    }

    /// Reads one limit: the rule, and the positions of the names that it replaces.
    fn rate_limit(
        &mut self,
        node: &Node,
        path: &FieldPath<'_>,
        mut rule: Rule,
    ) -> Option<(Rule, Vec<Span>)> {
        let fields = self.fields(node, path, &grammar_limit::LIMIT)?;
        let errors_before = self.error_count();
        let allowance = self.allowance(&fields, path, &mut rule.holder_key);
        let name = self.text(&fields, path, "name");
        self.check_length(name, fields.span_of("name"), path);
        name.clone_into(&mut rule.name);
        let replaces = self.replaces(&fields, path, name);
        let (replaces, replaces_at) = replaces.into_iter().unzip();
        rule.replaces = replaces;
        rule.candidate = self.candidate(&fields, path);
        self.payment(&fields, path, (allowance.as_ref(), &mut rule));
        if rule.budget.is_some() {
            self.budgets
                .push(self.limit_field(fields.span_of("budget")));
        }
        rule.rlqs = self.rlqs(&fields, path, allowance.as_ref());
        rule.allowance = allowance?;
        (self.error_count() == errors_before).then_some((rule, replaces_at))
    }

    /// The limit that is tried beside this one.
    pub(super) fn candidate(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<Box<Candidate>> {
        let node = fields.given("candidate")?;
        let path = path.field("candidate");
        let fields = self.fields(node, &path, &grammar_limit::CANDIDATE)?;
        let mut holder_key = None;
        let allowance = self.allowance(&fields, &path, &mut holder_key)?;
        Some(Box::new(Candidate {
            allowance,
            holder_key,
        }))
    }

    /// What a limit allows, and the key of its holders.
    pub(super) fn allowance(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        holder_key: &mut Option<String>,
    ) -> Option<Allowance> {
        let unlimited = self.boolean(fields, path, "unlimited");
        let unit_text = self.text(fields, path, "unit");
        if unlimited {
            return self.unlimited(fields, path, unit_text);
        }
        match self.algorithm(fields, path) {
            Some((algorithm, _)) if algorithm.options().contains(&AlgorithmOption::Slots) => {
                self.concurrency_limit(fields, path, algorithm, holder_key)
            }
            // It may be a misspelt algorithm without units.
            None if unit_text.is_empty() => self.window_limit(fields, path, None, None),
            algorithm => {
                let unit = self.unit(fields, path, unit_text);
                let fitting = algorithm.filter(|(_, fits)| *fits);
                self.window_limit(fields, path, unit, fitting.map(|(algorithm, _)| algorithm))
            }
        }
    }

    /// With `unlimited` a number of requests is ignored, as by the reference, but must be one.
    /// Fields of tollgate are rejected.
    fn unlimited(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        unit: &str,
    ) -> Option<Allowance> {
        if Unit::from_name(unit).is_some() {
            let message = "should not specify rate limit unit when unlimited";
            let error = Diagnostic::error(Code::ConflictingKeys, fields.span_of("unit"), message);
            let error = error.related(fields.span_of("unlimited"), "unlimited");
            self.report(path, error.help("remove `unit`, or remove `unlimited`"));
            return None;
        }
        self.integer(fields, path, "requests_per_unit");
        self.warn_unused_beside_unlimited(fields, path);
        let ours = [
            "unit_multiplier",
            "algorithm",
            "reserve",
            "cost",
            "budget",
            "rlqs",
        ];
        for name in ours
            .into_iter()
            .chain(grammar_limit::choices().map(|(name, _)| name))
        {
            if fields.given(name).is_some() {
                let message = format!("'{name}' has no effect beside unlimited");
                let span = fields.key_span(name);
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let error = error.related(fields.span_of("unlimited"), "unlimited");
                self.report(path, error.help(format!("remove `{name}`, or `unlimited`")));
            }
        }
        Some(Allowance::Unlimited)
    }

    /// The names of the rules that it replaces, and their positions.
    fn replaces(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        own_name: &str,
    ) -> Vec<(String, Span)> {
        let items = self.items(fields, path, "replaces", "replaces: [{name: OTHER}]");
        let mut names = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let path = path.item("replaces", position);
            let Some(fields) = self.fields(item, &path, &grammar_limit::REPLACED) else {
                continue;
            };
            let name = self.text(&fields, &path, "name");
            if name.is_empty() {
                if fields.is_misspelt("name") {
                    continue;
                }
                let message = "should not have an empty replaces entry";
                let help = "name the rule to replace, or remove the entry";
                self.error(Code::InvalidReplaces, item.span, &path, message, help);
            } else if name == own_name {
                self.replaces_itself(item.span, &path);
            } else if self.check_length(name, item.span, &path) {
                self.replaced_names.push(self.limit_field(item.span));
                names.push((name.to_owned(), item.span));
            }
        }
        names
    }

    fn replaces_itself(&mut self, at: Span, path: &FieldPath<'_>) {
        let message = "replaces should not contain name of same descriptor";
        let help = "remove the entry: a rule cannot replace itself";
        self.error(Code::InvalidReplaces, at, path, message, help);
    }
}

/// The key of the last entry of a rule's descriptors, after the field that sets it.
type HolderKey<'r> = (&'static str, &'r str);

fn holder_key(rule: &Rule) -> Option<HolderKey<'_>> {
    let field = match &rule.reserve {
        Some(_) => "reserve.key",
        None => "holder_key",
    };
    rule.holder_key.as_deref().map(|key| (field, key))
}

/// Whether two limits of one descriptor would share a bucket.
pub(super) fn same_bucket(one: &Rule, other: &Rule) -> bool {
    match (&one.budget, &other.budget) {
        (Some(budget), Some(other)) => budget == other,
        (None, None) => share_bucket(&one.allowance, &other.allowance) && one.name == other.name,
        _ => false,
    }
}

/// What is wrong with a limit that would share a bucket on one descriptor, and what to do.
fn shared_bucket_words(rule: &Rule) -> (&'static str, &'static str) {
    if rule.budget.is_some() {
        let message = "two limits of one descriptor draw on one budget";
        (message, "remove one of them, or name another budget")
    } else {
        let message = "two limits with the same algorithm, window and name would share one bucket";
        let help = "remove one of them, or give one another window or a `name`";
        (message, help)
    }
}

/// Whether two limits would share a bucket if they had one name.
pub(super) fn share_bucket(one: &Allowance, other: &Allowance) -> bool {
    match (one, other) {
        (
            Allowance::Limited { limit, algorithm },
            Allowance::Limited {
                limit: other_limit,
                algorithm: other_algorithm,
            },
        ) => {
            let window = |limit: &Limit| (limit.unit().map(|_| limit.window()), limit.calendar());
            algorithm == other_algorithm && window(limit) == window(other_limit)
        }
        _ => false,
    }
}
