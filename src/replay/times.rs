//! Admitted and refused over the time of a recording, in a bounded number of points of one length.

use std::collections::BTreeMap;

use tollgate_limiter::{Code, Timestamp};

use super::report::{Point, ReplayReport};
use crate::admin_api::time_text;
use crate::simulation::Answer;

/// How many points are kept at most. More are merged in pairs.
const POINTS_MAX: u64 = 240;

/// The side of `--rules`.
pub(super) const BASE: usize = 0;

/// The side of `--against`.
pub(super) const AGAINST: usize = 1;

/// Counts by time.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Seconds of a point.
    step_s: u64,
    /// Admitted and refused, of each side, by the number of the step.
    points: BTreeMap<u64, [[u64; 2]; 2]>,
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
        if let Some(counts) = point.get_mut(side) {
            let [admitted, refused] = counts;
            let count = match code {
                Code::Ok => admitted,
                Code::OverLimit => refused,
            };
            *count = count.saturating_add(1);
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
