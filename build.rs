//! Passes the commit and the target to `tollgate --version`.
//!
//! The Rust of `proto/` is committed below `proto/generated`; `proto/codegen` generates it.

#[path = "build/commit.rs"]
mod commit;

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/commit.rs");
    name_version();
}

/// Sets `BUILD_COMMIT` and `BUILD_TARGET` for `tollgate --version`. Cargo also sets them for
/// processes that it runs, so they are not named like `TOLLGATE_COMMIT`, which this script reads.
/// A debug build does not read `.git`: each commit would compile the crate again.
fn name_version() {
    println!("cargo:rerun-if-env-changed=TOLLGATE_COMMIT");
    let variable = |name| std::env::var(name).ok();
    let named = variable("TOLLGATE_COMMIT");
    let debug = named.is_none() && variable("PROFILE").as_deref() == Some("debug");
    let commit = if debug {
        "unknown (debug build)".to_owned()
    } else {
        let found = commit::of_sources(Path::new("."), named.as_deref());
        for file in found.watched {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        found.hash.unwrap_or_else(|| "unknown".to_owned())
    };
    println!("cargo:rustc-env=BUILD_COMMIT={commit}");
    let target = variable("TARGET").unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=BUILD_TARGET={target}");
}
