//! Variables that somebody else named, as they stand in the environment: the reference's of its
//! Redis, OpenTelemetry's.
//!
//! Why apart from all flags: some hold secrets, which have no place on a command line, and there
//! are dozens.
//!
//! What it deliberately does not do: know what any of them means.

use std::fmt;

/// Those that are set. Which they are may be told, never to what.
#[derive(Clone, Default)]
pub struct EnvironmentVariables {
    values: Vec<(&'static str, String)>,
}

// === impl EnvironmentVariables ===

impl EnvironmentVariables {
    /// Reads those of `names` that `variable` gives. Empty is the same as not set.
    pub fn read(names: &[&'static str], mut variable: impl FnMut(&str) -> Option<String>) -> Self {
        let values = names
            .iter()
            .filter_map(|name| Some((*name, variable(name)?)));
        Self {
            values: values.filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// What one says; none when it is not set, or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let known = self.values.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for EnvironmentVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.values.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}
