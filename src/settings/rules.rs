//! The settings of rules files, and of how requests consume limits.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::settings::parse::boolean;

/// Where rules files are, for `serve`, `check` and `explain`.
#[derive(Args, Clone, Debug)]
pub struct RulesSettings {
    /// As the reference: where rules are when RULES is not given
    #[arg(long, env = "RUNTIME_ROOT")]
    pub runtime_root: Option<PathBuf>,

    /// As the reference: the directory below RUNTIME_ROOT
    #[arg(long, env = "RUNTIME_SUBDIRECTORY", default_value = "")]
    pub runtime_subdirectory: String,

    /// As the reference: the directory, or the beginning of file names, below that
    #[arg(long, env = "RUNTIME_APPDIRECTORY", default_value = "config")]
    pub runtime_appdirectory: String,

    /// Whether names that begin with a dot are passed over
    #[arg(long, env = "RUNTIME_IGNOREDOTFILES", default_value = "true", value_parser = boolean, action = ArgAction::Set)]
    pub runtime_ignoredotfiles: bool,

    /// Whether several files may hold rules of one domain
    #[arg(long, env = "MERGE_DOMAIN_CONFIG", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub merge_domain_config: bool,
}

/// How a request consumes its limits, for `serve` and `explain`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DecisionSettings {
    /// Whether a request takes from all its limits or, when one refuses, from none; a rules file
    /// can say so for its domain
    #[arg(long, env = "TOLLGATE_ALL_OR_NOTHING", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub all_or_nothing: bool,
}
