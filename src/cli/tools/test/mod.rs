//! `tollgate test FILE…`: runs tests of rules on a simulated clock.
//!
//! What it deliberately does not do: start a service, or read the time.

mod formats;
mod session;
mod text;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::session::Session;
pub use self::session::known_settings;
use crate::cli::{Exit, output};
use crate::rule_tests::WatchedPath;

/// The time between two polls of `--watch`.
const POLL: Duration = Duration::from_millis(200);

/// Arguments of `test`.
#[derive(Args, Debug)]
pub(crate) struct TestCommand {
    /// Files of tests, or directories: their files whose names end in .test.yaml
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Run only tests whose names contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Fail if the tests reach less than this share of the rules, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    coverage_min: Option<f64>,

    /// Run again whenever a file of tests or a rules file changes
    #[arg(long)]
    watch: bool,
}

/// An output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs, as docs/rule-tests.md describes
    Json,
    /// JUnit's XML, for CI systems
    Junit,
    /// Test Anything Protocol, version 14
    Tap,
}

/// A percentage.
fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("use a number from 0 to 100, such as 90".to_owned()),
    }
}

// === impl TestCommand ===

impl TestCommand {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut session = self.run_once()?;
        while self.watch && !output::is_lost() {
            wait_for_change(&session);
            eprintln!("\na file has changed; running again");
            session = self.run_once()?;
        }
        Ok(if session.passed() {
            Exit::Success
        } else {
            Exit::Failure
        })
    }

    /// Runs all tests, and prints the results.
    fn run_once(&self) -> anyhow::Result<Session> {
        let session = Session::run(&self.files, self.filter.as_deref(), self.coverage_min)?;
        match self.format {
            Format::Text => text::print(&session),
            Format::Json => print_line!("{:#}", formats::json(&session)),
            Format::Junit => print_line!("{}", formats::junit(&session)),
            Format::Tap => print_line!("{}", formats::tap(&session)),
        }
        if let Some(filter) = self.filter.as_ref().filter(|_| session.is_filtered_out()) {
            eprintln!("error: no test has {filter:?} in its name; correct --filter");
        }
        Ok(session)
    }
}

/// Returns when a file has changed since the run used it. Files are polled by their stamps, as
/// rules are. A change counts when two polls agree, so that a file that is being written is left
/// alone.
fn wait_for_change(session: &Session) {
    let poll = || -> Vec<_> {
        let paths = session.watched.iter();
        paths
            .map(|watched| WatchedPath::at(&watched.path))
            .collect()
    };
    let mut seen = poll();
    loop {
        thread::sleep(POLL);
        let look = poll();
        if look != session.watched && look == seen {
            return;
        }
        seen = look;
    }
}
