//! `tollgate test FILE…`: runs tests of rules on a simulated clock.
//!
//! What it deliberately does not do: start a service, or read the time.

mod cases;
mod json;
mod junit;
mod session;
mod tap;
mod text;
mod watch;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::session::Session;
use super::{Exit, output};

/// Arguments of `test`.
#[derive(Args, Debug)]
pub(super) struct TestCommand {
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
    pub(super) fn run(self) -> Exit {
        let mut session = self.run_once();
        while self.watch && !output::is_lost() {
            watch::wait_for_change(&session);
            eprintln!("\na file has changed; running again");
            session = self.run_once();
        }
        if session.passed() {
            Exit::Success
        } else {
            Exit::Failure
        }
    }

    /// Runs all tests, and prints the results.
    fn run_once(&self) -> Session {
        let session = Session::run(&self.files, self.filter.as_deref(), self.coverage_min);
        match self.format {
            Format::Text => text::print(&session),
            Format::Json => print_line!("{:#}", json::report(&session)),
            Format::Junit => print_line!("{}", junit::report(&session)),
            Format::Tap => print_line!("{}", tap::report(&session)),
        }
        session
    }
}
