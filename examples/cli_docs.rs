//! Writes shell completions and man pages from the declaration of the command line.
//!
//! `make docs-cli` runs it before a package is built: `cli_docs FOLDER` writes
//! `FOLDER/completions` (`tollgate` for bash, `_tollgate` for zsh, `tollgate.fish`) and `FOLDER/man`
//! (`tollgate.1` and one page for each subcommand, such as `tollgate-serve.1`).
//!
//! Completions are those of `tollgate completions`. Why man pages have no subcommand: the library
//! that writes them stays out of the binary.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;
use tollgate::cli::{self, Cli};

/// The shells for which completions are written, and the names that Debian loads.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "tollgate"),
    (Shell::Zsh, "_tollgate"),
    (Shell::Fish, "tollgate.fish"),
];

/// Writes all files below `folder`, in place of those of an earlier run.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let (completions, man) = (folder.join("completions"), folder.join("man"));
    for folder in [&completions, &man] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    for (shell, name) in COMPLETIONS {
        fs::write(completions.join(name), cli::completions(shell))?;
    }
    clap_mangen::generate_to(Cli::command(), man)
}

#[cfg_attr(test, allow(dead_code))] // a test includes this file
fn main() -> ExitCode {
    let folder: Option<OsString> = std::env::args_os().nth(1);
    let Some(folder) = folder.map(PathBuf::from) else {
        eprintln!("error: no folder given; run: cargo run --example cli_docs -- FOLDER");
        return ExitCode::from(2);
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write below {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
