//! `GET /top`: the heaviest keys.

use super::AdminState;
use crate::admin_api::{RankBy, Top, Window, time_text};

/// The heaviest keys of the last minute, for `state` events.
#[allow(clippy::unused_async)]
pub(super) async fn top_for_state(state: &AdminState, by: RankBy) -> Top {
    let api = &state.api;
    Top {
        instance: api.instance.to_string(),
        at: time_text(api.clock.now()),
        by,
        window: Window::Minute,
        covered_seconds: 0,
        values: api.values.mode(),
        asked: 0,
        refused: 0,
        keys: Vec::new(),
    }
}
