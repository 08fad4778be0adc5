//! `tollgate schema`: prints the JSON Schema of a rules file, for editors.
//!
//! What it deliberately does not do: validate a file. `check` does, and finds more.

use super::Exit;
use crate::rules::file;

/// Prints the schema.
pub(super) fn run() -> anyhow::Result<Exit> {
    print_line!("{}", serde_json::to_string_pretty(&file::schema())?);
    Ok(Exit::Success)
}
