//! Tests of the page as text. `tests/browser/replay.rs` opens it in a browser.

use super::page;
use crate::replay::report::{
    Changes, Difference, KeyCount, Minute, Point, Recorded, RecordingFacts, ReplayReport,
    RuleReport, RulesFacts, SideReport, Undecidable,
};
use tollgate_admin_api::Entry;

/// Largest page, in bytes: of long texts in which every character is escaped.
const PAGE_BYTES_MAX: usize = 6_000_000;

/// A report in which every list has `number` entries and every text is `text`.
fn report_of(number: usize, text: &str) -> ReplayReport {
    let text = || text.to_owned();
    let entry = Entry {
        key: text(),
        value: text(),
    };
    let entries = vec![entry; number.min(30)];
    let key = KeyCount {
        domain: text(),
        rule: text(),
        entries: entries.clone(),
        count: u64::MAX,
    };
    let keys = vec![key; number.min(300)];
    let rule = |at: usize| RuleReport {
        domain: format!("{at}{}", text()),
        rule: text(),
        limit: text(),
        limit_hits: u64::MAX,
        refused: u64::MAX,
        would_refuse: u64::MAX,
        peak_hits: u64::MAX,
        peak_at: text(),
        peak_key: text(),
        smallest_limit_unknown: Some(text()),
        ..RuleReport::default()
    };
    let minute = Minute {
        start: text(),
        admitted: u64::MAX,
        refused: u64::MAX,
    };
    let point = Point {
        start: text(),
        admitted: u64::MAX,
        refused: u64::MAX,
        against_admitted: Some(u64::MAX),
        against_refused: Some(u64::MAX),
    };
    let difference = Difference {
        count: 1,
        at: text(),
        domain: text(),
        entries,
        recorded: text(),
        replayed: text(),
    };
    let undecidable = Undecidable {
        side: text(),
        domain: text(),
        rule: text(),
        why: text(),
    };
    let side = SideReport {
        rules: RulesFacts {
            path: text(),
            hash: text(),
            limits: usize::MAX,
        },
        admitted: u64::MAX,
        refused: u64::MAX,
        by_rule: (0..number).map(rule).collect(),
        worst_minutes: vec![minute; number],
        ..SideReport::default()
    };
    ReplayReport {
        recording: RecordingFacts {
            file: text(),
            format: text(),
            began: text(),
            ended: text(),
            ended_by: Some(text()),
            store: text(),
            sampled_by: Some(text()),
            sampled_one_in: Some(u32::MAX),
            requests: u64::MAX,
            ..RecordingFacts::default()
        },
        base: side.clone(),
        over_time: vec![point; number],
        changes: Some(Changes {
            against: side,
            newly_refused: u64::MAX,
            newly_admitted: u64::MAX,
            keys_newly_refused: keys.clone(),
            keys_newly_refused_omitted: u64::MAX,
            keys_newly_admitted: keys,
            keys_newly_admitted_omitted: u64::MAX,
        }),
        recorded: Some(Recorded {
            different: u64::MAX,
            first_differences: vec![difference; number.min(300)],
            why_they_may_differ: vec![text(); number],
            ..Recorded::default()
        }),
        undecidable: vec![undecidable; number],
        ..ReplayReport::default()
    }
}

#[test]
fn a_page_is_bounded_whatever_the_report_holds() {
    let large = page(&report_of(3_000, &"<".repeat(1_000)));
    assert!(large.len() <= PAGE_BYTES_MAX, "{} bytes", large.len());
}

#[test]
fn what_a_limit_means_is_shown_to_its_last_sentence() {
    let rule = RuleReport {
        refused: 2_000,
        recorded_over: 1_000,
        keys_refused: 1_000,
        window_seconds: Some(15 * 60),
        smallest_limit_text: Some("9007199254740991 per 15 minutes with a burst of 2".to_owned()),
        ..RuleReport::default()
    };
    let mut report = report_of(1, "text");
    let finding = rule.finding(&report.recording);
    assert!(finding.ends_with("it says nothing of a whole window."));
    report.base.by_rule = vec![rule];
    assert!(page(&report).contains(&finding), "{finding}");
}

#[test]
fn no_text_of_a_report_is_markup() {
    let hostile = "\"'></script></style></title><img src=x onerror=alert(1)><!--&amp;\u{202e}";
    let page = page(&report_of(3, hostile));
    for markup in ["<img", "<script", "</script", "<!--", "\u{202e}", "\"'>"] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert_eq!(page.matches("</style>").count(), 1);
    let head = page.split("</head>").next().unwrap_or_default();
    assert_eq!(head.matches("</title>").count(), 1);
    assert!(page.matches("&lt;/script&gt;").count() > 60);
}

#[test]
fn the_page_has_no_script_no_link_to_a_host_and_no_inline_style() {
    for report in [ReplayReport::default(), report_of(3, "text")] {
        let page = page(&report);
        for forbidden in [
            "<script", "src=", "<link", "http:", "https:", "url(", "@import", " style=",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}

#[test]
fn elements_are_closed_in_their_order() {
    for report in [
        ReplayReport::default(),
        report_of(1, "a"),
        report_of(40, "a"),
    ] {
        let page = page(&report);
        let mut open: Vec<String> = Vec::new();
        for tag in page.split('<').skip(1).map(|rest| rest.split('>').next()) {
            let tag = tag.unwrap_or_default();
            let name: String = tag
                .trim_start_matches('/')
                .chars()
                .take_while(char::is_ascii_alphanumeric)
                .collect();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{open:?}");
            } else if !tag.ends_with('/') && !["meta", "br", ""].contains(&name.as_str()) {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}

#[test]
fn the_answer_says_what_changes() {
    let answer = |report: &ReplayReport| {
        let page = page(report);
        let (_, from) = page.split_once("class=\"verdict\">").unwrap_or_default();
        let answer = from.split("</h2>").next().unwrap_or_default();
        let answer = answer.replace("<strong>", "").replace("</strong>", "");
        answer.replace('\u{a0}', " ")
    };
    let mut report = ReplayReport::default();
    assert_eq!(answer(&report), "No request of this recording was decided.");
    (report.base.admitted, report.base.refused) = (996, 4);
    assert_eq!(
        answer(&report),
        "These rules refuse 0.4 % of requests: 4 of 1,000."
    );
    let against = |admitted, refused| SideReport {
        admitted,
        refused,
        ..SideReport::default()
    };
    report.changes = Some(Changes {
        against: against(996, 4),
        ..Changes::default()
    });
    let same = "B decides every request as A does: 0.4 % are refused.";
    assert_eq!(answer(&report), same);
    report.changes = Some(Changes {
        against: against(969, 31),
        newly_refused: 27,
        keys_newly_refused: vec![KeyCount::default(); 10],
        keys_newly_refused_omitted: 2,
        ..Changes::default()
    });
    assert_eq!(
        answer(&report),
        "Under B, 3.1 % of requests would be refused instead of 0.4 %; 12 keys are newly refused."
    );
}
