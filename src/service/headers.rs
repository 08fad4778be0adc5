//! Response headers with limit, remaining and reset, as the reference makes them.
//!
//! One descriptor is spoken of: the one with the least left, the first of several; but one that is over limit and no
//! quota comes before it, the last of several.
//!
//! What it deliberately does not do: `x-ratelimit-*`, which Envoy makes by itself from the statuses.

use super::proto::envoy::config::core::v3::HeaderValue;
use crate::config::settings::Settings;
use crate::limiter::{Code, Decision, Status};

/// The names of the headers.
#[derive(Clone, Debug)]
pub struct Headers {
    limit: String,
    remaining: String,
    reset: String,
}

// === impl Headers ===

impl Headers {
    /// The settings' names; none when headers are off.
    pub fn new(settings: &Settings) -> Option<Self> {
        settings.limit_response_headers_enabled.then(|| Self {
            limit: settings.limit_limit_header.clone(),
            remaining: settings.limit_remaining_header.clone(),
            reset: settings.limit_reset_header.clone(),
        })
    }

    /// The headers of an answer: none when no descriptor has a limit.
    pub(super) fn of(&self, decision: &Decision<'_>) -> Vec<HeaderValue> {
        let Some(status) = spoken_of(decision) else {
            return Vec::new();
        };
        let limit = status
            .current_limit
            .map(|current| current.limit.requests_per_unit());
        let reset_s = status.until_us.unwrap_or_default().div_ceil(1_000_000);
        let header = |name: &str, value: String| HeaderValue {
            key: name.to_owned(),
            value,
            ..Default::default()
        };
        vec![
            header(&self.limit, limit.unwrap_or_default().to_string()),
            header(&self.remaining, status.remaining.to_string()),
            header(&self.reset, reset_s.to_string()),
        ]
    }
}

fn spoken_of<'d, 'r>(decision: &'d Decision<'r>) -> Option<&'d Status<'r>> {
    let limited = || {
        let statuses = decision.statuses.iter();
        statuses.filter(|status| status.current_limit.is_some())
    };
    let over = limited().rfind(|status| status.code == Code::OverLimit && !status.quota);
    over.or_else(|| limited().min_by_key(|status| status.remaining))
}
