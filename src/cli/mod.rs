//! Command line: one file for each command, one type for exit codes.
//!
//! Data goes to stdout, messages to stderr. Colour and symbols never carry meaning alone.
//!
//! What it deliberately does not do: anything that a library user could need. A command is a few
//! calls of other modules.

/// Prints a line to stdout like `println!`, but a closed stdout ends the process instead of
/// panicking.
macro_rules! print_line {
    ($($line:tt)*) => {
        $crate::cli::write_line(format_args!($($line)*))
    };
}

mod check;
mod descriptor_argument;
mod exit;
mod explain;
mod hit;
mod logging;
mod rules_argument;
mod schema;
mod serve;
mod tls_options;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;

use clap::{Parser, Subcommand};

pub use self::exit::Exit;
use crate::settings::Settings;

/// A rate-limit decision service that speaks Envoy's protocol
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer rate-limit requests by the rules in RULES
    Serve(Box<Settings>),
    /// Check rules files and say everything that is wrong with them
    Check(check::Check),
    /// Show which rule applies to a descriptor, and why
    Explain(explain::Explain),
    /// Send requests to a running service and print the answers
    Hit(hit::Hit),
    /// Print the JSON Schema of a rules file, for editors
    Schema,
}

/// Prints a line. If stdout is closed (`tollgate hit … | head`), there is nothing left to do.
fn write_line(line: std::fmt::Arguments<'_>) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(i32::from(Exit::Success.code()));
    }
}

/// Runs the command line `args`. The first argument is the name of the program.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    let mut args: Vec<OsString> = args.into_iter().collect();
    // The reference's image runs `/bin/ratelimit` without arguments; our image has a link of that
    // name.
    if let [program] = args.as_slice()
        && Path::new(program).file_name() == Some(OsStr::new("ratelimit"))
    {
        args.push("serve".into());
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stdout cannot be reported, and --help is not a failure.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            };
        }
    };
    let run = match cli.command {
        Command::Serve(settings) => serve::run(*settings),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Hit(hit) => hit.run(),
        Command::Schema => schema::run(),
    };
    run.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        Exit::Failure
    })
}
