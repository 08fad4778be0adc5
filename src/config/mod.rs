//! What the operator wrote: settings (flags and variables) and rules (YAML), read and checked.
//!
//! Why apart from the limiter: what was typed is not what it means. A rules file is parsed into positions and texts
//! (`yaml`), those into a [`RuleSet`](tollgate_limiter::RuleSet) or a list of every problem (`rules_file`), and which
//! files there are is a matter of its own (`rules_path`).
//!
//! Calendar windows (`calendar`) are here because zone names are something the operator writes.
//!
//! Certificates (`tls`) are here because they are files of the operator's; rules may also come from a server (`xds`), to which
//! a channel (`channel`) leads.
//!
//! Where traces go (`traces`) is here because many variables say it together.
//!
//! How much memory there is (`memory_limit`) is here because it is what an operator has said to the container.
//!
//! What it deliberately does not do: serve, print, decide when to look for changes (`app`).

pub mod calendar;
pub mod channel;
pub mod memory_limit;
pub mod patterns;
pub mod reference_variables;
pub mod reload;
pub mod rules_file;
pub mod rules_path;
pub mod settings;
pub mod tls;
pub mod traces;
pub mod xds;
mod yaml;
