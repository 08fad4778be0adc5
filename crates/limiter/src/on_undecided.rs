//! The answer to a request without a decision.
//!
//! Why the limiter has it: the rules of a domain can set it for the store that replicas share.

use std::str::FromStr;

crate::named! {
    /// The answer to a request that a store did not decide, or that exceeds a bound. Not every
    /// setting allows each.
    pub enum OnUndecided {
        /// An error. The caller decides.
        Error = "error",
        /// The request passes.
        Allow = "allow",
        /// The request is refused.
        Deny = "deny",
        /// This replica decides alone, with each limit divided by the number of replicas.
        Local = "local",
    }
}

impl FromStr for OnUndecided {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| "use error, allow, deny or local".to_owned())
    }
}
