//! The settings of rules files, and of how requests consume limits.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};

use crate::rules::file::{LimitFiles, Options};
use crate::rules::path::RulesPath;
use crate::settings::headings::{DECISIONS, RULES};
use crate::settings::parse::boolean;

/// Where rules files are, for `serve`, `check` and `explain`.
#[derive(Args, Clone, Debug)]
pub struct RulesSettings {
    /// File that adds to the rules what their maker cannot say
    ///
    /// See docs/overlay.md.
    ///
    /// Example: /etc/tollgate/overlay.yaml
    #[arg(long, env = "TOLLGATE_OVERLAY", value_name = "FILE", help_heading = RULES)]
    pub overlay: Option<PathBuf>,

    /// Root directory of the rules if RULES is not set
    ///
    /// It has the same meaning as in envoyproxy/ratelimit, like the next three settings.
    ///
    /// Example: /data/ratelimit
    #[arg(long, env = "RUNTIME_ROOT", value_name = "DIR", help_heading = RULES)]
    pub runtime_root: Option<PathBuf>,

    /// Directory below --runtime-root
    ///
    /// Example: ratelimit
    #[arg(long, env = "RUNTIME_SUBDIRECTORY", default_value = "", value_name = "DIR", help_heading = RULES)]
    pub runtime_subdirectory: String,

    /// Directory, or start of the file names, below --runtime-subdirectory
    ///
    /// Example: limits
    #[arg(long, env = "RUNTIME_APPDIRECTORY", default_value = "config", value_name = "DIR", help_heading = RULES)]
    pub runtime_appdirectory: String,

    /// Skip files and directories whose names start with a dot
    #[arg(long, env = "RUNTIME_IGNOREDOTFILES", default_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = RULES)]
    pub runtime_ignoredotfiles: bool,

    /// Allow several files to define rules of one domain
    #[arg(long, env = "MERGE_DOMAIN_CONFIG", default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = RULES)]
    pub merge_domain_config: bool,
}

// === impl RulesSettings ===

impl RulesSettings {
    /// Where the rules are: RULES, or else as the reference's variables say. None when neither is
    /// given.
    pub fn path(&self, rules: Option<&Path>) -> Option<RulesPath> {
        if let Some(rules) = rules {
            return Some(RulesPath::Path(rules.to_owned()));
        }
        let root = self.runtime_root.as_ref()?;
        Some(RulesPath::Runtime {
            directory: root.join(&self.runtime_subdirectory),
            app_directory: self.runtime_appdirectory.clone(),
            ignore_dot_files: self.runtime_ignoredotfiles,
        })
    }
}

impl From<&RulesSettings> for Options {
    fn from(settings: &RulesSettings) -> Self {
        Self {
            merge_domains: settings.merge_domain_config,
            overlay: settings.overlay.clone(),
            limit_files: Some(LimitFiles::default()),
        }
    }
}

/// How a request consumes its limits, for `serve` and `explain`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DecisionSettings {
    /// Consume no limit of a request if one of its limits refuses
    ///
    /// A rules file can set this for its domain (all_or_nothing).
    #[arg(long, env = "TOLLGATE_ALL_OR_NOTHING", default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = DECISIONS)]
    pub all_or_nothing: bool,
}
