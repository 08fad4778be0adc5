//! The fields of a limit, of `rate_limits` and of `over_limit`: every error with its message and
//! position, and the results of valid forms.
//!
//! How: rows as in `refused`. A field that only some algorithms have has a row for each likely
//! mistake; a loop over the table of algorithms covers the rest.
//!
//! What it deliberately does not do: test what the limits do (`tests/service/limits`).

use std::num::NonZeroU16;

use tollgate::rules::file::{TEXT_BYTES_MAX, load};
use tollgate_limiter::algorithm::SEGMENTS_MAX;
use tollgate_limiter::{
    ALGORITHMS, AlgorithmOption, Allowance, Calendar, CountRefused, Limit, MetadataValue,
    OnStoreFailure, OverLimitResponse, Placeholder, Rule,
};

use crate::reading::{MERGED, bad, found, good, limit, only, read, source, words};
use crate::refused::refused;

refused! {
    an_unknown_algorithm:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: leaky}
" => "FILE: unknown algorithm 'leaky'
  at FILE:4:40, descriptors[0].rate_limit
  help: did you mean `leaky_bucket`? Possible values: EVERY_ALGORITHM"

    an_alias_in_capitals:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: GCRA}
" => "FILE: unknown algorithm 'GCRA'
  at FILE:4:40, descriptors[0].rate_limit
  help: did you mean `gcra`? Possible values: EVERY_ALGORITHM"

    a_multiplier_of_zero:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, unit_multiplier: 0}
" => "FILE: unit_multiplier must be at least 1
  at FILE:4:46, descriptors[0].rate_limit
  help: write 1, or remove it, for a window of one unit"

    burst_beside_the_default:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 1, burst: 2}
" => "FILE: algorithm fixed_window has no burst
  at FILE:4:58, descriptors[0].rate_limit
  help: remove `burst`, or set ALGORITHM_WITH_BURST"

    burst_beside_sliding_window:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window, requests_per_unit: 1, burst: 2}
" => "FILE: algorithm sliding_window has no burst
  at FILE:4:85, descriptors[0].rate_limit
  help: remove `burst`, or set ALGORITHM_WITH_BURST"

    burst_beside_sliding_log:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_log, requests_per_unit: 1, burst: 2}
" => "FILE: algorithm sliding_log has no burst
  at FILE:4:82, descriptors[0].rate_limit
  help: remove `burst`, or set ALGORITHM_WITH_BURST"

    burst_beside_segments:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window_segments, segments: 2, requests_per_unit: 1, burst: 2}
" => "FILE: algorithm sliding_window_segments has no burst
  at FILE:4:107, descriptors[0].rate_limit
  help: remove `burst`, or set ALGORITHM_WITH_BURST"

    burst_beside_concurrency:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, slot_seconds: 1, requests_per_unit: 1, burst: 2}
" => "FILE: algorithm concurrency has no burst
  at FILE:4:88, descriptors[0].rate_limit
  help: remove `burst`, or set ALGORITHM_WITH_BURST"

    segments_beside_the_default:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, segments: 2}
" => "FILE: algorithm fixed_window has no segments
  at FILE:4:39, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    segments_beside_sliding_log:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_log, segments: 2}
" => "FILE: algorithm sliding_log has no segments
  at FILE:4:63, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    segments_beside_token_bucket:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: token_bucket, segments: 2}
" => "FILE: algorithm token_bucket has no segments
  at FILE:4:64, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    segments_beside_token_bucket_interval:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: token_bucket_interval, segments: 2}
" => "FILE: algorithm token_bucket_interval has no segments
  at FILE:4:73, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    segments_beside_leaky_bucket:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: leaky_bucket, segments: 2}
" => "FILE: algorithm leaky_bucket has no segments
  at FILE:4:64, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    segments_beside_concurrency:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, slot_seconds: 1, segments: 2}
" => "FILE: algorithm concurrency has no segments
  at FILE:4:69, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    refill_beside_the_default:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, refill: interval}
" => "FILE: algorithm fixed_window has no refill
  at FILE:4:37, descriptors[0].rate_limit
  help: remove `refill`, or set ALGORITHM_WITH_REFILL"

    refill_beside_sliding_window:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window, refill: interval}
" => "FILE: algorithm sliding_window has no refill
  at FILE:4:64, descriptors[0].rate_limit
  help: remove `refill`, or set ALGORITHM_WITH_REFILL"

    refill_beside_sliding_log:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_log, refill: interval}
" => "FILE: algorithm sliding_log has no refill
  at FILE:4:61, descriptors[0].rate_limit
  help: remove `refill`, or set ALGORITHM_WITH_REFILL"

    refill_beside_token_bucket_interval:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: token_bucket_interval, refill: interval}
" => "FILE: algorithm token_bucket_interval has no refill
  at FILE:4:71, descriptors[0].rate_limit
  help: remove `refill`, or set ALGORITHM_WITH_REFILL"

    refill_beside_leaky_bucket:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: leaky_bucket, refill: interval}
" => "FILE: algorithm leaky_bucket has no refill
  at FILE:4:62, descriptors[0].rate_limit
  help: remove `refill`, or set ALGORITHM_WITH_REFILL"

    an_unknown_refill_beside_another_algorithm:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_log, refill: never}
" => "FILE: algorithm sliding_log has no refill
  at FILE:4:61, descriptors[0].rate_limit
  help: remove `refill`, or set ALGORITHM_WITH_REFILL"

    calendar_beside_sliding_window:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, algorithm: sliding_window, calendar: true}
" => "FILE: algorithm sliding_window has no calendar
  at FILE:4:67, descriptors[0].rate_limit
  help: remove `calendar`, or set ALGORITHM_WITH_CALENDAR"

    time_zone_beside_sliding_window:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, algorithm: sliding_window, time_zone: Europe/Paris}
" => "FILE: algorithm sliding_window has no time_zone
  at FILE:4:68, descriptors[0].rate_limit
  help: remove `time_zone`, or set ALGORITHM_WITH_CALENDAR"

    week_start_beside_sliding_window:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, algorithm: sliding_window, week_start: monday}
" => "FILE: algorithm sliding_window has no week_start
  at FILE:4:69, descriptors[0].rate_limit
  help: remove `week_start`, or set ALGORITHM_WITH_CALENDAR"

    calendar_beside_a_token_bucket:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, algorithm: token_bucket, calendar: false}
" => "FILE: algorithm token_bucket has no calendar
  at FILE:4:65, descriptors[0].rate_limit
  help: remove `calendar`, or set ALGORITHM_WITH_CALENDAR"

    calendar_and_its_zone_beside_another_algorithm:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, algorithm: gcra, calendar: true, time_zone: UTC}
" => "FILE: algorithm token_bucket has no calendar
  at FILE:4:57, descriptors[0].rate_limit
  help: remove `calendar`, or set ALGORITHM_WITH_CALENDAR
FILE: algorithm token_bucket has no time_zone
  at FILE:4:74, descriptors[0].rate_limit
  help: remove `time_zone`, or set ALGORITHM_WITH_CALENDAR"

    calendar_beside_concurrency:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, slot_seconds: 1, calendar: true}
" => "FILE: algorithm concurrency has no calendar
  at FILE:4:69, descriptors[0].rate_limit
  help: remove `calendar`, or set ALGORITHM_WITH_CALENDAR"

    count_refused_beside_concurrency:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, slot_seconds: 1, count_refused: none}
" => "FILE: algorithm concurrency has no count_refused
  at FILE:4:74, descriptors[0].rate_limit
  help: remove `count_refused`, or set ALGORITHM_WITH_COUNT_REFUSED"

    holder_key_beside_the_default:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, holder_key: id}
" => "FILE: algorithm fixed_window has no holder_key
  at FILE:4:41, descriptors[0].rate_limit
  help: remove `holder_key`, or set ALGORITHM_WITH_SLOTS"

    holder_key_beside_sliding_log:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_log, holder_key: id}
" => "FILE: algorithm sliding_log has no holder_key
  at FILE:4:65, descriptors[0].rate_limit
  help: remove `holder_key`, or set ALGORITHM_WITH_SLOTS"

    slot_seconds_beside_the_default:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, slot_seconds: 60}
" => "FILE: algorithm fixed_window has no slot_seconds
  at FILE:4:43, descriptors[0].rate_limit
  help: remove `slot_seconds`, or set ALGORITHM_WITH_SLOTS"

    slot_seconds_beside_sliding_log:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_log, slot_seconds: 60}
" => "FILE: algorithm sliding_log has no slot_seconds
  at FILE:4:67, descriptors[0].rate_limit
  help: remove `slot_seconds`, or set ALGORITHM_WITH_SLOTS"

    a_burst_of_zero:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 1, algorithm: token_bucket, burst: 0}
" => "FILE: burst must be at least 1
  at FILE:4:83, descriptors[0].rate_limit
  help: remove `burst` for the default"

    a_burst_of_zero_in_a_leaky_bucket:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 1, algorithm: leaky_bucket, burst: 0}
" => "FILE: burst must be at least 1
  at FILE:4:83, descriptors[0].rate_limit
  help: remove `burst` for the default"

    a_burst_beside_a_limit_of_zero:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 0, algorithm: token_bucket, burst: 3}
" => "FILE: burst needs requests_per_unit of at least 1
  at FILE:4:83, descriptors[0].rate_limit
  help: remove `burst`: a limit of 0 refuses everything"

    a_burst_that_is_text:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: token_bucket, burst: many}
" => "FILE: error loading config file: yaml: burst is not a whole number from 0 to 4294967295
  at FILE:4:61, descriptors[0].rate_limit
  help: write a number from 0 to 4294967295"

    segments_zero:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window, segments: 0}
" => "FILE: segments must be from 1 to 1000
  at FILE:4:66, descriptors[0].rate_limit
  help: write a number from 1 to 1000, or remove it for a window that slides smoothly"

    segments_too_many:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window, segments: 1001}
" => "FILE: segments must be from 1 to 1000
  at FILE:4:66, descriptors[0].rate_limit
  help: write a number from 1 to 1000, or remove it for a window that slides smoothly"

    segments_far_too_many:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window, segments: 70000}
" => "FILE: segments must be from 1 to 1000
  at FILE:4:66, descriptors[0].rate_limit
  help: write a number from 1 to 1000, or remove it for a window that slides smoothly"

    segments_that_are_a_float:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window, segments: 1.5}
" => "FILE: error checking config
  at FILE:4:66, descriptors[0].rate_limit
  help: segments is a whole number"

    the_algorithm_of_segments_without_any:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: sliding_window_segments}
" => "FILE: algorithm sliding_window_segments needs segments
  at FILE:4:40, descriptors[0].rate_limit
  help: add `segments: 6`, or set `algorithm: sliding_window`"

    an_unknown_refill:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, algorithm: token_bucket, refill: steps}
" => "FILE: unknown refill 'steps'
  at FILE:4:62, descriptors[0].rate_limit
  help: use one of continuous, interval"

    an_unknown_count_refused:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, count_refused: some}
" => "FILE: unknown count_refused 'some'
  at FILE:4:44, descriptors[0].rate_limit
  help: use one of none, blocking, all"

    count_refused_that_is_a_boolean:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, count_refused: yes}
" => "FILE: unknown count_refused 'yes'
  at FILE:4:44, descriptors[0].rate_limit
  help: use one of none, blocking, all"

    concurrency_without_slot_seconds:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, requests_per_unit: 1}
" => "FILE: algorithm concurrency needs slot_seconds of at least 1
  at FILE:4:29, descriptors[0].rate_limit
  help: add `slot_seconds: 60`: after this time a slot expires that was not freed; it must be longer than the slowest request"

    slot_seconds_of_zero:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, requests_per_unit: 1, slot_seconds: 0}
" => "FILE: algorithm concurrency needs slot_seconds of at least 1
  at FILE:4:78, descriptors[0].rate_limit
  help: add `slot_seconds: 60`: after this time a slot expires that was not freed; it must be longer than the slowest request"

    concurrency_with_unit:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, requests_per_unit: 1, slot_seconds: 5, unit: second}
" => "FILE: algorithm concurrency has no unit
  at FILE:4:87, descriptors[0].rate_limit
  help: remove `unit`: the limit is of requests in flight at any moment"

    concurrency_with_unit_multiplier:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, requests_per_unit: 1, slot_seconds: 5, unit_multiplier: 2}
" => "FILE: algorithm concurrency has no unit_multiplier
  at FILE:4:98, descriptors[0].rate_limit
  help: remove `unit_multiplier`: the limit is of requests in flight at any moment"

    more_than_sliding_log_can_remember:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: sliding_log, unit: day, requests_per_unit: 10001}
" => "FILE: algorithm sliding_log stores every hit, at most 10000
  at FILE:4:72, descriptors[0].rate_limit
  help: use at most 10000, or an algorithm that counts, such as sliding_window"

    more_than_concurrency_can_remember:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, slot_seconds: 5, requests_per_unit: 10001}
" => "FILE: algorithm concurrency stores every hit, at most 10000
  at FILE:4:78, descriptors[0].rate_limit
  help: use at most 10000, or an algorithm that counts, such as sliding_window"

    a_window_longer_than_time:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, unit_multiplier: 300}
" => "FILE: the window is longer than 285 years
  at FILE:4:47, descriptors[0].rate_limit
  help: use a shorter window"

    a_window_that_overflows:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, unit_multiplier: 4294967295}
" => "FILE: the window is longer than 285 years
  at FILE:4:47, descriptors[0].rate_limit
  help: use a shorter window"

    a_window_longer_than_sliding_window_can_hold:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, unit_multiplier: 150, algorithm: sliding_window}
" => "FILE: a window of 150 years is longer than sliding_window can hold
  at FILE:4:47, descriptors[0].rate_limit
  help: use a window of at most 142 years"

    a_window_longer_than_sliding_log_can_hold:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, unit_multiplier: 150, algorithm: sliding_log}
" => "FILE: a window of 150 years is longer than sliding_log can hold
  at FILE:4:47, descriptors[0].rate_limit
  help: use a window of at most 142 years"

    a_window_longer_than_segments_can_hold:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, unit_multiplier: 150, algorithm: sliding_window, segments: 6}
" => "FILE: a window of 150 years is longer than sliding_window_segments can hold
  at FILE:4:47, descriptors[0].rate_limit
  help: use a window of at most 142 years"

    a_calendar_of_minutes:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: minute, calendar: true}
" => "FILE: calendar windows last a day at least, not a minute
  at FILE:4:24, descriptors[0].rate_limit
  help: use unit day, week, month or year, or leave out `calendar`"

    a_zone_in_lower_case:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, calendar: true, time_zone: europe/paris}
" => "FILE: unknown time_zone \"europe/paris\"
  at FILE:4:56, descriptors[0].rate_limit
  help: did you mean Europe/Paris? Names are those of the IANA time zone database"

    a_zone_by_its_city:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, calendar: true, time_zone: New York}
" => "FILE: unknown time_zone \"New York\"
  at FILE:4:56, descriptors[0].rate_limit
  help: did you mean America/New_York? Names are those of the IANA time zone database"

    an_unknown_zone:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, calendar: true, time_zone: Middle/Earth}
" => "FILE: unknown time_zone \"Middle/Earth\"
  at FILE:4:56, descriptors[0].rate_limit
  help: use a name of the IANA time zone database, such as Europe/Paris or UTC"

    a_zone_that_is_an_offset:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, calendar: true, time_zone: \"+02:00\"}
" => "FILE: unknown time_zone \"+02:00\"
  at FILE:4:56, descriptors[0].rate_limit
  help: use a name of the IANA time zone database, such as Europe/Paris or UTC"

    week_start_beside_month:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: month, calendar: true, week_start: sunday}
" => "FILE: week_start needs unit week, not month
  at FILE:4:59, descriptors[0].rate_limit
  help: leave out `week_start`, or use unit week"

    an_unknown_week_start:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, calendar: true, week_start: sun}
" => "FILE: unknown week_start 'sun'
  at FILE:4:58, descriptors[0].rate_limit
  help: use one of Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"

    time_zone_without_calendar:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, time_zone: UTC}
" => "FILE: 'time_zone' has no effect without calendar
  at FILE:4:30, descriptors[0].rate_limit
  help: add `calendar: true`, or remove time_zone"

    week_start_without_calendar:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, week_start: monday}
" => "FILE: 'week_start' has no effect without calendar
  at FILE:4:30, descriptors[0].rate_limit
  help: add `calendar: true`, or remove week_start"

    time_zone_beside_calendar_false:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: week, calendar: false, time_zone: UTC}
" => "FILE: 'time_zone' has no effect without calendar
  at FILE:4:47, descriptors[0].rate_limit
  help: add `calendar: true`, or remove time_zone"

    a_calendar_of_too_many_units:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, unit_multiplier: 1001, calendar: true}
" => "FILE: unit_multiplier of a calendar window must be at most 1000, not 1001
  at FILE:4:46, descriptors[0].rate_limit
  help: use a larger unit"

    calendar_that_is_text:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, calendar: Gregorian}
" => "FILE: error loading config file: yaml: calendar is not true or false
  at FILE:4:39, descriptors[0].rate_limit
  help: write `true` or `false`"

    unlimited_beside_unit_multiplier:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, unit_multiplier: 2}
" => "FILE: 'unit_multiplier' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `unit_multiplier`, or `unlimited`"

    unlimited_beside_algorithm:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, algorithm: fixed_window}
" => "FILE: 'algorithm' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `algorithm`, or `unlimited`"

    unlimited_beside_burst:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, burst: 1}
" => "FILE: 'burst' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `burst`, or `unlimited`"

    unlimited_beside_segments:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, segments: 2}
" => "FILE: 'segments' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `segments`, or `unlimited`"

    unlimited_beside_refill:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, refill: interval}
" => "FILE: 'refill' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `refill`, or `unlimited`"

    unlimited_beside_calendar:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, calendar: true}
" => "FILE: 'calendar' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `calendar`, or `unlimited`"

    unlimited_beside_time_zone:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, time_zone: UTC}
" => "FILE: 'time_zone' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `time_zone`, or `unlimited`"

    unlimited_beside_week_start:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, week_start: monday}
" => "FILE: 'week_start' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `week_start`, or `unlimited`"

    unlimited_beside_count_refused:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, count_refused: all}
" => "FILE: 'count_refused' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `count_refused`, or `unlimited`"

    unlimited_beside_holder_key:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, holder_key: id}
" => "FILE: 'holder_key' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `holder_key`, or `unlimited`"

    unlimited_beside_slot_seconds:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, slot_seconds: 5}
" => "FILE: 'slot_seconds' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `slot_seconds`, or `unlimited`"

    several_things_wrong_with_one_limit:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: age, algorithm: token_bucket, refill: daily, segments: 3}
" => "FILE: invalid rate limit unit 'age'
  at FILE:4:24, descriptors[0].rate_limit
  help: use one of second, minute, hour, day, week, month, year
FILE: unknown refill 'daily'
  at FILE:4:62, descriptors[0].rate_limit
  help: use one of continuous, interval
FILE: algorithm token_bucket has no segments
  at FILE:4:79, descriptors[0].rate_limit
  help: remove `segments`, or set ALGORITHM_WITH_SEGMENTS"

    two_limits_alike:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: minute, requests_per_unit: 10}
      - {unit: minute, requests_per_unit: 20}
" => "FILE: two limits with the same algorithm, window and name would share one bucket
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove one of them, or give one another window or a `name`"

    two_equal_limits_written_differently:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: minute, unit_multiplier: 60, requests_per_unit: 10}
      - {unit: second, requests_per_unit: 1}
      - {unit: hour, requests_per_unit: 20, count_refused: none}
" => "FILE: two limits with the same algorithm, window and name would share one bucket
  at FILE:7:9, descriptors[0].rate_limits[2]
  help: remove one of them, or give one another window or a `name`"

    two_limits_of_one_name_alike:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: minute, name: n}
      - {unit: minute, name: n}
" => "FILE: two limits with the same algorithm, window and name would share one bucket
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove one of them, or give one another window or a `name`"

    two_limits_in_flight_alike:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {algorithm: concurrency, slot_seconds: 5, requests_per_unit: 2}
      - {algorithm: concurrency, slot_seconds: 6, requests_per_unit: 3}
" => "FILE: two limits with the same algorithm, window and name would share one bucket
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove one of them, or give one another window or a `name`"

    two_calendars_alike:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: month, calendar: true, requests_per_unit: 2}
      - {unit: month, calendar: true, time_zone: UTC, requests_per_unit: 3}
" => "FILE: two limits with the same algorithm, window and name would share one bucket
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove one of them, or give one another window or a `name`"

    an_alias_and_its_algorithm_alike:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day, algorithm: gcra}
      - {unit: day, algorithm: token_bucket, burst: 3, requests_per_unit: 1}
" => "FILE: two limits with the same algorithm, window and name would share one bucket
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove one of them, or give one another window or a `name`"

    unlimited_beside_others:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day}
      - {unlimited: true}
" => "FILE: an unlimited limit beside other limits
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove it, or the other limits"

    a_problem_in_one_of_several:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day}
      - {unit: fortnight}
" => "FILE: invalid rate limit unit 'fortnight'
  at FILE:6:16, descriptors[0].rate_limits[1]
  help: use one of second, minute, hour, day, week, month, year"

    a_null_in_a_list_of_limits:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day}
      - ~
" => "FILE: config error, yaml file contains list of type other than map: <nil>
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: write `key: value` pairs here"

    an_unknown_name_in_one_of_several:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day, typo: 1}
" => "FILE: config error, unknown key 'typo'
  at FILE:5:21, descriptors[0].rate_limits[0]
  help: the keys of `rate_limit` are IN_A_LIMIT"

    a_limit_that_replaces_its_neighbour:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: second, name: short}
      - {unit: day, name: long, replaces: [{name: other}, {name: short}]}
" => "FILE: replaces should not contain name of same descriptor
  at FILE:6:59, descriptors[0].rate_limits[1].replaces[1]
  help: remove the entry: a rule cannot replace itself"

    a_limit_that_replaces_a_later_neighbour:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: second, name: short, replaces: [{name: long}]}
      - {unit: day, name: long}
" => "FILE: replaces should not contain name of same descriptor
  at FILE:5:48, descriptors[0].rate_limits[0].replaces[0]
  help: remove the entry: a rule cannot replace itself"

    rate_limit_and_rate_limits:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day}
    rate_limits: [{unit: second}]
" => "FILE: 'rate_limit' and 'rate_limits' on one descriptor
  at FILE:5:5, descriptors[0]
  help: put all limits into `rate_limits`"

    rate_limits_that_is_a_mapping:
"domain: d
descriptors:
  - key: k
    rate_limits: {unit: day}
" => "FILE: error loading config file: yaml: rate_limits is not a list
  at FILE:4:18, descriptors[0]
  help: write a list: `rate_limits: [{unit: second, requests_per_unit: 10}, …]`"

    too_many_limits:
"domain: d
descriptors:
  - key: k
    rate_limits: [{unit: day, name: n0}, {unit: day, name: n1}, {unit: day, name: n2}, {unit: day, name: n3}, {unit: day, name: n4}, {unit: day, name: n5}, {unit: day, name: n6}, {unit: day, name: n7}, {unit: day, name: n8}, {unit: day, name: n9}, {unit: day, name: n10}, {unit: day, name: n11}, {unit: day, name: n12}, {unit: day, name: n13}, {unit: day, name: n14}, {unit: day, name: n15}, {unit: day, name: n16}]
" => "FILE: more than 16 limits on one descriptor
  at FILE:4:5, descriptors[0]
  help: use fewer limits"

    all_or_nothing_that_is_text:
"domain: d
all_or_nothing: all
" => "FILE: error loading config file: yaml: all_or_nothing is not true or false
  at FILE:2:17
  help: write `true` or `false`"

    on_store_failure_that_is_none:
"domain: d
on_store_failure: open
" => "FILE: unknown on_store_failure 'open'
  at FILE:2:19
  help: use one of error, allow, deny, local"

    an_unknown_name_under_over_limit:
"domain: d
descriptors:
  - key: k
    over_limit:
      status: 503
" => "FILE: config error, unknown key 'status'
  at FILE:5:7, descriptors[0].over_limit
  help: the keys of `over_limit` are body, headers"

    over_limit_that_is_text:
"domain: d
descriptors:
  - key: k
    over_limit: slow down
" => "FILE: error loading config file: yaml: cannot read slow down as a mapping
  at FILE:4:17, descriptors[0].over_limit
  help: write `key: value` pairs here"

    a_body_that_is_not_text:
"domain: d
descriptors:
  - key: k
    over_limit:
      body: [slow, down]
" => "FILE: config error, yaml file contains list of type other than map: slow
  at FILE:5:14, descriptors[0].over_limit.body.[0]
  help: write `key: value` pairs here
FILE: config error, yaml file contains list of type other than map: down
  at FILE:5:20, descriptors[0].over_limit.body.[1]
  help: write `key: value` pairs here"

    a_header_name_with_a_space:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {retry after: x}
" => "FILE: 'retry after' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: use a name of letters, digits and dashes"

    a_header_name_with_a_colon:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {\":status\": x}
" => "FILE: ':status' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: use a name of letters, digits and dashes"

    an_empty_header_name:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {\"\": x}
" => "FILE: '' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: use a name of letters, digits and dashes"

    a_header_name_that_is_not_ascii:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {é: x}
" => "FILE: 'é' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: use a name of letters, digits and dashes"

    the_framing_header_content_length:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {Content-Length: x}
" => "FILE: 'Content-Length' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: remove it; the proxy sets headers about length and connection"

    the_framing_header_connection:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {connection: x}
" => "FILE: 'connection' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: remove it; the proxy sets headers about length and connection"

    the_framing_header_keep_alive:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {keep-alive: x}
" => "FILE: 'keep-alive' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: remove it; the proxy sets headers about length and connection"

    the_framing_header_te:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {te: x}
" => "FILE: 'te' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: remove it; the proxy sets headers about length and connection"

    the_framing_header_transfer_encoding:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {transfer-encoding: x}
" => "FILE: 'transfer-encoding' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: remove it; the proxy sets headers about length and connection"

    the_framing_header_upgrade:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {upgrade: x}
" => "FILE: 'upgrade' is not a header that a response may set
  at FILE:5:17, descriptors[0].over_limit.headers
  help: remove it; the proxy sets headers about length and connection"

    a_header_twice:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers:
        x-a: one
        X-A: two
" => "FILE: duplicate header 'x-a'
  at FILE:7:9, descriptors[0].over_limit.headers
  help: remove one of them"

    a_header_value_of_two_lines:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {x-a: \"one\\ntwo\"}
" => "FILE: 'one
two' cannot be sent as a header's value
  at FILE:5:22, descriptors[0].over_limit.headers
  help: use printable ASCII, on one line"

    a_header_value_that_is_not_ascii:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {x-a: é}
" => "FILE: 'é' cannot be sent as a header's value
  at FILE:5:22, descriptors[0].over_limit.headers
  help: use printable ASCII, on one line"

    a_header_value_that_is_a_list:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {x-a: [one]}
" => "FILE: a header is not a name and a text
  at FILE:5:17, descriptors[0].over_limit.headers
  help: write `name: value`"

    headers_that_are_a_list:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: [x-a, x-b]
" => "FILE: headers is not a mapping
  at FILE:5:16, descriptors[0].over_limit.headers
  help: write `name: value` pairs, such as `content-type: application/json`"

    too_many_headers:
"domain: d
descriptors:
  - key: k
    over_limit:
      headers: {x-0: y, x-1: y, x-2: y, x-3: y, x-4: y, x-5: y, x-6: y, x-7: y, x-8: y, x-9: y, x-10: y, x-11: y, x-12: y, x-13: y, x-14: y, x-15: y, x-16: y, x-17: y, x-18: y, x-19: y, x-20: y, x-21: y, x-22: y, x-23: y, x-24: y, x-25: y, x-26: y, x-27: y, x-28: y, x-29: y, x-30: y, x-31: y, x-32: y}
" => "FILE: more than 32 headers
  at FILE:5:295, descriptors[0].over_limit.headers
  help: use fewer headers"
}

/// A rule's limit and the name of its algorithm.
fn limited(rate_limit: &str) -> (Limit, &'static str) {
    let rule = only(&format!("rate_limit: {{{rate_limit}}}"));
    match rule.allowance {
        Allowance::Limited { limit, algorithm } => (limit, algorithm.name()),
        Allowance::Unlimited => panic!("{rate_limit} is unlimited"),
    }
}

/// The limits of the only descriptor, in the order of the file.
fn several(items: &[&str]) -> Vec<Rule> {
    let text = format!(
        "domain: d\ndescriptors: [{{key: k, rate_limits: [{}]}}]\n",
        items.join(", ")
    );
    good(&text).rules.rules().to_vec()
}

/// A field, a valid value, and the algorithm option that it sets.
const FIELDS: [(&str, &str, AlgorithmOption); 9] = [
    ("burst", "2", AlgorithmOption::Burst),
    ("segments", "6", AlgorithmOption::Segments),
    ("refill", "interval", AlgorithmOption::Refill),
    ("calendar", "true", AlgorithmOption::Calendar),
    ("time_zone", "UTC", AlgorithmOption::Calendar),
    ("week_start", "sunday", AlgorithmOption::Calendar),
    ("count_refused", "all", AlgorithmOption::CountRefused),
    ("holder_key", "id", AlgorithmOption::Slots),
    ("slot_seconds", "60", AlgorithmOption::Slots),
];

#[test]
fn each_field_is_accepted_only_with_algorithms_that_have_it() {
    for algorithm in ALGORITHMS {
        let has = |choice| algorithm.options().contains(&choice);
        for (field, value, choice) in FIELDS {
            let mut fields = vec![
                format!("algorithm: {}", algorithm.name()),
                "requests_per_unit: 5".to_owned(),
                format!("{field}: {value}"),
            ];
            let mut needs = |name: &str, value: &str| {
                if field != name {
                    fields.push(format!("{name}: {value}"));
                }
            };
            if has(AlgorithmOption::Slots) {
                needs("slot_seconds", "60");
            } else {
                needs("unit", "week");
            }
            if has(AlgorithmOption::Segments)
                && algorithm.variant_for(AlgorithmOption::Segments).is_none()
            {
                needs("segments", "6");
            }
            if has(choice) && choice == AlgorithmOption::Calendar {
                needs("calendar", "true");
            }
            let fields = fields.join(", ");
            let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{fields}}}}}]\n");
            if has(choice) {
                good(&text);
            } else {
                let problems = bad(&text);
                assert_eq!(problems.len(), 1, "{text}");
                let message = format!("algorithm {} has no {field}", algorithm.name());
                assert_eq!(problems[0].message, message, "{text}");
            }
        }
    }
}

#[test]
fn algorithms_are_selected_by_name_alias_and_options() {
    for (fields, name) in [
        ("unit: day", "fixed_window"),
        ("unit: day, algorithm: ~", "fixed_window"),
        ("unit: day, algorithm: ''", "fixed_window"),
        ("unit: day, algorithm: sliding_window", "sliding_window"),
        (
            "unit: day, algorithm: sliding_window, segments: ~",
            "sliding_window",
        ),
        (
            "unit: day, algorithm: sliding_window, segments: 6",
            "sliding_window_segments",
        ),
        (
            "unit: day, algorithm: sliding_window_segments, segments: 6",
            "sliding_window_segments",
        ),
        ("unit: day, algorithm: sliding_log", "sliding_log"),
        ("unit: day, algorithm: token_bucket", "token_bucket"),
        ("unit: day, algorithm: gcra", "token_bucket"),
        (
            "unit: day, algorithm: gcra, refill: continuous",
            "token_bucket",
        ),
        (
            "unit: day, algorithm: gcra, refill: interval",
            "token_bucket_interval",
        ),
        (
            "unit: day, algorithm: token_bucket_interval",
            "token_bucket_interval",
        ),
        ("unit: day, algorithm: leaky_bucket", "leaky_bucket"),
        ("algorithm: concurrency, slot_seconds: 1", "concurrency"),
    ] {
        assert_eq!(limited(fields).1, name, "{fields}");
    }
}

#[test]
fn the_numbers_of_a_limit_are_read_exactly() {
    let (limit, _) =
        limited("unit: minute, unit_multiplier: 15, requests_per_unit: 10, algorithm: gcra");
    assert_eq!(limit.window().as_us(), 15 * 60 * 1_000_000);
    assert_eq!((limit.requests_per_unit(), limit.burst()), (10, 10));
    let burst = |fields: &str| limited(&format!("unit: day, {fields}")).0.burst();
    assert_eq!(
        burst("requests_per_unit: 10, algorithm: token_bucket, burst: 3"),
        3
    );
    assert_eq!(
        burst("requests_per_unit: 10, algorithm: token_bucket, burst: 30"),
        30
    );
    // A leaky bucket has burst 1 by default.
    assert_eq!(burst("requests_per_unit: 10, algorithm: leaky_bucket"), 1);
    assert_eq!(
        burst("requests_per_unit: 10, algorithm: leaky_bucket, burst: 4"),
        4
    );
    assert_eq!(burst("requests_per_unit: 0, algorithm: leaky_bucket"), 0);
    assert_eq!(burst("requests_per_unit: 0, algorithm: token_bucket"), 0);
    for segments in [1, 6, SEGMENTS_MAX] {
        let fields = format!("unit: day, algorithm: sliding_window, segments: {segments}");
        let (limit, _) = limited(&fields);
        assert_eq!(limit.segments().map(NonZeroU16::get), Some(segments));
    }
    for (name, count_refused) in [
        ("none", CountRefused::None),
        ("blocking", CountRefused::Blocking),
        ("all", CountRefused::All),
    ] {
        let (limit, _) = limited(&format!("unit: day, count_refused: {name}"));
        assert_eq!(limit.count_refused(), Some(count_refused));
    }
    assert_eq!(limited("unit: day").0.count_refused(), None);
    // At the bounds.
    limited("unit: day, algorithm: sliding_log, requests_per_unit: 10000");
    limited("algorithm: concurrency, slot_seconds: 4294967295, requests_per_unit: 10000");
    limited("unit: year, unit_multiplier: 285");
    limited("unit: year, unit_multiplier: 142, algorithm: sliding_window");
    // An algorithm that counts in segments does not have the bound on remembered hits.
    limited("unit: day, algorithm: sliding_window, segments: 6, requests_per_unit: 4000000000");
}

#[test]
fn a_limit_in_flight_has_no_window_and_may_have_holders() {
    let in_flight = |more: &str| {
        only(&format!(
            "rate_limit: {{algorithm: concurrency, requests_per_unit: 10, slot_seconds: 60{more}}}"
        ))
    };
    let rule = in_flight(", holder_key: request_id, name: exports");
    assert_eq!(rule.holder_key.as_deref(), Some("request_id"));
    assert_eq!(rule.name, "exports");
    let slots = limit(&rule).unwrap();
    assert_eq!(slots.unit(), None);
    assert_eq!(slots.requests_per_unit(), 10);
    assert_eq!(slots.window().as_us(), 60_000_000);
    for nobody in ["", ", holder_key: ~", ", holder_key: ''"] {
        assert_eq!(in_flight(nobody).holder_key, None);
    }
    // A null field is absent.
    in_flight(", unit: ~, unit_multiplier: ~, burst: ~");
    let long = |bytes: usize| {
        format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{algorithm: concurrency, slot_seconds: 1, holder_key: {}}}}}]\n",
            "x".repeat(bytes)
        )
    };
    good(&long(TEXT_BYTES_MAX));
    assert_eq!(
        bad(&long(TEXT_BYTES_MAX + 1))[0].message,
        "a text is longer than 16384 bytes"
    );
}

#[test]
fn the_last_entry_may_be_the_holder_key_and_needs_no_level() {
    let loaded = good(
        "
domain: d
descriptors:
  - key: route
    rate_limit: {algorithm: concurrency, requests_per_unit: 3, slot_seconds: 5, holder_key: id}
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: 7}
",
    );
    let requests = |path: &[(&str, &str)]| {
        let rule = found(&loaded.rules, path)?;
        Some(limit(rule)?.requests_per_unit())
    };
    assert_eq!(requests(&[("route", "a")]), Some(3));
    assert_eq!(requests(&[("route", "a"), ("id", "7")]), Some(3));
    assert_eq!(requests(&[("route", "a"), ("id", "")]), Some(3));
    assert_eq!(requests(&[("route", "a"), ("user", "b")]), Some(7));
    // Only the last entry may be the holder key.
    assert_eq!(requests(&[("id", "7")]), None);
    assert_eq!(requests(&[("route", "a"), ("id", "7"), ("id", "8")]), None);
    assert_eq!(
        requests(&[("route", "a"), ("user", "b"), ("id", "7")]),
        None
    );
}

#[test]
fn calendar_names_include_every_option() {
    for (fields, name) in [
        ("unit: day", "1 day in UTC"),
        ("unit: day, time_zone: ''", "1 day in UTC"),
        (
            "unit: month, time_zone: Europe/Paris",
            "1 month in Europe/Paris",
        ),
        (
            "unit: month, unit_multiplier: 3, time_zone: America/New_York",
            "3 months in America/New_York",
        ),
        ("unit: week", "1 week from Monday in UTC"),
        (
            "unit: week, week_start: sunday, unit_multiplier: 2",
            "2 weeks from Sunday in UTC",
        ),
        (
            "unit: week, week_start: SUNDAY",
            "1 week from Sunday in UTC",
        ),
        ("unit: day, unit_multiplier: 1000", "1000 days in UTC"),
        ("unit: year", "1 year in UTC"),
    ] {
        let (limit, algorithm) = limited(&format!("{fields}, calendar: true"));
        assert_eq!(algorithm, "fixed_window");
        assert_eq!(limit.calendar().map(Calendar::name), Some(name));
        assert_eq!(limit.describe_window(), name);
    }
    assert_eq!(limited("unit: day, calendar: false").0.calendar(), None);
}

#[test]
fn several_limits_keep_their_order_and_share_the_descriptors_fields() {
    let text = "
domain: d
descriptors:
  - key: k
    shadow_mode: true
    quota_mode: true
    metadata: {a: b}
    over_limit: {body: no}
    rate_limits:
      - {unit: second, requests_per_unit: 1, name: short}
      - {unit: second, requests_per_unit: 2, algorithm: token_bucket}
      - {unit: minute, requests_per_unit: 3}
      - {unit: second, requests_per_unit: 4}
      - {unit: second, requests_per_unit: 5, name: other, replaces: [{name: elsewhere}]}
      - {unit: month, requests_per_unit: 6}
      - {unit: month, requests_per_unit: 7, calendar: true}
      - {unit: month, requests_per_unit: 8, calendar: true, time_zone: Europe/Paris}
      - {algorithm: concurrency, requests_per_unit: 9, slot_seconds: 1}
";
    let loaded = good(text);
    let rules = loaded.rules.rules();
    let requests: Vec<_> = rules
        .iter()
        .map(|rule| limit(rule).unwrap().requests_per_unit())
        .collect();
    assert_eq!(requests, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let names: Vec<_> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["short", "", "", "", "other", "", "", "", ""]);
    assert_eq!(rules[4].replaces, ["elsewhere"]);
    for rule in rules {
        assert!(rule.shadow_mode && rule.quota_mode);
        assert!(rule.over_limit.is_some());
        assert_eq!(rule.full_name(), "d.k");
    }
}

#[test]
fn a_list_of_one_limit_equals_a_single_limit_and_an_empty_list_is_no_limit() {
    assert_eq!(
        several(&["{unlimited: true}"])[0].allowance,
        Allowance::Unlimited
    );
    assert_eq!(
        several(&["{unit: day, requests_per_unit: 3}"])[0],
        only("rate_limit: {unit: day, requests_per_unit: 3}")
    );
    for none in ["rate_limits: []", "rate_limits:", "rate_limits: ~"] {
        let text = format!("domain: d\ndescriptors:\n  - key: k\n    {none}\n");
        assert!(good(&text).rules.rules().is_empty(), "{none}");
    }
    // A null beside the other is absent.
    only("rate_limits: ~\n    rate_limit: {unit: day}");
    only("rate_limit: ~\n    rate_limits: [{unit: day}]");
    let sixteen: Vec<_> = (0..16)
        .map(|n| format!("{{unit: day, name: n{n}}}"))
        .collect();
    let sixteen: Vec<_> = sixteen.iter().map(String::as_str).collect();
    assert_eq!(several(&sixteen).len(), 16);
}

#[test]
fn one_bad_limit_of_several_hides_no_other_problem() {
    let text = "domain: d\ndescriptors: [{key: k, rate_limits: [{unit: x}, {unit: day}, {unit: day}, {unit: day, burst: 1}]}]\n";
    let told: Vec<_> = bad(text).into_iter().map(|problem| problem.path).collect();
    let item = |n| format!("descriptors[0].rate_limits[{n}]");
    assert_eq!(told, [item(0), item(2), item(3)]);
}

fn over_limit(text: &str) -> OverLimitResponse {
    let rule = only(&format!(
        "rate_limit: {{unit: day}}\n    over_limit: {text}"
    ));
    rule.over_limit
        .map(|over_limit| (*over_limit).clone())
        .unwrap()
}

#[test]
fn over_limit_has_a_body_and_headers_with_placeholders() {
    let said = over_limit(
        "{body: '{\"limit\": {limit}, \"in\": \"{window}\", {other} {{limit}} {limit', headers: {Content-Type: application/json, x-wait: '{retry_after_seconds}{retry_after_seconds}', x-number: 1.5, x-truth: yes, x-empty: , x-null: ~}}",
    );
    let filled = |gap| match gap {
        Placeholder::Limit => "10".to_owned(),
        Placeholder::Window => "1 day".to_owned(),
        Placeholder::RetryAfterSeconds => "7".to_owned(),
    };
    assert_eq!(
        said.body.render(filled),
        "{\"limit\": 10, \"in\": \"1 day\", {other} {10} {limit"
    );
    let headers: Vec<_> = said
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.render(filled)))
        .collect();
    let header = |name, value: &str| (name, value.to_owned());
    assert_eq!(
        headers,
        [
            header("content-type", "application/json"),
            header("x-wait", "77"),
            header("x-number", "1.5"),
            header("x-truth", "yes"),
            header("x-empty", ""),
            header("x-null", ""),
        ]
    );
    assert!(over_limit("{}").body.is_empty());
    assert!(over_limit("{headers: {}, body: ''}").headers.is_empty());
    let none = only("rate_limit: {unit: day}\n    over_limit: ~");
    assert_eq!(none.over_limit, None);
    // A body may have lines and letters.
    let body = over_limit("{body: \"é\\nü\"}").body;
    assert_eq!(body.render(filled), "é\nü");
}

#[test]
fn bodies_and_header_values_are_bounded() {
    for file in [
        |text: &str| {
            format!("domain: d\ndescriptors: [{{key: k, over_limit: {{body: {text}}}}}]\n")
        },
        |text: &str| {
            format!(
                "domain: d\ndescriptors: [{{key: k, over_limit: {{headers: {{x-a: {text}}}}}}}]\n"
            )
        },
    ] {
        assert!(read(&file(&"x".repeat(TEXT_BYTES_MAX))).is_ok());
        let problems = bad(&file(&"x".repeat(TEXT_BYTES_MAX + 1)));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].message, "a text is longer than 16384 bytes");
    }
    // Header names are bounded, and messages do not quote long ones.
    let text = format!(
        "domain: d\ndescriptors: [{{key: k, over_limit: {{headers: {{? {} : x}}}}}}]\n",
        "é".repeat(8_000)
    );
    assert!(words(&bad(&text)[0]).len() < 800);
}

#[test]
fn all_or_nothing_is_a_field_of_a_domain_and_may_be_false() {
    for (text, whole) in [
        ("domain: d\n", None),
        ("domain: d\nall_or_nothing: false\n", Some(false)),
        ("domain: d\nall_or_nothing: ~\n", None),
        ("domain: d\nall_or_nothing: yes\n", Some(true)),
        ("all_or_nothing: true\ndomain: d\n", Some(true)),
    ] {
        assert_eq!(good(text).rules.all_or_nothing(b"d"), whole, "{text}");
        assert_eq!(good(text).rules.all_or_nothing(b"e"), None);
    }
    let file = |name, said| source(name, &format!("domain: d\nall_or_nothing: {said}\n"));
    assert!(load(&[file("a.yaml", true), file("b.yaml", true)], MERGED).is_ok());
    let problems = load(&[file("a.yaml", true), file("b.yaml", false)], MERGED)
        .unwrap_err()
        .errors;
    assert_eq!(
        problems[0].message,
        "all_or_nothing is true in an earlier file of this domain, and false here"
    );
    assert_eq!(
        (problems[0].span.at.line, problems[0].span.at.column),
        (2, 17)
    );
}

#[test]
fn on_store_failure_is_a_field_of_a_domain() {
    for answer in OnStoreFailure::ALL {
        let text = format!("domain: d\non_store_failure: {}\n", answer.name());
        assert_eq!(good(&text).rules.on_store_failure(b"d"), Some(answer));
        assert_eq!(good(&text).rules.on_store_failure(b"e"), None);
    }
    let unsaid = good("domain: d\non_store_failure: ~\n");
    assert_eq!(unsaid.rules.on_store_failure(b"d"), None);
    let file = |name, said| source(name, &format!("domain: d\non_store_failure: {said}\n"));
    assert!(load(&[file("a.yaml", "deny"), file("b.yaml", "deny")], MERGED).is_ok());
    let problems = load(&[file("a.yaml", "deny"), file("b.yaml", "local")], MERGED)
        .unwrap_err()
        .errors;
    assert_eq!(
        problems[0].message,
        "on_store_failure is deny in an earlier file of this domain, and local here"
    );
    assert_eq!(
        (problems[0].span.at.line, problems[0].span.at.column),
        (2, 19)
    );
}

#[test]
fn messages_write_an_hour_with_the_right_article() {
    let problems =
        bad("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, calendar: true}}]\n");
    assert_eq!(
        problems[0].message,
        "calendar windows last a day at least, not an hour"
    );
}

#[test]
fn slots_of_one_descriptor_have_one_holder() {
    let slots = |key: &str, window: u32| {
        format!(
            "{{algorithm: concurrency, slot_seconds: {window}, name: n{window}, holder_key: {key}}}"
        )
    };
    let file = |one: &str, other: &str| {
        format!(
            "domain: d\ndescriptors:\n- key: k\n  rate_limits:\n  - {}\n  - {}\n",
            slots(one, 1),
            slots(other, 2)
        )
    };
    good(&file("id", "id"));
    good(&file("id", "''"));
    let problems = bad(&file("id", "user"));
    assert_eq!(
        words(&problems[0]),
        "rules.yaml: holder_key 'user' beside holder_key 'id' on one descriptor
  at rules.yaml:6:5, descriptors[0].rate_limits[1]
  help: use the same holder_key in all limits of a descriptor"
    );
}

/// The beginning of each warning, and its position.
fn warned(text: &str) -> Vec<String> {
    let warnings = good(text).warnings;
    let told = warnings
        .iter()
        .map(|one| format!("{} {} {}", one.span.at, one.path, one.message));
    told.collect()
}

#[test]
fn a_level_that_its_parents_holder_key_hides_is_a_warning() {
    let file = |below: &str| {
        format!(
            "domain: d\ndescriptors:\n- key: k\n  rate_limit: {{algorithm: concurrency, slot_seconds: 1, requests_per_unit: 1, holder_key: id}}\n  descriptors:\n  - {{{below}}}\n"
        )
    };
    for hidden in [
        "key: id, rate_limit: {unit: day, requests_per_unit: 1}",
        "key: id, value: x",
    ] {
        assert_eq!(
            warned(&file(hidden)),
            [
                "6:11 descriptors[0].descriptors[0] 'id' is the holder_key of the level above, so this descriptor never applies"
            ]
        );
    }
    for reached in [
        "key: user, rate_limit: {unit: day, requests_per_unit: 1}",
        "key: id, descriptors: [{key: deep, rate_limit: {unit: day, requests_per_unit: 1}}]",
    ] {
        assert!(warned(&file(reached)).is_empty(), "{reached}");
    }
}

#[test]
fn an_over_limit_that_is_never_sent_is_a_warning() {
    let file = |more: &str| {
        format!("domain: d\ndescriptors:\n- key: k\n  over_limit: {{body: x}}\n  {more}\n")
    };
    for (more, why) in [
        ("value: v", "there is no limit on this descriptor"),
        ("rate_limit: {unlimited: true}", "the limit is unlimited"),
        (
            "rate_limit: {unit: day, requests_per_unit: 1}\n  shadow_mode: true",
            "shadow_mode refuses nothing",
        ),
    ] {
        assert_eq!(
            warned(&file(more)),
            [format!(
                "4:3 descriptors[0] over_limit has no effect: {why}"
            )]
        );
    }
    assert!(warned(&file("rate_limit: {unit: day, requests_per_unit: 1}")).is_empty());
    assert!(
        warned(&file(
            "rate_limit: {unit: day, requests_per_unit: 1}\n  quota_mode: true"
        ))
        .is_empty()
    );
}

#[test]
fn headers_and_metadata_support_merge_keys() {
    let text = "domain: d
descriptors:
- key: k
  rate_limit: {unit: day}
  over_limit: {headers: &h {x-a: one, x-b: two}}
  metadata: &m {a: 1, b: {c: d}}
- key: l
  rate_limit: {unit: day}
  over_limit: {headers: {<<: *h, X-A: mine}}
  metadata: {<<: [{a: 2, e: f}, *m], b: mine}
";
    let loaded = good(text);
    let rule = found(&loaded.rules, &[("l", "")]).unwrap();
    let headers = &rule.over_limit.as_ref().unwrap().headers;
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.render(|_| String::new())))
        .collect();
    assert_eq!(
        headers,
        [("x-a", "mine".to_owned()), ("x-b", "two".to_owned())]
    );
    assert_eq!(
        rule.metadata,
        Some(MetadataValue::Map(vec![
            ("b".to_owned(), MetadataValue::Text("mine".to_owned())),
            ("a".to_owned(), MetadataValue::Number(2.0)),
            ("e".to_owned(), MetadataValue::Text("f".to_owned())),
        ]))
    );
    for field in ["over_limit: {headers: {<<: x}}", "metadata: {<<: x}"] {
        let problems = bad(&format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day}}, {field}}}]\n"
        ));
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].message.contains("map merge requires map"),
            "{}",
            problems[0]
        );
        assert_eq!(
            problems[0].help,
            "write the alias of a mapping: `<<: *name`"
        );
    }
    // In quotes it is a name.
    good("domain: d\ndescriptors: [{key: k, metadata: {'<<': x}}]\n");
}
