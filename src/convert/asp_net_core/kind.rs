//! The two middlewares: by address and by client.

/// What a middleware counts by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Ip,
    Client,
}

/// Both.
pub(super) const KINDS: [Kind; 2] = [Kind::Ip, Kind::Client];

// === impl Kind ===

impl Kind {
    /// Whether a name is that of a section of this middleware.
    pub(super) fn has_section(self, name: &str) -> bool {
        let sections = [self.section(), self.policies().0];
        sections
            .iter()
            .any(|section| section.eq_ignore_ascii_case(name))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Client => "client",
        }
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Ip => "remote_address",
            Self::Client => "client_id",
        }
    }

    pub(super) fn section(self) -> &'static str {
        match self {
            Self::Ip => "IpRateLimiting",
            Self::Client => "ClientRateLimiting",
        }
    }

    /// The section of the policies, its list, and the member that says whose they are.
    pub(super) fn policies(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ip => ("IpRateLimitPolicies", "IpRules", "Ip"),
            Self::Client => ("ClientRateLimitPolicies", "ClientRules", "ClientId"),
        }
    }
}
