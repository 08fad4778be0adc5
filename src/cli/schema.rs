//! `tollgate schema`: the JSON Schema of a rules file, for editors.
//!
//! What it deliberately does not do: check a file (`check` does, and sees more).

use super::Exit;
use crate::rules::file;

/// Prints it.
pub(super) fn run() -> anyhow::Result<Exit> {
    print_line!("{}", serde_json::to_string_pretty(&file::schema())?);
    Ok(Exit::Success)
}
