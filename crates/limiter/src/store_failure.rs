//! What a request is answered when the store that replicas share is out of order.
//!
//! Why it is a word of the limiter's: a domain's rules may say it, and a check carries what a store must know of it.

/// What becomes of a request that the store which replicas share did not decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnStoreFailure {
    /// Its caller gets an error, and decides.
    Error,
    /// It passes.
    Allow,
    /// It is refused.
    Deny,
    /// This replica decides by itself, each limit divided by the number of replicas.
    Local,
}

// === impl OnStoreFailure ===

impl OnStoreFailure {
    /// Every answer.
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

    /// The answer of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}
