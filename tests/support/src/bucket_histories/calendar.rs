//! Calendars with windows as uneven as months, known from a table.
//!
//! Why: a real calendar needs time zones, which are data, and whether a bucket follows its calendar
//! does not depend on which one it is. [`Uneven::window_at`] finds a window by arithmetic, as fast
//! code would; a model gets the list of all edges ([`Uneven::edges`]) and searches it.

use std::sync::LazyLock;

use tollgate_limiter::{Calendar, Span, Timestamp};

/// Windows of these lengths, one after the other, and then again from the first.
pub struct Uneven {
    name: &'static str,
    hours: &'static [u64],
    edges: LazyLock<Vec<i128>>,
}

const HOUR_US: u64 = 3_600_000_000;

/// As months are.
const MONTHS: &[u64] = &[744, 672, 744, 720, 744, 720, 744, 744, 720, 744, 720, 744];

/// As days are, where clocks are put forward and back, and one is lived twice.
const DAYS: &[u64] = &[24, 24, 23, 24, 25, 49, 1];

pub static CALENDARS: [Uneven; 2] = [
    Uneven {
        name: "months",
        hours: MONTHS,
        edges: LazyLock::new(|| edges(MONTHS)),
    },
    Uneven {
        name: "days",
        hours: DAYS,
        edges: LazyLock::new(|| edges(DAYS)),
    },
];

/// Every edge from 1970 until after time has ended.
fn edges(hours: &[u64]) -> Vec<i128> {
    let mut edges = vec![0];
    let mut edge = 0;
    for hours in hours.iter().cycle() {
        edge += i128::from(hours * HOUR_US);
        edges.push(edge);
        if edge > i128::from(Timestamp::MAX_US) {
            break;
        }
    }
    edges
}

// === impl Uneven ===

impl Uneven {
    /// Where its windows begin, the first in 1970.
    pub fn edges(&'static self) -> &'static [i128] {
        &self.edges
    }
}

impl Calendar for Uneven {
    fn name(&self) -> &str {
        self.name
    }

    fn window_at(&self, now: Timestamp) -> Span {
        let round_us = self.hours.iter().sum::<u64>() * HOUR_US;
        let mut start = now.minus_us(now.as_us() % round_us);
        for hours in self.hours {
            let end = start.plus_us(hours * HOUR_US);
            if now < end {
                return Span { start, end };
            }
            if end.as_us() == Timestamp::MAX_US {
                break;
            }
            start = end;
        }
        Span { start, end: now }
    }

    fn window_max_us(&self) -> u64 {
        self.hours.iter().max().unwrap() * HOUR_US
    }
}
