//! The binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate::cli::run(std::env::args_os()).into()
}
