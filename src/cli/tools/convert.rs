//! `tollgate convert`: prints configurations of other rate limiters as rules, or Envoy's actions
//! for rules.
//!
//! What it deliberately does not do: change files, except those that --out names.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args, ValueEnum};

use super::arguments::{load_rules, read_file};
use super::progress::Progress;
use crate::cli::Exit;
use crate::convert::envoy_actions::{KeySources, actions};
use crate::convert::{Conversion, ConvertError, ConvertedRules, asp_net_core, limitador};
use crate::settings::RulesSettings;

pub(super) const AFTER_HELP: &str = "\
stdout has the result, stderr what has no equal: file, line, reason and what to do.

Exit codes: 0 everything is converted, 6 a part has no equal and is left out, 1 nothing is
converted, 2 the command line is invalid.

Examples:
  tollgate convert --from limitador limits.yaml > rules.yaml
  tollgate convert --from aspnetcoreratelimit appsettings.json > rules.yaml
  tollgate convert --envoy rules.yaml --header user=x-user";

/// Arguments of `convert`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("direction").args(["from", "envoy"]).required(true)))]
pub(crate) struct Convert {
    /// Files to convert; - reads standard input. Settings files of .NET override the ones before
    #[arg(required_unless_present = "envoy", conflicts_with = "envoy")]
    files: Vec<PathBuf>,

    /// What the files are
    #[arg(long, value_enum, value_name = "ORIGIN")]
    from: Option<Origin>,

    /// Print Envoy's rate limit actions for these rules: a file or a directory
    #[arg(long, value_name = "RULES")]
    envoy: Option<PathBuf>,

    /// Domain: of limitador, convert this namespace only; of AspNetCoreRateLimit, the domain of the
    /// rules (default: api)
    #[arg(long, value_name = "DOMAIN", conflicts_with = "envoy")]
    domain: Option<String>,

    /// Of limitador: all limits are charged after the work, by Report or by Envoy's
    /// apply_on_stream_done. Those of Kuadrant's TokenRateLimitPolicy always are
    #[arg(long, conflicts_with = "envoy")]
    charged_afterwards: bool,

    /// Write one file for each domain into this directory, DOMAIN.yaml, instead of to stdout
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "envoy")]
    out: Option<PathBuf>,

    /// Header that a key's value comes from; can be repeated
    #[arg(long, value_name = "KEY=HEADER", value_parser = parse_pair, conflicts_with = "from")]
    header: Vec<(String, String)>,

    /// Value of a key for requests without its header; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair, conflicts_with = "from")]
    absent: Vec<(String, String)>,

    #[command(flatten)]
    settings: RulesSettings,
}

/// The programs whose files can be converted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Origin {
    /// A limits file of limitador
    Limitador,
    /// Settings of AspNetCoreRateLimit (appsettings.json)
    #[value(name = "aspnetcoreratelimit")]
    AspNetCoreRateLimit,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let pair = pair.filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = pair.ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

// === impl Convert ===

impl Convert {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        if let Some(rules) = &self.envoy {
            return self.print_actions(rules);
        }
        let sources = self.files.iter().map(|path| read_file(path));
        let sources: Vec<_> = sources.collect::<Result<_, _>>()?;
        let domain = self.domain.as_deref();
        let progress = Progress::working("converting");
        let converted = match self.from {
            Some(Origin::AspNetCoreRateLimit) if self.charged_afterwards => {
                drop(progress);
                eprintln!("error: --charged-afterwards is for --from limitador");
                return Ok(Exit::Usage);
            }
            Some(Origin::AspNetCoreRateLimit) => asp_net_core::convert(&sources, domain),
            Some(Origin::Limitador) | None => {
                limitador::convert(&sources, domain, self.charged_afterwards)
            }
        };
        drop(progress);
        match converted {
            Ok(conversion) => self.print(&conversion),
            Err(error @ ConvertError::Defect(_)) => Err(error.into()),
            Err(ConvertError::Input(finding)) => {
                let finding = finding.to_string();
                eprintln!("{}", finding.replacen(": warning: ", ": error: ", 1));
                Ok(Exit::Failure)
            }
        }
    }

    fn print_actions(&self, rules: &Path) -> anyhow::Result<Exit> {
        let rules = load_rules(rules, &self.settings)?.loaded.rules;
        let sources = KeySources {
            headers: self.header.clone(),
            absent: self.absent.clone(),
        };
        print_line!("{}", actions(&rules, &sources).trim_end());
        Ok(Exit::Success)
    }

    fn print(&self, conversion: &Conversion) -> anyhow::Result<Exit> {
        for finding in &conversion.findings {
            eprintln!("{finding}");
        }
        match (&self.out, conversion.rules.as_slice()) {
            (Some(directory), rules) => write_files(directory, rules)?,
            (None, [rules]) => print_line!("{}", rules.text.trim_end()),
            (None, []) => bail!("no limit was converted"),
            (None, several) => {
                let count = several.len();
                let domains: Vec<_> = several.iter().map(|it| it.domain.as_str()).collect();
                let domains = domains.join(", ");
                eprintln!(
                    "error: the limits have {count} namespaces ({domains}), and a rules file has one domain"
                );
                eprintln!(
                    "  help: add --domain NAMESPACE to print one of them, or --out DIRECTORY to write them all"
                );
                return Ok(Exit::Failure);
            }
        }
        Ok(if conversion.is_complete() {
            Exit::Success
        } else {
            Exit::Partial
        })
    }
}

/// Writes each domain's rules. No file is overwritten, and none is written if one exists.
fn write_files(directory: &Path, rules: &[ConvertedRules]) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let is_unsafe = |c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c);
    let files: Vec<_> = rules
        .iter()
        .map(|rules| {
            let name = rules.domain.replace(is_unsafe, "_");
            (directory.join(format!("{name}.yaml")), &rules.text)
        })
        .collect();
    for (path, _) in &files {
        let file = path.display();
        anyhow::ensure!(
            !path.exists(),
            "{file} exists; remove it, or name another directory"
        );
    }
    for (path, text) in &files {
        fs::File::create_new(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| path.display().to_string())?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}
