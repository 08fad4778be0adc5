"""When calendar windows begin, found in the plainest way: by looking at a zone's clocks hour by hour.

Days begin when clocks first show their date. Prints a line for every beginning: unit, count, first day of weeks, zone,
seconds since 1970. Zone data is never the machine's but the package tzdata, or, with arguments, that of a folder:

    windows.py FOLDER FIRST-LAST...

where FIRST and LAST are years.
"""

import sys
import zoneinfo
from datetime import date, datetime, timedelta, timezone

zoneinfo.reset_tzpath(to=sys.argv[1:2])

ZONES = """
UTC Europe/Paris Europe/London Europe/Dublin Europe/Istanbul Europe/Moscow Africa/Cairo Africa/Casablanca
Africa/Monrovia America/New_York America/Los_Angeles America/Sao_Paulo America/St_Johns America/Asuncion
America/Havana America/Santiago Asia/Amman Asia/Beirut Asia/Gaza Asia/Kathmandu Asia/Kolkata Asia/Pyongyang
Asia/Tehran Atlantic/Azores Australia/Lord_Howe Pacific/Apia Pacific/Chatham Pacific/Kwajalein Pacific/Kiritimati
""".split()

# Together with what happened then: Liberia's odd seconds (1972), Nepal (1986), Kwajalein (1993), Kiritimati (1994-95),
# St John's minute past midnight (to 2011), Samoa (2011), Brazil's and Lebanon's midnights, Paraguay's end of it (2024).
YEARS = [(1970, 1973), (1985, 1987), (1993, 1995), (2009, 2012), (2017, 2019), (2022, 2025)]

if sys.argv[2:]:
    YEARS = [tuple(map(int, years.split("-"))) for years in sys.argv[2:]]

WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
HOUR = 3600
DAY_0 = date(1970, 1, 1)


def week_from(first):
    """Number of the week that a date lies in, from that weekday; 0 holds 1970-01-01."""
    start = DAY_0
    while start.weekday() != first:
        start -= timedelta(days=1)
    return lambda day: (day - start).days // 7


CALENDARS = [
    ("day", 1, None, lambda day: (day - DAY_0).days),
    ("day", 2, None, lambda day: (day - DAY_0).days // 2),
    ("day", 10, None, lambda day: (day - DAY_0).days // 10),
    *[("week", 1, first, week_from(first)) for first in range(7)],
    ("week", 2, 0, lambda day: week_from(0)(day) // 2),
    ("month", 1, None, lambda day: (day.year, day.month)),
    ("month", 3, None, lambda day: (day.year, (day.month - 1) // 3)),
    ("month", 5, None, lambda day: (day.year * 12 + day.month - 1) // 5),
    ("year", 1, None, lambda day: day.year),
    ("year", 2, None, lambda day: day.year // 2),
]


def days(zone, first_year, last_year):
    """Each date that clocks come to show, and the second they first do."""

    def shows(second):
        return datetime.fromtimestamp(second, zone)

    second = int(datetime(first_year, 1, 1, tzinfo=timezone.utc).timestamp())
    end = int(datetime(last_year + 1, 1, 3, tzinfo=timezone.utc).timestamp())
    latest = shows(second).date()
    offset = shows(second).utcoffset()
    while second < end:
        after = shows(second + HOUR)
        before, offset = offset, after.utcoffset()
        if offset != before:
            # Clocks changed: every second is looked at.
            for each in range(second + 1, second + HOUR + 1):
                if (day := shows(each).date()) > latest:
                    latest = day
                    yield latest, each
        elif after.date() > latest:
            # Clocks went steadily: halve until the second is found.
            low, high = second, second + HOUR
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if shows(middle).date() > latest else (middle, high)
            latest = after.date()
            yield latest, high
        second += HOUR


def main():
    for name in ZONES:
        zone = zoneinfo.ZoneInfo(name)
        for first_year, last_year in YEARS:
            seen = list(days(zone, first_year, last_year))
            for unit, count, first, window in CALENDARS:
                spelled = "-" if first is None else WEEKDAYS[first]
                last = window(seen[0][0])
                for day, second in seen[1:]:
                    if window(day) != last:
                        last = window(day)
                        print(unit, count, spelled, name, second)
                print(unit, count, spelled, name, "end")


if __name__ == "__main__":
    sys.exit(main())
