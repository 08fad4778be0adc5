//! How requests are read and answered, as the settings say.

use tollgate_limiter::{BucketNaming, Modes, OnStoreFailure};

use crate::pipeline::headers::Headers;
use crate::settings::{Settings, Verdict};
use crate::store::Store;

/// Which fields of a request take effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPolicy {
    /// Hits may be given back. If not, a descriptor with negative hits only looks.
    pub(crate) negative_hits: bool,
    /// Limits may come with the request. If not, they count as unusable.
    pub(crate) overrides: bool,
}

/// How requests are answered.
pub(super) struct ResponsePolicy {
    pub(super) modes: Modes,
    pub(super) near_limit_ratio: f32,
    pub(super) on_overload: Verdict,
    pub(super) on_store_failure: OnStoreFailure,
    pub(super) on_excess: Verdict,
    pub(super) descriptors_max: usize,
    pub(super) entries_max: usize,
    pub(super) answer_bytes_max: usize,
    pub(super) headers: Option<Headers>,
    pub(super) dynamic_metadata: bool,
    pub(super) all_or_nothing: bool,
    pub(super) bucket_naming: Option<BucketNaming>,
}

/// The answer to a request that exceeds a bound. In shadow mode nothing is refused.
fn on_excess(settings: &Settings) -> Verdict {
    match settings.on_excess {
        Verdict::Deny if settings.shadow_mode => Verdict::Allow,
        verdict => verdict,
    }
}

// === impl RequestPolicy ===

impl RequestPolicy {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            negative_hits: settings.negative_hits,
            overrides: settings.overrides,
        }
    }
}

// === impl ResponsePolicy ===

impl ResponsePolicy {
    pub(super) fn new(settings: &Settings, store: &dyn Store) -> Self {
        Self {
            modes: Modes {
                shadow: settings.shadow_mode,
                quota: settings.quota_mode,
            },
            near_limit_ratio: settings.near_limit_ratio,
            on_overload: settings.on_overload,
            on_store_failure: settings.store.on_store_failure.into(),
            on_excess: on_excess(settings),
            descriptors_max: settings.descriptors_max,
            entries_max: settings.entries_max,
            answer_bytes_max: settings.answer_size_max,
            headers: Headers::new(settings),
            dynamic_metadata: settings.response.response_dynamic_metadata,
            all_or_nothing: settings.decision.all_or_nothing,
            bucket_naming: store.bucket_naming(),
        }
    }
}
