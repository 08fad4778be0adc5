//! One entry of an overlay: what it matches, and what it sets.
//!
//! A pattern is compared with the text that the rules write, not with what a request sends: `*`
//! stands for any text, a `*` of the rules included.

use std::fmt::Display;
use std::sync::Arc;

use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::grammar_overlay;
use crate::file::loader::Loader;
use crate::yaml::{Content, Node};
use tollgate_limiter::{
    AlgorithmOption, Candidate, Level, OnStoreFailure, OverLimitResponse, ReserveRule, Rule, Values,
};

/// The fields that change how a limit counts.
pub(super) const LIMIT_FIELDS: [&str; 6] = [
    "requests_per_unit",
    "algorithm",
    "burst",
    "segments",
    "count_refused",
    "charged",
];

/// The fields that belong to a limit and do not change how it counts.
const RULE_FIELDS: [&str; 5] = ["over_limit", "shadow_mode", "name", "candidate", "reserve"];

/// The fields that belong to a domain.
const DOMAIN_FIELDS: [&str; 2] = ["all_or_nothing", "on_store_failure"];

/// One entry.
pub(super) struct Entry<'n> {
    pub(super) fields: Fields<'n>,
    /// Its index in the file.
    pub(super) index: usize,
    domain: &'n str,
    /// None for every limit of the domain.
    path: Option<Vec<LevelPattern<'n>>>,
    pub(super) may_raise: bool,
    pub(super) over_limit: Option<Arc<OverLimitResponse>>,
    pub(super) shadow_mode: Option<bool>,
    pub(super) name: Option<&'n str>,
    pub(super) candidate: Option<Box<Candidate>>,
    pub(super) reserve: Option<Box<ReserveRule>>,
    pub(super) all_or_nothing: Option<bool>,
    pub(super) on_store_failure: Option<OnStoreFailure>,
    /// It has no error.
    pub(super) is_valid: bool,
    pub(super) found: Found,
}

/// What of the rules an entry matches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Found {
    Nothing,
    /// Only limits that earlier entries take.
    Hidden,
    /// Something that it applies to.
    Match,
}

/// One level of a path.
struct LevelPattern<'n> {
    key: &'n str,
    value: Option<&'n str>,
}

// === impl Entry ===

impl Entry<'_> {
    /// The place of what it sets, or of the entry.
    pub(super) fn span_of(&self, field: &str) -> Span {
        self.fields.span_of(field)
    }

    /// Whether it sets one of these.
    fn sets(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.fields.given(name).is_some())
    }

    /// Whether it changes how a limit counts.
    pub(super) fn changes_the_limit(&self) -> bool {
        self.sets(&LIMIT_FIELDS)
    }

    /// Whether it is about limits. One that sets only fields of a domain is not.
    pub(super) fn is_about_limits(&self) -> bool {
        let sets_limits = self.sets(&LIMIT_FIELDS) || self.sets(&RULE_FIELDS);
        sets_limits || self.path.is_some() || !self.sets(&DOMAIN_FIELDS)
    }

    /// Whether it sets a field of a domain.
    pub(super) fn is_about_domains(&self) -> bool {
        self.sets(&DOMAIN_FIELDS)
    }

    pub(super) fn matches_domain(&self, domain: &str) -> bool {
        matches(self.domain, domain)
    }

    /// Whether it matches a limit by its domain and its levels.
    pub(super) fn matches(&self, rule: &Rule) -> bool {
        self.is_about_limits()
            && self.matches_domain(&rule.domain)
            && self.path.as_ref().is_none_or(|path| {
                let mut levels = path.iter().zip(&rule.path);
                path.len() == rule.path.len() && levels.all(|(one, level)| one.matches(level))
            })
    }
}

impl LevelPattern<'_> {
    fn matches(&self, level: &Level) -> bool {
        let Some(value) = self.value else {
            return matches(self.key, &level.key);
        };
        matches(self.key, &level.key)
            && match &*level.values {
                Values::Any => matches(value, ""),
                Values::Text(text) | Values::Regex(text) => matches(value, text),
                Values::List(items) => all(value, items),
                Values::Prefixes(items) => all(value, items),
            }
    }
}

/// Whether a pattern matches every item of a list.
fn all(pattern: &str, items: &[impl Display]) -> bool {
    let mut items = items.iter();
    items.all(|item| matches(pattern, &item.to_string()))
}

/// Whether a pattern matches a whole text. Each `*` stands for any text, also for none.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(begin) else {
        return false;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        match text.split_once(part) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    text.ends_with(end)
}

fn is_list(node: &Node) -> bool {
    matches!(node.content, Content::Sequence(_))
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads one entry. Values are checked here, so that an entry that matches nothing is correct
    /// too.
    pub(super) fn entry<'n>(
        &mut self,
        node: &'n Node,
        path: &FieldPath<'_>,
        index: usize,
    ) -> Option<Entry<'n>> {
        let before = self.error_count();
        let fields = self.fields(node, path, &grammar_overlay::ENTRY)?;
        let domain = self.text(&fields, path, "domain");
        if domain.is_empty() && !fields.is_misspelt("domain") {
            let help = "add `domain: NAME`; `\"*\"` matches every domain";
            let span = fields.span_of("domain");
            self.error(
                Code::MissingKey,
                span,
                path,
                "an entry without domain",
                help,
            );
        }
        let levels = self.levels(&fields, path);
        self.check_limit_fields(&fields, path);
        let given = |name| fields.given(name).is_some();
        let name = given("name").then(|| self.text(&fields, path, "name"));
        self.check_length(name.unwrap_or_default(), fields.span_of("name"), path);
        let entry = Entry {
            index,
            domain,
            path: levels,
            may_raise: self.boolean(&fields, path, "may_raise"),
            over_limit: self.over_limit(&fields, path),
            shadow_mode: given("shadow_mode").then(|| self.boolean(&fields, path, "shadow_mode")),
            name,
            candidate: self.candidate(&fields, path),
            reserve: self.reserve(&fields, path, None).map(Box::new),
            all_or_nothing: given("all_or_nothing")
                .then(|| self.boolean(&fields, path, "all_or_nothing")),
            on_store_failure: self.store_failure(&fields, path),
            is_valid: self.error_count() == before,
            found: Found::Nothing,
            fields,
        };
        Some(entry)
    }

    /// Reads the path of an entry.
    fn levels<'n>(
        &mut self,
        fields: &Fields<'n>,
        path: &FieldPath<'_>,
    ) -> Option<Vec<LevelPattern<'n>>> {
        fields.given("path")?;
        for name in DOMAIN_FIELDS {
            if fields.given(name).is_some() {
                let message = format!("{name} belongs to a domain, and `path` selects limits");
                let error =
                    Diagnostic::error(Code::ConflictingKeys, fields.key_span(name), message);
                let error = error.related(fields.key_span("path"), "`path` is set here");
                self.report(path, error.help("set it in an entry without `path`"));
            }
        }
        let items = self.items(fields, path, "path", "- key: NAME");
        if items.is_empty() && fields.given("path").is_some_and(is_list) {
            let help = "list the levels, or remove `path` to match every limit of the domain";
            let span = fields.span_of("path");
            self.error(Code::MissingKey, span, path, "path has no level", help);
        }
        let mut levels = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let path = path.item("path", position);
            let Some(level) = self.fields(item, &path, &grammar_overlay::LEVEL) else {
                continue;
            };
            let key = self.text(&level, &path, "key");
            if key.is_empty() && !level.is_misspelt("key") {
                let help = "add `key: NAME`, the key as the rules write it";
                let span = level.span_of("key");
                self.error(Code::MissingKey, span, &path, "a level without key", help);
            }
            let value = level.given("value").is_some();
            let value = value.then(|| self.text(&level, &path, "value"));
            levels.push(LevelPattern { key, value });
        }
        Some(levels)
    }

    fn store_failure(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<OnStoreFailure> {
        let name = self.text(fields, path, "on_store_failure");
        let answer = OnStoreFailure::from_name(name);
        if answer.is_none() && !name.is_empty() {
            let names = OnStoreFailure::ALL.map(OnStoreFailure::name);
            self.unknown_word(fields, path, "on_store_failure", (name, &names));
        }
        answer
    }

    /// Checks the values that depend on no rule.
    fn check_limit_fields(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) {
        self.integer(fields, path, "requests_per_unit");
        self.integer(fields, path, "burst");
        self.segments(fields, path);
        self.count_refused(fields, path);
        self.charged(fields, path);
        if fields.given("algorithm").is_none() {
            return;
        }
        let algorithm = self.algorithm(fields, path);
        let has_slots =
            algorithm.is_some_and(|(one, _)| one.options().contains(&AlgorithmOption::Slots));
        if has_slots {
            let message = "an overlay cannot make a limit of requests in flight";
            let span = fields.span_of("algorithm");
            let help = "use another algorithm; requests in flight need a rule of their own";
            self.error(Code::ConflictingKeys, span, path, message, help);
        }
    }
}
