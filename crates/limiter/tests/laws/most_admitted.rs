//! The most that a limit admits in an interval, and which change of a limit can admit more.
//!
//! Three parts together show that the comparison is right: no traffic exceeds the bound of an
//! algorithm, some traffic reaches it at every length, and the comparison agrees with the bounds at
//! every length. The table in `docs/overlay.md` is compared too.

use std::fmt::Write as _;
use std::fs;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;

use proptest::prelude::*;
use tollgate_limiter::algorithm::{can_admit_more, from_name};
use tollgate_limiter::{ALGORITHMS, Algorithm, Hits, Limit, State, Timestamp, Unit};
use tollgate_test_model::random_cases;

const WINDOW_US: u64 = 1_000_000;

/// A time that is a whole number of windows after 1970.
const EPOCH_US: u64 = 1_700_000_000 * WINDOW_US;

/// An algorithm and a limit.
#[derive(Clone, Copy, Debug)]
struct Limited {
    algorithm: &'static dyn Algorithm,
    limit: Limit,
}

impl Limited {
    fn new(name: &str, requests: u64, burst: Option<u64>, segments: u16) -> Self {
        let algorithm = from_name(name).unwrap();
        let burst = burst.unwrap_or_else(|| algorithm.facts().default_burst(requests));
        let limit = Limit::new(requests, Unit::Second, NonZeroU32::MIN, Some(burst)).unwrap();
        let limit = match name {
            "sliding_window_segments" => limit.with_segments(NonZeroU16::new(segments).unwrap()),
            _ => limit,
        };
        Self { algorithm, limit }
    }

    fn most(&self, span_us: u64) -> u64 {
        let most = self.algorithm.most_admitted(&self.limit, span_us);
        most.unwrap().hits()
    }

    fn can_admit_more_than(&self, other: &Self) -> bool {
        can_admit_more(
            (self.algorithm, &self.limit),
            (other.algorithm, &other.limit),
        )
    }

    /// Takes one hit after another at each of these times, until one is refused. Gives the times of
    /// the admitted hits.
    fn admitted(&self, times_us: &[u64]) -> Vec<u64> {
        let mut state = State::default();
        let mut admitted = Vec::new();
        for time in times_us {
            let now = Timestamp::from_us(EPOCH_US + time);
            while state
                .apply(self.algorithm, &self.limit, Hits::Take(1), now)
                .allowed
            {
                admitted.push(*time);
            }
        }
        admitted
    }
}

/// Every algorithm with a bound, with several numbers.
fn all() -> Vec<Limited> {
    let bounded = ALGORITHMS.iter().map(|algorithm| algorithm.name());
    let bounded = bounded.filter(|name| *name != "concurrency");
    let mut all = Vec::new();
    for name in bounded {
        for requests in [1, 2, 7, 30] {
            match name {
                "sliding_window_segments" => {
                    let segments = [1, 2, 6, 7];
                    all.extend(
                        segments.map(|segments| Limited::new(name, requests, None, segments)),
                    );
                }
                "token_bucket" | "leaky_bucket" | "token_bucket_interval" => {
                    let bursts = [1, 3, requests, requests + 1, 2 * requests];
                    all.extend(bursts.map(|burst| Limited::new(name, requests, Some(burst), 1)));
                }
                _ => all.push(Limited::new(name, requests, None, 1)),
            }
        }
    }
    all
}

/// Lengths of intervals at which a bound can change, and some between.
fn spans() -> Vec<u64> {
    let turns = [1, 2, 6, 7].map(|segments| WINDOW_US - WINDOW_US.div_ceil(segments));
    let refills = [2, 7, 30].into_iter().flat_map(|requests| {
        let nth = move |number: u64| (number * WINDOW_US).div_ceil(requests);
        (1..requests).map(nth)
    });
    let near = turns.into_iter().chain(refills).chain([1, WINDOW_US]);
    let near = near.flat_map(|span| (0..5).map(move |more| (span + more).saturating_sub(2)));
    let mut spans: Vec<_> = near.chain((0..50).map(|part| part * 19_997)).collect();
    spans.retain(|span| (1..=WINDOW_US).contains(span));
    spans.sort_unstable();
    spans.dedup();
    spans
}

#[test]
fn some_traffic_reaches_the_bound_at_every_length() {
    for limited in all() {
        for span in spans() {
            // Bursts at both ends of an interval that begins at the end of a window or segment, and
            // whenever a bucket has one hit more.
            let segments = limited
                .limit
                .segments()
                .map_or(1, |number| number.get().into());
            let ends = (1..=segments).map(|number| (number * WINDOW_US).div_ceil(segments) - 1);
            let requests = limited.limit.requests();
            let refills = |number: u64| (number * WINDOW_US).div_ceil(requests) + number;
            let asked = (0..requests).map(refills).filter(|at| *at < span);
            let asked: Vec<_> = asked.chain([span - 1]).collect();
            let most = ends.map(|begin| {
                let times: Vec<_> = asked.iter().map(|at| begin + at).collect();
                limited.admitted(&times).len()
            });
            let most = most.max().unwrap();
            // A full bucket loses what comes between two microseconds, once at each hit.
            let lost = if limited.limit.burst() < requests + 1 {
                requests
            } else {
                0
            };
            let least = match limited.algorithm.name() {
                "token_bucket" | "leaky_bucket" => limited.most(span.saturating_sub(lost).max(1)),
                _ => limited.most(span),
            };
            let expected = least..=limited.most(span);
            assert!(
                expected.contains(&(most as u64)),
                "{limited:?}: {most} in {span} µs"
            );
        }
    }
}

#[test]
fn the_comparison_agrees_with_the_bounds_at_every_length() {
    let (all, spans) = (all(), spans());
    let (mut more, mut not_more) = (0, 0);
    for one in &all {
        for other in &all {
            let by_bounds = spans.iter().any(|span| one.most(*span) > other.most(*span));
            let by_comparison = one.can_admit_more_than(other);
            let needless = by_comparison && !by_bounds;
            let fewer = one.limit.requests() <= other.limit.requests();
            // Two bounds that grow are compared before they are rounded.
            let grow = other.algorithm.name() == "sliding_window"
                && ["token_bucket", "leaky_bucket"].contains(&one.algorithm.name());
            assert!(by_comparison || !by_bounds, "{one:?} after {other:?}");
            assert!(!(needless && fewer) || grow, "{one:?} after {other:?}");
            more += u32::from(by_comparison);
            not_more += u32::from(!by_comparison);
        }
    }
    assert!(more > 500 && not_more > 500, "{more} and {not_more}");
}

/// Times of bursts, many of them beside the edges of windows and segments.
fn times() -> impl Strategy<Value = Vec<u64>> {
    let edge = (0..18_u64, 0..5_u64)
        .prop_map(|(sixth, near)| (sixth * WINDOW_US).div_ceil(6) + WINDOW_US + near - 2);
    let any = (WINDOW_US)..(4 * WINDOW_US);
    prop::collection::vec(prop_oneof![2 => edge, 1 => any], 1..24).prop_map(|mut times| {
        times.sort_unstable();
        times
    })
}

proptest! {
    #![proptest_config(random_cases(300))]

    /// Random traffic under a new limit never admits more than the old one can, in any interval,
    /// unless the comparison says that it may.
    #[test]
    fn a_new_limit_admits_no_more_than_the_old_one_unless_the_comparison_says_so(
        times in times(),
        old in any::<prop::sample::Index>(),
    ) {
        let all = all();
        let old = old.get(&all);
        for new in all.iter().filter(|new| !new.can_admit_more_than(old)) {
            let admitted = new.admitted(&times);
            for (position, begin) in admitted.iter().enumerate() {
                for (count, end) in admitted[position..].iter().enumerate() {
                    let span = end - begin + 1;
                    if span > WINDOW_US {
                        break;
                    }
                    prop_assert!(
                        count < usize::try_from(old.most(span)).unwrap(),
                        "{new:?} admits {} in {span} µs, {old:?} at most {}",
                        count + 1,
                        old.most(span)
                    );
                }
            }
        }
    }
}

/// What the table says of a change, for a limit of 30 requests with the default burst or 6
/// segments.
fn in_the_table(old: &str, new: &str) -> &'static str {
    let limited = |name| Limited::new(name, 30, None, 6);
    if old == new {
        "same"
    } else if limited(new).can_admit_more_than(&limited(old)) {
        "more"
    } else {
        "no more"
    }
}

#[test]
fn the_documented_table_is_what_the_comparison_says() {
    let names: Vec<_> = ALGORITHMS
        .iter()
        .map(|algorithm| algorithm.name())
        .collect();
    let names: Vec<_> = names
        .into_iter()
        .filter(|name| *name != "concurrency")
        .collect();
    let head: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let mut table = format!("| from \\ to | {} |\n", head.join(" | "));
    table += "|";
    table += &" --- |".repeat(names.len() + 1);
    table.push('\n');
    for old in &names {
        let row: Vec<_> = names.iter().map(|new| in_the_table(old, new)).collect();
        writeln!(table, "| `{old}` | {} |", row.join(" | ")).unwrap();
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/overlay.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&table), "write this table:\n{table}");
}

#[test]
fn a_limit_of_requests_in_flight_can_always_admit_more_and_less() {
    let in_flight = Limited {
        algorithm: from_name("concurrency").unwrap(),
        limit: Limit::in_flight(30, NonZeroU32::MIN),
    };
    for one in all() {
        assert!(one.can_admit_more_than(&in_flight));
        assert!(in_flight.can_admit_more_than(&one));
    }
}
