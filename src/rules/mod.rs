//! Rules: files and xDS resources loaded into a `RuleSet`, with diagnostics and reloading.
//!
//! | module | what |
//! | --- | --- |
//! | [`file`] | one rules file: grammar, loader, diagnostics, JSON Schema |
//! | [`path`] | a file or a directory of rules files |
//! | [`reload`] | watching a path and publishing a new rule set |
//! | [`xds`] | rules from an xDS server |
//! | [`patterns`] | wildcards and regular expressions compiled into automata |
//! | [`calendar`] | calendar windows in time zones |
//! | `duration` | durations in files |
//! | `excerpt` | bounded excerpts of a text, for messages |
//! | `yaml` | YAML as a tree of nodes with positions |

pub mod calendar;
pub(crate) mod duration;
pub(crate) mod excerpt;
pub mod file;
pub mod path;
pub mod patterns;
pub mod reload;
pub mod xds;
pub(crate) mod yaml;
