//! The fields `rate_limit` and `rate_limits`: what all limits have, and what those of one
//! descriptor have together.
//!
//! `allowance` reads how many in how long, counted how, `reserve` how requests pay, and `penalty`
//! what becomes of callers that are refused often.
//!
//! What it deliberately does not do: know the position in the tree (`descriptor`).

mod allowance;
mod penalty;
mod reserve;

use crate::excerpt::excerpt;
use crate::file::grammar_limit;
use crate::file::loader::Loader;
use crate::file::{Code, Diagnostic, FieldPlace, Fields, Item, Reader, Span};
use crate::yaml::Content;
use tollgate_limiter::{Allowance, Candidate, Limit, LimitFromRequest, NotifyShares, Rule};

pub(super) use self::allowance::{algorithm, allowance, charged, count_refused, limited, segments};
use self::penalty::with_penalty;
use self::reserve::payment;
pub(super) use self::reserve::{algorithms_that_reserve, reserve};

/// How many limits one descriptor may have.
const LIMITS_MAX: usize = 16;

/// The only algorithm that a proxy is assigned.
const RLQS_ALGORITHM: &str = "token_bucket";

/// Fields of a limit with `rlqs` that no proxy can obey.
const WITHOUT_EFFECT_IN_RLQS: [&str; 13] = [
    "burst",
    "refill",
    "calendar",
    "count_refused",
    "charged",
    "penalty",
    "reserve",
    "lease",
    "cost",
    "budget",
    "replaces",
    "candidate",
    "notify",
];

/// The shares of `notify: true`, in percent.
const NOTIFY_DEFAULT: [u8; 3] = [50, 80, 100];

/// Where a limit was written, and the names that it replaces.
struct LimitPlaces<'n> {
    item: Item<'n>,
    replaces: Vec<Span>,
}

/// The rules of a descriptor's `rate_limit` or `rate_limits`, made from `rule`. Empty when there
/// are none, or when one is invalid.
pub(super) fn rate_limits(loader: &mut Loader<'_>, fields: &Fields<'_>, rule: &Rule) -> Vec<Rule> {
    let reader = &mut loader.reader;
    let example = "rate_limits: [{unit: second, requests_per_unit: 10}, …]";
    let mut items = reader.items(fields, "rate_limits", example);
    if let Some(node) = fields.given("rate_limit") {
        if fields.has("rate_limits") {
            let message = "'rate_limit' and 'rate_limits' on one descriptor";
            let at = fields.at_key("rate_limits");
            let error = Diagnostic::error(Code::ConflictingKeys, at, message);
            let first = fields.key_span("rate_limit");
            let error = error.related(first, "`rate_limit` is set here");
            reader.report(error.help("put all limits into `rate_limits`"));
        }
        let path = fields.path.field("rate_limit");
        if matches!(node.content, Content::Sequence(_)) {
            let message = "cannot read a list as a mapping";
            let error = Diagnostic::error(Code::WrongType, path.at(node.span), message);
            let help = "rename `rate_limit` to `rate_limits`, which holds several limits";
            let error = error.label("found a list").help(help);
            reader.type_error(error.edit(fields.key_span("rate_limit"), "rate_limits"));
            return Vec::new();
        }
        items = vec![Item { node, path }];
    }
    limits(loader, items, rule)
}

/// The rules of these limits, which apply together, made from `rule`.
pub(super) fn limits(loader: &mut Loader<'_>, items: Vec<Item<'_>>, rule: &Rule) -> Vec<Rule> {
    if let Some(beyond) = items.get(LIMITS_MAX) {
        let message = format!("more than {LIMITS_MAX} limits on one descriptor");
        let help = "use fewer limits";
        let at = beyond.at();
        loader.reader.error(Code::TooLarge, at, message, help);
        return Vec::new();
    }
    let is_one_of_several = items.len() > 1;
    let mut rules: Vec<Rule> = Vec::with_capacity(items.len());
    let mut places: Vec<LimitPlaces<'_>> = Vec::with_capacity(items.len());
    for item in items {
        let Some((rule, replaces)) = rate_limit(loader, &item, rule.clone()) else {
            continue;
        };
        let reader = &mut loader.reader;
        if rule.allowance == Allowance::Unlimited && is_one_of_several {
            let message = "an unlimited limit beside other limits";
            let help = "remove it, or the other limits";
            reader.error(Code::ConflictingKeys, item.at(), message, help);
        }
        if let Some(index) = rules.iter().position(|other| same_bucket(other, &rule)) {
            let first = places.get(index).map(|other| other.item.node.span);
            shared_bucket(reader, &rule, item.at(), first);
        }
        check_beside(reader, &rules, &rule, &item);
        rules.push(rule);
        places.push(LimitPlaces { item, replaces });
    }
    // The limits of one descriptor always match together: a limit that one of them replaces would
    // never be counted.
    for (rule, places) in rules.iter().zip(&places) {
        let replaced = rule.replaces.iter().zip(&places.replaces);
        for (entry, (name, at)) in replaced.enumerate() {
            if rules.iter().any(|other| other.name == *name) {
                let path = places.item.path.item("replaces", entry);
                replaces_itself(&mut loader.reader, path.at(*at));
            }
        }
    }
    rules
}

/// Reports a limit that would share a bucket with one before it on one descriptor.
fn shared_bucket(reader: &mut Reader<'_>, rule: &Rule, at: FieldPlace, first: Option<Span>) {
    let (message, help) = if rule.budget.is_some() {
        let message = "two limits of one descriptor draw on one budget";
        (message, "remove one of them, or name another budget")
    } else {
        (
            "two limits with the same algorithm, window and name would share one bucket",
            "remove one of them, or give one another window or a `name`",
        )
    };
    let error = Diagnostic::error(Code::Duplicate, at, message);
    let error = match first {
        Some(first) => error.related(first, "first defined here"),
        None => error,
    };
    reader.report(error.help(help));
}

/// Reports a limit whose keys or candidate cannot be beside those before it on one descriptor.
fn check_beside(reader: &mut Reader<'_>, rules: &[Rule], rule: &Rule, item: &Item<'_>) {
    let keys = rules.iter().filter_map(holder_key);
    one_holder_key(reader, holder_key(rule), keys, item.at());
    let Some(candidate) = &rule.candidate else {
        return;
    };
    let at = item.path.field("candidate").at(item.node.span);
    let others = || {
        let rules = rules.iter();
        rules.filter_map(|other| Some((other.candidate.as_deref()?, &other.name)))
    };
    if others().any(|(other, name)| {
        share_bucket(&other.allowance, &candidate.allowance) && *name == rule.name
    }) {
        let message =
            "two candidates with the same algorithm, window and name would share one bucket";
        let help = "remove one of them, or give one another window or its limit a `name`";
        reader.error(Code::Duplicate, at.clone(), message, help);
    }
    let key = |candidate: &'_ Candidate| Some(("holder_key", candidate.holder_key.clone()?));
    let keys = others().filter_map(|(other, _)| key(other));
    one_holder_key(reader, key(candidate), keys, at);
}

/// Reports a key of a last entry that differs from those of the limits before it.
fn one_holder_key<K: AsRef<str> + PartialEq>(
    reader: &mut Reader<'_>,
    key: Option<(&str, K)>,
    mut others: impl Iterator<Item = (&'static str, K)>,
    at: FieldPlace,
) {
    let Some((field, key)) = key else {
        return;
    };
    if let Some((other_field, other)) = others.find(|(_, other)| *other != key) {
        let message = format!(
            "{field} '{}' beside {other_field} '{}' on one descriptor",
            excerpt(key.as_ref()),
            excerpt(other.as_ref())
        );
        let help = format!("use the same {field} in all limits of a descriptor");
        reader.error(Code::ConflictingKeys, at, message, help);
    }
}

/// Reads one limit: the rule, and the places of the names that it replaces.
fn rate_limit(
    loader: &mut Loader<'_>,
    item: &Item<'_>,
    mut rule: Rule,
) -> Option<(Rule, Vec<Span>)> {
    let reader = &mut loader.reader;
    let path = item.path.clone();
    let fields = &reader.fields(item.node, path, &grammar_limit::LIMIT)?;
    let errors_before = reader.error_count();
    let allowance = allowance(reader, fields, &mut rule.holder_key);
    let name = reader.text(fields, "name");
    reader.check_length(name, fields.at("name"));
    name.clone_into(&mut rule.name);
    let replaces_at = replaces(loader, fields, &mut rule);
    let reader = &mut loader.reader;
    rule.candidate = candidate(reader, fields);
    payment(reader, fields, allowance.as_ref(), &mut rule);
    rule.leases = reader.optional_boolean(fields, "lease").unwrap_or(true);
    rule.notify = notify(reader, fields);
    rule.rlqs = rlqs(reader, fields, allowance.as_ref());
    if rule.budget.is_some() {
        let at = loader.limit_field(fields.span_of("budget"));
        loader.budgets.push(at);
    }
    if rule.rlqs {
        let at = loader.limit_field(fields.span_of("rlqs"));
        loader.quotas.push(at);
    }
    let allowance = allowance?;
    rule.allowance = with_penalty(&mut loader.reader, fields, allowance)?;
    (loader.reader.error_count() == errors_before).then_some((rule, replaces_at))
}

/// The limit that is tried beside this one.
pub(super) fn candidate(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Box<Candidate>> {
    let fields = reader.inner(fields, "candidate", &grammar_limit::CANDIDATE)?;
    let mut holder_key = None;
    let allowance = allowance(reader, &fields, &mut holder_key)?;
    Some(Box::new(Candidate {
        allowance,
        holder_key,
    }))
}

/// Whether a limit is apportioned over proxies.
fn rlqs(reader: &mut Reader<'_>, fields: &Fields<'_>, allowance: Option<&Allowance>) -> bool {
    if !reader.boolean(fields, "rlqs") {
        return false;
    }
    for name in WITHOUT_EFFECT_IN_RLQS {
        if fields.has(name) {
            let message = format!("'{name}' beside rlqs, which no proxy can obey");
            let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key(name), message);
            let span = fields.span_of("rlqs");
            let error = error.related(span, "the limit is apportioned over proxies");
            reader.report(error.help(format!("remove `{name}`, or `rlqs`")));
        }
    }
    // What is unlimited or invalid has been reported.
    if let Some((_, algorithm)) = allowance.and_then(limited)
        && algorithm.name() != RLQS_ALGORITHM
    {
        let message = format!("rlqs with the algorithm {}", algorithm.name());
        let help = "write `algorithm: token_bucket`, which a proxy can enforce alone";
        reader.error(Code::ConflictingKeys, fields.at("rlqs"), message, help);
    }
    true
}

/// Reads the names of the rules that a rule replaces, and gives their places.
fn replaces(loader: &mut Loader<'_>, fields: &Fields<'_>, rule: &mut Rule) -> Vec<Span> {
    let example = "replaces: [{name: OTHER}]";
    let items = loader.reader.items(fields, "replaces", example);
    let mut places = Vec::with_capacity(items.len());
    let mut replaced = Vec::new();
    for item in items {
        let (reader, at) = (&mut loader.reader, item.at());
        let Some(fields) = reader.fields(item.node, item.path, &grammar_limit::REPLACED) else {
            continue;
        };
        let name = reader.text(&fields, "name");
        if name.is_empty() {
            if !fields.is_misspelt("name") {
                let message = "should not have an empty replaces entry";
                let help = "name the rule to replace, or remove the entry";
                reader.error(Code::InvalidReplaces, at, message, help);
            }
        } else if name == rule.name {
            replaces_itself(reader, at);
        } else if reader.check_length(name, at.clone()) {
            let origin = loader.limit_field(at.span);
            loader.replaced_names.push(origin);
            replaced.push(name.to_owned());
            places.push(at.span);
        }
    }
    rule.replaces = replaced.into();
    places
}

fn replaces_itself(reader: &mut Reader<'_>, at: FieldPlace) {
    let message = "replaces should not contain name of same descriptor";
    let help = "remove the entry: a rule cannot replace itself";
    reader.error(Code::InvalidReplaces, at, message, help);
}

/// The key of the last entry of a rule's descriptors, after the field that sets it.
fn holder_key(rule: &Rule) -> Option<(&'static str, &str)> {
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

/// Whether two limits would share a bucket if they had one name.
pub(super) fn share_bucket(one: &Allowance, other: &Allowance) -> bool {
    let window = |limit: &Limit| (limit.unit().map(|_| limit.window()), limit.calendar());
    let (Some((limit, algorithm)), Some((other, other_algorithm))) = (limited(one), limited(other))
    else {
        return false;
    };
    algorithm == other_algorithm && window(limit) == window(other)
}

/// Reads the field `limit_from_request`.
pub(in crate::file) fn limit_from_request(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<LimitFromRequest> {
    let mut all = LimitFromRequest::ALL.into_iter();
    reader.word(fields, "limit_from_request", |name| {
        all.find(|one| one.name() == name)
    })
}

/// Reads the field `notify`: shares in percent.
pub(in crate::file) fn notify(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<Box<NotifyShares>> {
    let node = fields.given("notify")?;
    let Content::Sequence(items) = &node.content else {
        let wanted = reader.boolean(fields, "notify");
        return wanted.then(|| Box::new(NotifyShares(NOTIFY_DEFAULT.to_vec())));
    };
    let mut percents = Vec::with_capacity(items.len());
    for item in items {
        let percent = item.text().filter(|_| item.is_plain());
        let percent = percent.and_then(|text| text.parse::<u8>().ok());
        let Some(percent) = percent.filter(|percent| (1..=100).contains(percent)) else {
            let message = "a share of `notify` is not a whole number from 1 to 100";
            let at = fields.path.field("notify").at(item.span);
            let help = "write percents, such as `notify: [50, 80, 100]`";
            reader.error(Code::OutOfRange, at, message, help);
            return None;
        };
        percents.push(percent);
    }
    percents.sort_unstable();
    percents.dedup();
    (!percents.is_empty()).then(|| Box::new(NotifyShares(percents)))
}
