//! The fields `reserve`, `cost` and `budget` of a limit.
//!
//! What it deliberately does not do: compare limits with each other (`rate_limit`, `agreement`), or
//! with the levels below (`descriptor`).

use std::num::NonZeroU32;

use crate::duration::duration;
use crate::excerpt::excerpt;
use crate::file::grammar_limit;
use crate::file::rate_limit::allowance::limited;
use crate::file::{Code, Diagnostic, FieldPlace, Fields, Reader};
use crate::yaml::{Node, kind};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Allowance, Cost, CostError, EXPIRY_MS_MAX, Estimate, EstimateScope,
    Expiry, Limit, OnExpiry, ReserveAmount, ReserveRule, Rule,
};

/// The least expiry, in milliseconds.
const EXPIRY_MS_MIN: u32 = 1_000;

/// The percentiles that can be learnt.
const PERCENT_MIN: u8 = 50;
const PERCENT_MAX: u8 = 99;

/// Reads how a limit is paid for: `reserve`, `cost` and `budget`.
pub(super) fn payment(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    allowance: Option<&Allowance>,
    rule: &mut Rule,
) {
    rule.cost = cost(reader, fields);
    rule.budget = budget(reader, fields);
    if allowance == Some(&Allowance::Unlimited) {
        // Reported with `unlimited`.
        return;
    }
    rule.reserve = reserve(reader, fields, allowance.and_then(limited)).map(Box::new);
    if let Some(key) = rule.reserve.as_ref().and_then(|it| it.key.as_ref()) {
        rule.holder_key = Some(key.clone());
    }
}

fn cost(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Cost {
    let Some(node) = fields.given("cost") else {
        return Cost::default();
    };
    let parsed = match node.text().filter(|_| node.is_plain()) {
        Some(text) => Cost::parse(text),
        None => Err(CostError::NotANumber),
    };
    let (code, message, help) = match parsed {
        Ok(cost) => return cost,
        Err(CostError::NotANumber) => (
            Code::WrongType,
            "cost is not a decimal number",
            "write digits and at most one point, such as `cost: 0.25`",
        ),
        Err(CostError::TooPrecise) => (
            Code::OutOfRange,
            "cost has more than six decimals",
            "write at most six decimals; for lower prices multiply costs and limit by a thousand",
        ),
        Err(CostError::OutOfBounds) => (
            Code::OutOfRange,
            "cost is out of range",
            "write a number from 0.000001 to 1000000",
        ),
    };
    let error = Diagnostic::error(code, fields.at("cost"), message);
    reader.report(error.label(found(node)).help(help));
    Cost::default()
}

/// What a node is, for a label.
fn found(node: &Node) -> String {
    let what = node.text().map_or(kind(node).into(), excerpt);
    format!("found {what}")
}

fn budget(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Box<str>> {
    let name = reader.bounded_text(fields, "budget")?;
    if fields.has("candidate") {
        let message = "a candidate beside a budget";
        let at = fields.at_key("candidate");
        let error = Diagnostic::error(Code::ConflictingKeys, at, message);
        let error = error.related(fields.key_span("budget"), "the budget is set here");
        let help = "remove `candidate`: it would have a bucket of its own for each descriptor; try other rules by `--candidate`";
        reader.report(error.help(help));
    }
    Some(name.into())
}

/// The reservations of a limit. None when it has none, or when an error was reported.
pub(in crate::file) fn reserve(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    limited: Option<(&Limit, &'static dyn Algorithm)>,
) -> Option<ReserveRule> {
    fields.given("reserve")?;
    let errors_before = reader.error_count();
    if let Some((_, algorithm)) = limited
        && !algorithm.facts().can_reserve
    {
        let message = format!("algorithm {} has no reservations", algorithm.name());
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key("reserve"), message);
        let error = match fields.given("algorithm") {
            Some(node) => error.related(node.span, "the algorithm is set here"),
            None => error,
        };
        let others = algorithms_that_reserve();
        let help = format!("remove `reserve`, or set `algorithm` to one of {others}");
        reader.report(error.help(help));
    }
    let limit = limited.map(|(limit, _)| limit);
    let fields = &reader.inner(fields, "reserve", &grammar_limit::RESERVE)?;
    let key = reader.text(fields, "key");
    reader.check_length(key, fields.at("key"));
    let amount = amount(reader, fields, limit);
    if !key.is_empty() && !fields.has("amount") && !fields.is_misspelt("amount") {
        let message = "reserve.key without an amount";
        let help = "add `amount`: a request that starts a reservation does not say how much";
        reader.error(Code::MissingKey, fields.at_key("key"), message, help);
    }
    let after_ms = expires(reader, fields);
    let on_expiry = reader.word(fields, "on_expiry", OnExpiry::from_name);
    let on_expiry = on_expiry.unwrap_or_default();
    (reader.error_count() == errors_before).then(|| ReserveRule {
        key: (!key.is_empty()).then(|| key.to_owned()),
        amount,
        expiry: Expiry {
            after_ms,
            on_expiry,
        },
    })
}

fn amount(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    limit: Option<&Limit>,
) -> Option<ReserveAmount> {
    let node = fields.given("amount");
    let percent = node.and_then(percent_of);
    if percent.is_none() {
        reject_without_learnt(reader, fields);
    }
    let node = node?;
    if let Some(percent) = percent {
        return learnt(reader, fields, limit, percent).map(ReserveAmount::Learnt);
    }
    let hits = node.integer().and_then(|hits| u64::try_from(hits).ok());
    let hits = hits.filter(|hits| *hits <= Limit::REQUESTS_MAX);
    if let Some(hits) = hits.filter(|hits| *hits > 0) {
        fits(reader, "amount", hits, limit, fields.at("amount"));
        return Some(ReserveAmount::Hits(hits));
    }
    // A number with a fraction was reported.
    if node.float().is_none() {
        let code = match node.integer() {
            Some(_) => Code::OutOfRange,
            None => Code::WrongType,
        };
        let message = "amount is neither a number of at least 1 nor one of p50 to p99";
        let error = Diagnostic::error(code, fields.at("amount"), message);
        let help = format!(
            "write the hits to reserve, from 1 to {}, or a percentile such as `p95`",
            Limit::REQUESTS_MAX
        );
        reader.report(error.label(found(node)).help(help));
    }
    None
}

fn reject_without_learnt(reader: &mut Reader<'_>, fields: &Fields<'_>) {
    for name in ["floor", "ceiling", "per"] {
        if fields.has(name) {
            let message = format!("'{name}' has no effect without a learnt amount");
            let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key(name), message);
            let error = match fields.given("amount") {
                Some(node) => error.related(node.span, "the amount is set here"),
                None => error,
            };
            let help = format!("remove `{name}`, or learn the amount, such as `amount: p95`");
            reader.report(error.help(help));
        }
    }
}

fn learnt(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    limit: Option<&Limit>,
    percent: u8,
) -> Option<Estimate> {
    let errors_before = reader.error_count();
    let [floor, ceiling] = ["floor", "ceiling"].map(|name| {
        let number = reader.large_integer(fields, name)?;
        if number == 0 {
            let message = format!("{name} must be at least 1");
            let at = fields.at(name);
            let help = "write 1 or more";
            reader.error(Code::OutOfRange, at, message, help);
        }
        fits(reader, name, number, limit, fields.at(name));
        Some(number)
    });
    if let (Some(floor), Some(ceiling)) = (floor, ceiling)
        && floor > ceiling
    {
        let message = format!("floor {floor} is above ceiling {ceiling}");
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at("floor"), message);
        let error = error.related(fields.span_of("ceiling"), "the ceiling is set here");
        reader.report(error.help("lower `floor`, or raise `ceiling`"));
    }
    let scope = reader.word(fields, "per", EstimateScope::from_name);
    let most = limit.map_or(u64::MAX, Limit::burst).max(1);
    (reader.error_count() == errors_before).then(|| Estimate {
        percent,
        floor: floor.unwrap_or(1),
        ceiling: ceiling.unwrap_or(most),
        scope: scope.unwrap_or_default(),
    })
}

/// Reports an amount that never passes. A limit of 0 refuses everything, and is meant so.
fn fits(reader: &mut Reader<'_>, name: &str, hits: u64, limit: Option<&Limit>, at: FieldPlace) {
    let most = limit.map_or(0, Limit::burst);
    if most > 0 && hits > most {
        let message = format!(
            "{name} {hits} is more than the limit can ever hold, {most}: it would never pass"
        );
        let help = format!("use at most {most}, or raise the limit");
        reader.error(Code::OutOfRange, at, message, help);
    }
}

fn expires(reader: &mut Reader<'_>, fields: &Fields<'_>) -> NonZeroU32 {
    let default = Expiry::default().after_ms;
    let text = reader.text(fields, "expires");
    if text.is_empty() {
        return default;
    }
    let at = fields.at("expires");
    let us = match duration(text) {
        Ok(us) => us,
        Err(error) => {
            let message = format!("expires {}", error.message);
            reader.error(Code::UnknownValue, at, message, error.help);
            return default;
        }
    };
    let ms = u32::try_from(us / 1_000).ok().filter(|_| us % 1_000 == 0);
    let ms = ms.filter(|ms| (EXPIRY_MS_MIN..=EXPIRY_MS_MAX).contains(ms));
    let ms = ms.and_then(NonZeroU32::new);
    if ms.is_none() {
        let message = format!("expires {} is not from 1s to 24h", excerpt(text));
        let help = "write whole milliseconds from 1s to 24h, longer than the slowest request";
        reader.error(Code::OutOfRange, at, message, help);
    }
    ms.unwrap_or(default)
}

/// The percentile that a text such as `p95` names.
fn percent_of(node: &Node) -> Option<u8> {
    let digits = node.text()?.strip_prefix('p')?;
    let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let percent = digits.parse().ok().filter(|_| is_plain)?;
    (PERCENT_MIN..=PERCENT_MAX)
        .contains(&percent)
        .then_some(percent)
}

/// The names of the algorithms whose limits can have reservations, for messages.
pub(in crate::file) fn algorithms_that_reserve() -> String {
    let names = ALGORITHMS.iter().filter(|one| one.facts().can_reserve);
    let names: Vec<_> = names.map(|one| one.name()).collect();
    names.join(", ")
}
