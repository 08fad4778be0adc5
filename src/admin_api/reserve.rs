//! The reservations of a rule, wherever they are shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_limiter::{ReserveAmount, ReserveRule};

/// The reservations of a rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ReserveFigures {
    /// The key of the entry that is the id; null where only the API reserves.
    pub key: Option<String>,
    /// The amount, such as `800` or `p95`; null where each request says it.
    pub amount: Option<String>,
    /// The least that a learnt amount reserves; null for another amount.
    pub floor: Option<u64>,
    /// The most that a learnt amount reserves; null for another amount.
    pub ceiling: Option<u64>,
    /// Whose commits a learnt amount is learnt from: `rule` or `key`; null for another amount.
    pub per: Option<String>,
    /// How long a reservation is open unless it is settled, in milliseconds.
    pub expires_ms: u32,
    /// What happens to the hits of one that expires: `charge` or `release`.
    pub on_expiry: String,
}

// === impl ReserveFigures ===

impl ReserveFigures {
    /// The reservations that a rule sets.
    pub fn of(rule: &ReserveRule) -> Self {
        let learnt = match rule.amount {
            Some(ReserveAmount::Learnt(learnt)) => Some(learnt),
            Some(ReserveAmount::Hits(_)) | None => None,
        };
        Self {
            key: rule.key.clone(),
            amount: rule.amount.map(|amount| amount.to_string()),
            floor: learnt.map(|learnt| learnt.floor),
            ceiling: learnt.map(|learnt| learnt.ceiling),
            per: learnt.map(|learnt| learnt.scope.name().to_owned()),
            expires_ms: rule.expiry.after_ms.get(),
            on_expiry: rule.expiry.on_expiry.name().to_owned(),
        }
    }

    /// How long a reservation is open, such as `5m`.
    pub fn expires(&self) -> String {
        let expires = Duration::from_millis(u64::from(self.expires_ms));
        humantime::format_duration(expires).to_string()
    }
}

impl fmt::Display for ReserveFigures {
    /// As a rules file has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (name, value) in [("key", &self.key), ("amount", &self.amount)] {
            if let Some(value) = value {
                write!(f, "{name}: {value}, ")?;
            }
        }
        for (name, value) in [("floor", self.floor), ("ceiling", self.ceiling)] {
            if let Some(value) = value {
                write!(f, "{name}: {value}, ")?;
            }
        }
        if let Some(per) = &self.per {
            write!(f, "per: {per}, ")?;
        }
        let expires = self.expires();
        write!(f, "expires: {expires}, on_expiry: {}}}", self.on_expiry)
    }
}
