//! Command line: `serve`, the commands beside it (`tools`), and one type for exit codes.
//!
//! Data goes to stdout, messages to stderr. Colour and symbols never carry meaning alone.
//!
//! What it deliberately does not do: anything that a library user could need. A command is a few
//! calls of other modules.

/// Prints a line to stdout. The standard library's `println!` panics if stdout is closed.
macro_rules! print_line {
    ($($line:tt)*) => {
        $crate::cli::output::print(format_args!($($line)*))
    };
}

/// Replaces the macro of the standard library, which panics if stderr is closed.
macro_rules! eprintln {
    ($($line:tt)*) => {
        $crate::cli::output::print_message(format_args!($($line)*))
    };
}

mod logging;
mod output;
mod serve;
#[cfg(feature = "tools")]
mod tools;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::{Shell, generate};
use rustix::process::Signal;
use tokio::signal::unix::SignalKind;

pub use self::output::Exit;
use self::output::Reported;
#[cfg(feature = "tools")]
pub use self::tools::known_settings;
use crate::settings::{LogFormat, Settings, help};

/// The version, the commit and the target, for `--version`. `-V` prints the version alone.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("BUILD_COMMIT"),
    "\ntarget: ",
    env!("BUILD_TARGET")
);

const SERVE_AFTER_HELP: &str = "\
These are the settings that most installations set.
All settings: tollgate serve --help, man tollgate-serve, docs/settings.md";

/// Rate limit service for Envoy and other programs: a drop-in replacement for envoyproxy/ratelimit
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    long_version = LONG_VERSION,
    arg_required_else_help = true,
    max_term_width = help::COLUMNS_MAX,
    mut_subcommands(help::complete),
    after_help = "Help of a command: tollgate COMMAND --help\nFirst step: tollgate serve rules.yaml"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve rate limit decisions by the rules in RULES
    ///
    /// Every setting is a flag and an environment variable. A flag overrides its variable.
    #[command(after_help = SERVE_AFTER_HELP, after_long_help = help::legend())]
    Serve(Box<Settings>),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(Box<tools::Tool>),
    /// Print the completions of a shell
    Completions {
        /// The shell that loads them
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// The completions of a shell. The packages ship the same.
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "tollgate", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The environment variable that a rejected value comes from. clap names only the flag.
fn variable_of(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let flag = argument.split([' ', '=']).next()?;
    let typed = args.iter().filter_map(|argument| argument.to_str());
    if typed
        .filter_map(|it| it.split('=').next())
        .any(|it| it == flag)
    {
        return None;
    }
    let cli = Cli::command();
    let mut settings = cli.get_subcommands().flat_map(clap::Command::get_arguments);
    let setting = settings.find(|setting| setting.get_long() == flag.strip_prefix("--"))?;
    let variable = setting.get_env()?;
    std::env::var_os(variable)?;
    Some(variable.to_string_lossy().into_owned())
}

/// Parses a command line.
fn parse(args: &[OsString]) -> Result<Command, clap::Error> {
    #[cfg(feature = "tools")]
    let args = tools::with_new_names(args);
    Cli::try_parse_from(args).map(|cli| cli.command)
}

/// Makes a write beyond the limit of a file's size (`ulimit -f`) fail, as one to a full disk. Its
/// signal would end the process. tokio keeps the handler when the runtime has ended.
fn survive_file_size_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    if let Ok(runtime) = runtime {
        let _context = runtime.enter();
        let kind = SignalKind::from_raw(Signal::XFSZ.as_raw());
        drop(tokio::signal::unix::signal(kind));
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
    survive_file_size_limit();
    let log_format = logging::requested_format(&args);
    let command = match parse(&args) {
        Ok(command) => command,
        Err(error) if error.use_stderr() && log_format == LogFormat::Json => {
            let text = error.render().to_string();
            logging::report(log_format, "the command line is invalid", &text);
            return Exit::Usage;
        }
        Err(error) => {
            // A closed stdout cannot be reported, and --help is not a failure.
            let _ = error.print();
            if let Some(variable) = variable_of(&error, &args) {
                eprintln!("The value comes from the environment variable {variable}.");
            }
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            };
        }
    };
    let run = match command {
        Command::Serve(settings) => serve::run(*settings),
        #[cfg(feature = "tools")]
        Command::Tool(tool) => tool.run(),
        Command::Completions { shell } => {
            print_line!("{}", completions(shell).trim_end());
            Ok(Exit::Success)
        }
    };
    let exit = run.unwrap_or_else(|error| {
        if let Some(Reported(exit)) = error.downcast_ref() {
            return *exit;
        }
        let text = match log_format {
            LogFormat::Text => format!("error: {error:#}"),
            LogFormat::Json => format!("{error:#}"),
        };
        logging::report(log_format, "tollgate ended because of an error", &text);
        Exit::Failure
    });
    output::exit(exit)
}
