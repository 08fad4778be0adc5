//! A limit of requests per window: the length of the window, the number, and how they are counted.
//!
//! What it deliberately does not do: choose the algorithm (`algorithm`), or compute a calendar's
//! windows (`calendar`).

use std::num::{NonZeroU16, NonZeroU32};

use crate::calendar::{CalendarError, calendar};
use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::grammar_limit::CHARGED_NAMES;
use crate::file::loader::Loader;
use crate::file::nearest::did_you_mean;
use tollgate_limiter::algorithm::SEGMENTS_MAX;
use tollgate_limiter::{
    Algorithm, Allowance, Calendar, CountRefused, Limit, LimitError, Unit, Weekday,
};

// === impl Loader ===

impl Loader<'_> {
    /// Reads a limit of requests per window.
    pub(crate) fn window_limit(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        unit: Option<Unit>,
        algorithm: Option<&'static dyn Algorithm>,
    ) -> Option<Allowance> {
        let requests = self.integer(fields, path, "requests_per_unit");
        let requests = requests.unwrap_or_default();
        let multiplier = self.integer(fields, path, "unit_multiplier");
        let burst = self.integer(fields, path, "burst");
        let segments = self.segments(fields, path);
        let count_refused = self.count_refused(fields, path);
        let count_refused = self.charged(fields, path).or(count_refused);
        let multiplier = NonZeroU32::new(multiplier.unwrap_or(1));
        if multiplier.is_none() {
            let message = "unit_multiplier must be at least 1";
            let span = fields.span_of("unit_multiplier");
            let error = Diagnostic::error(Code::OutOfRange, span, message);
            let help = "write 1, or remove it, for a window of one unit";
            self.report(path, error.help(help).edit(span, "1"));
        }
        let (unit, multiplier, algorithm) = (unit?, multiplier?, algorithm?);
        self.warn_missing_requests(fields, path);
        let calendar = self.calendar(fields, path, unit, multiplier);
        self.check_requests(fields, path, algorithm, requests);
        let default_burst = algorithm.default_burst(requests);
        let burst = burst.or((default_burst != requests).then_some(default_burst));
        let mut limit = match Limit::new(requests, unit, multiplier, burst) {
            Ok(limit) => limit,
            Err(error) => {
                let (name, help) = match error {
                    LimitError::ZeroBurst => ("burst", "remove `burst` for the default"),
                    LimitError::BurstWithoutRate => {
                        ("burst", "remove `burst`: a limit of 0 refuses everything")
                    }
                    LimitError::WindowTooLong => ("unit_multiplier", "use a shorter window"),
                };
                let span = fields.span_of(name);
                let wrong = Diagnostic::error(Code::OutOfRange, span, error.to_string());
                let wrong = wrong.help(help);
                let wrong = match error {
                    LimitError::WindowTooLong => wrong,
                    _ => self.without_field(fields, name, wrong),
                };
                self.report(path, wrong);
                return None;
            }
        };
        self.warn_small_burst(fields, path, &limit);
        if limit.window().as_us() > algorithm.window_max_us() {
            let years = algorithm.window_max_us() / (Unit::Year.seconds() * 1_000_000);
            let message = format!(
                "a window of {} is longer than {} can hold",
                limit.describe_window(),
                algorithm.name()
            );
            let help = format!("use a window of at most {years} years");
            let span = fields.span_of("unit_multiplier");
            self.error(Code::OutOfRange, span, path, message, help);
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

    pub(crate) fn unit(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        text: &str,
    ) -> Option<Unit> {
        let unit = Unit::from_name(text);
        if unit.is_none() {
            if fields.is_misspelt("unit") {
                return None;
            }
            let units: Vec<_> = Unit::ALL.iter().map(|unit| unit.name()).collect();
            let message = format!("invalid rate limit unit '{}'", excerpt(text));
            let error = Diagnostic::error(Code::UnknownValue, fields.span_of("unit"), message);
            let error = match fields.given("unit") {
                Some(_) => did_you_mean(error, text, &units),
                None => Diagnostic {
                    code: Code::MissingKey,
                    ..error
                        .label("`unit` is missing")
                        .help(format!("add `unit`: one of {}", units.join(", ")))
                },
            };
            self.report(path, error);
        }
        unit
    }

    pub(crate) fn segments(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<NonZeroU16> {
        let number = self.integer(fields, path, "segments")?;
        let segments = u16::try_from(number).ok().and_then(NonZeroU16::new);
        let segments = segments.filter(|segments| segments.get() <= SEGMENTS_MAX);
        if segments.is_none() {
            let message = format!("segments must be from 1 to {SEGMENTS_MAX}");
            let help = format!(
                "write a number from 1 to {SEGMENTS_MAX}, or remove it for a window that slides smoothly"
            );
            self.error(
                Code::OutOfRange,
                fields.span_of("segments"),
                path,
                message,
                help,
            );
        }
        segments
    }

    pub(crate) fn count_refused(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<CountRefused> {
        let name = self.text(fields, path, "count_refused");
        let count_refused = CountRefused::from_name(name);
        if count_refused.is_none() && !name.is_empty() {
            self.unknown_word(fields, path, "count_refused", (name, &CountRefused::NAMES));
        }
        count_refused
    }

    /// What `charged` says of refused hits; none where the limit is charged at once.
    pub(crate) fn charged(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<CountRefused> {
        match self.text(fields, path, "charged") {
            "" | "at_once" => None,
            "afterwards" => {
                if fields.given("count_refused").is_some() {
                    let span = fields.span_of("count_refused");
                    let message = "'count_refused' has no effect beside charged: afterwards";
                    let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                    let error = error.related(fields.span_of("charged"), "every hit is counted");
                    let error = error.help("remove `count_refused`, or `charged`");
                    self.report(path, error);
                }
                Some(CountRefused::InFull)
            }
            other => {
                self.unknown_word(fields, path, "charged", (other, &CHARGED_NAMES));
                None
            }
        }
    }

    fn calendar(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        unit: Unit,
        multiplier: NonZeroU32,
    ) -> Option<&'static dyn Calendar> {
        let wanted = self.boolean(fields, path, "calendar");
        let zone = match self.text(fields, path, "time_zone") {
            "" => "UTC",
            zone => zone,
        };
        let day = self.text(fields, path, "week_start");
        let week_start = Weekday::from_name(day);
        if week_start.is_none() && !day.is_empty() {
            let names = Weekday::ALL.map(Weekday::name);
            self.unknown_word(fields, path, "week_start", (day, &names));
        }
        if !wanted {
            for name in ["time_zone", "week_start"] {
                if fields.given(name).is_some() {
                    let message = format!("'{name}' has no effect without calendar");
                    let help = format!("add `calendar: true`, or remove {name}");
                    self.error(
                        Code::ConflictingKeys,
                        fields.key_span(name),
                        path,
                        message,
                        help,
                    );
                }
            }
            return None;
        }
        match calendar(unit, multiplier, zone, week_start) {
            Ok(calendar) => Some(calendar),
            Err(error) => {
                let at = fields.span_of(match error {
                    CalendarError::UnitTooShort { .. } => "unit",
                    CalendarError::WeekStartWithoutWeek { .. } => "week_start",
                    CalendarError::MultiplierTooLarge { .. } => "unit_multiplier",
                    CalendarError::UnknownZone { .. } => "time_zone",
                    CalendarError::TooMany => "calendar",
                });
                self.error(
                    Code::InvalidCalendar,
                    at,
                    path,
                    error.to_string(),
                    error.advice(),
                );
                None
            }
        }
    }
}
