//! Values of the admin API in words, for the commands that print them.

use crate::admin_api::{Entry, Reason, Verdict};
use crate::visible_text::visible;

/// A descriptor as `KEY=VALUE,KEY=VALUE`.
pub(super) fn descriptor_text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "(text not kept)".to_owned();
    }
    let entries = entries.iter().map(|entry| {
        if entry.value.is_empty() {
            visible(&entry.key)
        } else {
            format!("{}={}", visible(&entry.key), visible(&entry.value))
        }
    });
    entries.collect::<Vec<_>>().join(",")
}

/// The time of day of a time in RFC 3339, without its date.
pub(super) fn time_of_day(at: &str) -> String {
    let time = at.split_once('T').map_or(at, |(_, time)| time);
    visible(time.trim_end_matches('Z'))
}

/// A verdict as the protocol names it.
pub(super) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "OK",
        Verdict::OverLimit => "OVER_LIMIT",
        Verdict::Error => "ERROR",
    }
}

/// A reason as the JSON names it.
pub(super) fn reason_word(reason: Reason) -> String {
    let name = serde_json::to_value(reason).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}
