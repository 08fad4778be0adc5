//! Dates as numbers of days since 1970-01-01, counted year by year and month by month.
//!
//! The tests must not take their dates from the library that the code uses: they would repeat its
//! errors.
//!
//! What it deliberately does not do: zones, or be fast.

/// A year, a month from 1, a day from 1.
pub(crate) type Date = (i64, i64, i64);

pub(crate) const HOUR_US: i64 = 3_600_000_000;
pub(crate) const DAY_US: i64 = 24 * HOUR_US;

pub(crate) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The number of that date.
pub(crate) fn number((year, month, day): Date) -> i64 {
    let years: i64 = if year < 1970 {
        -(year..1970).map(days_of_year).sum::<i64>()
    } else {
        (1970..year).map(days_of_year).sum()
    };
    let months: i64 = (1..month).map(|month| days_of_month(year, month)).sum();
    years + months + day - 1
}

/// The date of that number.
pub(crate) fn date(mut number: i64) -> Date {
    let (mut year, mut month) = (1970, 1);
    while number < 0 {
        year -= 1;
        number += days_of_year(year);
    }
    while number >= days_of_year(year) {
        number -= days_of_year(year);
        year += 1;
    }
    while number >= days_of_month(year, month) {
        number -= days_of_month(year, month);
        month += 1;
    }
    (year, month, number + 1)
}

/// `2026-03-29T01:00` as microseconds since 1970, in UTC; seconds may follow.
pub(crate) fn parsed(text: &str) -> i64 {
    let mut parts = text
        .split(['-', 'T', ':'])
        .map(|part| part.parse::<i64>().unwrap());
    let mut next = || parts.next().unwrap_or(0);
    let day = number((next(), next(), next()));
    day * DAY_US + next() * HOUR_US + next() * 60_000_000 + next() * 1_000_000
}

/// The reverse, for messages.
pub(crate) fn spelled(us: i64) -> String {
    let (year, month, day) = date(us.div_euclid(DAY_US));
    let rest = us.rem_euclid(DAY_US);
    let (hour, minute) = (rest / HOUR_US, rest / 60_000_000 % 60);
    let second = rest / 1_000_000 % 60;
    let micros = match rest % 1_000_000 {
        0 => String::new(),
        micros => format!(".{micros:06}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{micros}")
}

#[test]
fn numbers_and_dates_are_each_other() {
    assert_eq!(number((1970, 1, 1)), 0);
    assert_eq!(number((2000, 3, 1)), 11_017); // 30 years of 365, 7 leap days 1972 to 1996, 31 + 29
    assert_eq!(number((1969, 12, 29)), -3);
    for day in (-400_000..400_000).step_by(977) {
        assert_eq!(number(date(day)), day);
    }
    let us = parsed("2026-03-29T01:00");
    assert_eq!(us, 1_774_746_000_000_000);
    assert_eq!(spelled(us), "2026-03-29T01:00:00");
}
