//! `tollgate schema`: prints the JSON Schema of a rules file, an overlay or a file of tests, for
//! editors, of a report, of the admin listener, or of the API.
//!
//! What it deliberately does not do: validate a file. `check` does, and finds more.

use clap::{Args, ValueEnum};

use serde_json::{Value, json};

use crate::admin::OPENAPI;
use crate::admin_api;
use crate::cli::Exit;
use crate::rule_tests;
use crate::rules::file::{self, Code};
use crate::settings::Settings;

/// Arguments of `schema`.
#[derive(Args, Debug)]
pub(crate) struct Schema {
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

/// The JSON Schema of a report of `check`, without the codes.
const CHECK: &str = include_str!("check.schema.json");

// === impl Schema ===

impl Schema {
    /// Prints the schema.
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let schema = match self.subject {
            Subject::Rules => file::schema(),
            Subject::RuleTests => rule_tests::schema(&Settings::decision_flags()),
            Subject::Overlay => file::overlay_schema(),
            Subject::Check => check()?,
            Subject::Admin | Subject::Api => {
                let is_admin = matches!(self.subject, Subject::Admin);
                let text = if is_admin { admin_api::SCHEMA } else { OPENAPI };
                print_line!("{}", text.trim_end());
                return Ok(Exit::Success);
            }
        };
        print_line!("{}", serde_json::to_string_pretty(&schema)?);
        Ok(Exit::Success)
    }
}

/// The JSON Schema of a report of `check`.
fn check() -> anyhow::Result<Value> {
    let mut schema: Value = serde_json::from_str(CHECK)?;
    if let Some(code) = schema.pointer_mut("/$defs/diagnostic/properties/code") {
        let names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        let about = |code: &Code| format!("{}: {}", code.name(), code.about());
        let abouts: Vec<_> = Code::ALL.iter().map(about).collect();
        *code = json!({"enum": names, "description": abouts.join(" ")});
    }
    Ok(schema)
}
