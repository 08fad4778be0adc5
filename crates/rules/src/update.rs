//! The result of a load: rules, or why there are none.

use std::fmt;

use crate::file::{LoadedRules, Report};
use crate::path::ReadError;
use crate::refused_domain::RefusedDomain;

/// The result of a change.
pub type RulesUpdate = Result<Rules, LoadError>;

/// Loaded rules and their hash.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The rules and their warnings.
    pub loaded: LoadedRules,
    /// Number of files, or of resources of an xDS server.
    pub sources: usize,
    /// The same for the same files on every replica: 48 bits, which a metric holds exactly.
    pub hash: u64,
}

/// Why rules were rejected.
#[derive(Debug)]
pub enum LoadError {
    /// They could not be read.
    Read(ReadError),
    /// The overlay could not be read. The resources without it may have errors too.
    Overlay(ReadError, Option<Box<Report>>),
    /// They have errors.
    Diagnostics(Report),
    /// The xDS server's resources are no rules.
    Resource(String),
    /// A defect in tollgate.
    Defect(String),
}

/// What is refused of an update; none where all of it is in use.
pub fn refusal(update: &RulesUpdate) -> Option<String> {
    let refused = match update {
        Err(error) => return Some(error.to_string()),
        Ok(rules) => rules.loaded.refused_domains.iter(),
    };
    let texts: Vec<_> = refused.map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

// === impl LoadError ===

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) | Self::Overlay(error, None) => error.fmt(f),
            Self::Overlay(error, Some(report)) => write!(f, "{error}\n{report}"),
            Self::Resource(what) => f.write_str(what),
            Self::Defect(how) => write!(f, "this is a defect in tollgate: {how}"),
            Self::Diagnostics(report) => report.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// The domains that are at fault, where they are loaded one by one.
    pub fn refused_domains(&self) -> &[RefusedDomain] {
        match self {
            Self::Diagnostics(report) => &report.refused_domains,
            _ => &[],
        }
    }

    /// Whether only the overlay is at fault: the rules alone would be accepted.
    pub fn is_of_the_overlay(&self) -> bool {
        match self {
            Self::Overlay(_, report) => report.is_none(),
            Self::Diagnostics(report) => report.only_overlay && report.refused_domains.is_empty(),
            Self::Read(_) | Self::Resource(_) | Self::Defect(_) => false,
        }
    }

    /// Whether domains without errors wait for another overlay.
    pub fn waits_for_the_overlay(&self) -> bool {
        match self {
            Self::Overlay(..) => true,
            Self::Diagnostics(report) => report.only_overlay,
            Self::Read(_) | Self::Resource(_) | Self::Defect(_) => false,
        }
    }
}
