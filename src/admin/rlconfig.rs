//! `GET /rlconfig`: the rules in use, in the reference's format.

use std::fmt::Write as _;

use axum::extract::State;

use super::AdminState;
use super::limits::ShadowEnds;
use crate::admin_api::{ReserveFigures, rule_name};
use tollgate_limiter::{Allowance, Cost, Rule};

pub(super) async fn rlconfig(State(state): State<AdminState>) -> String {
    let Some(generation) = state.generations.current() else {
        return String::new();
    };
    let ends = ShadowEnds::new(state.generations.shadowed());
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
    let mut say = |more: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = line.write_fmt(more);
    };
    say(format_args!(
        ", shadow_mode: {}, quota_mode: {}",
        rule.shadow_mode, rule.quota_mode
    ));
    match rule.allowance {
        Allowance::Unlimited => say(format_args!(", unlimited: true")),
        Allowance::Limited { limit, algorithm } => {
            if limit.unit().is_some() && limit.unit_multiplier().get() != 1 {
                say(format_args!(
                    ", unit_multiplier: {}",
                    limit.unit_multiplier()
                ));
            }
            say(format_args!(", algorithm: {}", algorithm.name()));
            if limit.burst() != limit.requests() {
                say(format_args!(", burst: {}", limit.burst()));
            }
            if let Some(segments) = limit.segments() {
                say(format_args!(", segments: {segments}"));
            }
            if let Some(calendar) = limit.calendar() {
                say(format_args!(", calendar: {}", calendar.name()));
            }
            if let Some(count_refused) = limit.count_refused() {
                let (field, value) = count_refused.field();
                say(format_args!(", {field}: {value}"));
            }
            if let Some(penalty) = limit.penalty() {
                say(format_args!(", penalty: {{{penalty}}}"));
            }
            if limit.unit().is_none() {
                let seconds = limit.window().as_us() / 1_000_000;
                say(format_args!(", slot_seconds: {seconds}"));
            }
            match (&rule.reserve, &rule.holder_key) {
                (Some(reserve), _) => {
                    say(format_args!(", reserve: {}", ReserveFigures::of(reserve)));
                }
                (None, Some(key)) => say(format_args!(", holder_key: {key}")),
                (None, None) => {}
            }
            if !rule.leases {
                say(format_args!(", lease: false"));
            }
            if rule.cost != Cost::default() {
                say(format_args!(", cost: {}", rule.cost));
            }
            if let Some(budget) = &rule.budget {
                say(format_args!(", budget: {budget}"));
            }
            if rule.rlqs {
                say(format_args!(", rlqs: true"));
            }
        }
    }
    if !rule.name.is_empty() {
        say(format_args!(", name: {}", rule.name));
    }
    line
}
