//! Finding a window allocates no memory: it happens for every hit on a calendar limit.
//!
//! What it deliberately does not do: measure time.

use allocation_counter::measure;
use tollgate_limiter::Unit;

use crate::calendar::days::{DAY_US, parsed};
use crate::calendar::{at, plain};

#[test]
fn a_window_is_found_without_allocating() {
    let zones = [
        "UTC",
        "Europe/Paris",
        "America/Sao_Paulo", // gaps at midnight, which are looked for
        "Africa/Casablanca", // changes listed one by one
        "Pacific/Apia",
    ];
    let first = parsed("2011-12-01T00:00");
    for zone in zones {
        for unit in [Unit::Day, Unit::Week, Unit::Month, Unit::Year] {
            let calendar = plain(unit, 1, zone);
            let mut windows = 0;
            let cost = measure(|| {
                for day in 0..3_000 {
                    let window = calendar.window_at(at(first + day * DAY_US));
                    windows += usize::from(window.start < window.end);
                }
            });
            assert_eq!(windows, 3_000);
            assert_eq!(cost.count_total, 0, "{}", calendar.name());
        }
    }
}
