//! Cost of leases near the limit and their savings: a simulated minute of three replicas with the
//! real leases.
//!
//! How: `store/lease/leases.rs` is plain data, so it is compiled in here and asked at simulated
//! times; the shared store is one `State`, a round trip takes no time. One replica gets six
//! requests of ten, one three, one the last. Half a minute's requests are the limit of a minute, so
//! that it runs out. Everything is whole numbers: a picture is the same on every machine.
//!
//! What it deliberately does not do: measure Redis (`make bench-redis`), or simulate failures
//! (`tests/redis`).

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::OnceLock;

use tollgate_limiter::{ALGORITHMS, Check, Hits, Key, Limit, State, Timestamp, Unit};

use crate::pictures::leases::{LeaseLimits, Leases};

/// Page and file of the picture.
pub(crate) const PAGE: &str = "docs/shared-limits.md";
pub(crate) const FILE: &str = "leases.svg";

/// Requests a second, of all replicas together.
const RATES: [u64; 7] = [3, 10, 30, 100, 300, 1_000, 3_000];

/// `--lease-age-max-ms`; the second is the default.
const AGES_MS: [u64; 3] = [500, 2_000, 5_000];

/// Number of simulated minutes, each with other arrival times; the mean is shown.
const PLAYED: u64 = 8;

/// Requests of each replica, of ten.
const SHARES: [u64; 3] = [6, 3, 1];

const SECOND_US: u64 = 1_000_000;
/// Simulated time after the first refusal; by then every lease is older than any age.
const AFTER_US: u64 = 12 * SECOND_US;
/// Start of a minute.
const BEGIN: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// How often one asks for the same check: as `store/lease/worker` does.
const ROUNDS_MAX: u32 = 8;

/// Result of one minute.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Minute {
    pub(crate) admitted: u64,
    /// Round trips per ten thousand requests, until the first refusal.
    trips: u64,
    /// Unused hits that other replicas held then, in ten-thousandths of the limit.
    pub(crate) held: u64,
    /// Time from then to the last admitted request, in ms.
    pub(crate) late_ms: u64,
}

struct Replica {
    leases: Leases,
    next_us: u64,
    mean_us: u64,
    chance: u64,
}

/// Simulates one minute.
fn play(rate: u64, age_ms: u64, seed: u64) -> Minute {
    let limit = rate * 30;
    let check = Check {
        key: Key(1),
        limit: Limit::per(limit, Unit::Minute, NonZeroU32::MIN),
        algorithm: ALGORITHMS[0],
        operation: Hits::Take(1).into(),
        fingerprint: 0,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    };
    let bounds = LeaseLimits {
        age_max_us: age_ms * 1_000,
        ahead_hits_max: 1_000,
        leases_max: 10,
    };
    let mut replicas: Vec<_> = (1..)
        .zip(SHARES)
        .map(|(number, share)| Replica {
            leases: Leases::new(bounds),
            next_us: number * 7_919 + seed,
            mean_us: 10 * SECOND_US / (rate * share),
            chance: seed * 100 + number,
        })
        .collect();
    let mut minute = Minute::default();
    let (mut shared, mut trips, mut asked) = (State::default(), 0, 0);
    let mut first_refused_us = None;
    let mut tick_us = 0;
    loop {
        let next = replicas.iter_mut().min_by_key(|one| one.next_us).unwrap();
        let now_us = next.next_us;
        let over_us = first_refused_us.map_or(60 * SECOND_US, |first_us| first_us + AFTER_US);
        if now_us >= over_us.min(60 * SECOND_US) {
            break;
        }
        if now_us >= tick_us {
            tick_us += SECOND_US / 10;
            for replica in &mut replicas {
                let mut back = Vec::new();
                replica.leases.expire(now_us, 10, &mut back);
                trips += give_back(&mut shared, back, now_us);
            }
            continue;
        }
        next.draw();
        asked += 1;
        let allowed = next.ask(&check, &mut shared, now_us, &mut trips);
        if allowed {
            minute.admitted += 1;
            if let Some(first_us) = first_refused_us {
                minute.late_ms = (now_us - first_us) / 1_000;
            }
        } else if first_refused_us.is_none() {
            first_refused_us = Some(now_us);
            minute.trips = trips * 10_000 / asked;
            let held: u64 = replicas.iter().map(|one| one.leases.unspent()).sum();
            minute.held = held * 10_000 / limit;
        }
    }
    minute
}

/// Returns the rest of leases in one call, if there is any.
fn give_back(shared: &mut State, back: Vec<Check>, now_us: u64) -> u64 {
    let calls = u64::from(!back.is_empty());
    for check in back {
        shared.apply(
            check.algorithm,
            &check.limit,
            check.operation,
            BEGIN.plus_us(now_us),
        );
    }
    calls
}

impl Replica {
    /// Draws the time of the next request: at most twice the mean interval later.
    fn draw(&mut self) {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.next_us += 1 + (mixed ^ (mixed >> 31)) % (2 * self.mean_us);
    }

    /// Whether a request is admitted.
    fn ask(&mut self, check: &Check, shared: &mut State, now_us: u64, trips: &mut u64) -> bool {
        for _ in 0..ROUNDS_MAX {
            let mut back = Vec::new();
            let spent = self.leases.spend(check, now_us, 0, &mut back);
            *trips += give_back(shared, back, now_us);
            if let Some(spent) = spent {
                return spent.outcome.allowed;
            }
            let take = self.leases.next_take(check, 1, now_us);
            let at = BEGIN.plus_us(now_us);
            let outcome = shared.apply(take.algorithm, &take.limit, take.operation, at);
            *trips += 1;
            if outcome.allowed {
                let granted = Check {
                    operation: take.operation,
                    ..check.clone()
                };
                // Answered at once: nothing that is held can have ended meanwhile.
                self.leases
                    .record_grant(&granted, &outcome, now_us, now_us, &mut Vec::new());
            } else {
                let none = &mut Vec::new();
                self.leases.record_denial(check, &outcome, now_us, none);
            }
        }
        false
    }
}

/// Mean of the simulated minutes.
pub(crate) fn mean(rate: u64, age_ms: u64) -> Minute {
    let played: Vec<_> = (0..PLAYED).map(|seed| play(rate, age_ms, seed)).collect();
    let mean = |of: fn(&Minute) -> u64| played.iter().map(of).sum::<u64>() / PLAYED;
    Minute {
        admitted: mean(|one| one.admitted),
        trips: mean(|one| one.trips),
        held: mean(|one| one.held),
        late_ms: mean(|one| one.late_ms),
    }
}

/// All results, by age, then by rate.
fn minutes() -> &'static [Vec<Minute>] {
    static MINUTES: OnceLock<Vec<Vec<Minute>>> = OnceLock::new();
    let of_age = |age_ms: u64| RATES.iter().map(|rate| mean(*rate, age_ms)).collect();
    MINUTES.get_or_init(|| AGES_MS.into_iter().map(of_age).collect())
}

/// Sentences of the page about the default, word for word.
pub(crate) fn sentence() -> String {
    let minute = mean(1_000, 2_000);
    format!(
        "At a thousand requests a second and the default age, {} in a thousand go to Redis. When the first is refused, {} % of the \
         limit is unused in other replicas. The last of it is admitted {} s later.",
        tenths(minute.trips),
        hundredths(minute.held),
        tenths(minute.late_ms / 100),
    )
}

/// `12` as `1.2`.
fn tenths(number: u64) -> String {
    format!("{}.{}", number / 10, number % 10)
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

// === the picture ===

const LEFT: u64 = 70;
const WIDTH: u64 = 860;
const A_RATE: u64 = 105;
const PANEL: u64 = 130;
const BETWEEN: u64 = 66;
const TOP: u64 = 130;

const STYLE: &str = r"<style>
text { font: 12px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.large { font-size: 18px; font-weight: 600 }
.head { font-weight: 600 }
.quiet { fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0; fill: none }
.line { stroke: #0969da; fill: none; stroke-width: 2 }
.age0 { stroke-dasharray: 2 4 }
.age2 { stroke-dasharray: 9 4 }
.exact { stroke: #bc4c00; fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #3d444d }
.line { stroke: #4493f8 }
.exact { stroke: #f0883e }
}
</style>
";

/// One panel: heading, label of the top, values of leased and exact mode, marks of its axis.
struct Panel {
    head: &'static str,
    most: u64,
    of: fn(&Minute) -> u64,
    exact: u64,
    marks: [(u64, &'static str); 3],
}

const PANELS: [Panel; 3] = [
    Panel {
        head: "saved: round trips for a thousand requests, until the limit is reached",
        most: 10_000,
        of: |minute| minute.trips,
        exact: 10_000,
        marks: [(0, "0"), (5_000, "500"), (10_000, "1,000")],
    },
    Panel {
        head: "fairness: unused hits held by other replicas at the first refusal, per cent of the limit",
        most: 200,
        of: |minute| minute.held,
        exact: 0,
        marks: [(0, "0"), (100, "1"), (200, "2")],
    },
    Panel {
        head: "lateness: seconds from the first refusal to the last hit that another replica admits",
        most: 2_000,
        of: |minute| minute.late_ms,
        exact: 0,
        marks: [(0, "0"), (1_000, "1"), (2_000, "2")],
    },
];

/// Legend of the lines.
fn legend() -> String {
    let mut legend = String::new();
    let entries = [
        "exact mode",
        "leased, age 0.5 s",
        "leased, age 2 s (default)",
        "leased, age 5 s",
    ];
    for (words, at) in entries.iter().zip(0_u64..) {
        let x = [24, 170, 340, 570][usize::try_from(at).unwrap()];
        let class = match at {
            0 => "exact".to_owned(),
            at => format!("line age{}", at - 1),
        };
        let _ = writeln!(
            legend,
            r#"<path class="{class}" d="M{x} 84h34"/><text x="{}" y="88">{words}</text>"#,
            x + 42
        );
    }
    legend
}

/// The picture.
pub(crate) fn picture() -> String {
    let all = minutes();
    let height = TOP + 3 * (PANEL + BETWEEN) - 24;
    let mut svg = String::new();
    let mut descriptions = Vec::new();
    for (panel, number) in PANELS.iter().zip(0..) {
        let top = TOP + number * (PANEL + BETWEEN);
        let y = |value: u64| top + PANEL - value.min(panel.most) * PANEL / panel.most;
        let head = panel.head;
        let _ = writeln!(
            svg,
            r#"<text class="head" x="24" y="{}">{head}</text>"#,
            top - 16
        );
        for (value, words) in panel.marks {
            let at = y(value);
            let (right, side, text) = (WIDTH - 40, LEFT - 10, at + 4);
            let _ = writeln!(
                svg,
                r#"<path class="grid" d="M{LEFT} {at}H{right}"/><text class="quiet end" x="{side}" y="{text}">{words}</text>"#
            );
        }
        let path = |values: &mut dyn Iterator<Item = u64>| {
            let points = values.zip(0..).map(|(value, at)| {
                let (letter, x) = (if at == 0 { 'M' } else { 'L' }, LEFT + 30 + at * A_RATE);
                format!("{letter}{x} {}", y(value))
            });
            points.collect::<String>()
        };
        let exact = path(&mut RATES.iter().map(|_| panel.exact));
        let _ = writeln!(svg, r#"<path class="exact" d="{exact}"/>"#);
        for (minutes, (age, age_ms)) in all.iter().zip((0..).zip(AGES_MS)) {
            let line = path(&mut minutes.iter().map(panel.of));
            let _ = writeln!(svg, r#"<path class="line age{age}" d="{line}"/>"#);
            let values: Vec<_> = minutes.iter().map(panel.of).collect();
            descriptions.push(format!("{head}, age {age_ms} ms: {values:?}"));
        }
        for (rate, at) in RATES.iter().zip(0..) {
            let (x, y) = (LEFT + 30 + at * A_RATE, top + PANEL + 18);
            let _ = writeln!(
                svg,
                r#"<text class="quiet middle" x="{x}" y="{y}">{rate}/s</text>"#
            );
        }
    }
    let legend = legend();
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-labelledby="title description">
<!-- made by `make pictures`, from crates/store/src/lease/leases.rs -->
<title id="title">What leases save, and what they cost near the limit</title>
<desc id="description">{}.</desc>
{STYLE}<rect class="page" x="0.5" y="0.5" width="{}" height="{}" rx="10"/>
<text class="large" x="24" y="38">What leases save, and what they cost near the limit</text>
<text class="quiet" x="24" y="60">Three replicas get 6, 3 and 1 of ten requests; a limit a minute runs out after half of it. Across: requests a second, all together.</text>
{legend}{svg}</svg>
"#,
        descriptions.join("; "),
        WIDTH - 1,
        height - 1,
    )
}
