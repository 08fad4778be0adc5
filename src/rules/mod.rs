//! Rules: files and xDS resources read into a `RuleSet`, diagnostics, and reloading.
//!
//! | module | what |
//! | --- | --- |
//! | [`file`] | one rules file: grammar, loader, diagnostics, JSON Schema |
//! | [`path`] | a file or a directory of rules files, and when it changed |
//! | [`reload`] | watching a path and publishing a new rule set |
//! | [`xds`] | rules from an xDS server |
//! | [`patterns`] | wildcards and regular expressions compiled into automata |
//! | [`calendar`] | calendar windows in time zones |
//! | `yaml` | YAML read into nodes that know their line and column |

pub mod calendar;
mod excerpt;
pub mod file;
pub mod path;
pub mod patterns;
pub mod reload;
pub mod xds;
mod yaml;
