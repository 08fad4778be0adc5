//! `POST /reset` and `POST /shadow`, and the body of every error.

use serde::{Deserialize, Serialize};

use super::keys::Entry;

/// The body of `POST /reset`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    /// The domain.
    pub domain: String,
    /// The descriptor whose buckets are forgotten.
    pub descriptor: Vec<Entry>,
}

/// What was forgotten.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ResetResponse {
    /// The replica that did it.
    pub instance: String,
    /// When.
    pub at: String,
    /// One for each limit of the descriptor.
    pub reset: Vec<ResetBucket>,
}

/// One bucket that was forgotten.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ResetBucket {
    /// The full name of its rule.
    pub rule: String,
    /// Whether there was a bucket; false if it was fresh anyway.
    pub existed: bool,
}

/// The body of `POST /shadow`. Exactly one of `until` and `for_seconds` is set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowRequest {
    /// The domain.
    pub domain: String,
    /// The full name of the rule, as `/limits` has it.
    pub rule: String,
    /// Until when, RFC 3339; at most 7 days from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// For how many seconds, at most 7 days; 0 ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
}

/// The response of `POST /shadow`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ShadowResponse {
    /// The replica that did it.
    pub instance: String,
    /// When.
    pub at: String,
    /// Rules that are now in shadow mode because of `/shadow`.
    pub shadowed: Vec<ShadowedRule>,
}

/// A rule that `/shadow` keeps in shadow mode.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ShadowedRule {
    /// The domain.
    pub domain: String,
    /// The full name of the rule.
    pub rule: String,
    /// Until when.
    pub until: String,
}

/// The body of every response that is an error.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ApiError {
    /// What is wrong, and what to do.
    pub error: String,
}
