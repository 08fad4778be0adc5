//! `tollgate schema`: prints the JSON Schema of a rules file, for editors, or of a report.
//!
//! What it deliberately does not do: validate a file. `check` does, and finds more.

use clap::{Args, ValueEnum};

use super::{Exit, check_schema};
use crate::rules::file;

/// Arguments of `schema`.
#[derive(Args, Debug)]
pub(super) struct Schema {
    /// What the schema describes
    #[arg(long = "for", value_enum, default_value_t = Subject::Rules)]
    subject: Subject,
}

/// What a schema describes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    /// A rules file
    Rules,
    /// The output of `check --format json`
    Check,
}

// === impl Schema ===

impl Schema {
    /// Prints the schema.
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let schema = match self.subject {
            Subject::Rules => file::schema(),
            Subject::Check => check_schema::schema(),
        };
        print_line!("{}", serde_json::to_string_pretty(&schema)?);
        Ok(Exit::Success)
    }
}
