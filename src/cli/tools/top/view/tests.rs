//! Screens drawn without a terminal.

mod quotas;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::admin_api::{
    CandidateCounts, CandidateLimit, CandidateOrigin, CandidateState, DecisionRecord,
    DescriptorRecord, Entry, Hits, LeaseState, LimitFigures, LimitState, LimitsFrom,
    PartitionState, Partitions, Rates, Reason, RulesState, StateEvent, StoreState, Top, TopKey,
    Verdict,
};
use crate::cli::tools::top::model::{Effect, Message, TopQuery};

const AT: &str = "2026-11-22T20:00:05.000Z";

fn limit(rule: &str, refused: f64) -> LimitState {
    LimitState {
        reservations: None,
        domain: "edge".to_owned(),
        rule: rule.to_owned(),
        label: "minute".to_owned(),
        limit: Some(LimitFigures {
            requests_per_unit: 10,
            unit: Some("minute".to_owned()),
            unit_multiplier: 1,
            algorithm: "fixed_window".to_owned(),
            burst: 10,
            text: "10 per minute".to_owned(),
        }),
        unlimited: false,
        limits_from: None,
        overrides: None,
        reserve: None,
        cost: None,
        budget: None,
        shadow_mode: false,
        shadow_until: None,
        source: None,
        overlay: None,
        quota_mode: false,
        rlqs: None,
        hits: Hits {
            total: 500,
            admitted: 70,
            refused: 400,
            would_refuse: 30,
            ..Hits::default()
        },
        rates: Rates {
            seconds: 5.0,
            total: refused + 2.0,
            admitted: 2.0,
            refused,
            ..Rates::default()
        },
        candidate: None,
    }
}

fn key(value: &str, refused: u64) -> TopKey {
    TopKey {
        domain: "edge".to_owned(),
        rule: "edge.user".to_owned(),
        descriptor: vec![Entry {
            key: "user".to_owned(),
            value: value.to_owned(),
        }],
        asked: refused + 10,
        refused,
        would_refuse: 1,
        error: 0,
        refused_since: Some(AT.to_owned()),
        refused_last: Some(AT.to_owned()),
    }
}

fn state(keys: Vec<TopKey>) -> StateEvent {
    let top = Top {
        instance: "one".to_owned(),
        at: AT.to_owned(),
        by: RankBy::Refused,
        window: Window::Minute,
        covered_seconds: 60,
        values: ValueMode::Plain,
        asked: 100,
        refused: 50,
        would_refuse: 1,
        keys,
    };
    StateEvent {
        instance: "one".to_owned(),
        at: AT.to_owned(),
        version: "0.1.0".to_owned(),
        uptime_seconds: 77,
        ready: true,
        draining: false,
        rules: RulesState {
            generation: Some(1),
            hash: Some("abc".to_owned()),
            loaded_at: Some(AT.to_owned()),
            rules: 2,
            warnings: 0,
            error: None,
        },
        limits: vec![limit("edge.quiet", 0.0), limit("edge.user", 12.5)],
        limits_omitted: 0,
        // Those of the limits, and of others that are left out.
        rates: Rates {
            total: 16.5,
            refused: 12.5,
            ..Rates::default()
        },
        top_refused: top.clone(),
        top_asked: top,
        partitions: Partitions {
            instance: "one".to_owned(),
            at: AT.to_owned(),
            store: StoreState {
                kind: "redis".to_owned(),
                mode: Some("leased".to_owned()),
                healthy: true,
                message: "connected".to_owned(),
                memory_max_bytes: Some(8 << 20),
                denied_keys: Some(3),
                leases: Some(LeaseState {
                    leases: 7,
                    hits_held: 70,
                }),
                nodes: Vec::new(),
            },
            partitions: vec![PartitionState {
                partition: 0,
                buckets: 123_456,
                marks: 0,
                memory_bytes: 5 << 20,
                queue_checks: 4,
                admitted: 1_234_567,
                refused: 8,
                freed: 7,
                forgotten: 9,
            }],
        },
        shadowed: Vec::new(),
        quotas: None,
        candidate: None,
    }
}

fn query() -> TopQuery {
    TopQuery {
        by: RankBy::Refused,
        window: Window::Minute,
        n: 20,
        domain: None,
        rule: None,
    }
}

fn model() -> Model {
    Model::new(query())
}

fn live(model: &mut Model, name: &str, state: StateEvent) {
    model.apply(Message::State(name.to_owned(), Box::new(state)));
}

/// The lines of a screen, and whether any cell has a colour.
fn screen(model: &Model, width: u16, height: u16, colour: bool) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let styles = Styles::new(colour);
    terminal.draw(|frame| draw(frame, model, styles)).unwrap();
    let buffer = terminal.backend().buffer();
    let coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
    let lines = buffer.content().chunks(usize::from(width)).map(|row| {
        let text: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    });
    (lines.collect(), coloured)
}

fn shown(model: &Model) -> String {
    screen(model, 80, 24, true).0.join("\n")
}

#[test]
fn rules_of_two_replicas_are_added_and_sorted_by_refusals() {
    let mut model = model();
    let mut shadowed = state(vec![]);
    shadowed.limits[0].shadow_mode = true;
    shadowed.limits[0].shadow_until = Some("2026-11-22T20:31:00.000Z".to_owned());
    live(&mut model, "http://a:1", state(vec![]));
    live(&mut model, "http://b:1", shadowed.clone());
    assert!(shown(&model).contains("shadow 1/2"), "{}", shown(&model));
    live(&mut model, "http://a:1", shadowed);
    let (lines, _) = screen(&model, 80, 24, true);
    assert_eq!(
        lines[..5],
        [
            " tollgate top  2 of 2 replicas  33 hits/s  25 refused/s",
            "",
            "[1 Rules] 2 Keys  3 Partitions  4 Replicas   by refused/s",
            " RULE              REFUSED/S ADMIT/S REFUSED  WOULD LIMIT          MODE",
            ">edge.user                25     4.0     800     60 10 per minute",
        ]
    );
    assert_eq!(
        lines[5],
        " edge.quiet                0     4.0     800     60 10 per minute  shadow>20:31Z"
    );
    assert!(
        lines[23].starts_with(" ? help  q quit  tab view"),
        "{}",
        lines[23]
    );
}

#[test]
fn a_rule_with_a_file_of_limits_is_by_value() {
    let mut model = model();
    let mut by_value = state(vec![]);
    by_value.limits[1].limits_from = Some(LimitsFrom {
        file: "tenants\u{1b}.csv".to_owned(),
        limits: 1_000_000,
    });
    live(&mut model, "http://a:1", by_value);
    let (lines, _) = screen(&model, 80, 24, true);
    assert!(lines[4].ends_with("400     30 by value"), "{}", lines[4]);
    assert!(
        lines[5].ends_with("400     30 10 per minute"),
        "{}",
        lines[5]
    );
    model.press(KeyCode::Enter);
    let screen = shown(&model);
    for part in [
        "limit     by value, 1000000 in tenants\\u{1b}.csv",
        "others    10 per minute, fixed_window",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
}

#[test]
fn keys_of_two_replicas_are_added() {
    let mut model = model();
    live(
        &mut model,
        "http://a:1",
        state(vec![key("x", 5), key("y", 6)]),
    );
    live(&mut model, "http://b:1", state(vec![key("x", 5)]));
    model.press(KeyCode::Char('2'));
    let (lines, _) = screen(&model, 80, 24, true);
    assert_eq!(
        lines[2],
        " 1 Rules [2 Keys] 3 Partitions  4 Replicas   by refused 1m"
    );
    assert_eq!(
        lines[4],
        ">user=x             edge.user               10       2       30      0 20:00:05Z"
    );
    assert!(lines[5].starts_with(" user=y "), "{}", lines[5]);
    // The hour is polled: nothing is shown until the answer.
    let effect = model.press(KeyCode::Char('w'));
    assert!(matches!(&effect, Some(Effect::Poll(Some(query))) if query.window == Window::Hour));
    assert!(
        shown(&model).contains("reading the keys…"),
        "{}",
        shown(&model)
    );
    let Some(Effect::Poll(Some(polled))) = effect else {
        unreachable!()
    };
    let top = state(vec![key("hour", 9)]).top_refused;
    model.apply(Message::Top(polled.clone(), vec![("a".to_owned(), top)]));
    assert!(shown(&model).contains(">user=hour"), "{}", shown(&model));
    // An answer to an older query is not shown.
    let effect = model.press(KeyCode::Char('w'));
    assert_eq!(effect, Some(Effect::Poll(None)));
    model.apply(Message::Top(polled, vec![]));
    assert!(shown(&model).contains(">user=x"), "{}", shown(&model));
}

#[test]
fn the_candidate_s_percentages_are_those_of_all_replicas() {
    let counts = CandidateCounts::new(969, 31, 30, 3);
    let mut tried = state(vec![]);
    tried.limits[1].candidate = Some(CandidateLimit {
        limit: tried.limits[1].limit.clone(),
        counts,
    });
    tried.candidate = Some(CandidateState {
        source: CandidateOrigin::Fields,
        hash: Some("abc".to_owned()),
        since: Some(AT.to_owned()),
        error: None,
        counts,
        skipped: 2,
        memory_bytes: 1,
        memory_max_bytes: 64 << 20,
        new_rules: Vec::new(),
    });
    let mut model = model();
    live(&mut model, "http://a:1", tried.clone());
    live(&mut model, "http://b:1", tried.clone());
    let (lines, _) = screen(&model, 80, 24, true);
    assert_eq!(
        lines[1],
        " candidate would refuse 3.1 % instead of 0.4 %, of 2000 requests"
    );
    assert!(lines[4].starts_with(">edge.user"), "{}", lines[4]);
    assert!(lines[4].ends_with("try 0.4>3.1%"), "{}", lines[4]);
    model.press(KeyCode::Enter);
    let shown_now = shown(&model);
    for part in [
        "candidate 10 per minute, would refuse 3.1 % instead of 0.4 %",
        "2000 requests, 60 newly refused, 6 newly admitted",
    ] {
        assert!(shown_now.contains(part), "{part}: {shown_now}");
    }
    model.press(KeyCode::Esc);
    let mut refused = tried;
    refused.candidate.as_mut().unwrap().error = Some("candidate.yaml:3: no such unit".to_owned());
    live(&mut model, "http://b:1", refused);
    let (lines, _) = screen(&model, 80, 24, true);
    assert!(
        lines[1].starts_with(" CANDIDATE REFUSED: http://b:1: candidate.yaml:3"),
        "{}",
        lines[1]
    );
}

#[test]
fn partitions_and_replicas_have_views() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![]));
    model.press(KeyCode::Tab);
    model.press(KeyCode::Tab);
    let screen = shown(&model);
    assert!(
        screen.contains(
            ">a:1                0    123k  5120 KiB     4     1.2M       8       7         9"
        ),
        "{screen}"
    );
    // A store does not know which limits refuse.
    assert!(screen.contains(" QUEUE   WITHIN    OVER "), "{screen}");
    assert!(!screen.contains("REFUSED"), "{screen}");
    // 34 columns are left for the bar.
    let gauge = format!(
        " memory    5120 KiB of 8192 KiB in use, 62 % {}{}",
        "━".repeat(21),
        "─".repeat(13)
    );
    assert!(screen.contains(&gauge), "{screen}");
    model.press(KeyCode::Tab);
    let screen = shown(&model);
    assert!(
        screen.contains("ready          redis leased            7 2 (gen. 1)"),
        "{screen}"
    );
    model.press(KeyCode::Enter);
    let screen = shown(&model);
    for part in [
        "redis leased: connected",
        "7, with 70 hits",
        "hash abc",
        "up 1 min 17 s",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
}

#[test]
fn refused_and_forgotten_are_red_and_freed_is_not() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![]));
    model.press(KeyCode::Char('3'));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal
        .draw(|frame| draw(frame, &model, Styles::new(true)))
        .unwrap();
    let row = &terminal.backend().buffer().content()[5 * 80..6 * 80];
    let of = |number: &str| row.iter().rfind(|cell| cell.symbol() == number).unwrap().fg;
    let colours = ["8", "7", "9"].map(of);
    assert_eq!(colours, [Color::Red, Color::Reset, Color::Red]);
}

#[test]
fn the_help_fits_80_columns_and_24_lines() {
    let mut model = model();
    model.press(KeyCode::Char('?'));
    let screen = shown(&model);
    for line in HELP {
        assert!(screen.contains(line), "{line}: {screen}");
    }
}

#[test]
fn the_title_has_the_refusals_of_the_last_minute() {
    let mut model = model();
    for second in 0..70 {
        model.now_us = second * 1_000_000;
        live(&mut model, "http://a:1", state(vec![]));
    }
    let (lines, _) = screen(&model, 100, 24, true);
    // 25 refused a second, all the time, as far as they fit.
    let bars = lines[0].chars().rev().take_while(|bar| *bar == '█').count();
    assert!((40..=60).contains(&bars), "{}", lines[0]);
}

#[test]
fn the_title_begins_with_the_minute_of_the_replicas() {
    let mut model = model();
    let minute = |refused: f64| {
        let rates = Rates {
            refused,
            ..Rates::default()
        };
        vec![rates; 60]
    };
    for (name, refused) in [("http://a:1", 3.0), ("http://b:1", 4.0)] {
        model.apply(Message::History(name.to_owned(), minute(refused)));
        live(&mut model, name, state(vec![]));
    }
    assert_eq!(model.history, [7; 60]);
    // The same replica again, after a lost connection.
    model.apply(Message::History("http://a:1".to_owned(), minute(3.0)));
    assert_eq!(model.history, [7; 60]);
    model.now_us = 1_000_000;
    live(&mut model, "http://a:1", state(vec![]));
    assert_eq!((model.history.len(), model.history[0]), (60, 25));
}

#[test]
fn problems_are_words_and_not_only_colours() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![]));
    let mut bad = state(vec![]);
    bad.draining = true;
    bad.rules.error = Some("rules.yaml:3: no such unit".to_owned());
    bad.rules.hash = Some("other".to_owned());
    bad.partitions.store.healthy = false;
    live(&mut model, "http://b:1", bad);
    model.now_us = 5_000_000;
    let lost = || {
        Message::Lost(
            "http://a:1".to_owned(),
            "cannot connect (refused)".to_owned(),
        )
    };
    model.apply(lost());
    model.now_us = 17_000_000;
    model.apply(lost());
    let (lines, coloured) = screen(&model, 80, 24, false);
    assert!(!coloured);
    assert_eq!(
        lines[1],
        " LOST for 12 s: http://a:1: cannot connect (refused) (+3 more: 4)"
    );
    assert!(lines[0].contains("1 of 2 replicas"), "{}", lines[0]);
    model.press(KeyCode::Char('4'));
    let screen = shown(&model);
    for part in ["LOST 12 s", "DRAINING", "DOWN redis leased", "REFUSED"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    live(&mut model, "http://a:1", state(vec![]));
    assert!(shown(&model).contains("RULES DIFFER"), "{}", shown(&model));
    model.apply(Message::Gone("http://b:1".to_owned()));
    let (lines, _) = super::tests::screen(&model, 80, 24, true);
    assert_eq!(lines[1], "");
}

#[test]
fn without_colour_the_selection_is_a_symbol_and_reversed() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![]));
    model.press(KeyCode::Down);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal
        .draw(|frame| draw(frame, &model, Styles::new(false)))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let selected = buffer.cell((0, 5)).unwrap();
    assert_eq!(selected.symbol(), ">");
    assert!(selected.modifier.contains(Modifier::REVERSED));
    assert!(screen(&model, 80, 24, true).1, "with colour there is some");
}

#[test]
fn hostile_and_wide_keys_stay_in_their_columns() {
    let mut model = model();
    let hostile = "\u{1b}[2J\u{7}\n\u{202e}abc";
    let wide = "値".repeat(40);
    live(
        &mut model,
        "http://a:1",
        state(vec![key(hostile, 9), key(&wide, 8)]),
    );
    model.press(KeyCode::Char('2'));
    for width in [80, 81, 120] {
        let (lines, _) = screen(&model, width, 24, true);
        assert!(lines[4].starts_with(">user=\\u{1b}[2J"), "{}", lines[4]);
        // A wide character takes two cells, and the second one is a space here.
        assert!(lines[5].starts_with(" user=値 値 "), "{}", lines[5]);
        for line in &lines {
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        // Every number is in its column in spite of the text before it.
        let (before, _) = lines[3].split_once(" REFUSED").unwrap();
        for (line, refused) in [(&lines[4], "9"), (&lines[5], "8")] {
            let column = line.chars().skip(before.chars().count()).take(8);
            assert_eq!(column.collect::<String>().trim(), refused, "{line}");
        }
    }
}

#[test]
fn a_detail_shows_the_rule_and_the_last_decisions() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![key("x", 5)]));
    model.press(KeyCode::Char('2'));
    let Some(Effect::Decisions(query)) = model.press(KeyCode::Enter) else {
        panic!("a detail reads decisions");
    };
    assert_eq!(query.key.as_deref(), Some("user=x"));
    assert!(shown(&model).contains("reading the last decisions"));
    let decision = DecisionRecord {
        candidate: false,
        live_verdict: None,
        at: AT.to_owned(),
        domain: "edge".to_owned(),
        verdict: Verdict::OverLimit,
        reason: Reason::OverLimitCache,
        error: None,
        took_us: 1,
        generation: Some(1),
        descriptors_omitted: 0,
        descriptors: vec![DescriptorRecord {
            entries: key("x", 5).descriptor,
            verdict: Some(Verdict::OverLimit),
            reason: Reason::OverLimitCache,
            rule: Some("edge.user".to_owned()),
            overridden: true,
            limit: limit("edge.user", 0.0).limit,
            hits: 1,
            reservation: None,
            remaining: Some(3),
            reset_seconds: Some(7),
        }],
    };
    let errors = vec!["http://b:1: cannot connect".to_owned()];
    model.apply(Message::Decisions(query, vec![decision], errors));
    let screen = shown(&model);
    for part in [
        "key       user=x",
        "refused   5 of 15 asked, at most 0 more",
        "limit     10 per minute, fixed_window",
        "20:00:05.000Z OVER_LIMIT over_limit_cache overridden remaining=3 resets in …",
        "in use    7 of 10 at 20:00:05.000Z, 70 % ━━━",
        "error: http://b:1: cannot connect",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    model.press(KeyCode::Esc);
    assert!(shown(&model).contains(">user=x"));
}

#[test]
fn a_filter_hides_rows_and_a_pause_keeps_them() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![]));
    for key in [
        KeyCode::Char('/'),
        KeyCode::Char('Q'),
        KeyCode::Char('u'),
        KeyCode::Char('i'),
        KeyCode::Char('x'),
    ] {
        model.press(key);
    }
    assert!(shown(&model).contains(" filter: Quix_"));
    model.press(KeyCode::Backspace);
    model.press(KeyCode::Enter);
    let screen = shown(&model);
    assert!(
        screen.contains(">edge.quiet") && !screen.contains("edge.user"),
        "{screen}"
    );
    model.press(KeyCode::Esc);
    model.press(KeyCode::Char('p'));
    let mut changed = state(vec![]);
    changed.limits.truncate(1);
    live(&mut model, "http://a:1", changed);
    let screen = shown(&model);
    assert!(
        screen.contains("PAUSED") && screen.contains("edge.user"),
        "{screen}"
    );
    model.press(KeyCode::Char('p'));
    let screen = shown(&model);
    assert!(
        !screen.contains("PAUSED") && !screen.contains("edge.user"),
        "{screen}"
    );
}

#[test]
fn changes_need_a_confirmation() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![key("x", 5)]));
    model.press(KeyCode::Char('z'));
    assert!(shown(&model).contains("For 15 minutes, shadow mode for edge.user on 1 replica? y"));
    assert_eq!(model.press(KeyCode::Char('n')), None);
    model.press(KeyCode::Char('z'));
    let effect = model.press(KeyCode::Char('y'));
    assert!(matches!(effect, Some(Effect::Shadow(it)) if it.for_seconds == Some(900)));
    model.press(KeyCode::Char('2'));
    model.press(KeyCode::Char('r'));
    assert!(shown(&model).contains("Forget the buckets of user=x in edge on 1 replica? y"));
    let effect = model.press(KeyCode::Char('y'));
    assert!(matches!(effect, Some(Effect::Reset(it)) if it.descriptor == key("x", 5).descriptor));
    // A hashed value cannot be reset from here.
    let mut hashed = state(vec![key("#0123456789abcdef", 5)]);
    hashed.top_refused.values = ValueMode::Hashed;
    live(&mut model, "http://a:1", hashed);
    assert_eq!(model.press(KeyCode::Char('r')), None);
    assert!(shown(&model).contains("use: tollgate reset DOMAIN KEY=VALUE"));
    assert_eq!(model.press(KeyCode::Char('q')), Some(Effect::Quit));
}

#[test]
fn any_size_can_be_drawn() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![key("x", 5)]));
    for view in ['1', '2', '3', '4'] {
        model.press(KeyCode::Char(view));
        for open in [
            None,
            Some(KeyCode::Char('?')),
            Some(KeyCode::Enter),
            Some(KeyCode::Char('/')),
        ] {
            if let Some(key) = open {
                model.press(key);
            }
            for (width, height) in [(1, 1), (39, 24), (40, 8), (80, 24), (300, 100)] {
                screen(&model, width, height, true);
            }
            model.press(KeyCode::Esc);
        }
    }
    assert!(screen(&model, 39, 24, true).0[0].contains("at least 40 columns"));
}
