//! `tollgate replay`: decides a recording again, by one or two sets of rules, and reports.
//!
//! What it deliberately does not do: ask a service. A recording and rules are all it needs.

mod text;

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};

use super::arguments::{load_rules, settings_error};
use super::progress::Progress;
use crate::cli::Exit;
use crate::cli::output::stderr_is_coloured;
use crate::recording::import::{self, Mapping};
use crate::recording::{Events, Reader, Summary};
use crate::regular_file;
use crate::replay::report::ReplayReport;
use crate::replay::{Options, Side, page, replay};
use crate::settings::{RulesSettings, Settings, memory_size};
use crate::visible_text::visible;

/// The end of `replay --help`.
pub(super) const AFTER_HELP: &str = "\
The requests are decided at their recorded times and in their recorded order, beginning with empty
buckets. The rules of the recording give the recorded verdicts; where they may not, the report says
why.

Exit codes:
  0  the whole recording was replayed
  1  the recording or the rules cannot be read
  2  the command line is invalid
  6  the recording was cut off: the report is about the part before

Examples:
  tollgate replay today.tgrec --rules rules.yaml
  tollgate replay today.tgrec --rules rules.yaml --against changed.yaml
  tollgate replay access.log --mapping mapping.yaml --rules rules.yaml
  tollgate replay today.tgrec --rules rules.yaml --against changed.yaml \\
    --format html --out report.html";

/// How often the progress is shown, in requests.
const PROGRESS_EVERY: u64 = 4096;

/// Arguments of `replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayCommand {
    /// Recording of `tollgate record`, or with --mapping an access log or a CSV file
    recording: PathBuf,

    /// Mapping file of an access log or a CSV file: which fields make a request
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,

    /// Rules to decide by: a file or a directory, such as those in force
    #[arg(long, value_name = "RULES")]
    rules: PathBuf,

    /// Changed rules to compare with --rules: a file or a directory
    #[arg(long, value_name = "RULES")]
    against: Option<PathBuf>,

    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// Write the report to this file instead of to stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Most rows of each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    top: u32,

    /// Most memory of the buckets of one set of rules
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = memory_size)]
    memory_max: u64,

    /// Setting of `serve` that replaces the recorded one, such as all-or-nothing=true; can be
    /// repeated
    #[arg(long, value_name = "SETTING=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,

    #[command(flatten)]
    settings: RulesSettings,
}

/// What is printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Text for a terminal
    Text,
    /// One JSON document
    Json,
    /// One page that needs no other file
    Html,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let text = text.strip_prefix("--").unwrap_or(text);
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write SETTING=VALUE, such as all-or-nothing=true".to_owned()),
    }
}

// === impl ReplayCommand ===

impl ReplayCommand {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        self.check_out()?;
        let rules = self.side(&self.rules)?;
        let against = self.against.as_deref().map(|path| self.side(path));
        let against = against.transpose()?;
        let name = || self.recording.display().to_string();
        let mut reader = self.events()?;
        let options = Options {
            file: self.recording.clone(),
            config: (&self.settings_for(&reader.header().settings)?).into(),
            memory_max: usize::try_from(self.memory_max).unwrap_or(usize::MAX),
            rows_max: usize::try_from(self.top).unwrap_or(usize::MAX),
        };
        let progress = Progress::counting("requests replayed");
        let report = replay(&mut *reader, rules, against, &options, &mut |requests| {
            if requests.is_multiple_of(PROGRESS_EVERY) {
                progress.set(requests);
            }
        });
        drop(progress);
        let report = report.with_context(name)?;
        self.warn_unread(reader.summary());
        self.write(&report)?;
        if report.recording.complete {
            return Ok(Exit::Success);
        }
        let (name, requests) = (name(), report.recording.requests);
        eprintln!(
            "warning: {name} was cut off; the report is about the {requests} requests before"
        );
        Ok(Exit::Partial)
    }

    /// Refuses to write the report over a file that is read.
    fn check_out(&self) -> anyhow::Result<()> {
        // A file that does not exist yet is none of the inputs.
        let Some(Ok(out)) = self.out.as_ref().map(fs::canonicalize) else {
            return Ok(());
        };
        let inputs = [&self.recording, &self.rules].into_iter();
        let inputs = inputs.chain(&self.against).chain(&self.mapping);
        for input in inputs {
            if fs::canonicalize(input).is_ok_and(|input| input == out) {
                let input = input.display();
                anyhow::bail!("--out {input}: this file is read; choose another name");
            }
        }
        Ok(())
    }

    /// The recording, or the log that is read like one.
    fn events(&self) -> anyhow::Result<Box<dyn Events>> {
        let name = || self.recording.display().to_string();
        let mapping = self.mapping.as_deref().map(Mapping::load).transpose()?;
        let file = regular_file::open(&self.recording).with_context(name)?;
        Ok(match mapping {
            Some(mapping) => {
                for warning in &mapping.warnings {
                    eprintln!("{}\n", warning.render(stderr_is_coloured()));
                }
                import::open(file, mapping).with_context(name)?
            }
            None => Box::new(Reader::new(file).with_context(name)?),
        })
    }

    /// Names the lines of a log that are not replayed.
    fn warn_unread(&self, summary: &Summary) {
        let name = self.recording.display();
        for unread in &summary.first_unread {
            let why = visible(&unread.why);
            eprintln!("warning: {name}:{}: {why}", unread.line);
        }
        let unread = summary.unread;
        if unread > 0 {
            eprintln!("warning: {name}: {unread} lines cannot be read; they are not replayed");
        }
    }

    /// The rules at this path.
    fn side(&self, path: &Path) -> anyhow::Result<Side> {
        let rules = load_rules(path, &self.settings)?;
        let path = path.to_owned();
        Ok(Side { path, rules })
    }

    /// The settings of the recording with those of --set.
    fn settings_for(&self, recorded: &[String]) -> anyhow::Result<Settings> {
        if self.set.is_empty() {
            let file = self.recording.display();
            return Settings::from_flags(recorded).map_err(|error| {
                anyhow!("{file}: the recording was made with a setting that this tollgate does not know: {error}")
            });
        }
        let replaced = |flag: &str| self.set.iter().any(|(name, _)| name == flag);
        let mut flags: Vec<OsString> = Vec::new();
        let mut recorded = recorded.iter().peekable();
        while let Some(flag) = recorded.next() {
            let name = flag.trim_start_matches("--");
            let (name, has_value) = match name.split_once('=') {
                Some((name, _)) => (name, true),
                None => (name, false),
            };
            let value = recorded.next_if(|next| !has_value && !next.starts_with("--"));
            if !replaced(name) {
                flags.push(flag.into());
                flags.extend(value.map(OsString::from));
            }
        }
        let set = self.set.iter();
        flags.extend(set.map(|(name, value)| format!("--{name}={value}").into()));
        Settings::from_flags(flags).map_err(|error| anyhow!("--set: {}", settings_error(&error)))
    }

    fn write(&self, report: &ReplayReport) -> anyhow::Result<()> {
        let text = match self.format {
            Format::Text => text::render(report),
            Format::Json => serde_json::to_string_pretty(report)?,
            Format::Html => page::page(report),
        };
        match &self.out {
            None => print_line!("{}", text.trim_end()),
            Some(path) => {
                // It has keys of callers, as the recording has.
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                let written = options.open(path);
                written
                    .and_then(|mut file| writeln!(file, "{}", text.trim_end()))
                    .with_context(|| path.display().to_string())?;
                eprintln!("wrote {}", path.display());
            }
        }
        Ok(())
    }
}
