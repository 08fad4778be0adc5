//! Waits until a file of a run changes: `--watch`.
//!
//! Files are polled by their stamps, as rules are. A change counts when two polls agree, so that a
//! file that is being written is left alone.

use std::thread;
use std::time::Duration;

use super::session::Session;
use crate::rule_tests::WatchedPath;

/// The time between two polls.
const POLL: Duration = Duration::from_millis(200);

/// Returns when a file has changed since the run used it.
pub(super) fn wait_for_change(session: &Session) {
    let poll = || -> Vec<_> {
        let paths = session.watched.iter();
        paths
            .map(|watched| WatchedPath::at(&watched.path))
            .collect()
    };
    let mut seen = poll();
    loop {
        thread::sleep(POLL);
        let look = poll();
        if look != session.watched && look == seen {
            return;
        }
        seen = look;
    }
}
