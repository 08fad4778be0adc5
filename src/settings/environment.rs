//! Environment variables with standard names: the reference's for Redis, and OpenTelemetry's.
//!
//! They are no flags: some hold secrets, which do not belong on a command line, and there are
//! dozens.
//!
//! What it deliberately does not do: interpret them.

use std::fmt;

/// The variables that are set. Their names may be printed, their values never.
#[derive(Clone, Default)]
pub struct EnvironmentVariables {
    values: Vec<(&'static str, String)>,
}

// === impl EnvironmentVariables ===

impl EnvironmentVariables {
    /// Reads those of `names` that `variable` gives. An empty value counts as not set. A line end
    /// after the value is not part of it, as in a file.
    pub fn read(names: &[&'static str], mut variable: impl FnMut(&str) -> Option<String>) -> Self {
        let values = names
            .iter()
            .filter_map(|name| Some((*name, variable(name)?)))
            .map(|(name, value)| (name, value.trim_end_matches(['\r', '\n']).to_owned()));
        Self {
            values: values.filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// The value of one; none when it is not set or empty.
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
