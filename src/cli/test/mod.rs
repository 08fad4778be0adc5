//! `tollgate test FILE…`: runs tests of rules on a simulated clock.
//!
//! What it deliberately does not do: start a service, or read the time.

mod session;
mod text;

use std::path::PathBuf;

use clap::Args;

use self::session::Session;
use super::Exit;

/// Arguments of `test`.
#[derive(Args, Debug)]
pub(super) struct TestCommand {
    /// Files of tests, or directories of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Run only tests whose names contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Fail if the tests reach less than this share of the rules, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    coverage_min: Option<f64>,
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
        let session = Session::run(&self.files, self.filter.as_deref());
        text::print(&session, self.coverage_min);
        if session.passed(self.coverage_min) {
            Exit::Success
        } else {
            Exit::Failure
        }
    }
}
