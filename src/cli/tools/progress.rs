//! Progress of long commands, on a terminal. Nothing is shown when stderr is none.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on stderr that says how far a command is. It goes away when it is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

// === impl Progress ===

impl Progress {
    /// Counts `what`, without a known end.
    pub(super) fn counting(what: &str) -> Self {
        let style = format!("{{spinner}} {what}: {{human_pos}} ({{per_sec}}) {{msg}}");
        Self::new(None, &style)
    }

    /// Counts up to `total`.
    pub(super) fn up_to(total: u64, what: &str) -> Self {
        let style = format!("{{bar:30}} {{human_pos}} of {{human_len}} {what} {{msg}}");
        Self::new(Some(total), &style)
    }

    /// Says `what` is done, and for how long, without a count.
    pub(super) fn working(what: &str) -> Self {
        let style = format!("{{spinner}} {what} ({{elapsed}}) {{msg}}");
        Self::new(None, &style)
    }

    fn new(total: Option<u64>, style: &str) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(total, target);
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            // Before the steady tick, which makes this call nothing and draws when its thread runs:
            // a short command would end unseen.
            bar.tick();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar }
    }

    /// How far the command is.
    pub(super) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Shows nothing from now on.
    pub(super) fn hide(&self) {
        self.bar.finish_and_clear();
    }

    /// Says more beside the number.
    pub(super) fn say(&self, more: String) {
        self.bar.set_message(more);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
