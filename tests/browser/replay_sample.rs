//! A report of a day, for the page and its pictures: a morning with a burst, and a lower limit.

use tollgate::admin_api::Entry;
use tollgate::replay::report::{
    Changes, Difference, KeyCount, Minute, Point, Recorded, RecordingFacts, ReplayReport,
    RuleReport, RulesFacts, SideReport, Speed, Undecidable,
};

/// Minutes of the recording.
const MINUTES: u64 = 1_440;

/// When the burst is, in minutes after midnight.
const BURST: std::ops::Range<u64> = 600..680;

/// The report of a replay under two sets of rules.
pub(crate) fn two_sets() -> ReplayReport {
    let points: Vec<_> = (0..MINUTES).map(point).collect();
    let sum = |of: fn(&Point) -> u64| points.iter().map(of).sum::<u64>();
    let against_admitted = sum(|point| point.against_admitted.unwrap());
    let against_refused = sum(|point| point.against_refused.unwrap());
    let keys: Vec<_> = (0..30).map(|at| key(at, 5_000 / (at + 1))).collect();
    let against = SideReport {
        rules: rules("changed.yaml", "b3c1f00d9a7742e1"),
        admitted: against_admitted,
        refused: against_refused,
        by_rule: limits(50),
        worst_minutes: worst(&points, |point| {
            (
                point.against_admitted.unwrap(),
                point.against_refused.unwrap(),
            )
        }),
        ..SideReport::default()
    };
    ReplayReport {
        changes: Some(Changes {
            newly_refused: against_refused - sum(|point| point.refused) + 63,
            newly_admitted: 63,
            keys_newly_admitted: vec![key(77, 61), key(78, 2)],
            keys_newly_admitted_omitted: 0,
            keys_newly_refused: keys,
            keys_newly_refused_omitted: 12,
            against,
        }),
        over_time: points,
        ..one_set()
    }
}

/// The report of a replay under one set of rules.
pub(crate) fn one_set() -> ReplayReport {
    let points: Vec<_> = (0..MINUTES).map(point).collect();
    let admitted = points.iter().map(|point| point.admitted).sum();
    let refused = points.iter().map(|point| point.refused).sum();
    let difference = Difference {
        count: 12,
        at: "2026-11-20T00:00:04.120Z".into(),
        domain: "shop".into(),
        entries: key(3, 1).entries,
        recorded: "OVER_LIMIT".into(),
        replayed: "OK".into(),
    };
    ReplayReport {
        recording: RecordingFacts {
            file: "friday.tgrec".into(),
            format: "recording".into(),
            began: time(0),
            ended: time(MINUTES - 1),
            seconds: 86_340.0,
            requests: admitted + refused,
            complete: true,
            ended_by: Some("time".into()),
            generations: 1,
            store: "memory".into(),
            ..RecordingFacts::default()
        },
        base: SideReport {
            rules: rules("rules.yaml", "5a0e7c19d2b84f36"),
            admitted,
            refused,
            by_rule: limits(100),
            worst_minutes: worst(&points, |point| (point.admitted, point.refused)),
            ..SideReport::default()
        },
        over_time: points
            .into_iter()
            .map(|point| Point {
                against_admitted: None,
                against_refused: None,
                ..point
            })
            .collect(),
        point_seconds: 60,
        recorded: Some(Recorded {
            same: admitted + refused - 41,
            different: 41,
            not_compared: 0,
            first_differences: vec![difference],
            why_they_may_differ: vec![
                "The service had 812 buckets when the recording began. A replay begins with none."
                    .into(),
            ],
        }),
        undecidable: vec![Undecidable {
            side: "rules".into(),
            domain: "shop".into(),
            rule: "path_/export".into(),
            why: "The service changed its rules during the recording.".into(),
        }],
        speed: Speed::default(),
        ..ReplayReport::default()
    }
}

/// A report in which every text is this one.
pub(crate) fn hostile(text: &str) -> ReplayReport {
    let text = || text.to_owned();
    let entry = Entry {
        key: text(),
        value: text(),
    };
    let key = KeyCount {
        domain: text(),
        rule: text(),
        entries: vec![entry],
        count: 1,
    };
    let mut report = two_sets();
    report.recording.file = text();
    report.recording.store = text();
    report.recording.sampled_by = Some(text());
    report.recording.sampled_one_in = Some(2);
    report.base.rules.path = text();
    for limit in &mut report.base.by_rule {
        (limit.domain, limit.rule) = (text(), text());
        (limit.limit, limit.peak_key) = (text(), text());
    }
    let recorded = report.recorded.as_mut().unwrap();
    recorded.why_they_may_differ = vec![text()];
    recorded.first_differences[0]
        .entries
        .clone_from(&key.entries);
    report.undecidable[0].why = text();
    let changes = report.changes.as_mut().unwrap();
    changes.against.rules.path = text();
    changes.against.by_rule.clone_from(&report.base.by_rule);
    changes.keys_newly_refused = vec![key.clone()];
    changes.keys_newly_admitted = vec![key];
    report
}

fn time(minute: u64) -> String {
    format!("2026-11-20T{:02}:{:02}:00.000Z", minute / 60, minute % 60)
}

fn point(minute: u64) -> Point {
    // A day's wave of whole numbers: the same on every machine.
    let from_noon = minute.abs_diff(MINUTES / 2);
    let asked = 1_400 - from_noon + (minute * 7_919) % 97;
    let burst = if BURST.contains(&minute) { 900 } else { 0 };
    let refused = burst / 12 + minute % 3;
    let against_refused = refused + asked / 60 + burst / 4;
    Point {
        start: time(minute),
        admitted: asked + burst - refused,
        refused,
        against_admitted: Some(asked + burst - against_refused),
        against_refused: Some(against_refused),
    }
}

fn worst(points: &[Point], of: fn(&Point) -> (u64, u64)) -> Vec<Minute> {
    let minutes = points.iter().map(|point| {
        let (admitted, refused) = of(point);
        Minute {
            start: point.start.clone(),
            admitted,
            refused,
        }
    });
    let mut minutes: Vec<_> = minutes.collect();
    minutes.sort_by_key(|minute| std::cmp::Reverse(minute.refused));
    minutes.truncate(10);
    minutes
}

fn rules(path: &str, hash: &str) -> RulesFacts {
    RulesFacts {
        path: path.into(),
        hash: hash.into(),
        limits: 4,
    }
}

/// The limits of a set of rules, whose tenants may have so many requests an hour.
fn limits(an_hour: u64) -> Vec<RuleReport> {
    let limit = |rule: &str, limit: &str, limit_hits, refused, peak_hits| RuleReport {
        domain: "shop".into(),
        rule: rule.into(),
        limit: limit.into(),
        limit_hits,
        admitted: 400_000 - refused,
        refused,
        keys_refused: refused.div_ceil(400),
        peak_hits,
        peak_at: time(611),
        peak_key: "tenant=tenant-1".into(),
        smallest_limit: (refused == 0).then_some(peak_hits),
        smallest_limit_text: (refused == 0).then(|| format!("{peak_hits} per hour")),
        ..RuleReport::default()
    };
    let tenants = format!("{an_hour} per hour");
    let refused = if an_hour == 100 { 0 } else { 41_804 };
    vec![
        limit(
            "plan_free.tenant",
            &tenants,
            an_hour,
            refused,
            an_hour.min(93),
        ),
        limit(
            "remote_address",
            "20 per second, token_bucket",
            40,
            5_700,
            40,
        ),
        limit("api_key", "60 per minute, sliding_window", 60, 1_740, 60),
        limit(
            "path_/search",
            "1000 per minute, sliding_log",
            1_000,
            0,
            212,
        ),
    ]
}

fn key(at: u64, count: u64) -> KeyCount {
    let entry = |key: &str, value: String| Entry {
        key: key.into(),
        value,
    };
    KeyCount {
        domain: "shop".into(),
        rule: "plan_free.tenant".into(),
        entries: vec![
            entry("plan", "free".into()),
            entry("tenant", format!("tenant-{}", at * 37 % 101)),
        ],
        count,
    }
}
