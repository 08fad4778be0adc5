//! One limit with what an entry sets.
//!
//! The limit is written as fields again, without places, below those of the entry. So the code that
//! reads a rules file decides which fields fit together, and its errors are about the entry.

use crate::file::overlay::entry::Entry;
use crate::file::rate_limit::{algorithms_that_reserve, allowance};
use crate::file::{Code, Diagnostic, Reader};
use crate::yaml::Node;
use tollgate_limiter::{
    Algorithm, AlgorithmOption, Allowance, CountRefused, Limit, LimitFromRequest, ReserveAmount,
    Rule, Unit,
};

/// The fields of a limit, by name.
type LimitFields = Vec<(&'static str, Node)>;

/// The rule with what the entry sets; none when they do not fit together.
pub(super) fn overlaid(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &Rule) -> Option<Rule> {
    let mut overlaid = rule.clone();
    if let Allowance::Limited { limit, algorithm } = rule.allowance
        && entry.changes_the_limit()
    {
        overlaid.allowance = overlaid_limit(reader, entry, rule, &limit, algorithm)?;
    }
    if let Some(reserve) = &entry.reserve {
        overlaid.reserve = Some(reserve.clone());
        overlaid.holder_key.clone_from(&reserve.key);
    }
    if overlaid.reserve != rule.reserve || overlaid.allowance != rule.allowance {
        fit_reserve(reader, entry, &mut overlaid)?;
        fit_penalty(reader, entry, &overlaid)?;
    }
    if let Some(leases) = entry.leases {
        overlaid.leases = leases;
    }
    if let Some(shadow_mode) = entry.shadow_mode {
        overlaid.shadow_mode = shadow_mode;
    }
    if let Some(name) = entry.name {
        name.clone_into(&mut overlaid.name);
    }
    if entry.over_limit.is_some() {
        overlaid.over_limit.clone_from(&entry.over_limit);
    }
    if entry.fields.has("notify") {
        overlaid.notify.clone_from(&entry.notify);
    }
    if entry.candidate.is_some() {
        overlaid.candidate.clone_from(&entry.candidate);
    }
    // What an entry sets shall hold for the limits of requests, too.
    let default = (overlaid != *rule).then_some(LimitFromRequest::Adjust);
    let written = entry.limit_from_request.or(rule.limit_from_request);
    overlaid.limit_from_request = written.or(default);
    Some(overlaid)
}

/// Makes the reservations of a changed limit fit it; none, and a report, when they cannot. A learnt
/// amount has what the limit can hold as its ceiling.
fn fit_reserve(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut Rule) -> Option<()> {
    let (Some(reserve), Allowance::Limited { limit, algorithm }) =
        (&mut rule.reserve, rule.allowance)
    else {
        return Some(());
    };
    let fields = &entry.fields;
    if !algorithm.facts().can_reserve {
        let message = format!("algorithm {} has no reservations", algorithm.name());
        let (field, label) = if fields.has("reserve") {
            ("reserve", "set here")
        } else {
            ("algorithm", "the limit has `reserve`")
        };
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at(field), message);
        let help = format!("use one of {}", algorithms_that_reserve());
        reader.report(error.label(label).help(help));
        return None;
    }
    let most = limit.burst();
    let (field, least) = match &mut reserve.amount {
        None => return Some(()),
        Some(ReserveAmount::Hits(hits)) => ("amount", *hits),
        Some(ReserveAmount::Learnt(estimate)) => {
            estimate.ceiling = estimate.ceiling.min(most.max(estimate.floor));
            ("floor", estimate.floor)
        }
    };
    if least <= most || most == 0 {
        return Some(());
    }
    let message = format!("the limit would hold {most}, and its reserve.{field} is {least}");
    let mut named = ["burst", "requests_per_unit", "reserve"].into_iter();
    let set = named.find(|name| fields.has(name));
    let help = match set {
        Some("reserve") => format!("use at most {most}"),
        _ => format!("allow at least {least}, or 0 to refuse everything"),
    };
    let at = fields.at(set.unwrap_or("requests_per_unit"));
    reader.error(Code::OutOfRange, at, message, help);
    None
}

/// None, and a report, when a changed limit cannot have its penalty.
fn fit_penalty(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &Rule) -> Option<()> {
    let Allowance::Limited { limit, .. } = rule.allowance else {
        return Some(());
    };
    if limit.penalty().is_none() {
        return Some(());
    }
    let name = if rule.reserve.is_some() {
        "reserve"
    } else if limit.count_refused() == Some(CountRefused::InFull) {
        "charged"
    } else {
        return Some(());
    };
    let message = format!("a penalty beside {name}");
    let error = Diagnostic::error(Code::ConflictingKeys, entry.fields.at(name), message);
    let error = error.label("the limit has `penalty`");
    reader.report(error.help(format!(
        "remove `{name}`, or exclude the limit by an entry before"
    )));
    None
}

fn overlaid_limit(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    rule: &Rule,
    limit: &Limit,
    algorithm: &'static dyn Algorithm,
) -> Option<Allowance> {
    let fields = &entry.fields;
    let sets_algorithm = fields.has("algorithm");
    let at_algorithm = fields.at("algorithm");
    if sets_algorithm && algorithm.facts().options.contains(&AlgorithmOption::Slots) {
        let message = "a limit of requests in flight cannot have another algorithm";
        let help = "exclude it by an entry that sets nothing, before this one";
        reader.error(Code::ConflictingKeys, at_algorithm, message, help);
        return None;
    }
    let mut below = fields_of(limit, algorithm, rule);
    if sets_algorithm {
        // They choose a variant of the algorithm that is replaced.
        below.retain(|(name, _)| !["algorithm", "burst", "segments"].contains(name));
    }
    // Each says what becomes of refused hits.
    if fields.has("charged") {
        below.retain(|(name, _)| *name != "count_refused");
    } else if fields.has("count_refused") {
        below.retain(|(name, _)| *name != "charged");
    }
    let before = reader.error_count();
    let changed = allowance(reader, &fields.over(&below), &mut None)?;
    let Allowance::Limited {
        limit: changed,
        algorithm,
    } = changed
    else {
        return Some(changed);
    };
    let changed = match limit.calendar() {
        None => changed,
        Some(calendar)
            if algorithm
                .facts()
                .options
                .contains(&AlgorithmOption::Calendar) =>
        {
            changed.with_calendar(calendar)
        }
        Some(_) => {
            let message = format!("algorithm {} has no calendar", algorithm.name());
            let error = Diagnostic::error(Code::ConflictingKeys, at_algorithm, message);
            let error = error.label("the limit has calendar windows");
            reader.report(error.help("remove `algorithm`: calendars need fixed_window"));
            return None;
        }
    };
    let changed = match limit.penalty() {
        Some(penalty) => changed.with_penalty(*penalty),
        None => changed,
    };
    (reader.error_count() == before).then_some(Allowance::Limited {
        limit: changed,
        algorithm,
    })
}

/// The fields by which a rules file sets this limit. A calendar is left out.
fn fields_of(limit: &Limit, algorithm: &dyn Algorithm, rule: &Rule) -> LimitFields {
    let (requests, burst, unit) = (limit.requests(), limit.burst(), limit.unit());
    let in_flight = unit.is_none();
    let has_burst = algorithm.facts().options.contains(&AlgorithmOption::Burst)
        && burst != algorithm.facts().default_burst(requests);
    let number = |is_set: bool, number: u64| is_set.then(|| Node::plain(&number));
    let text = |text: Option<&str>| text.map(Node::quoted);
    let multiplier = limit.unit_multiplier().get().into();
    let holder_key = rule.holder_key.as_deref().filter(|_| in_flight);
    let segments = limit.segments().map_or(0, |segments| segments.get().into());
    let (refused, of_refused) = limit.count_refused().map(CountRefused::field).unzip();
    let fields = [
        ("algorithm", text(Some(algorithm.name()))),
        ("requests_per_unit", number(true, requests)),
        ("unit", text(unit.map(Unit::name))),
        ("unit_multiplier", number(!in_flight, multiplier)),
        (
            "slot_seconds",
            number(in_flight, limit.window().as_us() / 1_000_000),
        ),
        ("holder_key", text(holder_key)),
        ("burst", number(has_burst, burst)),
        ("segments", number(segments > 0, segments)),
        (refused.unwrap_or_default(), text(of_refused)),
    ];
    let fields = fields.into_iter();
    fields
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}
