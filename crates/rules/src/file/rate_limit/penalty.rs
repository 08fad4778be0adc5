//! The field `penalty` of a limit.

use std::num::{NonZeroU8, NonZeroU16};

use crate::duration::duration;
use crate::excerpt::excerpt;
use crate::file::grammar_limit::{self, PENALTY_FACTOR_MAX};
use crate::file::rate_limit::allowance::limited;
use crate::file::{Code, Diagnostic, Fields, Reader};
use tollgate_limiter::{Allowance, CountRefused, PENALTY_SECONDS_MAX, Penalty};

/// The default of the longest block, unless the first block is longer: one day.
const MAX_S_DEFAULT: u32 = 86_400;

/// What a limit allows, with its penalty. None when an error was reported.
pub(super) fn with_penalty(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    allowance: Allowance,
) -> Option<Allowance> {
    // Beside `unlimited` it has been reported.
    if fields.given("penalty").is_none() || limited(&allowance).is_none() {
        return Some(allowance);
    }
    let before = reader.error_count();
    reject_beside(reader, fields, &allowance);
    let penalty = penalty(reader, fields)?;
    match allowance {
        Allowance::Limited { limit, algorithm } if reader.error_count() == before => {
            let limit = limit.with_penalty(penalty);
            Some(Allowance::Limited { limit, algorithm })
        }
        _ => None,
    }
}

/// Reports what a limit with a penalty cannot have.
fn reject_beside(reader: &mut Reader<'_>, fields: &Fields<'_>, allowance: &Allowance) {
    let (limit, algorithm) = match limited(allowance) {
        Some((limit, algorithm)) => (limit, algorithm.name()),
        None => return,
    };
    let (name, why) = if limit.unit().is_none() {
        (
            "algorithm",
            "a request that waits for a slot asks again at once",
        )
    } else if fields.has("reserve") {
        ("reserve", "a refused reservation must reach its bucket")
    } else if limit.count_refused() == Some(CountRefused::InFull) {
        ("charged", "work that is done must be counted")
    } else {
        return;
    };
    let message = match name {
        "algorithm" => format!("a penalty beside algorithm {algorithm}"),
        _ => format!("a penalty beside {name}"),
    };
    let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key("penalty"), message);
    let error = error.related(fields.span_of(name), why);
    reader.report(error.help(format!("remove `penalty`, or `{name}`")));
}

fn penalty(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Penalty> {
    let before = reader.error_count();
    let fields = &reader.inner(fields, "penalty", &grammar_limit::PENALTY)?;
    for (name, help) in grammar_limit::PENALTY.required() {
        if !fields.has(name) && !fields.is_misspelt(name) {
            let message = format!("penalty needs {name}");
            reader.error(Code::MissingKey, fields.at(name), message, help);
        }
    }
    let after = reader.integer(fields, "after");
    let after = after.and_then(|after| bounded(reader, fields, "after", after, u16::MAX.into()));
    let factor = reader.integer(fields, "factor").unwrap_or(1);
    let factor = bounded(reader, fields, "factor", factor, PENALTY_FACTOR_MAX);
    let [within_s, block_s, max_s] =
        ["within", "block", "max"].map(|name| seconds(reader, fields, name));
    if let (Some(block_s), Some(max_s)) = (block_s, max_s)
        && max_s < block_s
    {
        let message = "max is shorter than block";
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at("max"), message);
        let error = error.related(fields.span_of("block"), "the first block is set here");
        reader.report(error.help("raise `max`, or shorten `block`"));
    }
    if reader.error_count() > before {
        return None;
    }
    Some(Penalty {
        after: NonZeroU16::new(u16::try_from(after?).ok()?)?,
        factor: NonZeroU8::new(u8::try_from(factor?).ok()?)?,
        within_s: within_s?,
        block_s: block_s?,
        max_s: max_s.unwrap_or(MAX_S_DEFAULT.max(block_s?)),
    })
}

fn bounded(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    name: &'static str,
    number: u32,
    most: u32,
) -> Option<u32> {
    if (1..=most).contains(&number) {
        return Some(number);
    }
    let message = format!("{name} {number} is not from 1 to {most}");
    let help = format!("write a number from 1 to {most}");
    reader.error(Code::OutOfRange, fields.at(name), message, help);
    None
}

/// Reads a time in whole seconds.
fn seconds(reader: &mut Reader<'_>, fields: &Fields<'_>, name: &'static str) -> Option<u32> {
    let text = reader.text(fields, name);
    if text.is_empty() {
        return None;
    }
    let at = fields.at(name);
    let us = match duration(text) {
        Ok(us) => us,
        Err(error) => {
            let message = format!("{name} {}", error.message);
            reader.error(Code::UnknownValue, at, message, error.help);
            return None;
        }
    };
    let seconds = u32::try_from(us / 1_000_000).ok();
    let seconds = seconds
        .filter(|seconds| us % 1_000_000 == 0 && (1..=PENALTY_SECONDS_MAX).contains(seconds));
    if seconds.is_none() {
        let message = format!("{name} {} is not from 1s to 365d", excerpt(text));
        let help = "write whole seconds from 1s to 365d";
        reader.error(Code::OutOfRange, at, message, help);
    }
    seconds
}
