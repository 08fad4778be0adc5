//! `tollgate completions`: prints the completions of a shell. The packages ship the same.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::{Cli, Exit};

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub(super) struct Completions {
    /// The shell that loads them
    #[arg(value_enum)]
    shell: Shell,
}

/// The completions of a shell.
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "tollgate", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

// === impl Completions ===

impl Completions {
    /// Prints the completions.
    pub(super) fn run(&self) -> Exit {
        print_line!("{}", completions(self.shell).trim_end());
        Exit::Success
    }
}
