//! Decisions, and the limits in them.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;

/// Where a decision comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// The service.
    #[default]
    Server,
    /// A lease: hits that the service debited in advance.
    Lease,
    /// The denial cache: an earlier refusal of the service.
    Cache,
    /// The local token bucket: [`OnError::Local`](crate::OnError::Local).
    Local,
    /// [`OnError::Allow`](crate::OnError::Allow).
    Allow,
    /// [`OnError::Deny`](crate::OnError::Deny).
    Deny,
}

impl Source {
    /// The name in lower case, as in telemetry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Lease => "lease",
            Self::Cache => "cache",
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Why no limit applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoLimit {
    /// No rules have the domain: [`UnknownDomain`](crate::UnknownDomain).
    UnknownDomain,
    /// No rule with a limit matches the descriptors.
    NoRule,
    /// A rule that matches is unlimited.
    Unlimited,
}

impl NoLimit {
    /// The reason of an answer. One of a newer service is dropped.
    pub(crate) fn of(reason: &str) -> Option<Self> {
        [Self::UnknownDomain, Self::NoRule, Self::Unlimited]
            .into_iter()
            .find(|known| known.as_str() == reason)
    }

    /// The name in lower case, as in the API of the service.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownDomain => "unknown_domain",
            Self::NoRule => "no_rule",
            Self::Unlimited => "unlimited",
        }
    }
}

/// Whether a request may pass, and what its limits have left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request may pass.
    pub allowed: bool,
    /// Where the decision comes from.
    pub source: Source,
    /// Hits left of the tightest limit. `None` if no limit applies.
    pub remaining: Option<u64>,
    /// Time until the tightest limit is unused again. `None` if no limit applies.
    pub reset: Option<Duration>,
    /// Time until the same hits would pass. `None` if never, or if it is not known.
    pub retry_after: Option<Duration>,
    /// Limits that apply. With [`Source::Lease`] they are those of the answer that granted the
    /// lease.
    pub limits: Arc<[Limit]>,
    /// Why no limit applied. `None` if one did, without an answer, and with [`Protocol::Envoy`],
    /// which does not say.
    ///
    /// [`Protocol::Envoy`]: crate::Protocol::Envoy
    pub no_limit: Option<NoLimit>,
    /// Why the service did not answer. Only with [`Source::Local`], [`Source::Allow`] and
    /// [`Source::Deny`].
    pub error: Option<Error>,
    /// Duration of the check by the real clock.
    pub elapsed: Duration,
}

/// What a limit has left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Limit {
    /// Position of its descriptor in the call, from 0.
    pub descriptor: u32,
    /// Name of the rule. Empty if it has none.
    pub name: String,
    /// Path of the rule, as in the metrics of the service. Empty with [`Protocol::Envoy`].
    ///
    /// [`Protocol::Envoy`]: crate::Protocol::Envoy
    pub rule: String,
    /// Hits in a window.
    pub requests_per_unit: u64,
    /// The window in words, such as `1 minute`.
    pub window: String,
    /// Whether this limit lets the request pass.
    pub allowed: bool,
    /// Hits that are left.
    pub remaining: u64,
    /// Time until the limit is unused again.
    pub reset: Option<Duration>,
    /// Time until the same hits would pass this limit. `None` if never, or if it let them pass.
    pub retry_after: Option<Duration>,
}

impl Decision {
    /// The tightest limit, which rate limit headers show.
    ///
    /// Of an allowed decision it is the limit with the least remaining. Of a refused decision it is
    /// the first refused limit that never passes, else the one with the longest wait.
    pub fn tightest(&self) -> Option<&Limit> {
        if self.allowed {
            return self.limits.iter().min_by_key(|limit| limit.remaining);
        }
        let mut tightest: Option<&Limit> = None;
        for limit in self.limits.iter().filter(|limit| !limit.allowed) {
            let Some(wait) = limit.retry_after else {
                return Some(limit);
            };
            if tightest
                .and_then(|found| found.retry_after)
                .is_none_or(|longest| wait > longest)
            {
                tightest = Some(limit);
            }
        }
        tightest
    }

    /// The same refusal `passed` later.
    pub(crate) fn after(&self, passed: Duration) -> Self {
        let less = |time: Option<Duration>| time.map(|time| time.saturating_sub(passed));
        let mut later = self.clone();
        later.reset = less(later.reset);
        later.retry_after = less(later.retry_after);
        for limit in Arc::make_mut(&mut later.limits) {
            limit.reset = less(limit.reset);
            limit.retry_after = less(limit.retry_after);
        }
        later
    }
}
