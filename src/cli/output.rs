//! Output of commands: stdout for data, stderr for messages, and what happens when a write fails.
//!
//! A reader that stops early (`tollgate check … | head -1`) changes no exit code: a command does
//! all its work, and what is left of its output is dropped. Output that is lost for another reason,
//! such as a full disk, is reported, and the command fails.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};

use super::Exit;

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
