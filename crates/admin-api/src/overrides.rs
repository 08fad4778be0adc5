//! `PUT`, `GET` and `DELETE /overrides`.

use serde::{Deserialize, Serialize};

use super::keys::Entry;

/// The body of `PUT /overrides`. Exactly one of `plan`, `limit`, `unlimited` and `blocked` is set,
/// and exactly one of `until` and `for_seconds`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideRequest {
    /// The domain.
    pub domain: String,
    /// The descriptor, as it is sent.
    pub descriptor: Vec<Entry>,
    /// The name of a plan of the rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// A limit as a rules file has it, or a list of limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<serde_json::Value>,
    /// No limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
    /// Every hit is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// Until when, RFC 3339; at most 366 days from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// For how many seconds, at most 366 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    /// Why, in words.
    #[serde(default)]
    pub reason: String,
    /// Who asked for it, in words.
    #[serde(default)]
    pub who: String,
}

/// The body of `DELETE /overrides`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideKey {
    /// The domain.
    pub domain: String,
    /// The descriptor of the override.
    pub descriptor: Vec<Entry>,
}

/// An override, as stores and snapshots keep it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Override {
    /// The domain.
    pub domain: String,
    /// The descriptor.
    pub descriptor: Vec<Entry>,
    /// The name of a plan; null for the other three.
    pub plan: Option<String>,
    /// A limit as a rules file has it, or a list of limits; null for the other three.
    pub limit: Option<serde_json::Value>,
    /// Whether there is no limit.
    pub unlimited: bool,
    /// Whether every hit is refused.
    pub blocked: bool,
    /// Until when.
    pub until: String,
    /// Why, in words.
    pub reason: String,
    /// Who asked for it, in words.
    pub who: String,
    /// When it was set.
    pub set_at: String,
}

/// An override and its effect.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct OverrideState {
    /// The override.
    #[serde(flatten)]
    pub of: Override,
    /// Whether it is in force.
    pub effect: Effect,
    /// Why it has no effect; null if it is in force.
    pub why: Option<String>,
    /// The full names of the rules that it takes the place of.
    pub rules: Vec<String>,
}

/// Whether an override is in force.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It is in force.
    InForce,
    /// No rule has its descriptor, or its plan has gone.
    None,
}

/// The response of `PUT` and `DELETE /overrides`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct OverrideResponse {
    /// The replica that did it.
    pub instance: String,
    /// When.
    pub at: String,
    /// The override as it is now; null after `DELETE`.
    #[serde(rename = "override")]
    pub of: Option<OverrideState>,
}

/// The response of `GET /overrides`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Overrides {
    /// The replica.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// The overrides, by domain and descriptor.
    pub overrides: Vec<OverrideState>,
    /// How many there may be (`--overrides-max`).
    pub overrides_max: u64,
}
