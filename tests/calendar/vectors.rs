//! Windows computed by hand (`vectors.txt`), names and errors.
//!
//! What it deliberately does not do: random inputs (`laws`).

use tollgate::rules::calendar::{CALENDARS_MAX, CalendarError};
use tollgate_limiter::Unit::{Day, Hour, Minute, Month, Second, Week, Year};
use tollgate_limiter::{Calendar, Timestamp, Unit, Weekday};

use crate::calendar::days::{DAY_US, HOUR_US, parsed, spelled};
use crate::calendar::{asked, at, given, plain, us};

/// The window of `calendar` that holds `now` is `start` to `end`, and so is that of any instant in
/// it.
#[track_caller]
fn window(calendar: &'static dyn Calendar, now: &str, start: &str, end: &str) {
    for us_now in [parsed(now), parsed(start), parsed(end) - 1] {
        let window = calendar.window_at(at(us_now));
        let found = (spelled(us(window.start)), spelled(us(window.end)));
        let wanted = (spelled(parsed(start)), spelled(parsed(end)));
        assert_eq!(found, wanted, "{} at {}", calendar.name(), spelled(us_now));
    }
}

/// A calendar by its name.
fn named(name: &str) -> &'static dyn Calendar {
    let (length, zone) = name.split_once(" in ").unwrap();
    let (length, week_start) = match length.split_once(" from ") {
        Some((length, day)) => (length, Weekday::from_name(day)),
        None => (length, None),
    };
    let (count, unit) = length.split_once(' ').unwrap();
    let unit = Unit::from_name(unit.trim_end_matches('s')).unwrap();
    let calendar = given(unit, count.parse().unwrap(), zone, week_start);
    assert_eq!(calendar.name(), name);
    calendar
}

#[test]
fn windows_are_those_computed_by_hand() {
    let text = include_str!("vectors.txt");
    let rows = text
        .lines()
        .filter(|row| !row.is_empty() && !row.starts_with('#'));
    let mut count = 0;
    for row in rows {
        count += 1;
        let (calendar, rest) = row.split_once(": ").unwrap();
        let mut words = rest.split(' ');
        let mut next = || words.next().unwrap();
        let (now, start, end) = (next(), next(), next());
        window(named(calendar), now, start, end);
        if let Some(hours) = words.next() {
            let length = parsed(end) - parsed(start);
            assert_eq!(length, hours.parse::<i64>().unwrap() * HOUR_US, "{row}");
        }
    }
    assert!(count >= 40, "{count} rows");
}

#[test]
fn weeks_begin_on_any_day() {
    // From every day of the week: 2026-09-21 is a Monday, the 22nd a Tuesday, and so on; the 27th
    // holds all seven.
    for (day, start) in Weekday::ALL.into_iter().zip(21..) {
        let week = given(Week, 1, "UTC", Some(day));
        let (start, end) = (
            format!("2026-09-{start}T00:00"),
            parsed(&format!("2026-09-{start}T00:00")),
        );
        window(week, "2026-09-27T12:00", &start, &spelled(end + 7 * DAY_US));
    }
}

#[test]
fn what_lies_beyond_time_is_cut_off() {
    let first = at(0);
    let last = Timestamp::from_us(Timestamp::MAX_US);
    for unit in [Day, Week, Month, Year] {
        for count in [1, 7, 1_000] {
            for zone in [
                "UTC",
                "Pacific/Kiritimati",
                "Pacific/Pago_Pago",
                "Africa/Monrovia",
            ] {
                let calendar = plain(unit, count, zone);
                let window = calendar.window_at(first);
                assert_eq!(window.start, first, "{}", calendar.name());
                assert!(window.end > first, "{}", calendar.name());
                let window = calendar.window_at(last);
                assert!(window.start < last, "{}", calendar.name());
                assert_eq!(window.end, last, "{}", calendar.name());
                assert_eq!(
                    calendar.window_at(window.start),
                    window,
                    "{}",
                    calendar.name()
                );
            }
        }
    }
    // In Paris 1970 began an hour before.
    window(
        plain(Year, 1, "Europe/Paris"),
        "1970-06-01T00:00",
        "1970-01-01T00:00",
        "1970-12-31T23:00",
    );
    // The second thousand years began long before, the third will end long after.
    let ages = plain(Year, 1_000, "UTC");
    window(
        ages,
        "1970-06-01T00:00",
        "1970-01-01T00:00",
        "2000-01-01T00:00",
    );
    assert_eq!(ages.window_at(last).start, at(parsed("2000-01-01T00:00")));
}

#[test]
fn equal_calendars_are_one_and_say_what_they_are() {
    let names = [
        (plain(Day, 1, "UTC"), "1 day in UTC"),
        (plain(Month, 3, "Europe/Paris"), "3 months in Europe/Paris"),
        (plain(Week, 1, "UTC"), "1 week from Monday in UTC"),
        (
            given(Week, 2, "America/New_York", Some(Weekday::Sunday)),
            "2 weeks from Sunday in America/New_York",
        ),
        (plain(Year, 10, "Etc/GMT+5"), "10 years in Etc/GMT+5"),
    ];
    for (calendar, name) in names {
        assert_eq!(calendar.name(), name);
    }
    let monday = given(Week, 1, "UTC", Some(Weekday::Monday));
    assert!(std::ptr::addr_eq(plain(Week, 1, "UTC"), monday));
    assert_eq!(plain(Week, 1, "UTC"), monday);
    assert_ne!(
        plain(Week, 1, "UTC"),
        given(Week, 1, "UTC", Some(Weekday::Sunday))
    );
    assert_eq!(format!("{monday:?}"), "Calendar(1 week from Monday in UTC)");
}

#[test]
fn weekdays_are_named_in_any_case() {
    assert_eq!(Weekday::from_name("sunday"), Some(Weekday::Sunday));
    assert_eq!(Weekday::from_name("MONDAY"), Some(Weekday::Monday));
    assert_eq!(Weekday::from_name("Sun"), None);
    for day in Weekday::ALL {
        assert_eq!(Weekday::from_name(day.name()), Some(day));
    }
}

#[track_caller]
fn refused(
    unit: Unit,
    count: u32,
    zone: &str,
    week_start: Option<Weekday>,
    message: &str,
    advice: &str,
) {
    let error = asked(unit, count, zone, week_start).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.advice().as_str()),
        (message, advice)
    );
}

#[test]
fn what_no_calendar_has_is_refused_with_advice() {
    for (unit, words) in [
        (Second, "a second"),
        (Minute, "a minute"),
        (Hour, "an hour"),
    ] {
        let message = format!("calendar windows last a day at least, not {words}");
        let advice = "use unit day, week, month or year, or leave out `calendar`";
        refused(unit, 1, "UTC", None, &message, advice);
    }
    for unit in [Day, Month, Year] {
        let message = format!("week_start needs unit week, not {}", unit.name());
        let advice = "leave out `week_start`, or use unit week";
        refused(unit, 1, "UTC", Some(Weekday::Monday), &message, advice);
    }
    let message = "unit_multiplier of a calendar window must be at most 1000, not 1001";
    refused(Day, 1_001, "UTC", None, message, "use a larger unit");
    assert!(asked(Day, 1_000, "UTC", None).is_ok());
    let error = CalendarError::TooMany.to_string();
    assert_eq!(
        error,
        format!("more than {CALENDARS_MAX} different calendars since the start")
    );
}

#[test]
fn an_unknown_zone_is_refused_with_a_guess() {
    let names = "Names are those of the IANA time zone database";
    for (zone, meant) in [
        ("europe/paris", "Europe/Paris"),
        ("utc", "UTC"),
        ("America/New York", "America/New_York"),
        ("paris", "Europe/Paris"),
    ] {
        let advice = format!("did you mean {meant}? {names}");
        refused(
            Day,
            1,
            zone,
            None,
            &format!("unknown time_zone {zone:?}"),
            &advice,
        );
    }
    let advice = "use a name of the IANA time zone database, such as Europe/Paris or UTC";
    for zone in [
        "",
        "Mars/Olympus",
        "+02:00",
        "Etc/Unknown",
        "../Europe/Paris",
        "/etc/localtime",
        "UTC\0",
    ] {
        refused(
            Day,
            1,
            zone,
            None,
            &format!("unknown time_zone {zone:?}"),
            advice,
        );
    }
    let long = "Ä".repeat(1_000_000);
    let error = asked(Day, 1, &long, None).unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
    assert_eq!(error.advice(), advice);
}
