//! Interval at which files of rules and certificates are polled.

use std::time::Duration;

/// A change counts once two polls agree, so it takes effect within twice this and the time it takes
/// to read the files.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);
