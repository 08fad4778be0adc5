//! `tollgate schema`: prints the JSON Schema of a rules file, an overlay or a file of tests, for
//! editors, of a report, of the admin listener, or of the API.
//!
//! What it deliberately does not do: validate a file. `check` does, and finds more.

use clap::{Args, ValueEnum};

use super::{Exit, check_schema};
use crate::admin::OPENAPI;
use crate::rule_tests;
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
    /// A file of tests, for `tollgate test`
    RuleTests,
    /// An overlay of rules
    Overlay,
    /// The output of `check --format json`
    Check,
    /// The JSON of the admin listener
    Admin,
    /// tollgate's own API over HTTP, as an OpenAPI document
    Api,
}

/// The JSON Schema of the admin listener.
const ADMIN: &str = include_str!("../admin_api/schema.json");

/// Prints a schema that is kept as text.
fn print_as_written(schema: &str) -> Exit {
    print_line!("{}", schema.trim_end());
    Exit::Success
}

// === impl Schema ===

impl Schema {
    /// Prints the schema.
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let schema = match self.subject {
            Subject::Rules => file::schema(),
            Subject::RuleTests => rule_tests::schema(),
            Subject::Overlay => file::overlay_schema(),
            Subject::Check => check_schema::schema(),
            Subject::Admin => return Ok(print_as_written(ADMIN)),
            Subject::Api => return Ok(print_as_written(OPENAPI)),
        };
        print_line!("{}", serde_json::to_string_pretty(&schema)?);
        Ok(Exit::Success)
    }
}
