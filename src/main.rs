//! The binary: parse, run, exit code.
//!
//! It uses jemalloc. HTTP/2 allocates and frees a dozen small blocks for each stream, and jemalloc
//! does that in half the time of the system's allocator. A background thread of jemalloc returns
//! freed pages to the system within some ten seconds, even without traffic: memory that an attack
//! or a reload took must not add to the next one in a container
//! (`tests/memory/released_memory.rs`). `.cargo/config.toml` configures it.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    tollgate::cli::run(std::env::args_os()).into()
}
