//! The view of quotas, drawn without a terminal.

use super::*;
use crate::admin_api::{QuotaBucket, QuotaFigures, Quotas};

fn with_quotas(figures: QuotaFigures) -> StateEvent {
    let id = vec![Entry {
        key: "name".to_owned(),
        value: "api".to_owned(),
    }];
    let bucket = QuotaBucket {
        domain: "edge".to_owned(),
        rule: "edge.name_api".to_owned(),
        id,
        shadow_mode: false,
        figures,
        streams: None,
    };
    let mut state = state(vec![]);
    state.limits[1].rlqs = Some(figures);
    state.limits[1].rates = Rates::default();
    state.quotas = Some(Quotas {
        instance: "one".to_owned(),
        at: AT.to_owned(),
        values: ValueMode::Plain,
        learning_seconds: 0.0,
        rules: Vec::new(),
        buckets: vec![bucket],
        omitted: 0,
    });
    state
}

fn figures() -> QuotaFigures {
    QuotaFigures {
        buckets: 1,
        streams: 3,
        limit: 300.0,
        demand: 460.0,
        allowed: 290.0,
        denied: 170.0,
        usable: 300.0,
        assigned: 294.0,
        in_force: 300.0,
        burst: 150,
        converging: 1,
        converging_seconds: Some(12.5),
        converged_in_seconds: None,
    }
}

#[test]
fn quotas_of_two_replicas_are_added() {
    let mut model = model();
    live(&mut model, "http://a:1", with_quotas(figures()));
    let other = QuotaFigures {
        converging: 0,
        converging_seconds: None,
        converged_in_seconds: Some(21.0),
        demand: 40.0,
        ..figures()
    };
    live(&mut model, "http://b:1", with_quotas(other));
    // The rule shows what its proxies report.
    let (lines, _) = screen(&model, 80, 24, true);
    let row = " edge.user               340     580     800     60 10 per minute  rlqs";
    assert_eq!(lines[4], row.replacen(' ', ">", 1));
    model.press(KeyCode::Char('5'));
    let (lines, _) = screen(&model, 80, 24, true);
    assert_eq!(
        lines[2..5],
        [
            " 1 Rules  2 Keys  3 Partitions  4 Replicas [5 Quotas]  by demand",
            " BUCKET          LIMIT/S  DEMAND ADMITTED REFUSED ASSIGNED STREAMS SHARES",
            ">name=api            300     500      580     340      588       6 moving 12 s",
        ]
    );
    model.press(KeyCode::Enter);
    let detail = shown(&model);
    for part in [
        "rule      edge.name_api",
        "500.0 demanded, 580.0 admitted, 340.0 refused",
        "588.0 to 6 streams on 2 replicas",
        "an assignment has differed from its fair share for 12.5 s",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    model.press(KeyCode::Esc);
    // From the last view on, the first one.
    model.press(KeyCode::Tab);
    assert_eq!(model.view, View::Rules);
    model.press(KeyCode::BackTab);
    assert_eq!(model.view, View::Quotas);
    model.press(KeyCode::Char('/'));
    model.press(KeyCode::Char('x'));
    let words = "nothing matches the filter";
    assert!(shown(&model).contains(words), "{}", shown(&model));
}

#[test]
fn a_service_that_learns_says_for_how_long() {
    let mut model = model();
    let mut learning = with_quotas(QuotaFigures {
        converging_seconds: None,
        ..figures()
    });
    learning.quotas.as_mut().unwrap().learning_seconds = 17.2;
    live(&mut model, "http://a:1", learning);
    model.press(KeyCode::Char('5'));
    assert!(shown(&model).contains("learning 17 s"), "{}", shown(&model));
}

#[test]
fn without_rules_of_quotas_there_is_no_view() {
    let mut model = model();
    live(&mut model, "http://a:1", state(vec![]));
    model.press(KeyCode::Char('5'));
    assert_eq!(model.view, View::Rules);
    assert!(!shown(&model).contains("Quotas"), "{}", shown(&model));
    model.press(KeyCode::BackTab);
    assert_eq!(model.view, View::Replicas);
}
