//! What a limit allows: how many requests, in a window or in flight, and the algorithm that counts
//! them.
//!
//! Which fields an algorithm allows is the algorithm's decision ([`AlgorithmOption`]); the
//! grammar's table says which field is which choice.
//!
//! What it deliberately does not do: compute a calendar's windows (`calendar`).

use std::num::{NonZeroU16, NonZeroU32};

use crate::calendar::{CalendarError, calendar};
use crate::excerpt::excerpt;
use crate::file::corrections::{did_you_mean, without};
use crate::file::grammar_limit;
use crate::file::{Code, Diagnostic, Fields, Reader};
use crate::yaml::Node;
use tollgate_limiter::algorithm::{self, MARKS_REQUESTS_MAX, SEGMENTS_MAX};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, AlgorithmOption, Allowance, Calendar, CountRefused, Limit, LimitError,
    Unit, Weekday,
};

/// What a limit allows, and the key of its holders.
pub(in crate::file) fn allowance(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    holder_key: &mut Option<String>,
) -> Option<Allowance> {
    let is_unlimited = reader.boolean(fields, "unlimited");
    let unit_text = reader.text(fields, "unit");
    if is_unlimited {
        return unlimited(reader, fields, unit_text);
    }
    match algorithm(reader, fields) {
        Some((algorithm, _)) if algorithm.facts().options.contains(&AlgorithmOption::Slots) => {
            concurrency_limit(reader, fields, algorithm, holder_key)
        }
        // It may be a misspelt algorithm without units.
        None if unit_text.is_empty() => window_limit(reader, fields, None, None),
        algorithm => {
            let unit = unit(reader, fields, unit_text);
            let fitting = algorithm.filter(|(_, fits)| *fits);
            window_limit(
                reader,
                fields,
                unit,
                fitting.map(|(algorithm, _)| algorithm),
            )
        }
    }
}

/// The limit and its algorithm; none for what is unlimited.
pub(in crate::file) fn limited(allowance: &Allowance) -> Option<(&Limit, &'static dyn Algorithm)> {
    match allowance {
        Allowance::Limited { limit, algorithm } => Some((limit, *algorithm)),
        Allowance::Unlimited => None,
    }
}

/// With `unlimited` a number of requests is ignored, as by the reference, but must be one. Fields
/// of tollgate are rejected.
fn unlimited(reader: &mut Reader<'_>, fields: &Fields<'_>, unit: &str) -> Option<Allowance> {
    let span = fields.span_of("unlimited");
    if Unit::from_name(unit).is_some() {
        let message = "should not specify rate limit unit when unlimited";
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at("unit"), message);
        let error = error.related(span, "unlimited");
        reader.report(error.help("remove `unit`, or remove `unlimited`"));
        return None;
    }
    reader.large_integer(fields, "requests_per_unit");
    // A resource of an xDS server, which has no lines, always has both.
    if fields.span.at.line > 0 {
        for name in ["unit", "requests_per_unit"] {
            // An empty text is no unit.
            let text = fields.given(name).and_then(Node::text);
            if text.is_some_and(|text| !text.is_empty()) {
                let help = "remove it, or remove `unlimited`";
                reader.warn_no_effect(fields, name, "beside unlimited", help);
            }
        }
    }
    for name in grammar_limit::excluded_by_unlimited() {
        if fields.has(name) {
            let message = format!("'{name}' has no effect beside unlimited");
            let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key(name), message);
            let error = error.related(span, "unlimited");
            reader.report(error.help(format!("remove `{name}`, or `unlimited`")));
        }
    }
    Some(Allowance::Unlimited)
}

/// The algorithm that is named, or the default, in the variant that its other fields choose; and
/// whether all those fields are allowed.
pub(in crate::file) fn algorithm(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<(&'static dyn Algorithm, bool)> {
    let mut algorithm = match reader.text(fields, "algorithm") {
        "" => ALGORITHMS.first().copied()?,
        _ => reader.word(fields, "algorithm", algorithm::from_name)?,
    };
    let mut fits = true;
    for (name, choice) in grammar_limit::choices() {
        if fields.has(name) && !algorithm.facts().options.contains(&choice) {
            reject_choice(reader, fields, algorithm, name, choice);
            fits = false;
        }
    }
    let segmented = algorithm.facts().variant_for(AlgorithmOption::Segments);
    if fields.has("segments") {
        algorithm = segmented.unwrap_or(algorithm);
    } else if algorithm
        .facts()
        .options
        .contains(&AlgorithmOption::Segments)
        && segmented.is_none()
    {
        let message = format!("algorithm {} needs segments", algorithm.name());
        let help = "add `segments: 6`, or set `algorithm: sliding_window`";
        reader.error(Code::MissingKey, fields.at("algorithm"), message, help);
        fits = false;
    }
    if algorithm.facts().options.contains(&AlgorithmOption::Refill) {
        match reader.text(fields, "refill") {
            "" | "continuous" => {}
            "interval" => {
                algorithm = algorithm
                    .facts()
                    .variant_for(AlgorithmOption::Refill)
                    .unwrap_or(algorithm);
            }
            other => {
                reader.unknown_word(fields, "refill", other, &fields.words("refill"));
                fits = false;
            }
        }
    }
    Some((algorithm, fits))
}

fn reject_choice(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    algorithm: &dyn Algorithm,
    name: &str,
    choice: AlgorithmOption,
) {
    let have = ALGORITHMS
        .iter()
        .filter(|other| other.facts().options.contains(&choice));
    let have: Vec<_> = have.map(|other| other.name()).collect();
    let have = match have.as_slice() {
        [one] => format!("`algorithm: {one}`"),
        several => format!("`algorithm` to one of {}", several.join(", ")),
    };
    let message = format!("algorithm {} has no {name}", algorithm.name());
    let error = Diagnostic::error(Code::ConflictingKeys, fields.at(name), message);
    let error = match fields.given("algorithm") {
        Some(node) => error.related(node.span, "the algorithm is set here"),
        None => error.label("fixed_window is the default algorithm"),
    };
    reader.report(error.help(format!("remove `{name}`, or set {have}")));
}

/// Reads a limit of requests in flight: how many, the key of their holders, and when a slot
/// expires.
fn concurrency_limit(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    algorithm: &'static dyn Algorithm,
    key: &mut Option<String>,
) -> Option<Allowance> {
    for name in ["unit", "unit_multiplier"] {
        if fields.has(name) {
            let message = format!("algorithm {} has no {name}", algorithm.name());
            let error = Diagnostic::error(Code::ConflictingKeys, fields.at(name), message);
            let help = format!("remove `{name}`: the limit is of requests in flight at any moment");
            reader.report(without(
                reader.text,
                fields.field_span(name),
                error.help(help),
            ));
        }
    }
    let requests = reader.large_integer(fields, "requests_per_unit");
    let requests = requests.unwrap_or_default();
    warn_missing_requests(reader, fields);
    check_requests(reader, fields, algorithm, requests);
    if let Some(holder_key) = reader.bounded_text(fields, "holder_key") {
        *key = Some(holder_key.to_owned());
    }
    let seconds = reader.integer(fields, "slot_seconds");
    let Some(valid) = seconds.and_then(NonZeroU32::new) else {
        // A misspelt key and a value that is no number have been reported.
        let at = match fields.given("slot_seconds") {
            None if fields.is_misspelt("slot_seconds") => return None,
            None => fields.at("algorithm"),
            Some(_) if seconds != Some(0) => return None,
            Some(_) => fields.at("slot_seconds"),
        };
        let name = algorithm.name();
        let message = format!("algorithm {name} needs slot_seconds of at least 1");
        let help = "add `slot_seconds: 60`: after this time a slot expires that was not freed; it must be longer than the slowest request";
        reader.error(Code::MissingKey, at, message, help);
        return None;
    };
    Some(Allowance::Limited {
        limit: Limit::in_flight(requests, valid),
        algorithm,
    })
}

/// Reads a limit of requests per window.
fn window_limit(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    unit: Option<Unit>,
    algorithm: Option<&'static dyn Algorithm>,
) -> Option<Allowance> {
    let requests = reader.large_integer(fields, "requests_per_unit");
    let requests = requests.unwrap_or_default();
    let multiplier = reader.integer(fields, "unit_multiplier");
    let burst = reader.large_integer(fields, "burst");
    let segments = segments(reader, fields);
    let count_refused = count_refused(reader, fields);
    let count_refused = charged(reader, fields).or(count_refused);
    let multiplier = NonZeroU32::new(multiplier.unwrap_or(1));
    if multiplier.is_none() {
        let message = "unit_multiplier must be at least 1";
        let at = fields.at("unit_multiplier");
        let span = at.span;
        let error = Diagnostic::error(Code::OutOfRange, at, message);
        let help = "write 1, or remove it, for a window of one unit";
        reader.report(error.help(help).edit(span, "1"));
    }
    let (unit, multiplier, algorithm) = (unit?, multiplier?, algorithm?);
    warn_missing_requests(reader, fields);
    let calendar = calendar_of(reader, fields, unit, multiplier);
    check_requests(reader, fields, algorithm, requests);
    let default_burst = algorithm.facts().default_burst(requests);
    let burst = burst.or((default_burst != requests).then_some(default_burst));
    let mut limit = match Limit::new(requests, unit, multiplier, burst) {
        Ok(limit) => limit,
        Err(error) => {
            invalid_limit(reader, fields, error);
            return None;
        }
    };
    warn_small_burst(reader, fields, &limit, algorithm);
    if limit.window().as_us() > algorithm.facts().window_max_us {
        let years = algorithm.facts().window_max_us / (Unit::Year.seconds() * 1_000_000);
        let message = format!(
            "a window of {} is longer than {} can hold",
            limit.describe_window(),
            algorithm.name()
        );
        let help = format!("use a window of at most {years} years");
        let at = fields.at("unit_multiplier");
        reader.error(Code::OutOfRange, at, message, help);
    }
    if let Some(segments) = segments {
        limit = limit.with_segments(segments);
    }
    if let Some(calendar) = calendar {
        limit = limit.with_calendar(calendar);
    }
    if let Some(count_refused) = count_refused {
        limit = limit.with_count_refused(count_refused);
    }
    Some(Allowance::Limited { limit, algorithm })
}

fn invalid_limit(reader: &mut Reader<'_>, fields: &Fields<'_>, error: LimitError) {
    let (name, help) = match error {
        LimitError::ZeroBurst => ("burst", "remove `burst` for the default"),
        LimitError::BurstWithoutRate => {
            ("burst", "remove `burst`: a limit of 0 refuses everything")
        }
        LimitError::TooManyRequests => ("requests_per_unit", "use a smaller number"),
        LimitError::WindowTooLong => ("unit_multiplier", "use a shorter window"),
    };
    let wrong = Diagnostic::error(Code::OutOfRange, fields.at(name), error.to_string());
    let wrong = wrong.help(help);
    reader.report(match error {
        LimitError::TooManyRequests | LimitError::WindowTooLong => wrong,
        _ => without(reader.text, fields.field_span(name), wrong),
    });
}

fn unit(reader: &mut Reader<'_>, fields: &Fields<'_>, text: &str) -> Option<Unit> {
    let unit = Unit::from_name(text);
    if unit.is_some() || fields.is_misspelt("unit") {
        return unit;
    }
    let units = Unit::ALL.map(Unit::name);
    let message = format!("invalid rate limit unit '{}'", excerpt(text));
    let error = |code| Diagnostic::error(code, fields.at("unit"), message);
    reader.report(if fields.has("unit") {
        did_you_mean(error(Code::UnknownValue), text, &units)
    } else {
        let help = format!("add `unit`: one of {}", units.join(", "));
        error(Code::MissingKey)
            .label("`unit` is missing")
            .help(help)
    });
    None
}

fn check_requests(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    algorithm: &dyn Algorithm,
    requests: u64,
) {
    let most = algorithm.facts().requests_max;
    if requests > most {
        let name = algorithm.name();
        let holds = if most == MARKS_REQUESTS_MAX {
            "stores every hit"
        } else {
            "counts in 40 bits"
        };
        let message = format!("algorithm {name} {holds}, at most {most}");
        let help =
            format!("use at most {most}, or an algorithm that counts, such as sliding_window");
        let at = fields.at("requests_per_unit");
        reader.error(Code::OutOfRange, at, message, help);
    }
}

/// Warns of a limit without a number of requests, which the reference reads as 0.
fn warn_missing_requests(reader: &mut Reader<'_>, fields: &Fields<'_>) {
    if !fields.has("requests_per_unit")
        && !fields.is_misspelt("requests_per_unit")
        && reader.is_new_warning(Code::MissingRequests, fields.span)
    {
        let message = "requests_per_unit is missing, so the limit is 0";
        let help = "add `requests_per_unit: N`; write 0 if every request shall be refused";
        let at = fields.path.at(fields.span);
        reader.report(Diagnostic::warning(Code::MissingRequests, at, message).help(help));
    }
}

/// Warns of a bucket that cannot hold what a window brings.
fn warn_small_burst(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    limit: &Limit,
    algorithm: &dyn Algorithm,
) {
    let at = fields.at("burst");
    let (burst, requests) = (limit.burst(), limit.requests());
    if algorithm.name() == "token_bucket_interval"
        && burst < requests
        && reader.is_new_warning(Code::SmallBurst, at.span)
    {
        let message = format!(
            "burst {burst} is less than requests_per_unit {requests}: with one refill a window no more than the burst is ever available in it"
        );
        let help = "raise `burst`, remove it, or lower `requests_per_unit`";
        reader.report(Diagnostic::warning(Code::SmallBurst, at, message).help(help));
    }
}

pub(in crate::file) fn segments(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<NonZeroU16> {
    let number = reader.integer(fields, "segments")?;
    let segments = u16::try_from(number).ok().and_then(NonZeroU16::new);
    let segments = segments.filter(|segments| segments.get() <= SEGMENTS_MAX);
    if segments.is_none() {
        let message = format!("segments must be from 1 to {SEGMENTS_MAX}");
        let help = format!(
            "write a number from 1 to {SEGMENTS_MAX}, or remove it for a window that slides smoothly"
        );
        reader.error(Code::OutOfRange, fields.at("segments"), message, help);
    }
    segments
}

pub(in crate::file) fn count_refused(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<CountRefused> {
    reader.word(fields, "count_refused", CountRefused::from_name)
}

/// What `charged` says of refused hits; none where the limit is charged at once.
pub(in crate::file) fn charged(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<CountRefused> {
    match reader.text(fields, "charged") {
        "" | "at_once" => None,
        "afterwards" => {
            if fields.has("count_refused") {
                let message = "'count_refused' has no effect beside charged: afterwards";
                let at = fields.at("count_refused");
                let error = Diagnostic::error(Code::ConflictingKeys, at, message);
                let error = error.related(fields.span_of("charged"), "every hit is counted");
                reader.report(error.help("remove `count_refused`, or `charged`"));
            }
            Some(CountRefused::InFull)
        }
        other => {
            reader.unknown_word(fields, "charged", other, &fields.words("charged"));
            None
        }
    }
}

fn calendar_of(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    unit: Unit,
    multiplier: NonZeroU32,
) -> Option<&'static dyn Calendar> {
    let wanted = reader.boolean(fields, "calendar");
    let zone = match reader.text(fields, "time_zone") {
        "" => "UTC",
        zone => zone,
    };
    let week_start = reader.word(fields, "week_start", Weekday::from_name);
    if !wanted {
        for name in ["time_zone", "week_start"] {
            if fields.has(name) {
                let message = format!("'{name}' has no effect without calendar");
                let help = format!("add `calendar: true`, or remove {name}");
                reader.error(Code::ConflictingKeys, fields.at_key(name), message, help);
            }
        }
        return None;
    }
    let error = match calendar(unit, multiplier, zone, week_start) {
        Ok(calendar) => return Some(calendar),
        Err(error) => error,
    };
    let at = fields.at(match error {
        CalendarError::UnitTooShort { .. } => "unit",
        CalendarError::WeekStartWithoutWeek { .. } => "week_start",
        CalendarError::MultiplierTooLarge { .. } => "unit_multiplier",
        CalendarError::UnknownZone { .. } => "time_zone",
        CalendarError::TooMany => "calendar",
    });
    let advice = error.advice();
    reader.error(Code::InvalidCalendar, at, error.to_string(), advice);
    None
}
