//! The configuration of the decision path, as the settings say.

use tollgate_limiter::{Modes, OnUndecided};

use crate::pipeline::{Config, Headers, RequestPolicy};
use crate::settings::{HeaderStyle, ResponseSettings, Settings};

impl From<&Settings> for Config {
    fn from(settings: &Settings) -> Self {
        Self {
            request: RequestPolicy {
                negative_hits: settings.negative_hits,
                overrides: settings.overrides,
            },
            modes: Modes {
                shadow: settings.shadow_mode,
                quota: settings.quota_mode,
            },
            near_limit_ratio: settings.near_limit_ratio,
            on_overload: settings.on_overload,
            on_store_failure: settings.store.on_store_failure,
            on_excess: match settings.on_excess {
                // In shadow mode nothing is refused.
                OnUndecided::Deny if settings.shadow_mode => OnUndecided::Allow,
                answer => answer,
            },
            descriptors_max: settings.descriptors_max,
            entries_max: settings.entries_max,
            answer_bytes_max: settings.answer_size_max,
            lease_age_max_us: settings.store.lease_age_max_ms.saturating_mul(1_000),
            caller_lease_hits_max: settings.store.caller_lease_hits_max as u64,
            estimates_memory_max: settings.estimates.memory_max,
            headers: headers(&settings.response),
            dynamic_metadata: settings.response.response_dynamic_metadata,
            all_or_nothing: settings.decision.all_or_nothing,
        }
    }
}

/// The headers of responses; none if all are off.
fn headers(settings: &ResponseSettings) -> Option<Headers> {
    let enabled = |style| settings.response_headers.contains(&style);
    let mut triples = Vec::new();
    if settings.limit_response_headers_enabled || enabled(HeaderStyle::Reference) {
        triples.push([
            settings.limit_limit_header.clone(),
            settings.limit_remaining_header.clone(),
            settings.limit_reset_header.clone(),
        ]);
    }
    if enabled(HeaderStyle::XRateLimit) {
        let name = |part| format!("X-RateLimit-{part}");
        triples.push([name("Limit"), name("Remaining"), name("Reset")]);
    }
    let upstream = settings.limit_request_headers_enabled.then(|| {
        [
            settings.limit_request_limit_header.clone(),
            settings.limit_request_remaining_header.clone(),
            settings.limit_request_reset_header.clone(),
        ]
    });
    let headers = Headers {
        triples,
        upstream,
        ietf: enabled(HeaderStyle::Ietf),
        retry_after: enabled(HeaderStyle::RetryAfter),
    };
    let any = !headers.triples.is_empty() || headers.ietf || headers.retry_after;
    (any || headers.upstream.is_some()).then_some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_engine_are_those_of_serve() {
        let settings = Settings::from_flags(Vec::<String>::new()).unwrap();
        let read = Config::from(&settings);
        assert_eq!(format!("{read:?}"), format!("{:?}", Config::default()));
    }
}
