//! Counts the answers: of one side by rule, by key and by minute, and of both sides by time.

use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate_limiter::{
    Allowance, Code, Key, Outcome, ReservationOutcome, Rule, RuleSet, Timestamp,
};

use super::comparison::{OVERRIDE, descriptor};
use super::engine::{Decided, GivenBack};
use super::report::{Minute, Point, ReplayReport, RuleReport, SideReport, Undecidable};
use super::smallest_limit::{Dropped, LimitOf, Operations, Question};
use tollgate_admin_api::{LimitFigures, entries_text, rule_name, time_text};
use tollgate_engine::simulation::{Answer, CheckAnswer};

/// How many refused keys of one side are told apart.
const KEYS_MAX: usize = 1_000_000;

/// Why limits by value have no smallest limit.
const BY_VALUE: &str = "each value of its file has a limit of its own";

/// How many minutes are kept: two years.
const MINUTES_MAX: usize = 2 * 366 * 24 * 60;

/// How many points of time are kept at most. More are merged in pairs.
const POINTS_MAX: u64 = 240;

/// Admitted and refused.
type Verdicts = [u64; 2];

/// Counts of one side.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) report: SideReport,
    rules: HashMap<Option<usize>, RuleCounts>,
    /// By minute since 1970.
    minutes: BTreeMap<u64, Verdicts>,
    keys_refused: HashSet<(Option<usize>, Key)>,
    operations: Operations,
}

#[derive(Debug, Default)]
struct RuleCounts {
    /// Its counts, without the names of rule and limit.
    row: RuleReport,
    /// Whether `all_or_nothing` joins it with other limits of a request.
    is_joined: bool,
}

// === impl Tally ===

impl Tally {
    /// Adds an answer.
    pub(super) fn add(&mut self, decided: &Decided, answer: &Answer, rules: &RuleSet) {
        let report = &mut self.report;
        let count = match &answer.code {
            Ok(Code::Ok) => &mut report.admitted,
            Ok(Code::OverLimit) => &mut report.refused,
            Err(_) => &mut report.errors,
        };
        *count = count.saturating_add(1);
        if let Ok(code) = answer.code {
            let minute = decided.at.as_us() / 60_000_000;
            if self.minutes.len() < MINUTES_MAX || self.minutes.contains_key(&minute) {
                count_verdict(self.minutes.entry(minute).or_default(), code);
            }
            if answer.checks.is_empty() {
                report.without_limit = report.without_limit.saturating_add(1);
            }
        }
        for (position, check) in answer.checks.iter().enumerate() {
            if decided.is_own && decided.recorded.checks_refused.get(position) == Some(&1) {
                let row = &mut self.rules.entry(check.rule).or_default().row;
                row.recorded_over = row.recorded_over.saturating_add(1);
            }
            let order = decided.orders.get(position).copied();
            self.count_check(decided, answer, check, order.unwrap_or_default(), rules);
            if let Some(outcome) = &check.outcome
                && let Some(counts) = self.rules.get_mut(&check.rule)
            {
                counts.add_reservation(outcome, answer.code.as_ref().ok().copied());
            }
        }
    }

    /// Counts a check of the request with this answer.
    fn count_check(
        &mut self,
        decided: &Decided,
        answer: &Answer,
        check: &CheckAnswer,
        order: u64,
        rules: &RuleSet,
    ) {
        let Some(outcome) = check.outcome else {
            return;
        };
        let counts = self.rules.entry(check.rule).or_default();
        let row = &mut counts.row;
        let rule = check.rule.and_then(|index| rules.rules().get(index));
        let enforced = !rule.is_some_and(|rule| rule.shadow_mode);
        let answered = answer.descriptors.get(check.descriptor);
        let refuses = answered.is_none_or(|answered| answered.refuses);
        let count = match (outcome.allowed, &answer.code) {
            (true, Ok(Code::Ok)) => &mut row.admitted,
            (true, _) => &mut row.overruled,
            (false, Ok(Code::OverLimit)) if enforced && refuses => &mut row.refused,
            (false, _) => &mut row.would_refuse,
        };
        *count = count.saturating_add(1);
        if !outcome.allowed {
            let is_new = self.keys_refused.len() < KEYS_MAX
                && self.keys_refused.insert((check.rule, check.key));
            row.keys_refused = row.keys_refused.saturating_add(u64::from(is_new));
        }
        let Some((rule, limit)) = limit_of(rules, check.rule) else {
            return;
        };
        let in_use = limit.limit.burst().saturating_sub(outcome.remaining);
        let in_use = if outcome.allowed {
            in_use
        } else {
            outcome.used_before.min(limit.limit.burst())
        };
        if in_use > row.peak_hits {
            let (_, entries) = descriptor(&decided.recorded.request, check.descriptor);
            row.peak_hits = in_use;
            row.peak_at = time_text(decided.at);
            row.peak_key = entries_text(&entries);
        }
        counts.is_joined |= decided.is_joined;
        if row.over() > 0 && counts.is_joined {
            self.operations.drop_rule(rule.index, Dropped::Joined);
        } else {
            let asked = Question {
                key: check.key,
                operation: check.operation,
                order,
                at: check.at.unwrap_or(decided.at),
            };
            self.operations.add(rule.index, asked);
        }
    }

    /// An operator made buckets forget: what limits were asked does not say how full they were.
    pub(super) fn add_reset(&mut self) {
        self.operations.drop_all();
    }

    /// Adds hits that went back.
    pub(super) fn add_given_back(&mut self, given_back: &GivenBack) {
        if let Some(rule) = given_back.rule {
            let asked = Question {
                key: given_back.refund.key,
                operation: given_back.refund.operation,
                order: given_back.order,
                at: given_back.at,
            };
            self.operations.add(rule, asked);
        }
    }

    /// The report, with the rows of the limits and at most so many minutes.
    pub(super) fn finish(
        mut self,
        rules: &RuleSet,
        undecidable: &[Undecidable],
        rows_max: usize,
    ) -> SideReport {
        let counts = std::mem::take(&mut self.rules);
        let last_minute = self
            .minutes
            .last_key_value()
            .map_or(0, |(minute, _)| *minute);
        let last = Timestamp::from_seconds(last_minute.saturating_mul(60));
        for (index, counts) in counts {
            let mut row = counts.row;
            OVERRIDE.clone_into(&mut row.rule);
            let rule = index.and_then(|index| rules.rules().get(index));
            if let Some(rule) = rule
                && let Allowance::Limited { limit, algorithm } = rule.allowance
            {
                row.domain = rule.domain.to_string();
                row.rule = rule_name(rule);
                row.shadow_mode = rule.shadow_mode;
                let same = |one: &Undecidable| one.domain == row.domain && one.rule == row.rule;
                row.undecidable = undecidable.iter().any(same);
                let smallest = if rule.lines.is_some() {
                    row.limit = format!("by value, {}", algorithm.name());
                    Err(BY_VALUE.to_owned())
                } else {
                    let figures = LimitFigures::of(&limit, algorithm);
                    row.limit = format!("{}, {}", figures.text, figures.algorithm);
                    row.limit_hits = limit.burst();
                    let window = limit.window_at(last);
                    let seconds = window.end.since_us(window.start) / 1_000_000;
                    row.window_seconds = limit.unit().map(|_| seconds);
                    let limit = LimitOf { limit, algorithm };
                    let smallest = self.operations.smallest(rule.index, limit, row.over());
                    if let Ok(requests) = &smallest {
                        let smallest = limit.with_requests(*requests);
                        row.smallest_limit_text =
                            Some(LimitFigures::of(&smallest, algorithm).with_burst());
                    }
                    smallest
                };
                match smallest {
                    _ if row.undecidable => {}
                    Ok(smallest) => row.smallest_limit = Some(smallest),
                    Err(why) => row.smallest_limit_unknown = Some(why),
                }
            }
            self.report.by_rule.push(row);
        }
        self.report.by_rule.sort_by(|a, b| {
            let by_refused = (b.refused, b.would_refuse).cmp(&(a.refused, a.would_refuse));
            let by_name = (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule));
            by_refused.then(by_name)
        });
        self.report.worst_minutes = self.worst_minutes(rows_max);
        self.report
    }

    /// The minutes in which the most requests were refused.
    fn worst_minutes(&self, rows_max: usize) -> Vec<Minute> {
        let mut minutes: Vec<_> = self.minutes.iter().collect();
        minutes.retain(|(_, [_, refused])| *refused > 0);
        minutes.sort_by_key(|(minute, [_, refused])| (std::cmp::Reverse(*refused), **minute));
        let minutes = minutes.into_iter().take(rows_max);
        let minutes = minutes.map(|(minute, [admitted, refused])| Minute {
            start: time_text(Timestamp::from_seconds(minute.saturating_mul(60))),
            admitted: *admitted,
            refused: *refused,
        });
        minutes.collect()
    }
}

fn count_verdict([admitted, refused]: &mut Verdicts, code: Code) {
    let count = match code {
        Code::Ok => admitted,
        Code::OverLimit => refused,
    };
    *count = count.saturating_add(1);
}

// === impl RuleCounts ===

impl RuleCounts {
    /// Counts a step of a reservation, by its outcome and the code of its request.
    fn add_reservation(&mut self, outcome: &Outcome, code: Option<Code>) {
        use ReservationOutcome as O;
        if outcome.reservation == O::None {
            return;
        }
        let figures = self.row.reservations.get_or_insert_default();
        let count = match outcome.reservation {
            O::Reserved if code == Some(Code::Ok) => &mut figures.reserved,
            O::Reserved | O::Refused | O::TooMany => &mut figures.refused,
            O::Settled => &mut figures.settled,
            O::Charged => &mut figures.charged,
            _ => return,
        };
        *count = count.saturating_add(1);
        if outcome.reservation == O::Settled
            && let Some(settled) = outcome.settled()
        {
            let returned = settled.reserved.saturating_sub(settled.committed);
            let excess = settled.committed.saturating_sub(settled.reserved);
            figures.hits_returned = figures.hits_returned.saturating_add(returned);
            figures.hits_excess = figures.hits_excess.saturating_add(excess);
        }
    }
}

/// The rule with this index and its limit; none for limits by value, which are many.
fn limit_of(rules: &RuleSet, index: Option<usize>) -> Option<(&Rule, LimitOf)> {
    let rule = rules.rules().get(index?)?;
    match rule.allowance {
        Allowance::Limited { limit, algorithm } if rule.lines.is_none() => {
            Some((rule, LimitOf { limit, algorithm }))
        }
        Allowance::Limited { .. } | Allowance::Unlimited => None,
    }
}

/// The side of `--rules`.
pub(super) const BASE: usize = 0;

/// The side of `--against`.
pub(super) const AGAINST: usize = 1;

/// Admitted and refused over the time of a recording, in a bounded number of points of one length.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Seconds of a point.
    step_s: u64,
    /// Of each side, by the number of the step.
    points: BTreeMap<u64, [Verdicts; 2]>,
    times: Option<(Timestamp, Timestamp)>,
}

// === impl Timeline ===

impl Default for Timeline {
    fn default() -> Self {
        Self {
            step_s: 1,
            points: BTreeMap::new(),
            times: None,
        }
    }
}

impl Timeline {
    /// Adds an answer of this side.
    pub(super) fn add(&mut self, at: Timestamp, answer: &Answer, side: usize) {
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        let Ok(code) = answer.code else {
            return;
        };
        let number = at.as_us() / 1_000_000 / self.step_s;
        let point = self.points.entry(number).or_default();
        if let Some(verdicts) = point.get_mut(side) {
            count_verdict(verdicts, code);
        }
        while self
            .steps()
            .is_some_and(|(first, last)| last - first >= POINTS_MAX)
        {
            self.merge();
        }
    }

    /// The numbers of the first and the last step.
    fn steps(&self) -> Option<(u64, u64)> {
        let (first, _) = self.points.first_key_value()?;
        let (last, _) = self.points.last_key_value()?;
        Some((*first, *last))
    }

    /// Doubles the length of a point.
    fn merge(&mut self) {
        self.step_s = self.step_s.saturating_mul(2);
        for (number, counts) in std::mem::take(&mut self.points) {
            let merged = self.points.entry(number / 2).or_default();
            for (sum, more) in merged.iter_mut().flatten().zip(counts.iter().flatten()) {
                *sum = sum.saturating_add(*more);
            }
        }
    }

    /// Writes the points, and the times of the first and the last request.
    pub(super) fn describe(&self, report: &mut ReplayReport, has_against: bool) {
        report.point_seconds = self.step_s;
        if let Some((first, last)) = self.times {
            report.recording.began = time_text(first);
            report.recording.ended = time_text(last);
            #[allow(clippy::cast_precision_loss)] // seconds for people
            let seconds = last.since_us(first) as f64 / 1e6;
            report.recording.seconds = seconds;
        }
        let steps = self.steps().map(|(first, last)| first..=last);
        // Steps without a request are points too: a chart has no gap where time passed.
        let points = steps.into_iter().flatten().map(|number| {
            let [base, against] = self.points.get(&number).copied().unwrap_or_default();
            let start_s = number.saturating_mul(self.step_s);
            let [admitted, refused] = base;
            let [against_admitted, against_refused] = against;
            Point {
                start: time_text(Timestamp::from_seconds(start_s)),
                admitted,
                refused,
                against_admitted: has_against.then_some(against_admitted),
                against_refused: has_against.then_some(against_refused),
            }
        });
        report.over_time = points.collect();
    }
}
