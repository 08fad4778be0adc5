//! Tests of replays.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use prost::Message as _;
use tollgate_limiter::{Check, Timestamp};

use super::report::ReplayReport;
use super::{Options, Side, replay};
use crate::recording::{Event, Events, ReadError, Summary};
use tollgate_engine::simulation::{Config, PlannedRequest, Simulation};
use tollgate_rules::file;
use tollgate_rules::path::Source;
use tollgate_rules::reload::load_overlaid;
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::tollgate::recording::v1::{
    Code, Header, PlainKey, Refund, Request, Rules, Sampling, Stamp,
};

/// A Sunday.
const START_US: u64 = 1_763_856_000_000_000;

/// Events in memory.
struct Recorded {
    header: Header,
    summary: Summary,
    events: VecDeque<Event>,
}

impl Events for Recorded {
    fn header(&self) -> &Header {
        &self.header
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        Ok(self.events.pop_front())
    }
}

fn message(descriptors: &[&[(&str, &str)]], hits: u32) -> bytes::Bytes {
    let descriptors = descriptors.iter().map(|entries| {
        let entries = entries.iter().map(|(key, value)| Entry {
            key: (*key).to_owned().into(),
            value: (*value).to_owned().into(),
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            ..RateLimitDescriptor::default()
        }
    });
    RateLimitRequest {
        domain: "edge".into(),
        descriptors: descriptors.collect(),
        hits_addend: hits,
    }
    .encode_to_vec()
    .into()
}

/// A request of a user, at this many milliseconds.
fn request(order: u64, after_ms: u64, user: &str, hits: u32) -> Event {
    Event::Request(Arc::new(Request {
        order,
        time_us: START_US + after_ms * 1_000,
        request: message(&[&[("user", user)]], hits).into(),
        check_rules: vec![1],
        ..Request::default()
    }))
}

fn side(name: &str, text: &str) -> Side {
    let source = Source {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let options = file::Options {
        limit_files: Some(file::LimitFiles::default()),
        ..file::Options::default()
    };
    let rules = load_overlaid(&[source], None, options);
    Side {
        path: PathBuf::from(name),
        rules: rules.unwrap_or_else(|report| panic!("{}", report.render(false))),
    }
}

fn run(header: Header, events: Vec<Event>, rules: &str, against: Option<&str>) -> ReplayReport {
    let recorded_rules = side("rules.yaml", rules);
    let generation = Rules {
        hash: recorded_rules.rules.hash,
        ..Rules::default()
    };
    assert!(header.settings.is_empty(), "the command reads settings");
    let mut events = Recorded {
        header,
        summary: Summary {
            generations: vec![generation],
            ..Summary::default()
        },
        events: events.into(),
    };
    let options = Options {
        file: PathBuf::from("test"),
        config: Config::default(),
        memory_max: 64 << 20,
        rows_max: 20,
    };
    let against = against.map(|text| side("against.yaml", text));
    replay(&mut events, recorded_rules, against, &options, &mut |_| ()).expect("report")
}

fn rules(limit: &str) -> String {
    format!("domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {{{limit}}}\n")
}

#[test]
fn keys_that_only_the_changed_rule_refuses_are_named() {
    let events = (0..30).map(|number| {
        let user = ["ada", "bob", "cy"][usize::try_from(number % 3).unwrap_or(0)];
        // ada asks 10 times, bob and cy too; cy with 0 hits only looks.
        request(
            number + 1,
            number,
            user,
            u32::from(user != "cy") + u32::from(user == "bob"),
        )
    });
    let report = run(
        Header::default(),
        events.collect(),
        &rules("unit: day, requests_per_unit: 20"),
        Some(&rules("unit: day, requests_per_unit: 12")),
    );
    assert_eq!((report.base.admitted, report.base.refused), (30, 0));
    let changes = report.changes.expect("changes");
    assert_eq!((changes.newly_refused, changes.newly_admitted), (4, 0));
    let keys = changes.keys_newly_refused;
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].count, &*keys[0].entries[0].value), (4, "bob"));
    let against = changes.against;
    assert_eq!((against.admitted, against.refused), (26, 4));
    assert_eq!(report.base.by_rule[0].peak_hits, 20);
    assert_eq!(report.base.by_rule[0].smallest_limit, Some(20));
    // A limit that refused has a number, too.
    assert_eq!(against.by_rule[0].smallest_limit, Some(20));
}

/// Two descriptors; the first admits one request, the second refuses all. The first hit goes
/// back when the recording says so.
#[test]
fn hits_go_back_when_they_did() {
    let rules = "domain: edge\nall_or_nothing: true\ndescriptors:\n  \
        - {key: a, rate_limit: {unit: day, requests_per_unit: 1, count_refused: none}}\n  \
        - {key: b, rate_limit: {unit: day, requests_per_unit: 0}}\n";
    let both = Event::Request(Arc::new(Request {
        order: 1,
        time_us: START_US,
        request: message(&[&[("a", "1")], &[("b", "1")]], 1).into(),
        code: Code::OverLimit.into(),
        check_rules: vec![1, 2],
        ..Request::default()
    }));
    let single = |order, code: Code| {
        Event::Request(Arc::new(Request {
            order,
            time_us: START_US,
            request: message(&[&[("a", "1")]], 1).into(),
            code: code.into(),
            check_rules: vec![1],
            ..Request::default()
        }))
    };
    let refund = Event::Refund(Refund {
        order: 3,
        time_us: START_US,
        taken_orders: vec![1],
    });
    let events = vec![
        both,
        single(2, Code::OverLimit),
        refund,
        single(4, Code::Ok),
    ];
    let recorded = run(Header::default(), events, rules, None).recorded;
    let recorded = recorded.expect("verdicts");
    assert_eq!((recorded.same, recorded.different), (3, 0), "{recorded:?}");
}

/// The second check of the first request came after the second request.
#[test]
fn checks_are_applied_in_their_order() {
    let rules = "domain: edge\ndescriptors:\n  \
        - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n  \
        - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let first = Event::Request(Arc::new(Request {
        order: 1,
        time_us: START_US,
        request: message(&[&[("a", "1")], &[("b", "1")]], 1).into(),
        code: Code::OverLimit.into(),
        check_rules: vec![1, 2],
        stamps: vec![Stamp {
            check: 1,
            order: 3,
            time_us: START_US + 5,
        }],
        ..Request::default()
    }));
    let second = Event::Request(Arc::new(Request {
        order: 2,
        time_us: START_US,
        request: message(&[&[("b", "1")]], 1).into(),
        code: Code::Ok.into(),
        check_rules: vec![2],
        ..Request::default()
    }));
    let report = run(Header::default(), vec![first, second], rules, None);
    let recorded = report.recorded.expect("verdicts");
    assert_eq!((recorded.same, recorded.different), (2, 0), "{recorded:?}");
}

#[test]
fn a_sample_says_nothing_about_other_buckets() {
    let rules = "domain: edge\ndescriptors:\n  \
        - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}\n  \
        - {key: path, rate_limit: {unit: day, requests_per_unit: 1}}\n  \
        - {key: user, value: bot, rate_limit: {unit: day, requests_per_unit: 5}}\n";
    let header = Header {
        sampling: Some(Sampling {
            key: b"user".to_vec(),
            one_in: 10,
        }),
        ..Header::default()
    };
    let report = run(header, Vec::new(), rules, None);
    let names: Vec<_> = report.undecidable.iter().map(|one| &*one.rule).collect();
    assert_eq!(names, ["edge.path"]);
    let hashed = |plain_keys| {
        let header = Header {
            hashed: true,
            plain_keys,
            ..Header::default()
        };
        run(header, Vec::new(), rules, None).undecidable
    };
    // `user` without a value matches what the one with a value does not.
    assert_eq!(hashed(Vec::new()).len(), 2);
    let plain = PlainKey {
        domain: b"edge".to_vec(),
        key: b"user".to_vec(),
        which: "values".to_owned(),
    };
    assert_eq!(hashed(vec![plain]), []);
}

/// A file of limits compares every value of its key, and each of its values has a limit.
#[test]
fn limits_by_value_have_no_smallest_limit_and_need_plain_values() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.csv");
    std::fs::write(&users, "value,unit,requests_per_unit\nann,day,1\n").unwrap();
    let rules = format!(
        "domain: edge\ndescriptors:\n  - key: user\n    limits_from: {}\n    \
         rate_limit: {{unit: day, requests_per_unit: 2}}\n",
        users.display()
    );
    let events = || {
        let users = ["ann", "ann", "bob", "bob"].into_iter().zip(1..);
        users
            .map(|(user, order)| request(order, 0, user, 1))
            .collect()
    };
    let report = run(Header::default(), events(), &rules, None);
    assert_eq!((report.base.admitted, report.base.refused), (3, 1));
    let rows = report.base.by_rule.iter().map(|row| {
        let why = row.smallest_limit_unknown.as_deref();
        (&*row.limit, row.refused, row.smallest_limit, why)
    });
    let why = Some("each value of its file has a limit of its own");
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            ("by value, fixed_window", 1, None, why),
            ("2 per day, fixed_window", 0, Some(2), None),
        ]
    );
    let hashed = |which: &str| {
        let header = Header {
            hashed: true,
            plain_keys: vec![PlainKey {
                domain: b"edge".to_vec(),
                key: b"user".to_vec(),
                which: which.to_owned(),
            }],
            ..Header::default()
        };
        let undecidable = run(header, Vec::new(), &rules, None).undecidable;
        !undecidable.is_empty()
    };
    assert!(hashed("values"), "other values are hashed");
    assert!(!hashed("all"));
}

/// The first check of a joined request refuses; the hits of the second go back under the number of
/// the second check, one after that of the first.
#[test]
fn hits_of_a_check_without_a_stamp_go_back() {
    let rules = "domain: edge\nall_or_nothing: true\ndescriptors:\n  \
        - {key: a, rate_limit: {unit: day, requests_per_unit: 0}}\n  \
        - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let header = Header::default();
    let both = Event::Request(Arc::new(Request {
        order: 1,
        time_us: START_US,
        request: message(&[&[("a", "1")], &[("b", "1")]], 1).into(),
        code: Code::OverLimit.into(),
        check_rules: vec![1, 2],
        ..Request::default()
    }));
    let refund = Event::Refund(Refund {
        order: 3,
        time_us: START_US,
        taken_orders: vec![2],
    });
    let single = Event::Request(Arc::new(Request {
        order: 4,
        time_us: START_US,
        request: message(&[&[("b", "1")]], 1).into(),
        code: Code::Ok.into(),
        check_rules: vec![2],
        ..Request::default()
    }));
    let report = run(header, vec![both, refund, single], rules, None);
    assert_eq!((report.base.admitted, report.base.refused), (1, 1));
    let limits = report
        .base
        .by_rule
        .iter()
        .map(|rule| rule.smallest_limit_unknown.is_some());
    // `a` refused a request whose other hits went back.
    assert_eq!(limits.collect::<Vec<_>>(), [true, false]);
}

/// `path` counts requests of all users, and only some users were recorded: it refuses nothing.
#[test]
fn an_undecidable_limit_refuses_nothing() {
    let rules = "domain: edge\ndescriptors:\n  \
        - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}\n  \
        - {key: path, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let header = Header {
        sampling: Some(Sampling {
            key: b"user".to_vec(),
            one_in: 10,
        }),
        ..Header::default()
    };
    let events = (1..=3).map(|order| {
        Event::Request(Arc::new(Request {
            order,
            time_us: START_US,
            request: message(&[&[("user", "ada")], &[("path", "/")]], 1).into(),
            ..Request::default()
        }))
    });
    let report = run(header, events.collect(), rules, None);
    assert_eq!((report.base.admitted, report.base.refused), (2, 1));
    let row = |name: &str| {
        report
            .base
            .by_rule
            .iter()
            .find(|row| row.rule == name)
            .expect("row")
    };
    assert_eq!(
        (row("edge.path").refused, row("edge.path").undecidable),
        (0, true)
    );
    assert_eq!(row("edge.path").smallest_limit, None);
    assert_eq!(
        (row("edge.user").refused, row("edge.user").smallest_limit),
        (1, Some(3))
    );
}

/// Ten seconds say nothing of a limit of 100 an hour, whose bucket was full when they began.
#[test]
fn a_recording_shorter_than_a_window_says_nothing_of_it() {
    let events = || {
        let requests = (1..=3).map(|order| {
            let Event::Request(request) = request(order, order * 5_000 - 5_000, "ada", 1) else {
                unreachable!()
            };
            let refused = vec![u8::from(order > 1)];
            Event::Request(Arc::new(Request {
                checks_refused: refused,
                ..(*request).clone()
            }))
        });
        requests.collect()
    };
    let finding = |limit: &str| {
        let report = run(Header::default(), events(), &rules(limit), None);
        report.base.by_rule[0].finding(&report.recording)
    };
    assert_eq!(
        finding("unit: hour, requests_per_unit: 100"),
        "Refuses nothing in this replay. In the recording it was over 2 times. 3 per hour is the \
         smallest that refuses nothing. The recording (10 s) is shorter than a window (1 h), and begins \
         with empty buckets: it says nothing of a whole window."
    );
    assert_eq!(
        finding("unit: second, requests_per_unit: 100, unit_multiplier: 10"),
        "Refuses nothing in this replay. In the recording it was over 2 times. 2 per 10 seconds is \
         the smallest that refuses nothing."
    );
}

/// One number of limits for one hash: those of `check`, with the unlimited rules.
#[test]
fn unlimited_rules_are_counted_among_the_limits() {
    let rules = "domain: edge\ndescriptors:\n  \
        - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}\n  \
        - {key: path, rate_limit: {unlimited: true}}\n";
    let report = run(Header::default(), Vec::new(), rules, None);
    assert_eq!(report.base.rules.limits, 2);
}

/// The fields that scripts read.
#[test]
fn the_json_has_the_fields_of_its_contract() {
    let events = || {
        (1..=3)
            .map(|order| request(order, order, "ada", 1))
            .collect()
    };
    let json = |against: Option<&str>| {
        let rules = rules("unit: day, requests_per_unit: 2");
        let report = run(Header::default(), events(), &rules, against);
        serde_json::to_value(&report).expect("json")
    };
    let alone = json(None);
    assert_eq!(
        (&alone["admitted"], &alone["refused"]),
        (&2.into(), &1.into())
    );
    assert_eq!(alone["by_rule"][0]["refused"], 1);
    assert_eq!(alone.get("newly_refused"), None);
    let both = json(Some(&rules("unit: day, requests_per_unit: 1")));
    assert_eq!(
        (&both["newly_refused"], &both["newly_admitted"]),
        (&1.into(), &0.into())
    );
    assert_eq!(both["against"]["refused"], 2);
    let key = &both["keys_newly_refused"][0];
    assert_eq!(
        (&key["rule"], &key["count"]),
        (&"edge.user".into(), &1.into())
    );
    assert_eq!(key["entries"][0]["value"], "ada");
    assert_eq!(both["keys_newly_refused_omitted"], 0);
}

const ALGORITHMS: [&str; 8] = [
    "fixed_window",
    "sliding_window",
    "sliding_window_segments, segments: 6",
    "sliding_log",
    "token_bucket",
    "token_bucket_interval",
    "leaky_bucket, burst: 100",
    "fixed_window, unit_multiplier: 2",
];

proptest! {
    /// With one less, the limit refuses.
    #[test]
    fn the_smallest_limit_is_exact(
        algorithm in prop::sample::select(&ALGORITHMS[..]),
        requests in prop::collection::vec((0_u64..2_000, 0_usize..3, 1_u32..4), 1..40),
    ) {
        let mut after_ms = 0;
        let events = requests.iter().enumerate().map(|(number, (wait_ms, user, hits))| {
            after_ms += wait_ms;
            request(number as u64 + 1, after_ms, ["ada", "bob", "cy"][*user], *hits)
        });
        let events: Vec<_> = events.collect();
        let with = |limit: u64| {
            let limit = format!("unit: second, requests_per_unit: {limit}, algorithm: {algorithm}");
            run(Header::default(), events.clone(), &rules(&limit), None)
        };
        let report = with(1_000);
        prop_assert_eq!(report.base.refused, 0);
        let smallest = report.base.by_rule[0].smallest_limit.expect("known");
        // A limit that refuses most requests leads to the same number.
        prop_assert_eq!(with(1).base.by_rule[0].smallest_limit, Some(smallest));
        prop_assert_eq!(with(smallest).base.refused, 0);
        // A limit of 0 has no burst.
        if smallest > 1 || !algorithm.contains("burst") {
            prop_assert!(smallest > 0 && with(smallest - 1).base.refused > 0, "{}", smallest);
        }
    }
}

/// Quiet minutes are points as well, also after a jump of the clock by a year in both directions.
#[test]
fn points_follow_each_other_in_equal_steps() {
    const YEAR_MS: u64 = 366 * 86_400_000;
    let rules = rules("unit: day, requests_per_unit: 20");
    for times_ms in [
        vec![0],
        vec![0, 30_000, 100_000],
        vec![0, YEAR_MS, 5_000, YEAR_MS + 1],
        vec![YEAR_MS, 0],
    ] {
        let events = times_ms.iter().zip(1..);
        let events = events.map(|(after_ms, order)| request(order, *after_ms, "ada", 1));
        let report = run(Header::default(), events.collect(), &rules, None);
        let times: Vec<_> = report.over_time.iter().map(|point| &point.start).collect();
        let times: Vec<_> = times
            .into_iter()
            .filter_map(|time| tollgate_admin_api::parse_time(time))
            .map(|time| time.as_us() / 1_000_000)
            .collect();
        assert!(times.len() <= 240, "{}", times.len());
        let mut pairs = times.windows(2);
        assert!(pairs.all(|pair| pair[1] - pair[0] == report.point_seconds));
        let first = START_US / 1_000_000 + times_ms.iter().min().expect("a time") / 1_000;
        assert!(times[0] <= first && first < times[0] + report.point_seconds);
        let admitted: u64 = report.over_time.iter().map(|point| point.admitted).sum();
        assert_eq!(admitted, times_ms.len() as u64);
    }
}

/// All algorithms, with options that they need, and calendar windows.
const LIMITS: [&str; 9] = [
    "unit: second, requests_per_unit: 3, algorithm: fixed_window",
    "unit: second, requests_per_unit: 3, algorithm: sliding_window",
    "unit: second, requests_per_unit: 3, algorithm: sliding_window_segments, segments: 4",
    "unit: second, requests_per_unit: 3, algorithm: sliding_log",
    "unit: second, requests_per_unit: 3, algorithm: token_bucket, burst: 4",
    "unit: second, requests_per_unit: 3, algorithm: token_bucket_interval",
    "unit: second, requests_per_unit: 3, algorithm: leaky_bucket, burst: 2",
    "requests_per_unit: 3, algorithm: concurrency, slot_seconds: 1",
    "unit: day, requests_per_unit: 9, calendar: true, time_zone: Europe/Paris",
];

/// A request of the model: milliseconds before it, user, path, hits, and how many requests begin
/// before its second check and its refund.
type Turn = (u64, usize, usize, u32, usize);

/// Decides requests as a service with several partitions does: the second check of a request comes
/// after the first checks of others, and its refund later still. Returns what it records.
fn model(rules: &str, asked: &[Turn]) -> Vec<Event> {
    let start = Timestamp::from_us(START_US);
    let mut service = Simulation::new(Config::default(), 1 << 20, start).expect("simulation");
    service.set_rules(side("rules.yaml", rules).rules);
    let (mut order, mut now) = (0_u64, Timestamp::from_us(START_US));
    let mut waiting: Vec<(usize, Request, PlannedRequest)> = Vec::new();
    let mut refunds: Vec<(usize, Vec<u64>, Vec<Check>)> = Vec::new();
    let mut events: Vec<(u64, Event)> = Vec::new();
    for turn in 0..asked.len() + 10 {
        if let Some((wait_ms, user, path, hits, later)) = asked.get(turn) {
            now = now.plus_us(wait_ms * 1_000);
            let (user, path) = (["ada", "bob"][*user], ["/a", "/b"][*path]);
            let message = message(&[&[("user", user)], &[("path", path)]], *hits);
            service.set_time(now);
            let mut planned = service.begin(&message, None).expect("request");
            service.apply(&mut planned, 0, now, None);
            order += 1;
            let request = Request {
                order,
                time_us: now.as_us(),
                request: message.into(),
                check_rules: vec![1, 2],
                ..Request::default()
            };
            waiting.push((turn + later, request, planned));
        }
        for (due, mut request, mut planned) in std::mem::take(&mut waiting) {
            if due > turn {
                waiting.push((due, request, planned));
                continue;
            }
            order += 1;
            now = now.plus_us(1);
            service.apply(&mut planned, 1, now, None);
            request.stamps = vec![Stamp {
                check: 1,
                order,
                time_us: now.as_us(),
            }];
            let orders = [request.order, order];
            let answer = service.finish(planned);
            let code = match answer.code.expect("answer") {
                tollgate_limiter::Code::Ok => Code::Ok,
                tollgate_limiter::Code::OverLimit => Code::OverLimit,
            };
            request.code = code.into();
            let taken = |refund: &Check| {
                let position = answer.checks.iter().position(|one| one.key == refund.key);
                orders[position.expect("check")]
            };
            let taken = answer.refunds.iter().map(taken).collect();
            refunds.push((turn + 2, taken, answer.refunds));
            events.push((request.order, Event::Request(Arc::new(request))));
        }
        for (due, taken_orders, checks) in std::mem::take(&mut refunds) {
            if due > turn {
                refunds.push((due, taken_orders, checks));
            } else if !checks.is_empty() {
                order += 1;
                service.give_back(checks, now);
                let refund = Refund {
                    order,
                    time_us: now.as_us(),
                    taken_orders,
                };
                events.push((order, Event::Refund(refund)));
            }
        }
    }
    events.sort_by_key(|(order, _)| *order);
    events.into_iter().map(|(_, event)| event).collect()
}

proptest! {
    /// The rules of a recording give its verdicts.
    #[test]
    fn the_same_rules_give_the_same_verdicts(
        user in prop::sample::select(&LIMITS[..]),
        path in prop::sample::select(&LIMITS[..]),
        all_or_nothing in any::<bool>(),
        asked in prop::collection::vec((0_u64..400, 0_usize..2, 0_usize..2, 0_u32..3, 0_usize..5), 1..60),
    ) {
        let rules = format!(
            "domain: edge\nall_or_nothing: {all_or_nothing}\ndescriptors:\n  \
            - key: user\n    rate_limit: {{{user}}}\n  - key: path\n    rate_limit: {{{path}}}\n"
        );
        let events = model(&rules, &asked);
        let recorded = run(Header::default(), events, &rules, None).recorded.expect("verdicts");
        prop_assert_eq!((recorded.same, recorded.different), (asked.len() as u64, 0));
    }
}
