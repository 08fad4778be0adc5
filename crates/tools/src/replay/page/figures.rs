//! Numbers and times as readers of the page see them. Points of time are merged, so that a page has
//! a bounded number of them.

use crate::replay::report::{Point, ReplayReport};

/// A part of a whole in hundredths of a percent, rounded down.
pub(super) fn ten_thousandths(part: u64, of: u64) -> u64 {
    let share = u128::from(part) * 10_000 / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// A part of a whole in percent with one digit after the point. A share above zero is never shown
/// as zero, and one below the whole is never shown as the whole. It does not break at the end of a
/// line.
pub(super) fn percent(part: u64, of: u64) -> String {
    let whole = u128::from(of.max(1));
    let tenths = (u128::from(part) * 1_000 + whole / 2) / whole;
    match tenths {
        0 if part > 0 => "<\u{a0}0.1\u{a0}%".to_owned(),
        1_000.. if part < of => ">\u{a0}99.9\u{a0}%".to_owned(),
        tenths => format!("{}.{}\u{a0}%", tenths / 10, tenths % 10),
    }
}

/// Most points of a chart.
pub(super) const POINTS_MAX: usize = 180;

const DATE_CHARS: usize = 10;

/// Requests by their verdict.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// Requests of a span of time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Span {
    /// The time that it is about.
    pub(super) label: String,
    /// When it begins, as short as its chart allows.
    pub(super) short_label: String,
    /// Under the rules in force.
    pub(super) baseline: Counts,
    /// Under the changed rules.
    pub(super) against: Counts,
}

/// At most [`POINTS_MAX`] spans of equal length.
pub(super) fn spans(report: &ReplayReport) -> Vec<Span> {
    let points = &report.over_time;
    let merged = points.len().div_ceil(POINTS_MAX).max(1);
    let seconds = !report.point_seconds.is_multiple_of(60);
    let mut dates = points.iter().map(|point| point.start.get(..DATE_CHARS));
    let first = dates.next();
    let has_dates = dates.next_back().is_some_and(|last| Some(last) != first);
    let chunks = points.chunks(merged);
    chunks
        .filter_map(|chunk| Span::of(chunk, seconds, has_dates))
        .collect()
}

/// A time of the report as a reader sees it: date, hours and minutes.
pub(super) fn minute_text(rfc_3339: &str) -> String {
    time_text(rfc_3339, false)
}

/// A time of the report with its seconds.
pub(super) fn second_text(rfc_3339: &str) -> String {
    time_text(rfc_3339, true)
}

fn time_text(rfc_3339: &str, seconds: bool) -> String {
    let end = if seconds { 19 } else { 16 };
    match (rfc_3339.get(..DATE_CHARS), rfc_3339.get(11..end)) {
        (Some(date), Some(time)) => format!("{date} {time}"),
        _ => rfc_3339.to_owned(),
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn of(admitted: u64, refused: u64) -> Self {
        Self { admitted, refused }
    }

    /// Requests that were decided.
    pub(super) fn decided(self) -> u64 {
        self.admitted.saturating_add(self.refused)
    }

    /// The share of refused requests among those that were decided.
    pub(super) fn refused_percent(self) -> String {
        percent(self.refused, self.decided())
    }

    pub(super) fn add(&mut self, admitted: u64, refused: u64) {
        self.admitted = self.admitted.saturating_add(admitted);
        self.refused = self.refused.saturating_add(refused);
    }
}

// === impl Span ===

impl Span {
    fn of(points: &[Point], seconds: bool, has_dates: bool) -> Option<Self> {
        let (first, last) = (points.first()?, points.last()?);
        let begin = time_text(&first.start, seconds);
        let from = if has_dates {
            "YYYY-".len()
        } else {
            DATE_CHARS + 1
        };
        let mut span = Self {
            short_label: begin.get(from..).unwrap_or(&begin).to_owned(),
            label: match points.len() {
                1 => begin,
                _ => format!("{begin} to {}", time_text(&last.start, seconds)),
            },
            baseline: Counts::default(),
            against: Counts::default(),
        };
        for point in points {
            span.baseline.add(point.admitted, point.refused);
            let admitted = point.against_admitted.unwrap_or(0);
            span.against
                .add(admitted, point.against_refused.unwrap_or(0));
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_nothing_or_to_the_whole() {
        for (part, of, text) in [
            (0, 0, "0.0 %"),
            (0, 7, "0.0 %"),
            (1, 1_000_000, "< 0.1 %"),
            (4, 1_000, "0.4 %"),
            (1, 3, "33.3 %"),
            (999_999, 1_000_000, "> 99.9 %"),
            (7, 7, "100.0 %"),
            (u64::MAX, u64::MAX, "100.0 %"),
        ] {
            let shown = percent(part, of).replace('\u{a0}', " ");
            assert_eq!(shown, text, "{part} of {of}");
        }
    }

    fn report(points: u64, point_seconds: u64) -> ReplayReport {
        let point = |at: u64| Point {
            start: format!(
                "2026-11-2{}T{:02}:{:02}:30.000Z",
                at / 1_440,
                at / 60 % 24,
                at % 60
            ),
            admitted: 1,
            refused: 2,
            against_admitted: Some(3),
            against_refused: Some(4),
        };
        ReplayReport {
            over_time: (0..points).map(point).collect(),
            point_seconds,
            ..ReplayReport::default()
        }
    }

    #[test]
    fn points_are_merged_without_losing_a_request() {
        for number in [0, 1, 179, 180, 181, 1_440, 5_000] {
            let spans = spans(&report(number, 60));
            assert!(spans.len() <= POINTS_MAX, "{number}");
            let refused: u64 = spans.iter().map(|span| span.against.refused).sum();
            assert_eq!(refused, number * 4);
            let decided: u64 = spans.iter().map(|span| span.baseline.decided()).sum();
            assert_eq!(decided, number * 3);
        }
    }

    #[test]
    fn labels_have_what_distinguishes_them() {
        let labels = |report| {
            let spans = spans(&report);
            spans
                .into_iter()
                .next()
                .map(|span| (span.label, span.short_label))
        };
        let pair = |label: &str, short: &str| Some((label.to_owned(), short.to_owned()));
        assert_eq!(labels(report(2, 60)), pair("2026-11-20 00:00", "00:00"));
        assert_eq!(
            labels(report(2, 1)),
            pair("2026-11-20 00:00:30", "00:00:30")
        );
        let merged = "2026-11-20 00:00 to 2026-11-20 00:08";
        assert_eq!(labels(report(1_500, 60)), pair(merged, "11-20 00:00"));
    }
}
