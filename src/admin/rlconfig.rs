//! `GET /rlconfig`: the rules in use, in the reference's format.

use std::fmt::Write as _;

use axum::extract::State;

use super::AdminState;
use super::limits::ShadowEnds;
use crate::admin_api::{ReserveFigures, rule_name};
use tollgate_limiter::{Allowance, Cost, Rule};

pub(super) async fn rlconfig(State(state): State<AdminState>) -> String {
    let Some(generation) = state.parts.engine.generations.current() else {
        return String::new();
    };
    let ends = ShadowEnds::new(state.parts.engine.generations.shadowed());
    let lines = generation.rules.written_rules().map(|(rule, table)| {
        let mut line = match rule.lines {
            Some(_) => rule.full_name() + ":",
            None => rlconfig_line(rule),
        };
        if let Some(table) = table {
            // Writing to a string does not fail.
            let _ = write!(
                line,
                " limits_from: {}, {} limits",
                table.source(),
                table.len()
            );
        }
        if let Some(until) = ends.of(&rule.domain, &rule_name(rule)) {
            // Writing to a string does not fail.
            let _ = write!(line, ", shadow_until: {until}");
        }
        line.push('\n');
        line
    });
    lines.collect()
}

/// One limit in the reference's format; fields that the reference lacks follow.
fn rlconfig_line(rule: &Rule) -> String {
    let mut line = match rule.allowance {
        Allowance::Unlimited => format!("{}: unit=UNKNOWN requests_per_unit=0", rule.full_name()),
        Allowance::Limited { limit, .. } => format!(
            "{}: unit={} requests_per_unit={}",
            rule.full_name(),
            limit
                .unit()
                // The wire has no window either.
                .map_or("unknown", tollgate_limiter::Unit::name)
                .to_ascii_uppercase(),
            limit.requests(),
        ),
    };
    let mut say = |field: &str, value: Option<String>| {
        line.extend(value.map(|value| format!(", {field}: {value}")));
    };
    say("shadow_mode", Some(rule.shadow_mode.to_string()));
    say("quota_mode", Some(rule.quota_mode.to_string()));
    match rule.allowance {
        Allowance::Unlimited => say("unlimited", Some("true".to_owned())),
        Allowance::Limited { limit, algorithm } => {
            let multiplier = limit.unit_multiplier().get();
            let has_multiplier = limit.unit().is_some() && multiplier != 1;
            say(
                "unit_multiplier",
                has_multiplier.then(|| multiplier.to_string()),
            );
            say("algorithm", Some(algorithm.name().to_owned()));
            let burst = limit.burst();
            say(
                "burst",
                (burst != limit.requests()).then(|| burst.to_string()),
            );
            say("segments", limit.segments().map(|it| it.to_string()));
            say("calendar", limit.calendar().map(|it| it.name().to_owned()));
            if let Some(count_refused) = limit.count_refused() {
                let (field, value) = count_refused.field();
                say(field, Some(value.to_string()));
            }
            say("penalty", limit.penalty().map(|it| format!("{{{it}}}")));
            let seconds = limit.window().as_us() / 1_000_000;
            say(
                "slot_seconds",
                limit.unit().is_none().then(|| seconds.to_string()),
            );
            let reserve = rule.reserve.as_ref();
            say(
                "reserve",
                reserve.map(|it| ReserveFigures::of(it).to_string()),
            );
            let holder_key = rule.holder_key.as_ref().filter(|_| reserve.is_none());
            say("holder_key", holder_key.map(ToString::to_string));
            say("lease", (!rule.leases).then(|| "false".to_owned()));
            let has_cost = rule.cost != Cost::default();
            say("cost", has_cost.then(|| rule.cost.to_string()));
            say("budget", rule.budget.as_ref().map(ToString::to_string));
            say("rlqs", rule.rlqs.then(|| "true".to_owned()));
        }
    }
    say("name", (!rule.name.is_empty()).then(|| rule.name.clone()));
    line
}
