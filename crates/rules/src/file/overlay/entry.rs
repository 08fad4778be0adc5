//! One entry of an overlay: what it matches, and what it sets.
//!
//! A pattern is compared with the text that the rules write, not with what a request sends: `*`
//! stands for any text, a `*` of the rules included.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;

use crate::file::document::on_store_failure;
use crate::file::grammar_overlay;
use crate::file::rate_limit::{
    algorithm, candidate, charged, count_refused, limit_from_request, notify, reserve, segments,
};
use crate::file::response::over_limit;
use crate::file::{Code, Diagnostic, Fields, Item, Reader};
use crate::yaml::Content;
use tollgate_limiter::{
    AlgorithmOption, Candidate, Level, LimitFromRequest, NotifyShares, OnUndecided,
    OverLimitResponse, ReserveRule, Rule, Values,
};

/// The fields that change how a limit counts.
const LIMIT_FIELDS: [&str; 6] = [
    "requests_per_unit",
    "algorithm",
    "burst",
    "segments",
    "count_refused",
    "charged",
];

/// The fields that belong to a limit and do not change how it counts.
const RULE_FIELDS: [&str; 8] = [
    "over_limit",
    "limit_from_request",
    "shadow_mode",
    "name",
    "candidate",
    "reserve",
    "lease",
    "notify",
];

/// The fields that belong to a domain.
const DOMAIN_FIELDS: [&str; 2] = ["all_or_nothing", "on_store_failure"];

/// One entry.
pub(in crate::file) struct Entry<'n> {
    pub(super) fields: Fields<'n>,
    domain: &'n str,
    /// None for every limit of the domain.
    path: Option<Vec<LevelPattern<'n>>>,
    pub(super) may_raise: bool,
    pub(super) over_limit: Option<Arc<OverLimitResponse>>,
    pub(super) limit_from_request: Option<LimitFromRequest>,
    pub(super) shadow_mode: Option<bool>,
    pub(super) name: Option<&'n str>,
    pub(super) candidate: Option<Box<Candidate>>,
    pub(super) reserve: Option<Box<ReserveRule>>,
    pub(super) leases: Option<bool>,
    pub(super) notify: Option<Box<NotifyShares>>,
    pub(super) all_or_nothing: Option<bool>,
    pub(super) on_store_failure: Option<OnUndecided>,
    /// It has no error.
    pub(super) is_valid: bool,
    pub(super) found: Cell<Found>,
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
    /// Whether it changes how a limit counts.
    pub(super) fn changes_the_limit(&self) -> bool {
        self.fields.has_any(&LIMIT_FIELDS)
    }

    /// Whether it is about limits. One that sets only fields of a domain is not.
    fn is_about_limits(&self) -> bool {
        let sets_limits = self.changes_the_limit() || self.fields.has_any(&RULE_FIELDS);
        sets_limits || self.path.is_some() || !self.is_about_domains()
    }

    /// Whether it sets a field of a domain.
    pub(super) fn is_about_domains(&self) -> bool {
        self.fields.has_any(&DOMAIN_FIELDS)
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

/// Reads one entry. Values are checked here, so that an entry that matches nothing is correct too.
pub(super) fn entry<'n>(reader: &mut Reader<'_>, item: Item<'n>) -> Option<Entry<'n>> {
    let before = reader.error_count();
    let fields = reader.fields(item.node, item.path, &grammar_overlay::ENTRY)?;
    let domain = reader.text(&fields, "domain");
    if domain.is_empty() && !fields.is_misspelt("domain") {
        let help = "add `domain: NAME`; `\"*\"` matches every domain";
        let message = "an entry without domain";
        reader.error(Code::MissingKey, fields.at("domain"), message, help);
    }
    let path = levels(reader, &fields);
    check_limit_fields(reader, &fields);
    let name = fields.has("name").then(|| reader.text(&fields, "name"));
    reader.check_length(name.unwrap_or_default(), fields.at("name"));
    Some(Entry {
        domain,
        path,
        may_raise: reader.boolean(&fields, "may_raise"),
        over_limit: over_limit(reader, &fields),
        limit_from_request: limit_from_request(reader, &fields),
        shadow_mode: reader.optional_boolean(&fields, "shadow_mode"),
        name,
        candidate: candidate(reader, &fields),
        reserve: reserve(reader, &fields, None).map(Box::new),
        notify: notify(reader, &fields),
        leases: reader.optional_boolean(&fields, "lease"),
        all_or_nothing: reader.optional_boolean(&fields, "all_or_nothing"),
        on_store_failure: on_store_failure(reader, &fields),
        is_valid: reader.error_count() == before,
        found: Cell::new(Found::Nothing),
        fields,
    })
}

/// Reads the path of an entry.
fn levels<'n>(reader: &mut Reader<'_>, fields: &Fields<'n>) -> Option<Vec<LevelPattern<'n>>> {
    let path = fields.given("path")?;
    for name in DOMAIN_FIELDS {
        if fields.has(name) {
            let message = format!("{name} belongs to a domain, and `path` selects limits");
            let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key(name), message);
            let error = error.related(fields.key_span("path"), "`path` is set here");
            reader.report(error.help("set it in an entry without `path`"));
        }
    }
    let items = reader.items(fields, "path", "- key: NAME");
    if items.is_empty() && matches!(path.content, Content::Sequence(_)) {
        let help = "list the levels, or remove `path` to match every limit of the domain";
        let at = fields.at("path");
        let message = "path has no level";
        reader.error(Code::MissingKey, at, message, help);
    }
    let mut levels = Vec::with_capacity(items.len());
    for item in items {
        let Some(level) = reader.fields(item.node, item.path, &grammar_overlay::LEVEL) else {
            continue;
        };
        let key = reader.text(&level, "key");
        if key.is_empty() && !level.is_misspelt("key") {
            let help = "add `key: NAME`, the key as the rules write it";
            let at = level.at("key");
            let message = "a level without key";
            reader.error(Code::MissingKey, at, message, help);
        }
        let value = level.has("value").then(|| reader.text(&level, "value"));
        levels.push(LevelPattern { key, value });
    }
    Some(levels)
}

/// Checks the values that depend on no rule.
fn check_limit_fields(reader: &mut Reader<'_>, fields: &Fields<'_>) {
    reader.large_integer(fields, "requests_per_unit");
    reader.large_integer(fields, "burst");
    segments(reader, fields);
    count_refused(reader, fields);
    charged(reader, fields);
    if !fields.has("algorithm") {
        return;
    }
    let algorithm = algorithm(reader, fields);
    if algorithm.is_some_and(|(one, _)| one.facts().options.contains(&AlgorithmOption::Slots)) {
        let message = "an overlay cannot make a limit of requests in flight";
        let help = "use another algorithm; requests in flight need a rule of their own";
        reader.error(Code::ConflictingKeys, fields.at("algorithm"), message, help);
    }
}
