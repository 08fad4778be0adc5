//! What a rule allows: a limit and the algorithm that counts it, or everything.

use super::algorithm::Algorithm;
use super::limit::Limit;

/// What a rule allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allowance {
    /// No limit: never counted, always within.
    Unlimited,
    /// A limit and its algorithm.
    Limited {
        /// The limit.
        limit: Limit,
        /// The algorithm that counts.
        algorithm: &'static dyn Algorithm,
    },
}

// === impl Allowance ===

impl Allowance {
    /// Its limit with the requests and the window of another one. A limit of requests in flight has
    /// no window, and a calendar is left where the window is another one. None where there is no
    /// limit, or the algorithm cannot count that.
    pub(super) fn adjusted(&self, numbers: &Limit) -> Option<Limit> {
        let Self::Limited { limit, algorithm } = self else {
            return None;
        };
        let requests = numbers.requests();
        let default_burst = algorithm.facts().default_burst(limit.requests());
        let burst = match requests {
            0 => 0,
            _ if limit.burst() == default_burst => algorithm.facts().default_burst(requests),
            _ => limit.burst(),
        };
        let mut adjusted = *limit;
        if limit.unit().is_some() && !limit.has_window_of(numbers) {
            adjusted = *numbers;
            if let Some(segments) = limit.segments() {
                adjusted = adjusted.with_segments(segments);
            }
            if let Some(count_refused) = limit.count_refused() {
                adjusted = adjusted.with_count_refused(count_refused);
            }
            if let Some(penalty) = limit.penalty() {
                adjusted = adjusted.with_penalty(*penalty);
            }
        }
        let fits = requests <= algorithm.facts().requests_max
            && adjusted.window().as_us() <= algorithm.facts().window_max_us;
        fits.then(|| adjusted.with_requests(requests, burst))
    }
}
