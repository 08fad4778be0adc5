//! The answer to requests when the store that replicas share does not decide.
//!
//! Why the limiter has it: the rules of a domain can set it.

/// The answer to a request that the shared store did not decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnStoreFailure {
    /// An error. The caller decides.
    Error,
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
    /// This replica decides alone, with each limit divided by the number of replicas.
    Local,
}

// === impl OnStoreFailure ===

impl OnStoreFailure {
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

    /// The variant with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}
