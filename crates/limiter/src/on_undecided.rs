//! The answer to a request without a decision.
//!
//! Why the limiter has it: the rules of a domain can set it for the store that replicas share.

use std::str::FromStr;

/// The answer to a request that a store did not decide, or that exceeds a bound. Not every setting
/// allows each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnUndecided {
    /// An error. The caller decides.
    Error,
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
    /// This replica decides alone, with each limit divided by the number of replicas.
    Local,
}

// === impl OnUndecided ===

impl OnUndecided {
    /// Every variant.
    pub const ALL: [Self; 4] = [Self::Error, Self::Allow, Self::Deny, Self::Local];

    /// Its name in rules files and settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        }
    }
}

impl FromStr for OnUndecided {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| "use error, allow, deny or local".to_owned())
    }
}
