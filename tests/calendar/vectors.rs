//! Windows computed by hand, with their derivation.
//!
//! All instants are UTC. Each row has a zone, an instant, and the window that holds it.
//!
//! What it deliberately does not do: random inputs (`laws`).

use tollgate::rules::calendar::{CALENDARS_MAX, CalendarError};
use tollgate_limiter::Unit::{Day, Hour, Minute, Month, Second, Week, Year};
use tollgate_limiter::{Calendar, Timestamp, Unit, Weekday};

use crate::days::{DAY_US, HOUR_US, parsed, spelled};
use crate::{asked, at, given, plain, us};

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

#[track_caller]
fn hours(from: &str, to: &str, wanted: i64) {
    assert_eq!(parsed(to) - parsed(from), wanted * HOUR_US);
}

#[test]
fn days_in_paris_have_23_24_or_25_hours() {
    let day = plain(Day, 1, "Europe/Paris");
    // Winter time is +1, so midnight is 23:00.
    window(
        day,
        "2026-01-15T12:00",
        "2026-01-14T23:00",
        "2026-01-15T23:00",
    );
    // Summer time is +2, so midnight is 22:00.
    window(
        day,
        "2026-07-14T22:00",
        "2026-07-14T22:00",
        "2026-07-15T22:00",
    );
    // The last Sunday of March, the 29th: 02:00 becomes 03:00. It begins in winter time and ends in
    // summer time.
    window(
        day,
        "2026-03-29T12:00",
        "2026-03-28T23:00",
        "2026-03-29T22:00",
    );
    hours("2026-03-28T23:00", "2026-03-29T22:00", 23);
    // The last Sunday of October, the 25th: 03:00 becomes 02:00.
    window(
        day,
        "2026-10-25T12:00",
        "2026-10-24T22:00",
        "2026-10-25T23:00",
    );
    hours("2026-10-24T22:00", "2026-10-25T23:00", 25);
}

#[test]
fn months_and_years_in_paris_begin_on_their_first() {
    let month = plain(Month, 1, "Europe/Paris");
    // It begins in winter time and ends in summer time.
    window(
        month,
        "2026-03-15T00:00",
        "2026-02-28T23:00",
        "2026-03-31T22:00",
    );
    window(
        month,
        "2026-07-31T21:59",
        "2026-06-30T22:00",
        "2026-07-31T22:00",
    );
    let year = plain(Year, 1, "Europe/Paris");
    window(
        year,
        "2026-07-01T00:00",
        "2025-12-31T23:00",
        "2026-12-31T23:00",
    );
    // 2022 to 2025 divide by 2 as 1011 and 1012 pairs: 2024 is even.
    let years = plain(Year, 2, "Europe/Paris");
    window(
        years,
        "2025-07-01T00:00",
        "2023-12-31T23:00",
        "2025-12-31T23:00",
    );
}

#[test]
fn quarters_and_half_years_begin_with_january() {
    let quarter = plain(Month, 3, "Europe/Paris");
    window(
        quarter,
        "2026-02-01T00:00",
        "2025-12-31T23:00",
        "2026-03-31T22:00",
    );
    window(
        quarter,
        "2026-08-01T00:00",
        "2026-06-30T22:00",
        "2026-09-30T22:00",
    );
    let half = plain(Month, 6, "UTC");
    window(
        half,
        "2026-06-30T23:59",
        "2026-01-01T00:00",
        "2026-07-01T00:00",
    );
    window(
        half,
        "2026-12-31T23:59",
        "2026-07-01T00:00",
        "2027-01-01T00:00",
    );
    // 5 do not divide 12: month 2026 × 12 = 24,312 = 4,862 × 5 + 2, so a window began two months
    // before January.
    let five = plain(Month, 5, "UTC");
    window(
        five,
        "2026-01-15T00:00",
        "2025-11-01T00:00",
        "2026-04-01T00:00",
    );
}

#[test]
fn february_has_29_days_in_leap_years() {
    let month = plain(Month, 1, "UTC");
    window(
        month,
        "2024-02-29T12:00",
        "2024-02-01T00:00",
        "2024-03-01T00:00",
    );
    hours("2024-02-01T00:00", "2024-03-01T00:00", 29 * 24);
    window(
        month,
        "2023-02-28T12:00",
        "2023-02-01T00:00",
        "2023-03-01T00:00",
    );
    hours("2023-02-01T00:00", "2023-03-01T00:00", 28 * 24);
    // A century is none, unless 400 divides it.
    window(
        month,
        "2100-02-28T12:00",
        "2100-02-01T00:00",
        "2100-03-01T00:00",
    );
    hours("2100-02-01T00:00", "2100-03-01T00:00", 28 * 24);
    let year = plain(Year, 1, "UTC");
    window(
        year,
        "2000-12-31T12:00",
        "2000-01-01T00:00",
        "2001-01-01T00:00",
    );
    hours("2000-01-01T00:00", "2001-01-01T00:00", 366 * 24);
}

#[test]
fn weeks_begin_on_monday_unless_said() {
    let zone = "America/New_York";
    // 2026-03-08 is a Sunday, the second of March: 02:00 becomes 03:00. Midnight is 05:00 before
    // and 04:00 after.
    let sunday = given(Week, 1, zone, Some(Weekday::Sunday));
    window(
        sunday,
        "2026-03-10T12:00",
        "2026-03-08T05:00",
        "2026-03-15T04:00",
    );
    hours("2026-03-08T05:00", "2026-03-15T04:00", 7 * 24 - 1);
    let monday = plain(Week, 1, zone);
    window(
        monday,
        "2026-03-08T12:00",
        "2026-03-02T05:00",
        "2026-03-09T04:00",
    );
    window(
        monday,
        "2026-03-10T12:00",
        "2026-03-09T04:00",
        "2026-03-16T04:00",
    );
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
fn several_days_and_weeks_are_counted_from_1970() {
    // Days 0, 1 and 2; the fourth begins another window.
    let days = plain(Day, 3, "UTC");
    window(
        days,
        "1970-01-03T23:00",
        "1970-01-01T00:00",
        "1970-01-04T00:00",
    );
    // 2026-01-01 is day 20,454 = 3 × 6,818.
    window(
        days,
        "2026-01-03T23:00",
        "2026-01-01T00:00",
        "2026-01-04T00:00",
    );
    // The week that holds Thursday, 1970-01-01, began on Monday, 1969-12-29; the second ends on
    // January 12th.
    let weeks = plain(Week, 2, "UTC");
    window(
        weeks,
        "1970-01-11T23:00",
        "1970-01-01T00:00",
        "1970-01-12T00:00",
    );
    window(
        weeks,
        "1970-01-12T00:00",
        "1970-01-12T00:00",
        "1970-01-26T00:00",
    );
    // From Friday it began on 1969-12-26, so the second ends on January 9th.
    let fridays = given(Week, 2, "UTC", Some(Weekday::Friday));
    window(
        fridays,
        "1970-01-08T23:00",
        "1970-01-01T00:00",
        "1970-01-09T00:00",
    );
}

#[test]
fn a_day_without_midnight_begins_when_clocks_went_forward() {
    // São Paulo, 2018-11-04: 00:00 (-3) becomes 01:00 (-2), at 03:00 UTC. The next midnight is
    // 02:00.
    let day = plain(Day, 1, "America/Sao_Paulo");
    window(
        day,
        "2018-11-04T12:00",
        "2018-11-04T03:00",
        "2018-11-05T02:00",
    );
    window(
        day,
        "2018-11-04T02:59",
        "2018-11-03T03:00",
        "2018-11-04T03:00",
    );
    // Beirut, 2022-03-27: 00:00 (+2) becomes 01:00 (+3), at 22:00 UTC. The next midnight is 21:00.
    let day = plain(Day, 1, "Asia/Beirut");
    window(
        day,
        "2022-03-27T12:00",
        "2022-03-26T22:00",
        "2022-03-27T21:00",
    );
    // Kathmandu, 1986-01-01: 00:00 (+5:30) becomes 00:15 (+5:45), at 18:30 UTC; so began the year.
    let year = plain(Year, 1, "Asia/Kathmandu");
    window(
        year,
        "1986-06-01T00:00",
        "1985-12-31T18:30",
        "1986-12-31T18:15",
    );
}

#[test]
fn going_back_at_midnight_makes_the_old_day_longer() {
    // São Paulo, 2018-02-18: what would be 00:00 (-2) is 23:00 (-3) of the 17th, at 02:00 UTC.
    // Midnight comes once.
    let day = plain(Day, 1, "America/Sao_Paulo");
    window(
        day,
        "2018-02-18T02:30",
        "2018-02-17T02:00",
        "2018-02-18T03:00",
    );
    hours("2018-02-17T02:00", "2018-02-18T03:00", 25);
}

#[test]
fn of_two_midnights_the_first_begins_the_day() {
    // St John's, 2010-11-07: 00:01 (-2:30) becomes 23:01 (-3:30) of the 6th, at 02:31 UTC.
    // So midnights at 02:30 and 03:30.
    let day = plain(Day, 1, "America/St_Johns");
    window(
        day,
        "2010-11-06T12:00",
        "2010-11-06T02:30",
        "2010-11-07T02:30",
    );
    for repeated in [
        "2010-11-07T02:30",
        "2010-11-07T02:31",
        "2010-11-07T03:00",
        "2010-11-07T03:30",
    ] {
        window(day, repeated, "2010-11-07T02:30", "2010-11-08T03:30");
    }
    hours("2010-11-07T02:30", "2010-11-08T03:30", 25);
    // That was a Sunday, and so the same for a week.
    let week = given(Week, 1, "America/St_Johns", Some(Weekday::Sunday));
    window(
        week,
        "2010-11-07T03:00",
        "2010-11-07T02:30",
        "2010-11-14T03:30",
    );
    // In spring 00:01 becomes 01:01: midnight is there, one minute long.
    window(
        day,
        "2010-03-14T12:00",
        "2010-03-14T03:30",
        "2010-03-15T02:30",
    );
}

#[test]
fn a_day_that_nobody_saw_has_no_window() {
    // Samoa went from 2011-12-29T24:00 (-10) to 2011-12-31T00:00 (+14), at 10:00 UTC on the 30th.
    let zone = "Pacific/Apia";
    let day = plain(Day, 1, zone);
    window(
        day,
        "2011-12-30T09:59",
        "2011-12-29T10:00",
        "2011-12-30T10:00",
    );
    window(
        day,
        "2011-12-30T10:00",
        "2011-12-30T10:00",
        "2011-12-31T10:00",
    );
    // Days 15,338 (the 30th) and 15,339 share a window, of which one was seen.
    let days = plain(Day, 2, zone);
    window(
        days,
        "2011-12-30T12:00",
        "2011-12-30T10:00",
        "2011-12-31T10:00",
    );
    // The year had 364 days; it began in summer time, -10, and ended at +14.
    let year = plain(Year, 1, zone);
    window(
        year,
        "2011-06-01T00:00",
        "2011-01-01T10:00",
        "2011-12-31T10:00",
    );
    hours("2011-01-01T10:00", "2011-12-31T10:00", 364 * 24);
}

#[test]
fn kathmandu_is_three_quarters_of_an_hour_off() {
    // +5:45: midnight is 18:15.
    let day = plain(Day, 1, "Asia/Kathmandu");
    window(
        day,
        "2026-06-15T00:00",
        "2026-06-14T18:15",
        "2026-06-15T18:15",
    );
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
