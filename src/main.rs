//! The binary: parse, run, exit code.
//!
//! It brings its own allocator: HTTP/2 takes and gives back a dozen small pieces of memory for each stream, and mimalloc
//! does that in half the time of the system's (`docs/performance.md`). It asks for no huge pages: with them each thread's
//! first piece took 2 MiB, 15 MB in all beside 3, and a check was no cheaper for it, at ten million keys neither. And it is
//! mimalloc's second line: under the third the blocks of the bucket tables took a fifth more than they are.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::run(std::env::args_os()).into()
}
