//! Calendars with windows as uneven as months, given by a table.
//!
//! Why: a real calendar needs zones, which are data that `rules` brings. Whether a bucket follows
//! its calendar does not depend on which calendar it is. How: [`Uneven::window_at`] finds a window
//! by arithmetic, as fast code would. A model gets the list of all edges ([`Uneven::edges`]) and
//! searches it.
//!
//! What it deliberately does not do: know a real month.

use std::sync::LazyLock;

use tollgate_limiter::{Calendar, Span, Timestamp};

/// Windows of these lengths, one after the other, repeated.
pub struct Uneven {
    name: &'static str,
    hours: &'static [u64],
    edges: LazyLock<Vec<i128>>,
}

const HOUR_US: u64 = 3_600_000_000;

/// The lengths of months.
const MONTHS: &[u64] = &[744, 672, 744, 720, 744, 720, 744, 744, 720, 744, 720, 744];

/// The lengths of days around changes of the clock, and across the date line.
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

/// Every edge from 1970 until after the last timestamp.
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
    /// The starts of its windows, the first in 1970.
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
