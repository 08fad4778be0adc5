//! How requests are read and answered.

use tollgate_limiter::{Modes, OnUndecided};

use crate::pipeline::headers::Headers;

/// How requests are read and answered.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which fields of a request take effect.
    pub request: RequestPolicy,
    /// What refuses a request.
    pub modes: Modes,
    /// The share of a limit from which hits count as near the limit.
    pub near_limit_ratio: f32,
    /// The answer without a decision of this process.
    pub on_overload: OnUndecided,
    /// The answer without a decision of the store that replicas share.
    pub on_store_failure: OnUndecided,
    /// The answer to a request that exceeds a bound.
    pub on_excess: OnUndecided,
    /// How many descriptors a request may have.
    pub descriptors_max: usize,
    /// How many entries a descriptor may have.
    pub entries_max: usize,
    /// The largest answer to a call or a batch of the API.
    pub answer_bytes_max: usize,
    /// How long a lease of a caller is valid at most, in microseconds.
    pub lease_age_max_us: u64,
    /// How many hits a lease of a caller has at most.
    pub caller_lease_hits_max: u64,
    /// Bytes of learnt amounts.
    pub estimates_memory_max: usize,
    /// Headers of responses, if they have any.
    pub headers: Option<Headers>,
    /// Responses have dynamic metadata.
    pub dynamic_metadata: bool,
    /// Takes of a request go back unless all its limits pass.
    pub all_or_nothing: bool,
}

/// Which fields of a request take effect.
#[derive(Clone, Copy, Debug)]
pub struct RequestPolicy {
    /// Hits may be given back. If not, a descriptor with negative hits only looks.
    pub negative_hits: bool,
    /// Limits may come with the request. If not, they count as unusable.
    pub overrides: bool,
}

/// The defaults of `serve`.
impl Default for Config {
    fn default() -> Self {
        Self {
            request: RequestPolicy {
                negative_hits: true,
                overrides: true,
            },
            modes: Modes::default(),
            near_limit_ratio: 0.8,
            on_overload: OnUndecided::Error,
            on_store_failure: OnUndecided::Error,
            on_excess: OnUndecided::Deny,
            descriptors_max: 512,
            entries_max: 64,
            answer_bytes_max: 4 << 20,
            lease_age_max_us: 2_000_000,
            caller_lease_hits_max: 1_000,
            estimates_memory_max: 4 << 20,
            headers: None,
            dynamic_metadata: false,
            all_or_nothing: false,
        }
    }
}
