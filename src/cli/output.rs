//! Output of commands: stdout for data, stderr for messages, what happens when a write fails, and
//! exit codes.
//!
//! A reader that stops early (`tollgate check … | head -1`) changes no exit code: a command does
//! all its work, and what is left of its output is dropped. Output that is lost for another reason,
//! such as a full disk, is reported, and the command fails.

use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// Every way a command can end. Scripts may rely on the codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Success; for `hit`: allowed.
    Success = 0,
    /// Failure: invalid rules, a port in use, a missing file.
    Failure = 1,
    /// Invalid command line.
    Usage = 2,
    /// `hit`: over limit.
    OverLimit = 3,
    /// No service answered, or it answered with an error.
    NoAnswer = 4,
    /// `hit --expect-limit`: no limit matched a descriptor. `explain`: no rules have the domain.
    NoLimit = 5,
    /// Only a part was done: `convert` left out what has no equal, or some replicas of
    /// `top --once`, `reset` or `shadow` did not answer.
    Partial = 6,
}

/// The error of a command that has printed why it ends.
#[derive(Debug, thiserror::Error)]
#[error("the reason was printed")]
pub(super) struct Reported(pub(super) Exit);

/// Every write to stdout succeeded.
const OPEN: u8 = 0;
/// The reader of stdout is gone.
const CLOSED: u8 = 1;
/// A write to stdout failed.
const FAILED: u8 = 2;

static STDOUT: AtomicU8 = AtomicU8::new(OPEN);

/// Prints a line to stdout, unless a line before it was lost.
pub(super) fn print(line: Arguments<'_>) {
    if is_lost() {
        return;
    }
    let Err(error) = writeln!(std::io::stdout(), "{line}") else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        STDOUT.store(CLOSED, Ordering::Relaxed);
    } else {
        STDOUT.store(FAILED, Ordering::Relaxed);
        print_message(format_args!("error: cannot write to stdout: {error}"));
    }
}

/// Prints a line to stderr. If stderr is closed, nobody reads it.
pub(super) fn print_message(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether output was lost: what would print without end stops then.
pub(super) fn is_lost() -> bool {
    STDOUT.load(Ordering::Relaxed) != OPEN
}

/// The exit code of a command that ends with `exit`: lost output is no success.
pub(super) fn exit(exit: Exit) -> Exit {
    match exit {
        Exit::Success if STDOUT.load(Ordering::Relaxed) == FAILED => Exit::Failure,
        exit => exit,
    }
}

/// A number with its noun: `1 key`, `12 keys`.
pub(super) fn counted(number: impl Copy + Display, noun: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A verdict on stdout: on a terminal green if the request passes, and red if not.
pub(super) fn painted(word: String, passes: bool) -> String {
    if has_no_color() || !std::io::stdout().is_terminal() {
        return word;
    }
    let colour = if passes { "32" } else { "31;1" };
    format!("\u{1b}[{colour}m{word}\u{1b}[0m")
}

/// Whether stderr shows colours: only a terminal does, and not with `NO_COLOR`.
pub(super) fn stderr_is_coloured() -> bool {
    !has_no_color() && std::io::stderr().is_terminal()
}

/// Whether the environment has `NO_COLOR`.
pub(super) fn has_no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
