//! What stands under `rate_limit`, and in each item of `rate_limits`: how many, in how long, counted how, and which rules it
//! replaces.
//!
//! What may stand beside an algorithm is the algorithm's to say ([`Choice`]); this file knows only which field is which
//! choice, and what a field's value may be.
//!
//! What it deliberately does not do: know where in the tree it stands (`mod`).

use std::num::{NonZeroU16, NonZeroU32};

use super::super::calendar::{CalendarError, calendar};
use super::super::yaml::Node;
use super::Loader;
use super::fields::Fields;
use super::grammar;
use super::problem::{Place, Position, shown};
use crate::limiter::algorithm::SEGMENTS_MAX;
use crate::limiter::{
    ALGORITHMS, Algorithm, Allowance, Calendar, Choice, CountRefused, Limit, LimitError, Rule,
    Unit, Weekday, algorithm,
};

/// Which fields are which choice of an algorithm.
pub(super) const CHOICES: &[(&str, Choice)] = &[
    ("burst", Choice::Burst),
    ("segments", Choice::Segments),
    ("refill", Choice::Refill),
    ("calendar", Choice::Calendar),
    ("time_zone", Choice::Calendar),
    ("week_start", Choice::Calendar),
    ("count_refused", Choice::CountRefused),
    ("holder_key", Choice::Slots),
    ("slot_seconds", Choice::Slots),
];

/// How many limits one descriptor may have.
const LIMITS_MAX: usize = 16;

// === impl Loader ===

impl Loader<'_> {
    /// The rules that a descriptor's `rate_limit` or `rate_limits` make of `rule`; none when there are none, or something is
    /// wrong with them.
    pub(super) fn rate_limits(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        rule: &Rule,
    ) -> Vec<Rule> {
        let advice =
            "write it as a list: `rate_limits: [{unit: second, requests_per_unit: 10}, …]`";
        let items = self.items(fields, place, "rate_limits", advice);
        if let Some(one) = fields.given("rate_limit") {
            if fields.given("rate_limits").is_some() {
                let message = "'rate_limit' and 'rate_limits' stand side by side".to_owned();
                let advice = "put them all into `rate_limits`";
                self.problem(fields.place_of("rate_limits"), place, message, advice);
            }
            let rule = self.rate_limit(one, &place.field("rate_limit"), rule.clone());
            return rule.into_iter().map(|(rule, _)| rule).collect();
        }
        if items.len() > LIMITS_MAX {
            let message = format!("more than {LIMITS_MAX} limits on one descriptor");
            self.problem(fields.place_of("rate_limits"), place, message, "use fewer");
            return Vec::new();
        }
        let mut rules: Vec<Rule> = Vec::with_capacity(items.len());
        // Of each rule, where it stands and where the names that it replaces do.
        let mut places = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let place = place.item("rate_limits", position);
            let Some((rule, replaces_at)) = self.rate_limit(item, &place, rule.clone()) else {
                continue;
            };
            if rule.allowance == Allowance::Unlimited && items.len() > 1 {
                let message = "unlimited stands beside other limits".to_owned();
                self.problem(item.at, &place, message, "remove it, or the others");
            }
            if rules.iter().any(|other| alike(other, &rule)) {
                let message = "two limits alike: same algorithm, window and name, so they would share one bucket";
                let advice = "remove one, or give one another window or a `name`";
                self.problem(item.at, &place, message.to_owned(), advice);
            }
            let key = rule.holder_key.as_ref();
            let mut keys = rules.iter().filter_map(|other| other.holder_key.as_ref());
            if let Some((key, other)) = key.zip(keys.find(|other| Some(*other) != key)) {
                let message = format!(
                    "holder_key '{}' beside holder_key '{}' on one descriptor",
                    shown(key),
                    shown(other)
                );
                let advice = "use one for all: a descriptor's last entry says who holds the slots of all its limits";
                self.problem(item.at, &place, message, advice);
            }
            rules.push(rule);
            places.push((position, replaces_at));
        }
        // Neighbours always match together: a limit that one of them replaces would never be counted.
        for (rule, (position, replaces_at)) in rules.iter().zip(places) {
            let place = place.item("rate_limits", position);
            for (entry, (name, at)) in rule.replaces.iter().zip(replaces_at).enumerate() {
                if rules.iter().any(|other| other.name == *name) {
                    self.replaces_itself(at, &place.item("replaces", entry));
                }
            }
        }
        rules
    }

    /// The rule, and where the names that it replaces stand.
    fn rate_limit(
        &mut self,
        node: &Node,
        place: &Place<'_>,
        mut rule: Rule,
    ) -> Option<(Rule, Vec<Position>)> {
        let fields = self.fields(node, place, &grammar::LIMIT)?;
        let problems_before = self.problems.len();
        let unlimited = self.boolean(&fields, place, "unlimited");
        let unit_text = self.text(&fields, place, "unit");
        let allowance = if unlimited {
            self.unlimited(&fields, place, unit_text)
        } else {
            match self.algorithm(&fields, place) {
                Some((algorithm, _)) if algorithm.choices().contains(&Choice::Slots) => {
                    self.in_flight(&fields, place, algorithm, &mut rule)
                }
                // Which may be a misspelt one that has no unit.
                None if unit_text.is_empty() => self.per_window(&fields, place, None, None),
                algorithm => {
                    let unit = self.unit(&fields, place, unit_text);
                    let fitting = algorithm.filter(|(_, fits)| *fits);
                    self.per_window(
                        &fields,
                        place,
                        unit,
                        fitting.map(|(algorithm, _)| algorithm),
                    )
                }
            }
        };
        let name = self.text(&fields, place, "name");
        self.short(name, fields.place_of("name"), place);
        name.clone_into(&mut rule.name);
        let (replaces, replaces_at) = self.replaces(&fields, place, name).into_iter().unzip();
        rule.replaces = replaces;
        rule.allowance = allowance?;
        (self.problems.len() == problems_before).then_some((rule, replaces_at))
    }

    /// Beside `unlimited` a number of requests is ignored, as by the reference, but must be one; what only tollgate knows
    /// is refused.
    fn unlimited(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        unit: &str,
    ) -> Option<Allowance> {
        if Unit::named(unit).is_some() {
            self.problem(
                fields.place_of("unit"),
                place,
                "should not specify rate limit unit when unlimited".to_owned(),
                "remove `unit`, or remove `unlimited`",
            );
            return None;
        }
        self.integer(fields, place, "requests_per_unit");
        let ours = ["unit_multiplier", "algorithm"].into_iter();
        for name in ours.chain(CHOICES.iter().map(|(name, _)| *name)) {
            if fields.given(name).is_some() {
                let message = format!("'{name}' means nothing beside unlimited");
                let advice = "remove it, or `unlimited`";
                self.problem(fields.place_of(name), place, message, advice);
            }
        }
        Some(Allowance::Unlimited)
    }

    fn unit(&mut self, fields: &Fields<'_>, place: &Place<'_>, text: &str) -> Option<Unit> {
        let unit = Unit::named(text);
        if unit.is_none() {
            let units: Vec<_> = Unit::ALL.iter().map(|unit| unit.name()).collect();
            let message = format!("invalid rate limit unit '{}'", shown(text));
            let advice = format!("use one of {}", units.join(", "));
            self.problem(fields.place_of("unit"), place, message, &advice);
        }
        unit
    }

    /// The algorithm named, or the default, as the choices beside it make it, and whether it has them all.
    fn algorithm(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
    ) -> Option<(&'static dyn Algorithm, bool)> {
        let name = self.text(fields, place, "algorithm");
        let algorithm = match name {
            "" => ALGORITHMS.first().copied(),
            name => algorithm::named(name),
        };
        let Some(mut algorithm) = algorithm else {
            let message = format!("unknown algorithm '{}'", shown(name));
            let advice = format!("use one of {}", grammar::algorithms().join(", "));
            self.problem(fields.place_of("algorithm"), place, message, &advice);
            return None;
        };
        let mut fits = true;
        for (name, choice) in CHOICES {
            if fields.given(name).is_some() && !algorithm.choices().contains(choice) {
                self.no_such_choice(fields, place, algorithm, (name, *choice));
                fits = false;
            }
        }
        if fields.given("segments").is_some() {
            algorithm = algorithm.with(Choice::Segments).unwrap_or(algorithm);
        } else if algorithm.choices().contains(&Choice::Segments)
            && algorithm.with(Choice::Segments).is_none()
        {
            let message = format!("algorithm {} needs segments", algorithm.name());
            let advice = "add `segments: 6`, or set `algorithm: sliding_window`";
            self.problem(fields.place_of("algorithm"), place, message, advice);
            fits = false;
        }
        let refill = if algorithm.choices().contains(&Choice::Refill) {
            self.text(fields, place, "refill")
        } else {
            ""
        };
        match refill {
            "" | "continuous" => {}
            "interval" => algorithm = algorithm.with(Choice::Refill).unwrap_or(algorithm),
            other => {
                let message = format!("unknown refill '{}'", shown(other));
                let advice = "use continuous or interval";
                self.problem(fields.place_of("refill"), place, message, advice);
                fits = false;
            }
        }
        Some((algorithm, fits))
    }

    fn no_such_choice(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        algorithm: &dyn Algorithm,
        (name, choice): (&str, Choice),
    ) {
        let have = ALGORITHMS
            .iter()
            .filter(|other| other.choices().contains(&choice));
        let have: Vec<_> = have.map(|other| other.name()).collect();
        let advice = match have.as_slice() {
            [one] => format!("remove `{name}`, or set `algorithm: {one}`"),
            several => format!(
                "remove `{name}`, or set `algorithm` to one of {}",
                several.join(", ")
            ),
        };
        let message = format!("algorithm {} has no {name}", algorithm.name());
        self.problem(fields.place_of(name), place, message, &advice);
    }

    /// A limit of how many in a window.
    fn per_window(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        unit: Option<Unit>,
        algorithm: Option<&'static dyn Algorithm>,
    ) -> Option<Allowance> {
        let requests = self.integer(fields, place, "requests_per_unit");
        let requests = requests.unwrap_or_default();
        let multiplier = self.integer(fields, place, "unit_multiplier");
        let burst = self.integer(fields, place, "burst");
        let segments = self.segments(fields, place);
        let count_refused = self.count_refused(fields, place);
        let multiplier = NonZeroU32::new(multiplier.unwrap_or(1));
        if multiplier.is_none() {
            let message = "unit_multiplier must be at least 1".to_owned();
            let advice = "remove it for a window of one unit";
            self.problem(fields.place_of("unit_multiplier"), place, message, advice);
        }
        let (unit, multiplier, algorithm) = (unit?, multiplier?, algorithm?);
        let calendar = self.calendar(fields, place, unit, multiplier);
        self.requests_fit(fields, place, algorithm, requests);
        let usual_burst = algorithm.usual_burst(requests);
        let burst = burst.or((usual_burst != requests).then_some(usual_burst));
        let mut limit = match Limit::new(requests, unit, multiplier, burst) {
            Ok(limit) => limit,
            Err(error) => {
                let (name, advice) = match error {
                    LimitError::ZeroBurst => ("burst", "remove `burst` for the usual one"),
                    LimitError::BurstWithoutRate => {
                        ("burst", "remove `burst`: a limit of 0 refuses everything")
                    }
                    LimitError::WindowTooLong => ("unit_multiplier", "use a shorter window"),
                };
                self.problem(fields.place_of(name), place, error.to_string(), advice);
                return None;
            }
        };
        if limit.window().as_us() > algorithm.window_max_us() {
            let years = algorithm.window_max_us() / (Unit::Year.seconds() * 1_000_000);
            let message = format!(
                "a window of {} is longer than {} can hold",
                limit.window_words(),
                algorithm.name()
            );
            let advice = format!("use a window of {years} years at most");
            self.problem(fields.place_of("unit_multiplier"), place, message, &advice);
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

    /// A limit of how many at any moment.
    fn in_flight(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        algorithm: &'static dyn Algorithm,
        rule: &mut Rule,
    ) -> Option<Allowance> {
        for name in ["unit", "unit_multiplier"] {
            if fields.given(name).is_some() {
                let message = format!("algorithm {} has no {name}", algorithm.name());
                let advice =
                    format!("remove `{name}`: it limits how many are in flight at any moment");
                self.problem(fields.place_of(name), place, message, &advice);
            }
        }
        let requests = self.integer(fields, place, "requests_per_unit");
        let requests = requests.unwrap_or_default();
        self.requests_fit(fields, place, algorithm, requests);
        let holder_key = self.text(fields, place, "holder_key");
        if self.short(holder_key, fields.place_of("holder_key"), place) && !holder_key.is_empty() {
            rule.holder_key = Some(holder_key.to_owned());
        }
        let seconds = self.integer(fields, place, "slot_seconds");
        let Some(seconds) = seconds.and_then(NonZeroU32::new) else {
            let message = format!(
                "algorithm {} needs slot_seconds of at least 1",
                algorithm.name()
            );
            let advice = "add `slot_seconds: 60`: how long a slot is held when nobody frees it, longer than the slowest request";
            self.problem(fields.place_of("slot_seconds"), place, message, advice);
            return None;
        };
        Some(Allowance::Limited {
            limit: Limit::in_flight(requests, seconds),
            algorithm,
        })
    }

    fn requests_fit(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        algorithm: &dyn Algorithm,
        requests: u32,
    ) {
        let most = algorithm.requests_max();
        if requests > most {
            let name = algorithm.name();
            let message = format!("algorithm {name} remembers each of its hits, at most {most}");
            let advice = format!("use {most} at most, or an algorithm that only counts");
            self.problem(
                fields.place_of("requests_per_unit"),
                place,
                message,
                &advice,
            );
        }
    }

    fn segments(&mut self, fields: &Fields<'_>, place: &Place<'_>) -> Option<NonZeroU16> {
        let number = self.integer(fields, place, "segments")?;
        let segments = u16::try_from(number).ok().and_then(NonZeroU16::new);
        let segments = segments.filter(|segments| segments.get() <= SEGMENTS_MAX);
        if segments.is_none() {
            let message = format!("segments must be from 1 to {SEGMENTS_MAX}");
            let advice = "write such a number, or remove it for a window that slides smoothly";
            self.problem(fields.place_of("segments"), place, message, advice);
        }
        segments
    }

    fn count_refused(&mut self, fields: &Fields<'_>, place: &Place<'_>) -> Option<CountRefused> {
        let name = self.text(fields, place, "count_refused");
        let count_refused = CountRefused::named(name);
        if count_refused.is_none() && !name.is_empty() {
            let names = CountRefused::ALL.map(CountRefused::name).join(", ");
            let message = format!("unknown count_refused '{}'", shown(name));
            let advice = format!("use one of {names}");
            self.problem(fields.place_of("count_refused"), place, message, &advice);
        }
        count_refused
    }

    fn calendar(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        unit: Unit,
        multiplier: NonZeroU32,
    ) -> Option<&'static dyn Calendar> {
        let wanted = self.boolean(fields, place, "calendar");
        let zone = match self.text(fields, place, "time_zone") {
            "" => "UTC",
            zone => zone,
        };
        let day = self.text(fields, place, "week_start");
        let week_start = Weekday::named(day);
        if week_start.is_none() && !day.is_empty() {
            let message = format!("unknown week_start '{}'", shown(day));
            let advice = "use a day's English name, such as monday or sunday";
            self.problem(fields.place_of("week_start"), place, message, advice);
        }
        if !wanted {
            for name in ["time_zone", "week_start"] {
                if fields.given(name).is_some() {
                    let message = format!("'{name}' means nothing without calendar");
                    let advice = "add `calendar: true`, or remove it";
                    self.problem(fields.place_of(name), place, message, advice);
                }
            }
            return None;
        }
        match calendar(unit, multiplier, zone, week_start) {
            Ok(calendar) => Some(calendar),
            Err(error) => {
                let at = fields.place_of(match error {
                    CalendarError::UnitTooShort { .. } => "unit",
                    CalendarError::WeekStartWithoutWeek { .. } => "week_start",
                    CalendarError::MultiplierTooLarge { .. } => "unit_multiplier",
                    CalendarError::UnknownZone { .. } => "time_zone",
                    CalendarError::TooMany => "calendar",
                });
                self.problem(at, place, error.to_string(), &error.advice());
                None
            }
        }
    }

    /// The names of the rules that it replaces, and where they stand.
    fn replaces(
        &mut self,
        fields: &Fields<'_>,
        place: &Place<'_>,
        own_name: &str,
    ) -> Vec<(String, Position)> {
        let advice = "write it as a list: `replaces: [{name: OTHER}]`";
        let items = self.items(fields, place, "replaces", advice);
        let mut names = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let place = place.item("replaces", position);
            let Some(fields) = self.fields(item, &place, &grammar::REPLACED) else {
                continue;
            };
            let name = self.text(&fields, &place, "name");
            if name.is_empty() {
                let message = "should not have an empty replaces entry".to_owned();
                let advice = "name the rule to replace, or remove the entry";
                self.problem(item.at, &place, message, advice);
            } else if name == own_name {
                self.replaces_itself(item.at, &place);
            } else if self.short(name, item.at, &place) {
                names.push((name.to_owned(), item.at));
            }
        }
        names
    }

    fn replaces_itself(&mut self, at: Position, place: &Place<'_>) {
        let message = "replaces should not contain name of same descriptor".to_owned();
        let advice = "a rule cannot replace itself; remove the entry";
        self.problem(at, place, message, advice);
    }
}

/// Whether two limits of one descriptor would share a bucket.
fn alike(one: &Rule, other: &Rule) -> bool {
    match (&one.allowance, &other.allowance) {
        (
            Allowance::Limited { limit, algorithm },
            Allowance::Limited {
                limit: other_limit,
                algorithm: other_algorithm,
            },
        ) => {
            let window = |limit: &Limit| (limit.unit().map(|_| limit.window()), limit.calendar());
            algorithm == other_algorithm
                && window(limit) == window(other_limit)
                && one.name == other.name
        }
        _ => false,
    }
}
